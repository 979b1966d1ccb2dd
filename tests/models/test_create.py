"""`create`, `Normalize` and the rows that networks are made of."""

import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from ukemi.errors import UserError
from ukemi.models import MODELS, Normalize, create, listing
from ukemi.models.layers import Conv, Extent, Flat, Pool, Row

GOOD: dict[str, Any] = {"classes": 10, "channels": 3, "size": (32, 32)}


def test_normalize_maps_pixels_per_channel() -> None:
    normalize = Normalize([0.5, 0.25], [0.5, 0.125])
    images = torch.ones(1, 2, 2, 3)
    assert normalize(images)[0, :, 0, 0].tolist() == [1.0, 6.0]
    assert not list(normalize.parameters())
    assert set(normalize.state_dict()) == {"mean", "std"}


def test_without_mean_and_std_pixels_pass_unchanged() -> None:
    model = create("demo-cnn", **GOOD)
    assert [name for name, _ in model.named_children()] == ["normalize", "network"]
    assert isinstance(model.normalize, nn.Module)
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(model.normalize(images), images)


def test_mean_and_std_are_used() -> None:
    model = create("demo-cnn", **GOOD, mean=[0.1, 0.2, 0.3], std=[1, 2, 4])
    assert isinstance(model.normalize, Normalize)
    torch.testing.assert_close(model.normalize.mean.flatten(), torch.tensor([0.1, 0.2, 0.3]))
    assert model.normalize.std.flatten().tolist() == [1, 2, 4]


def test_one_number_is_that_of_both_sides_and_of_every_channel() -> None:
    model = create("lenet5", classes=10, channels=3, size=32, mean=0.25, std=2)
    assert isinstance(model.normalize, Normalize)
    assert model.normalize.mean.flatten().tolist() == [0.25] * 3 and model.normalize.std.flatten().tolist() == [2] * 3
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 10)
    with pytest.raises(UserError, match="takes images of 1×1 pixels or more, but 0×0 was given"):
        create("demo-cnn", **{**GOOD, "size": 0})


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        ("resnet-20", {}, "is neither a known network nor your own as package.module:factory; did you mean resnet20?"),
        ("mine", {}, "package.module:factory; known are demo-cnn, "),
        (__file__, {}, "test_create.py is a file; give package.module:factory, a function of yours that makes the net"),
        ("alexnet", {"size": (32, 20)}, "model: alexnet takes images of 21×21 pixels or more, but 32×20 was given."),
        ("demo-cnn", {"size": (0, 4)}, "model: demo-cnn takes images of 1×1 pixels or more, but 0×4 was given."),
        ("lenet5", {"channels": 0}, "model: lenet5 takes images of 1 channel or more, but 0 was given."),
        ("lenet5", {"classes": 1}, "model: lenet5 tells 2 classes or more apart, but 1 was given."),
        ("lenet5", {"mean": [0.5]}, "mean: lenet5 has 3 channels, but 1 numbers were given."),
        ("lenet5", {"std": [0.5, 0.5, 0.0]}, "std: numbers above 0 are expected, but [0.5, 0.5, 0.0] was given."),
        (
            "lenet5",
            {"mean": [123, 116, 103]},
            "mean: that of pixels in [0, 1] is expected, but [123, 116, 103] was given",
        ),
        ("lenet5", {"mean": [0.5, float("nan"), 0]}, "mean: finite numbers are expected, but "),
    ],
)
def test_what_a_network_cannot_take_is_one_sentence(name: str, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)):
        create(name, **{**GOOD, **changes})


def test_normalize_needs_one_number_per_channel() -> None:
    with pytest.raises(UserError, match="one per channel"):
        Normalize([0.5], [0.5, 0.5])
    with pytest.raises(UserError, match="one per channel"):
        Normalize([], [])
    with pytest.raises(UserError, match=r"^std: one number per channel is needed, as \[0\.5\], but 0\.25 was given\.$"):
        Normalize([0.5], 0.25)  # type: ignore[arg-type]


def test_normalize_says_its_numbers() -> None:
    assert repr(Normalize([0.485, 1 / 3], [0.25, 1])) == "Normalize(mean=[0.485, 0.3333], std=[0.25, 1.0])"


def test_listing_shows_the_table() -> None:
    rows = listing()
    assert [row.name for row in rows] == list(MODELS)
    for row in rows:
        assert row.shape == MODELS[row.name].shape
        assert row.about == MODELS[row.name].about
    assert all(entry.about and "\n" not in entry.about and entry.paper for entry in MODELS.values())


ROWS = st.one_of(
    st.builds(
        Conv,
        st.integers(1, 3),
        st.integers(1, 6),
        st.integers(1, 3),
        same=st.booleans(),
        norm=st.booleans(),
        relu=st.booleans(),
    ),
    st.builds(Pool, st.just(2), st.integers(1, 2), st.booleans(), st.booleans()),
    st.builds(Pool, st.just(3), st.integers(1, 3), st.booleans(), st.booleans()),
    st.builds(Flat, st.booleans()),
)


@given(row=ROWS, channels=st.integers(1, 3), height=st.integers(6, 11), width=st.integers(6, 11))
def test_a_row_knows_what_comes_behind_it(row: Row, channels: int, height: int, width: int) -> None:
    layers = nn.Sequential(*row.layers(channels)).eval()
    outputs = layers(torch.zeros(1, channels, height, width))
    extent = row.after(Extent(channels, height, width))
    assert list(outputs.shape[1:]) == (list(extent) if outputs.ndim == 4 else [extent.channels])
