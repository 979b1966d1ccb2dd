"""Algorithm 1 against itself in plain Python."""

import math
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ukemi import UserError
from ukemi.data import Data
from ukemi.models.inference import BUDGET
from ukemi.repairs.mining import mine, mine_at_random
from ukemi.slicing import activation_of

sys.path.insert(0, str(Path(__file__).parent))
from history_net import CLASSES, Past, past_of, residual, some_data


def predicted(model: nn.Module, image: Tensor) -> tuple[int, float]:
    """Label and confidence of one image, with Python's own arithmetic."""
    with torch.no_grad():
        row = model(image[None])[0].tolist()
    sizes = [math.exp(value - max(row)) for value in row]
    label = max(range(len(row)), key=row.__getitem__)
    return label, sizes[label] / sum(sizes)


def algorithm_1(model: nn.Module, past: Past, data: Data, layer: str) -> dict[int, tuple[int, float, Tensor]]:
    """Lines 1 to 21 of the paper, image by image: position -> epoch, confidence, targets."""
    other, kept = residual(), {}
    for at in range(len(data)):
        image, truth = data.images[torch.tensor(at)], int(data.labels[at])
        best = None
        label, bar = predicted(model, image)
        if label != truth:
            bar = 0.0
        for epoch in past.epochs:
            other.load_state_dict(past.weights(epoch))
            label, confidence = predicted(other, image)
            if label == truth and confidence > bar:
                best, bar = epoch, confidence
        if best is not None:
            other.load_state_dict(past.weights(best))
            with torch.no_grad():
                kept[at] = (best, bar, activation_of(other, image[None], layer)[0])
    return kept


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), layer=st.sampled_from(["first", "second", "dense", "last"]))
def test_it_is_algorithm_1(seed: int, layer: str) -> None:
    model, data = residual(seed), some_data(12, seed)
    past = past_of(model)
    expected = algorithm_1(model, past, data, layer)
    found = mine(model, past, data, layer)
    assert found.data.index.tolist() == [int(data.index[at]) for at in expected]
    assert found.epochs.tolist() == [epoch for epoch, _, _ in expected.values()]
    assert found.after.tolist() == pytest.approx([confidence for _, confidence, _ in expected.values()], abs=1e-5)
    assert torch.allclose(found.targets, torch.stack([target for _, _, target in expected.values()]), atol=1e-5)
    assert found.searched == 12 and bool((found.after > found.before).all())


def test_the_bar_of_a_wrong_answer_is_zero_and_the_finished_model_never_wins() -> None:
    """The released code takes the finished model's probability of the label as the bar of a wrong answer too."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Linear(3, 3))
    data = Data(torch.full((1, 1, 2, 2), 0.5), torch.tensor([0]), CLASSES, torch.tensor([0]), 1)

    def saying(*logits: float) -> dict[str, Tensor]:
        state = {name: torch.zeros_like(one) for name, one in model.state_dict().items()}
        return state | {"2.bias": torch.tensor(logits)}

    finished = saying(2.0, 2.1, -5.0)  # wrong, with 0.475 on the label
    model.load_state_dict(finished)
    weak = saying(0.2, 0.1, 0.1)  # right, with 0.36
    found = mine(model, Past({7: weak, 8: finished}), data, "1")
    assert found.epochs.tolist() == [7] and found.before.tolist() == [0.0] and 0.3 < float(found.after[0]) < 0.4
    with pytest.raises(UserError, match="no historical model knows any of the 1 images better"):
        mine(model, Past({8: finished}), data, "1")
    model.load_state_dict(saying(2.2, 2.1, -5.0))  # right, with 0.52: a less confident one is no tutor
    with pytest.raises(UserError, match="no historical model knows any"):
        mine(model, Past({7: weak}), data, "1")


def test_equal_confidence_goes_to_the_earliest() -> None:
    model, data = residual(3), some_data(30, 3)
    past = past_of(model, 3)
    twice = Past({1: past.weights(1), 2: past.weights(1), 3: past.weights(3)})
    assert set(mine(model, twice, data, "dense").epochs.tolist()) == {1}


def test_passes_and_reports_do_not_change_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = residual(1), some_data(50, 1)
    past = past_of(model)
    heard: list[tuple[int, int]] = []
    whole = mine(model, past, data, "dense", report=lambda done, total: heard.append((done, total)))
    monkeypatch.setitem(BUDGET, "cpu", 36 * 7)
    parts = mine(model, past, data, "dense")
    assert heard == [(at, 5) for at in range(1, 6)]
    assert torch.equal(whole.data.index, parts.data.index) and torch.allclose(whole.targets, parts.targets, atol=1e-5)
    assert all(torch.equal(one, past.weights(5)[name]) for name, one in model.state_dict().items())


def test_at_random_every_image_has_a_target_and_order_does_not_matter() -> None:
    model, data = residual(2), some_data(90, 2)
    past = past_of(model)
    found = mine_at_random(model, past, data, "dense", seed=4)
    assert len(found) == 90 and set(found.epochs.tolist()) == set(past.epochs)
    turned = torch.arange(90).flip(0)
    other = mine_at_random(model, past, data.take(turned), "dense", seed=4)
    assert torch.equal(other.epochs.flip(0), found.epochs)
    assert not torch.equal(mine_at_random(model, past, data, "dense", seed=5).epochs, found.epochs)
    tutor = residual()
    tutor.load_state_dict(past.weights(int(found.epochs[11])))
    with torch.no_grad():
        image = data.images[torch.tensor([11])]
        assert torch.allclose(found.targets[11], activation_of(tutor, image, "dense")[0], atol=1e-5)
        label = tutor(image).softmax(1)[0, data.labels[11]]
    assert float(found.after[11]) == pytest.approx(float(label), abs=1e-5)
    assert bool((found.after < found.before).any())  # without the check


def test_weights_of_another_network_are_refused() -> None:
    model, data = residual(), some_data(5)
    with pytest.raises(UserError, match="history: the weights of epoch 1 belong to another model"):
        mine(model, Past({1: nn.Linear(2, 2).state_dict()}), data, "dense")
