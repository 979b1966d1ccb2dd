"""What holds for every attack by name: they can be called alike, and they refuse alike."""

import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ukemi.attacks import ATTACKS, fgsm, minimal, square
from ukemi.data import labelled
from ukemi.errors import UserError
from ukemi.measures.attacks import under_attack
from ukemi.models.check_head import gives_probabilities

QUICK: dict[str, dict[str, Any]] = {
    "fgsm": {"epsilon": 0.1},
    "bim": {"epsilon": 0.1, "steps": 3},
    "pgd": {"epsilon": 0.1, "steps": 3},
    "deepfool": {"steps": 3},
    "carlini-wagner": {"steps": 5, "searches": 2},
    "jsma": {"gamma": 0.01},
    "square": {"epsilon": 0.1, "steps": 5},
}
Batch = tuple[nn.Module, Tensor, Tensor]


@pytest.fixture
def batch(tiny_net: nn.Module) -> Batch:
    """A network, and 5 images with the labels that it gives."""
    images = torch.rand(5, 1, 28, 28)
    with torch.no_grad():
        return tiny_net, images, tiny_net.eval()(images).argmax(1)


def test_every_attack_is_tried() -> None:
    assert QUICK.keys() == ATTACKS.keys()


@pytest.mark.parametrize("name", ATTACKS)
def test_a_measure_takes_every_function(name: str, batch: Batch) -> None:
    """Also those that draw nothing are told the samples' index."""
    model, images, labels = batch
    attack = partial(ATTACKS[name], **QUICK[name])
    found = under_attack(model, labelled(images, labels, [str(at) for at in range(10)]), attack)
    alone = attack(model, images, labels)
    assert found.accuracy == 1 and torch.equal(found.fooled, alone.success)
    with pytest.raises(UserError, match=r"^index: one whole number per image, \[5\], is needed"):
        attack(model, images, labels, index=torch.arange(4))


class Writing(nn.Module):
    """Writes into its images before the network sees them, or into its own weights."""

    def __init__(self, net: nn.Module, images: bool) -> None:
        super().__init__()
        self.net, self.images, self.scale = net, images, nn.Parameter(torch.ones(1))

    def forward(self, images: Tensor) -> Tensor:
        written = images if self.images else self.scale
        written /= 2
        return self.net(images)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_model_that_writes_into_its_images_is_named(name: str, batch: Batch) -> None:
    model, images, labels = batch
    with pytest.raises(UserError, match=r"^model: it writes into the images that it is given \(.*\); let it work on"):
        ATTACKS[name](Writing(model, images=True), images, labels, **QUICK[name])


def test_what_else_a_model_fails_by_is_told_as_it_is(batch: Batch) -> None:
    model, images, labels = batch
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        fgsm(Writing(model, images=False), images, labels, epsilon=0.1)


@pytest.mark.parametrize("name", ATTACKS)
def test_pixels_of_another_type_than_the_weights_are_named(name: str, batch: Batch) -> None:
    model, images, labels = batch
    said = r"^images: they are torch.float64, but the model's weights are torch.float32; make them alike"
    with pytest.raises(UserError, match=said):
        ATTACKS[name](model, images.double(), labels, **QUICK[name])

    class Casting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = model

        def forward(self, images: Tensor) -> Tensor:
            out: Tensor = self.net(images.float())
            return out

    assert ATTACKS[name](Casting(), images.double(), labels, **QUICK[name]).images.dtype == torch.float64


@pytest.mark.parametrize(("given", "kind"), [(None, "NoneType"), (lambda images: images, "function"), ("net", "str")])
@pytest.mark.parametrize("name", ATTACKS)
def test_what_is_no_module_is_named(name: str, given: Any, kind: str, batch: Batch) -> None:
    _, images, labels = batch
    with pytest.raises(UserError, match=rf"^model: a torch.nn.Module is needed, but a {kind} was given\.$"):
        ATTACKS[name](given, images, labels, **QUICK[name])


@pytest.mark.parametrize("name", ATTACKS)
def test_settings_of_the_wrong_kind_are_named(name: str, batch: Batch) -> None:
    model, images, labels = batch
    takes = inspect.signature(ATTACKS[name]).parameters
    wrong = dict.fromkeys(("steps", "restarts", "searches", "candidates"), 2.5) | {"steps": True}
    for field, given in wrong.items():
        if field in takes:
            with pytest.raises(UserError, match=rf"^{field}: a whole number is needed, but {given} was given\.$"):
                ATTACKS[name](model, images, labels, **{**QUICK[name], field: given})
    for field in ("step_size", "overshoot", "confidence", "rate", "initial", "theta", "gamma", "area"):
        if field in takes:
            with pytest.raises(UserError, match=rf"^{field}: a number is needed, but '2/255' was given\.$"):
                ATTACKS[name](model, images, labels, **{**QUICK[name], field: "2/255"})


class AddingUp(nn.Module):
    """Logits that add up to 1 for grey of 0.3, and for no other."""

    def forward(self, images: Tensor) -> Tensor:
        grey = images.flatten(1).mean(1)
        return torch.stack([1 - grey, grey + 5 * (grey - 0.3)], 1)


@pytest.mark.parametrize("name", ATTACKS)
def test_logits_of_one_image_that_add_up_to_1_are_no_probabilities(name: str) -> None:
    image, label = torch.full((1, 1, 20, 20), 0.3), torch.tensor([0])
    assert ATTACKS[name](AddingUp(), image, label, **QUICK[name]).success.shape == (1,)
    assert not gives_probabilities(AddingUp(), image)
    softmax = nn.Sequential(AddingUp(), nn.Softmax(1))
    assert gives_probabilities(softmax, image)
    with pytest.raises(UserError, match=r"^model: its outputs look like probabilities"):
        ATTACKS[name](softmax, image, label, **QUICK[name])


class Viewing(nn.Module):
    """Lays out its images by `view(N, -1)`, which torch refuses for no images."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(784, 10)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(images.view(len(images), -1))
        return logits


@pytest.mark.parametrize("name", ATTACKS)
def test_no_images_are_no_mistake_for_a_model_that_could_not_take_them(name: str) -> None:
    found = ATTACKS[name](Viewing(), torch.rand(0, 1, 28, 28), torch.arange(0), **QUICK[name])
    assert found.images.shape == (0, 1, 28, 28) and len(found.success) == len(found.distance) == 0


@pytest.mark.parametrize("name", ATTACKS)
def test_no_images_are_no_mistake(name: str, batch: Batch) -> None:
    model, images, labels = batch
    found = ATTACKS[name](model, images[:0], labels[:0], **QUICK[name])
    assert found.images.shape == (0, 1, 28, 28)
    for column in (found.success, found.distance, found.forwards, found.backwards):
        assert column.shape == (0,)


@pytest.mark.parametrize("name", ATTACKS)
def test_images_that_want_a_gradient_get_none(name: str, batch: Batch) -> None:
    model, images, labels = batch
    expected = ATTACKS[name](model, images, labels, **QUICK[name])
    images = images.clone().requires_grad_()
    found = ATTACKS[name](model, images, labels, **QUICK[name])
    assert torch.equal(found.images, expected.images) and not found.images.requires_grad
    assert not found.distance.requires_grad and images.grad is None


@pytest.mark.parametrize("name", ATTACKS)
def test_a_callers_inference_mode_changes_nothing(name: str, batch: Batch) -> None:
    """Neither around the attack, nor where images and labels were made."""
    model, images, labels = batch
    expected = ATTACKS[name](model, images, labels, **QUICK[name])
    with torch.inference_mode():
        inside = ATTACKS[name](model, images, labels, **QUICK[name])
        made, own = images.clone(), labels.clone()
        within = ATTACKS[name](model, made, own, **QUICK[name])
    outside = ATTACKS[name](model, made, own, **QUICK[name])
    for found in (inside, within, outside):
        assert torch.equal(found.images, expected.images) and not found.images.is_inference()


@pytest.mark.parametrize("name", ATTACKS)
def test_arrays_and_lists_are_named(name: str, batch: Batch) -> None:
    model, images, labels = batch
    attack = partial(ATTACKS[name], **QUICK[name])
    with pytest.raises(UserError, match=r"^images: a torch tensor is needed, but a ndarray was given\.$"):
        attack(model, np.zeros((5, 1, 28, 28), np.float32), labels)
    with pytest.raises(UserError, match=r"^labels: a torch tensor is needed, but a list was given\.$"):
        attack(model, images, labels.tolist())


@pytest.mark.parametrize("shape", [(), (784,), (5, 784), (5, 1, 0, 28), (0, 1, 0, 28), (5, 1, 1, 28, 28)])
@pytest.mark.parametrize("name", ATTACKS)
def test_images_of_another_shape_are_named(name: str, shape: tuple[int, ...], batch: Batch) -> None:
    model, _, labels = batch
    said = rf"^images: images should have the shape \[N, C, H, W\], but {re.escape(str(list(shape)))} was given\.$"
    with pytest.raises(UserError, match=said):
        ATTACKS[name](model, torch.rand(shape), labels[: shape[0] if shape else 0], **QUICK[name])


@pytest.mark.parametrize("name", ATTACKS)
def test_pixels_in_float64_that_are_1_but_for_rounding_are_taken(name: str, batch: Batch) -> None:
    """Limits are compared in float32."""
    model, images, labels = batch
    images = images.double()
    images[0, 0, 0, 0], images[1, 0, 0, 0] = 1 + 1e-12, 0.5
    assert ATTACKS[name](model.double(), images, labels, **QUICK[name]).images.dtype == torch.float64
    images[1, 0, 0, 0] = 1.001
    with pytest.raises(UserError, match=r"^images: pixels should lie in \[0, 1\], but .* to 1.001 was given"):
        ATTACKS[name](model, images, labels, **QUICK[name])


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "deepfool"])
def test_a_single_target_that_is_its_label_or_beyond_the_classes_is_named(name: str, batch: Batch) -> None:
    model, images, labels = batch
    targets = (labels + 1) % 10
    targets[3] = labels[3]
    with pytest.raises(UserError, match=r"^targets: a target should differ from its label\.$"):
        ATTACKS[name](model, images, labels, targets=targets, **QUICK[name])
    for wrong in (-1, 10):
        targets[3] = wrong
        with pytest.raises(UserError, match=r"^targets: they should lie in 0 to 9\.$"):
            ATTACKS[name](model, images, labels, targets=targets, **QUICK[name])


class Cut(nn.Module):
    """Linear in pixels that it cuts off from their gradient; without learning, nothing at all has one."""

    def __init__(self, learns: bool) -> None:
        super().__init__()
        self.head = nn.Linear(784, 10).requires_grad_(learns)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(images.detach().flatten(1))
        return logits


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("name", ATTACKS)
def test_a_model_without_a_gradient_is_named(name: str, learns: bool) -> None:
    model, images = Cut(learns).train(), torch.rand(5, 1, 28, 28)
    with torch.no_grad():
        labels = model(images).argmax(1)
    if name == "square":
        assert ATTACKS[name](model, images, labels, **QUICK[name]).success.shape == (5,)
    else:
        with pytest.raises(UserError, match=r"^model: no gradient leads from its outputs to the pixels"):
            ATTACKS[name](model, images, labels, **QUICK[name])
    assert model.training


class Answering(nn.Module):
    """Gives what `form` makes of its logits."""

    def __init__(self, form: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.head, self.form = nn.Linear(784, 10), form

    def forward(self, images: Tensor) -> Any:
        return self.form(self.head(images.flatten(1)))


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (lambda logits: (logits, 0), "a tuple"),
        (lambda logits: {"logits": logits}, "a dict"),
        (lambda logits: logits.detach().numpy(), "a ndarray"),
        (lambda logits: None, "a NoneType"),
        (lambda logits: logits[:, 0], r"torch.float32 \[5\] for 5 images"),
        (lambda logits: logits[:, :1], r"torch.float32 \[5, 1\] for 5 images"),
        (lambda logits: logits[:1], r"torch.float32 \[1, 10\] for 5 images"),
        (lambda logits: logits.long(), r"torch.int64 \[5, 10\] for 5 images"),
    ],
)
@pytest.mark.parametrize("name", ATTACKS)
def test_outputs_that_are_no_logits_are_named(name: str, form: Callable[[Tensor], Any], said: str) -> None:
    model = Answering(form).train()
    with pytest.raises(UserError, match=rf"^model: logits \[N, classes\] are needed, but it gives {said}\.$"):
        ATTACKS[name](model, torch.rand(5, 1, 28, 28), torch.arange(5), **QUICK[name])
    assert model.training


@pytest.mark.parametrize("name", ATTACKS)
def test_labels_elsewhere_and_labels_that_are_no_whole_numbers_are_named(name: str, batch: Batch) -> None:
    model, images, labels = batch
    with pytest.raises(UserError, match=r"^labels: they are on meta, but the images are on cpu\.$"):
        ATTACKS[name](model, images, labels.to("meta"), **QUICK[name])
    with pytest.raises(UserError, match=r"^labels: one whole number per image, \[5\], is needed, not torch.float32"):
        ATTACKS[name](model, images, labels.float(), **QUICK[name])
    if name != "deepfool":  # it has no targets
        with pytest.raises(UserError, match=r"^targets: they are on meta"):
            ATTACKS[name](model, images, labels, targets=labels.to("meta"), **QUICK[name])


@pytest.mark.parametrize("given", ["8/255", None, [0.1] * 5, np.full(5, 0.1), 1j])
@pytest.mark.parametrize("name", [name for name in ATTACKS if "epsilon" in QUICK[name]])
def test_an_epsilon_that_is_no_number_is_named(name: str, given: Any, batch: Batch) -> None:
    model, images, labels = batch
    kind = type(given).__name__
    with pytest.raises(UserError, match=rf"^epsilon: a number, or a tensor .* is needed, but a {kind} was given\.$"):
        ATTACKS[name](model, images, labels, **{**QUICK[name], "epsilon": given})


def test_minimal_takes_every_attack_with_a_budget(batch: Batch) -> None:
    model, images, labels = batch
    found = minimal(square, model, images, labels, high=0.5, steps=30, rounds=5)
    there = square(model, images, labels, epsilon=0.5, steps=30)
    assert torch.equal(found.success, there.success) and bool(found.success.any())
    assert bool((found.distance[found.success] < 0.5).all())
    with pytest.raises(UserError, match=r"^norm: l2 is asked for, but the attack's budget is in linf\.$"):
        minimal(square, model, images, labels, high=0.5, norm="l2", steps=30)
    assert minimal(fgsm, model, images, labels, high=5.0, norm="l2").norm == "l2"
