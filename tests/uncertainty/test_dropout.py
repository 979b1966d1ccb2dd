"""Dropout layers beside torch's own, dropout that is put into a network without any, networks that don't fit."""

import pytest
import torch
from torch import Tensor, nn

from ukemi import UserError
from ukemi.uncertainty import DropoutPasses, dropouts_of, insert_dropout, with_dropout
from ukemi.uncertainty.dropout import Masks, drops, masked


class Sparing(nn.Linear):
    """Holds something of its own under the name of a dropout."""

    def __init__(self) -> None:
        super().__init__(16, 4)
        self.dropout = nn.Identity()


def test_inserted_dropout_takes_nobodys_place() -> None:
    changed = insert_dropout(nn.Sequential(nn.Flatten(), Sparing()), 0.4)
    assert isinstance(changed[1].dropout, nn.Identity) and [layer.p for layer in dropouts_of(changed)] == [0.4]  # type: ignore[index]


def passed(layer: nn.Module, x: Tensor) -> Tensor:
    """What the layer makes of rows, each with a mask of its own."""
    with masked(layer.eval(), Masks(torch.arange(len(x)), 1, 0, 1, 0, 0)):
        return layer(x)


@pytest.mark.parametrize("kind", [nn.Dropout, nn.Dropout2d, nn.AlphaDropout, nn.FeatureAlphaDropout])
@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_a_masked_dropout_gives_the_numbers_that_torchs_own_gives(kind: type[nn.Module], rate: float) -> None:
    x = torch.tensor([-2.0, 0.5, 3.0], dtype=torch.float64).repeat(500, 2, 1)[..., None]
    wanted = kind(rate)(x)  # a network in training mode
    for at in range(3):
        ours, torchs = (each[:, :, at].unique() for each in (passed(kind(rate), x), wanted))
        assert torch.allclose(ours, torchs, atol=1e-6) and len(ours) == (1 if rate == 1 else 2)
    assert dropouts_of(nn.Sequential(kind(rate))) and drops(kind(rate))


@pytest.mark.parametrize("kind", [nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_alpha_dropout_keeps_mean_and_variance(kind: type[nn.Module]) -> None:
    x = torch.randn(4000, 50, 2, generator=torch.Generator().manual_seed(0))
    found = passed(kind(0.3), x)
    assert abs(float(found.mean())) < 0.01 and abs(float(found.var()) - 1) < 0.02
    gone = (found == found.flatten().mode().values).all(2)
    assert float(gone.double().mean()) == pytest.approx(0.3 if kind is nn.FeatureAlphaDropout else 0.09, abs=0.01)


def test_a_network_of_alpha_dropout_gets_no_other() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.SELU(), nn.AlphaDropout(0.4), nn.Linear(8, 4))
    assert with_dropout(model, 0.2) is model
    found = DropoutPasses(model, 6)(torch.rand(3, 1, 4, 4), torch.arange(3))
    assert float(found.drawn.std(0).max()) > 1e-4


class Two(nn.Sequential):
    """Gives its features beside its answer."""

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(images), images


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 4)).double(), "images: they are torch.float32"),
        (Two(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 4)), "model: logits of shape .* but a tuple came out"),
        (nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(9, 4)), "model: it can't take images of 1×4×4"),
    ],
)
def test_a_network_that_does_not_fit_the_images_is_named(model: nn.Module, said: str) -> None:
    images, index = torch.rand(3, 1, 4, 4), torch.arange(3)
    for split in (True, False):
        for ask in (DropoutPasses(model, 4, split=split), DropoutPasses(model, 4, split=split).linked):
            with pytest.raises(UserError, match=said):
                ask(images, index)
    with pytest.raises(UserError, match=said):
        insert_dropout(model, 0.5, images)
