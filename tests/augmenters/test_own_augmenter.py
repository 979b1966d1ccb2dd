"""Anyone's own augmenter by name."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ukemi import T3, Augmenter, Random, Space, UserError
from ukemi.augmenters import AUGMENTERS


class Darker(Augmenter):
    def __init__(self, space: Space, *, seed: int, flips: bool) -> None:
        super().__init__(seed=seed, flips=flips)

    def augment(self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int) -> Tensor:
        return images / 2


def number(space: Space, *, seed: int, flips: bool) -> int:
    return 3


def built(of: Any) -> Augmenter:
    return AUGMENTERS["own"](of=of).build(T3, 5, True)  # type: ignore[call-arg]


@pytest.mark.parametrize("of", [Darker, f"{__name__}:Darker"])
def test_it_is_built_with_space_seed_and_flips(of: Any) -> None:
    augmenter = built(of)
    assert isinstance(augmenter, Darker) and augmenter.seed == 5 and augmenter.flips
    images = torch.rand(3, 1, 4, 4)
    assert torch.equal(augmenter(nn.Identity(), images, torch.zeros(3).long(), torch.arange(3), 0), images / 2)


def test_a_built_in_class_gives_what_it_gives(tiny_net: nn.Module) -> None:
    images, labels, index = torch.rand(6, 1, 28, 28), torch.zeros(6).long(), torch.arange(6)
    plain = Random(T3, seed=5, flips=True)(tiny_net, images, labels, index, 2)
    assert torch.equal(built("ukemi:Random")(tiny_net, images, labels, index, 2), plain)


class Dimmed(Darker):
    def __init__(self, space: Space, *, seed: int, flips: bool, share: float = 0.5) -> None:
        super().__init__(space, seed=seed, flips=flips)
        self.share = share


def test_further_settings_are_its_arguments_and_survive_a_file() -> None:
    config = AUGMENTERS["own"](of=Dimmed, share=0.25)  # type: ignore[call-arg]
    made = config.build(T3, 5, True)
    assert isinstance(made, Dimmed) and made.share == 0.25
    again = AUGMENTERS["own"](**config.model_dump(mode="json")).build(T3, 5, True)
    assert isinstance(again, Dimmed) and again.share == 0.25


def test_without_a_class_there_is_nothing_to_train_with() -> None:
    with pytest.raises(UserError, match=r"^augmenter\.of: the class or function of your own is needed, as package\."):
        built(None)


@pytest.mark.parametrize("of", [Dimmed, "ukemi:Random"])
@pytest.mark.parametrize("name", ["shares", "seed"])
def test_a_setting_that_it_does_not_take_is_named(of: Any, name: str) -> None:
    with pytest.raises(UserError, match=rf"^augmenter\.{name} is no setting of (Dimmed|Random)\.$"):
        AUGMENTERS["own"](of=of, **{name: 3}).build(T3, 5, True)  # type: ignore[call-arg]


class Scoring(Darker):
    def augment(self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int) -> Tensor:
        model(images)
        model.train(epoch > 0)  # whatever mode it leaves behind
        return images


@pytest.mark.parametrize("training", [True, False])
def test_what_it_asks_of_the_model_leaves_no_trace_in_it(training: bool) -> None:
    """An own method that scores would else move BatchNorm's statistics, and win or lose a comparison by that."""
    model = nn.Sequential(nn.BatchNorm2d(1), nn.Dropout(0.5), nn.Flatten(), nn.Linear(16, 2)).train(training)
    model[1].train(not training)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    built(Scoring)(model, torch.rand(3, 1, 4, 4), torch.zeros(3).long(), torch.arange(3), 0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes


@pytest.mark.parametrize(
    ("of", "said"),
    [
        ("plain", "augmenter.of: 'plain' is not of the form package.module:name"),
        ("nowhere:thing", "augmenter.of: 'nowhere:thing' can't be imported"),
        ("ukemi:T3", "augmenter.of: 'ukemi:T3' is a Space, not a function"),
        (f"{__name__}:number", "augmenter.of: a ukemi.Augmenter is needed, but .*number gave a int"),
        (
            "torch.nn:Linear",
            r"Linear is called as Linear\(space, seed=…, flips=…\), which it does not take \(missing a req",
        ),
        (3, "augmenter.of: a name or a function is needed, but 3 was given"),
    ],
)
def test_what_is_no_augmenter_is_named(of: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        built(of)


@pytest.mark.parametrize(
    ("makes", "said"),
    [
        (lambda images: images.nope(), r"^augmenter: augment failed \(AttributeError: .*, test_own_aug.* line \d+\)"),
        (lambda images: None, r"augmenter: Wrong should give images \[3, C, H, W\] in float, but it gave a NoneType"),
        (lambda images: images[:1], r"but it gave torch.float32 \[1, 1, 4, 4\]"),
        (lambda images: images.flatten(1), r"but it gave torch.float32 \[3, 16\]"),
        (lambda images: images > 0.5, r"but it gave torch.bool"),
        (lambda images: images * 3 + 1, r"augmenter: Wrong: pixels should lie in \[0, 1\]"),
    ],
)
def test_what_it_gives_wrongly_is_named(makes: Any, said: str) -> None:
    class Wrong(Darker):
        def augment(self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int) -> Tensor:
            return makes(images)

    with pytest.raises(UserError, match=said):
        built(Wrong)(nn.Identity(), torch.rand(3, 1, 4, 4), torch.zeros(3).long(), torch.arange(3), 0)


def test_memory_and_what_fails_later_are_raised_as_they_are() -> None:
    """Ranks agree on what to do without memory, and a step that can't be captured runs launch by launch."""

    class Failing(Darker):
        error: Exception | None = torch.OutOfMemoryError("no memory")

        def augment(self, model: nn.Module, images: Tensor, labels: Tensor, index: Tensor, epoch: int) -> Tensor:
            if self.error is not None:
                raise self.error
            return images

    failing, given = built(Failing), (nn.Identity(), torch.rand(3, 1, 4, 4), torch.zeros(3).long(), torch.arange(3), 0)
    with pytest.raises(torch.OutOfMemoryError, match="no memory"):
        failing(*given)
    failing.error = None
    failing(*given)
    failing.error = RuntimeError("capturing")
    with pytest.raises(RuntimeError, match="capturing"):
        failing(*given)
