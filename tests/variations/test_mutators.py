"""Pixel mutators: exact counts, slow loops beside fast ones, statistics."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ukemi import UserError
from ukemi.variations import mutators
from ukemi.variations.mutators import (
    MIXTURE,
    MUTATORS,
    Draw,
    average,
    gaussian,
    mask_of,
    mutate,
    mutators_of,
    places,
    random,
    zero,
)

PIXELS = ("position", "channel")
shapes = st.tuples(st.integers(1, 3), st.integers(1, 13), st.integers(1, 13))
ratios = st.one_of(st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.floats(0, 1))


def textured(count: int, *shape: int) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(3))


def nothing(fields: int) -> Tensor:
    raise AssertionError("this mutator draws nothing")


def slow_average(image: Tensor) -> Tensor:
    """Every pixel of `[C, H, W]` as the mean of its neighbours."""
    out = image.clone()
    channels, height, width = image.shape
    for channel in range(channels):
        for row in range(height):
            for column in range(width):
                around = [
                    float(image[channel, y, x])
                    for y in range(max(0, row - 1), min(height, row + 2))
                    for x in range(max(0, column - 1), min(width, column + 2))
                    if (y, x) != (row, column)
                ]
                if around:
                    out[channel, row, column] = sum(around) / len(around)
    return out


@given(shape=shapes, ratio=ratios, pixels=st.sampled_from(PIXELS), seed=st.integers(0, 2**32 - 1))
def test_exactly_the_asked_number_of_pixels(shape: tuple[int, int, int], ratio: float, pixels: str, seed: int) -> None:
    found = places(torch.tensor([0, 5, 2**40]), shape, ratio, pixels=pixels, seed=seed)  # type: ignore[arg-type]
    mask = mask_of(found, shape, pixels)  # type: ignore[arg-type]
    channels = 1 if pixels == "position" else shape[0]
    assert mask.shape == (3, channels, *shape[1:]) and mask.dtype == torch.bool
    assert mask.flatten(1).sum(1).tolist() == [round(ratio * channels * shape[1] * shape[2])] * 3


def test_the_papers_counts() -> None:
    assert places(torch.tensor([0]), (1, 28, 28), 0.1).shape == (1, 78)
    assert places(torch.tensor([0]), (3, 32, 32), 0.1, pixels="channel").shape == (1, 307)


def test_every_pixel_is_as_likely() -> None:
    hits = mask_of(places(torch.arange(4000), (1, 7, 9), 0.2), (1, 7, 9)).float().mean(0).flatten()
    share = round(0.2 * 63) / 63
    assert (hits - share).abs().max() < 4.5 * math.sqrt(share * (1 - share) / 4000)


def test_places_are_functions_of_seed_index_and_turn() -> None:
    shape, index = (1, 12, 12), torch.tensor([9, 4, 7])
    whole = places(index, shape, 0.3, seed=2, turn=5)
    assert torch.equal(whole[1:2], places(torch.tensor([4]), shape, 0.3, seed=2, turn=5))
    others = [places(index, shape, 0.3, seed=2, turn=6), places(index, shape, 0.3, seed=3, turn=5), whole.roll(1, 0)]
    for other in others:
        assert not any(set(a) == set(b) for a, b in zip(whole.tolist(), other.tolist(), strict=True))


@given(shape=shapes, share=st.floats(0, 1))
def test_average_equals_the_slow_loop(shape: tuple[int, int, int], share: float) -> None:
    images = textured(2, *shape).double()
    mask = textured(2, 1, *shape[1:]) < share
    expected = torch.stack([slow_average(image) for image in images])
    assert torch.allclose(average(images, mask, nothing), torch.where(mask, expected, images), rtol=0, atol=1e-15)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1])
def test_average_of_one_colour_is_that_colour(value: float) -> None:
    images = torch.full((1, 3, 5, 6), value)
    found = average(images, torch.ones(1, 1, 5, 6, dtype=torch.bool), nothing)
    assert torch.allclose(found, images) and found.min() >= 0 and found.max() <= 1


def test_a_lone_pixel_has_no_average() -> None:
    image = textured(1, 3, 1, 1)
    assert torch.equal(average(image, torch.ones(1, 1, 1, 1, dtype=torch.bool), nothing), image)


def test_zero_is_black() -> None:
    images, mask = textured(2, 3, 4, 5), torch.rand(2, 1, 4, 5) < 0.5
    assert torch.equal(zero(images, mask, nothing), images * ~mask)


@given(
    shape=shapes,
    ratio=ratios,
    name=st.sampled_from([*MUTATORS, MIXTURE]),
    pixels=st.sampled_from(PIXELS),
    double=st.booleans(),
)
def test_only_the_mask_changes_and_pixels_stay_pixels(
    shape: tuple[int, int, int], ratio: float, name: str, pixels: str, double: bool
) -> None:
    images, index = textured(3, *shape).to(torch.float64 if double else torch.float32), torch.tensor([3, 11, 4])
    before = images.clone()
    at = places(index, shape, ratio, pixels=pixels)  # type: ignore[arg-type]
    found = mutate(images, index, at, mutators_of(name), pixels=pixels)  # type: ignore[arg-type]
    mask = mask_of(at, shape, pixels).expand_as(images)  # type: ignore[arg-type]
    assert found.shape == images.shape and found.dtype == images.dtype
    assert torch.equal(found[~mask], images[~mask]) and torch.equal(images, before)
    assert found.min() >= 0 and found.max() <= 1
    alone = mutate(images[1:2], index[1:2], at[1:2], mutators_of(name), pixels=pixels)  # type: ignore[arg-type]
    assert torch.equal(alone, found[1:2])


def changed(name: str, sigma: float = 0.5, pixels: str = "position", count: int = 200, level: float = 0.5) -> Tensor:
    """What a mutator makes of grey pixels, `[count, pixels, channels]`, or one value per pixel."""
    shape, index = (3, 16, 16), torch.arange(count)
    at = places(index, shape, 0.25, pixels=pixels)  # type: ignore[arg-type]
    images = torch.full((count, *shape), level)
    found = mutate(images, index, at, mutators_of(name, sigma), pixels=pixels, seed=1)  # type: ignore[arg-type]
    mask = mask_of(at, shape, pixels).expand_as(images)  # type: ignore[arg-type]
    each = 3 if pixels == "position" else 1
    return found.movedim(1, -1)[mask.movedim(1, -1)].view(count, -1, each)


@pytest.mark.parametrize("pixels", PIXELS)
def test_random_is_even(pixels: str) -> None:
    values = changed("random", pixels=pixels)
    assert values.max() < 1 and abs(float(values.mean()) - 0.5) < 0.006 and abs(float(values.var()) - 1 / 12) < 0.002
    counts = torch.histc(values, 20, 0, 1)
    expected = values.numel() / 20
    assert float(((counts - expected) ** 2 / expected).sum()) < 43.8  # chi-square, 19 degrees, 0.1 %
    assert abs(float(torch.corrcoef(torch.stack([values[:-1].flatten(), values[1:].flatten()]))[0, 1])) < 0.02
    if pixels == "position":
        assert (torch.corrcoef(values.view(-1, 3).T) - torch.eye(3)).abs().max() < 0.03


def test_gaussian_is_normal_and_clipped() -> None:
    noise = (changed("gaussian", sigma=0.05) - 0.5) / 0.05
    assert abs(float(noise.mean())) < 0.02 and abs(float(noise.std()) - 1) < 0.02
    assert abs(float((noise**4).mean()) - 3) < 0.2 and abs(float((noise**3).mean())) < 0.08
    wide = changed("gaussian")  # a deviation of 0.5 about the middle: 15.9 % lie beyond each end
    assert abs(float((wide == 0).float().mean()) - 0.1587) < 0.01
    assert abs(float((wide == 1).float().mean()) - 0.1587) < 0.01
    assert torch.equal(changed("gaussian", sigma=0), torch.full_like(wide, 0.5))


def test_values_do_not_hang_on_the_place() -> None:
    index, shape = torch.arange(3000), (1, 6, 6)
    at = places(index, shape, 0.5)
    found = mutate(torch.full((3000, *shape), -1.0), index, at, mutators_of("random")).flatten(1)
    means = torch.stack([column[column >= 0].mean() for column in found.T])
    assert (means - 0.5).abs().max() < 4.5 * math.sqrt(1 / 12 / 1400)


def test_a_mixture_uses_each_about_evenly() -> None:
    index, shape = torch.arange(4000), (1, 8, 8)
    images, at = textured(4000, *shape), places(index, shape, 0.2)
    mixed = mutate(images, index, at, mutators_of(MIXTURE))
    same = torch.stack(
        [(mixed == mutate(images, index, at, mutators_of(name))).flatten(1).all(1) for name in MUTATORS], 1
    )
    assert (same.sum(1) == 1).all()
    assert all(880 < int(many) < 1120 for many in same.sum(0))
    later = mutate(images, index, at, mutators_of(MIXTURE), turn=1)
    assert not torch.equal(mixed, later)


@pytest.mark.parametrize("name", [*MUTATORS, MIXTURE])
def test_only_picked_images_change(name: str) -> None:
    images, index = textured(6, 3, 9, 8), torch.arange(6)
    at, picked = places(index, (3, 9, 8), 0.3), torch.tensor([True, False, True, False, False, True])
    found = mutate(images, index, at, mutators_of(name), picked=picked)
    assert torch.equal(found[~picked], images[~picked])
    rows = picked.nonzero().flatten()
    assert torch.equal(found[rows], mutate(images[rows], index[rows], at[rows], mutators_of(name)))
    assert not (found[rows] == images[rows]).flatten(1).all(1).any()


@pytest.mark.parametrize("name", [*MUTATORS, MIXTURE])
@pytest.mark.parametrize("fixed", [True, False])
def test_the_way_of_a_gpu_gives_the_same_images(name: str, fixed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """There all rows are computed and the picked ones kept; here it is told that no row is to be taken out."""
    images, index = textured(20, 3, 7, 5), torch.arange(20)
    at = places(index[:1] if fixed else index, (3, 7, 5), 0.3)
    picked = torch.rand(20) < 0.5
    quick = mutate(images, index, at, mutators_of(name), picked=picked, turn=2)
    monkeypatch.setattr(mutators, "ROWWISE", ())
    assert torch.equal(quick, mutate(images, index, at, mutators_of(name), picked=picked, turn=2))


def white(images: Tensor, mask: Tensor, draw: Draw) -> Tensor:
    return torch.full_like(images, 3.0)


def test_ones_own_mutator_is_held_to_mask_and_range() -> None:
    images, index = textured(2, 1, 5, 5), torch.arange(2)
    at = places(index, (1, 5, 5), 0.2)
    for given_as in (white, f"{__name__}:white"):
        found = mutate(images, index, at, mutators_of(given_as))
        assert torch.equal(found, torch.where(mask_of(at, (1, 5, 5)), 1.0, images))
    (cut,) = mutators_of(lambda images, mask, draw: images[:, :, 1:])
    with pytest.raises(UserError, match=r"mutator: images of \[2, 1, 5, 5\] should come out of it, but \[2, 1, 4, 5\]"):
        mutate(images, index, at, (cut,))


def test_sigma_goes_to_gaussian_alone() -> None:
    assert mutators_of("random", 0.1) == (random,)
    for given_as in ("gaussian", gaussian):
        (found,) = mutators_of(given_as, 0.1)
        assert found.keywords == {"sigma": 0.1}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("blur", "mutator: 'blur' is none of zero, average, random, gaussian, mixture, nor of the form"),
        ("math:nothing", "mutator: module 'math' has no name 'nothing'"),
        (3, "mutator: a name or a function is needed, but 3"),
    ],
)
def test_a_wrong_mutator_is_named(wrong: object, said: str) -> None:
    with pytest.raises(UserError, match=said):
        mutators_of(wrong)
