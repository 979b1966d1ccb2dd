"""Whether a head fits is found without leaving a trace."""

import pytest
import torch
from torch import Tensor, nn

from ukemi.errors import UserError
from ukemi.models import check_head, create
from ukemi.models.check_head import are_probabilities

IMAGES = torch.rand(5, 3, 32, 32)


class Odd(nn.Module):
    """Gives whatever it is told to give."""

    def __init__(self, outputs: object) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, images: Tensor) -> object:
        return self.outputs


def test_the_number_of_logits_comes_back() -> None:
    model = create("demo-cnn", classes=12, channels=3, size=(32, 32))
    assert check_head(model, IMAGES, 10) == 12
    assert check_head(model, IMAGES, 12) == 12
    assert check_head(model, IMAGES[:1], 12) == 12


def test_nothing_is_touched() -> None:
    model = create("svhn-1", classes=10, channels=3, size=(32, 32)).train()
    model[1][0].eval()
    kept, modes = {k: v.clone() for k, v in model.state_dict().items()}, [layer.training for layer in model.modules()]
    random = torch.get_rng_state()
    check_head(nn.Sequential(model, Noise()), IMAGES, 10)
    assert all(torch.equal(value, kept[key]) for key, value in model.state_dict().items())
    assert [layer.training for layer in model.modules()] == modes
    assert torch.equal(random, torch.get_rng_state())


class Noise(nn.Module):
    """Draws random numbers even in evaluation."""

    def forward(self, logits: Tensor) -> Tensor:
        return logits + torch.randn_like(logits)


def test_a_lazy_model_can_be_trained_after_the_check() -> None:
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(10))
    assert check_head(model, IMAGES, 10) == 10
    model(IMAGES).sum().backward()


class Writing(nn.Module):
    """Normalises in place, its parameters too."""

    def __init__(self, images: bool = True) -> None:
        super().__init__()
        self.last, self.images = nn.Linear(3072, 10), images

    def forward(self, images: Tensor) -> Tensor:
        if self.images:
            images -= 0.5
        else:
            self.last.weight /= 2
        return self.last(images.flatten(1))


def test_a_model_that_writes_into_its_images_is_refused() -> None:
    kept = IMAGES.clone()
    for model in (Writing(), nn.Sequential(nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(3072, 10))):
        with pytest.raises(UserError, match="model: it writes into the images that it is given"):
            check_head(model, IMAGES, 10)
    assert torch.equal(IMAGES, kept)
    assert check_head(nn.Sequential(nn.Dropout(), nn.ReLU(), nn.ReLU(inplace=True), Writing(False)), IMAGES, 10) == 10


def test_too_few_logits() -> None:
    model = create("demo-cnn", classes=10, channels=3, size=(32, 32))
    with pytest.raises(UserError, match="labels that don't fit the model's head: 43 classes, but 10 logits"):
        check_head(model, IMAGES, 43)


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        (torch.zeros(2, 10, 1, 1), r"shape \[2, 10, 1, 1\] came out\.$"),
        (torch.zeros(10), r"shape \[10\] came out\.$"),
        (torch.zeros(3, 10), r"shape \[3, 10\] came out\.$"),
        ((torch.zeros(2, 10), 1), "a tuple came out; put a module around it whose forward gives the logits alone"),
        ({"logits": 1}, "a dict came out; put a module around it whose forward gives the logits alone"),
    ],
)
def test_what_is_no_logits_is_named(outputs: object, words: str) -> None:
    with pytest.raises(UserError, match=f"model: logits of shape .* are expected, but {words}"):
        check_head(Odd(outputs), IMAGES, 2)


def test_images_that_the_model_cannot_take() -> None:
    model = create("demo-cnn", classes=10, channels=3, size=(40, 40))
    with pytest.raises(UserError, match=r"model: it can't take images of 3×32×32 \(.+\)\.$"):
        check_head(model, IMAGES, 10)
    with pytest.raises(UserError, match="model: it normalises 3 channels, but the images have 1"):
        check_head(create("lenet5", classes=10, channels=3, size=(28, 28)), torch.rand(2, 1, 28, 28), 10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_probabilities_add_up_to_1_but_for_the_rounding_of_their_type(dtype: torch.dtype) -> None:
    outputs = torch.randn(64, 10, generator=torch.Generator().manual_seed(0)).softmax(1)
    assert are_probabilities(outputs.to(dtype))
    assert not are_probabilities(1.02 * outputs.to(dtype)) and not are_probabilities(outputs.log().to(dtype))
