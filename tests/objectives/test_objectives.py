"""What every objective must do: one table of objectives, one suite of checks."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from ukemi import UserError
from ukemi.objectives import OBJECTIVES, Consistency, CrossEntropy, Objective, ObjectiveConfig

ALL: dict[str, Callable[[], Objective]] = {
    "cross-entropy": lambda: CrossEntropy(),
    "cross-entropy-smoothed": lambda: CrossEntropy(0.1),
    "consistency": lambda: Consistency(),
    "consistency-l2-both": lambda: Consistency(0.1, kind="l2", labels_on="both"),
    "consistency-clean": lambda: Consistency(labels_on="clean", stop_clean=True),
    "consistency-separate-worst": lambda: Consistency(statistics="separate-worst"),
    "consistency-separate-clean": lambda: Consistency(statistics="separate-clean", kind="l2"),
}
every = pytest.mark.parametrize("name", ALL)


def batch(count: int = 8) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images, labels, index, clean images."""
    clean_NCHW = torch.rand(count, 1, 28, 28)
    return clean_NCHW.flip(-2) ** 2, torch.arange(count) % 10, torch.arange(count), clean_NCHW


def attached(name: str, model: nn.Module) -> Objective:
    objective = ALL[name]()
    objective.attach(model)
    return objective


@every
def test_gives_a_loss_per_sample_and_the_logits_of_the_augmented_images(name: str, tiny_net: nn.Module) -> None:
    images, labels, index, clean = batch()
    objective = attached(name, tiny_net.eval())  # each row for itself: no dropout, no batch statistics
    outcome = objective(tiny_net, images, labels, index, 0, clean if objective.wants_clean else None)
    assert outcome.losses.shape == (8,) and outcome.losses.isfinite().all() and (outcome.losses > 0).all()
    assert outcome.losses.dtype == outcome.logits.dtype == torch.float32
    assert torch.allclose(outcome.logits, tiny_net(images), atol=1e-6)


@every
def test_leaves_modes_keys_and_images_alone_and_repeats_itself(name: str, tiny_net: nn.Module) -> None:
    images, labels, index, clean = batch()
    before, keys = (images.clone(), clean.clone()), list(tiny_net.state_dict())
    losses = []
    for _ in range(2):
        model = copy.deepcopy(tiny_net).train()
        objective = attached(name, model)
        torch.manual_seed(3)
        outcome = objective(model, images, labels, index, 0, clean)
        outcome.losses.mean().backward()
        losses.append(outcome.losses)
        assert list(model.state_dict()) == keys and all(module.training for module in model.modules())
        assert all(weight.grad.isfinite().all() for weight in model.parameters())
    assert torch.equal(*losses) and torch.equal(images, before[0]) and torch.equal(clean, before[1])


@every
def test_trains_model_and_extra_together(name: str, tiny_net: nn.Module) -> None:
    objective = attached(name, tiny_net.train())
    extra = objective.extra()
    parameters = list(nn.ModuleList([tiny_net] if extra is None else [tiny_net, extra]).parameters())
    optimiser = torch.optim.SGD(parameters, lr=torch.tensor(0.05), momentum=0.9, fused=True)
    images, labels, index, clean = batch()
    losses = []
    for _ in range(30):
        outcome = objective(tiny_net, images, labels, index, 0, clean)
        optimiser.zero_grad(set_to_none=True)
        outcome.losses.mean().backward()
        optimiser.step()
        losses.append(outcome.losses.mean().item())
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_settings_build_the_objective(name: str) -> None:
    config = OBJECTIVES[name]()
    objective = config.build(0.25)
    assert isinstance(config, ObjectiveConfig) and config.model_dump()["name"] == name
    assert isinstance(objective, Objective) and type(objective).__name__.lower() == name.replace("-", "")
    assert objective.smoothing == 0.25
    assert OBJECTIVES[name](**config.model_dump()) == config


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"kind": "js"}, r"^objective\.kind: .*'kl' or 'l2', but 'js' was given\.$"),
        ({"weight": -1}, r"^objective\.weight: .*greater than or equal to 0, but -1 was given\.$"),
        ({"weight": "much"}, r"^objective\.weight: a number or a fraction .*, but 'much' was given\.$"),
        ({"weight": float("nan")}, r"^objective\.weight: .*finite.*, but nan was given\.$"),
        ({"labels_on": "none"}, r"^objective\.labels-on: .*, but 'none' was given\.$"),
        ({"statistics": "separate"}, r"^objective\.statistics: .*, but 'separate' was given\.$"),
        ({"strength": 2}, r"^objective\.strength is not a known field; known are .*labels-on.*\.$"),
    ],
)
def test_wrong_settings_are_one_sentence(settings: dict[str, object], says: str) -> None:
    with pytest.raises(UserError, match=says):
        Consistency.Config(**settings)
    if "strength" not in settings:
        with pytest.raises(UserError, match=says):
            Consistency(**settings)
