"""STYX: who is mutated and where, while training and before it."""

import inspect
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from ukemi import UserError
from ukemi.augmenters import Styx, mutated
from ukemi.augmenters.styx import StyxConfig
from ukemi.data import Data, DataSet, labelled
from ukemi.variations.mutators import MUTATORS, SIGMA, Draw

MODEL = nn.Linear(1, 1)


def made_data(count: int, *shape: int, uint8: bool = False) -> Data:
    images = torch.rand(count, *shape, generator=torch.Generator().manual_seed(5)).clamp(min=1e-3)
    return labelled((images * 255).ceil().byte() if uint8 else images, torch.arange(count) % 2, ["a", "b"])


def changed(found: object, data: Data) -> Tensor:
    """Which values differ from the data's."""
    assert isinstance(found, Tensor) and isinstance(data.images, Tensor)
    return found != data.images


def trained(styx: Styx, data: Data, epoch: int = 0) -> Tensor:
    batch = data.batch(torch.arange(len(data)), "cpu")
    return styx(MODEL, batch.images, batch.labels, batch.index, epoch)


@given(
    count=st.integers(1, 60),
    size=st.tuples(st.integers(1, 3), st.integers(2, 9), st.integers(2, 9)),
    data_ratio=st.floats(0, 1),
    pixel_ratio=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
    masks=st.sampled_from(["fixed", "image", "epoch"]),
    pixels=st.sampled_from(["position", "channel"]),
)
def test_exactly_the_asked_number_of_images_and_pixels(
    count: int, size: tuple[int, ...], data_ratio: float, pixel_ratio: float, seed: int, masks: str, pixels: str
) -> None:
    data = made_data(count, *size)
    settings = {"data_ratio": data_ratio, "pixel_ratio": pixel_ratio, "masks": masks, "pixels": pixels, "seed": seed}
    many = round(pixel_ratio * size[1] * size[2] * (1 if pixels == "position" else size[0]))
    values = many * (size[0] if pixels == "position" else 1)
    expected = [0] * (count - round(data_ratio * count)) + [values] * round(data_ratio * count)
    found = trained(Styx("zero", samples=count, **settings), data, 2)  # type: ignore[arg-type]
    assert sorted(changed(found, data).flatten(1).sum(1).tolist()) == expected
    if masks != "epoch":
        before = mutated(data, mutator="zero", **settings)  # type: ignore[arg-type]
        assert torch.equal(before.images, found)  # type: ignore[arg-type]


def test_the_papers_settings_are_the_usual_ones() -> None:
    told = {"data_ratio": 0.5, "pixel_ratio": 0.1, "sigma": SIGMA, "masks": "fixed", "pixels": "position"}
    assert SIGMA == 0.5
    for usual in (StyxConfig(), Styx(samples=4).settings):
        assert told.items() <= usual.model_dump().items() and not usual.redraw
    before = {name: one.default for name, one in inspect.signature(mutated).parameters.items()}
    assert (told | {"count": 1}).items() <= before.items()


def test_the_share_is_of_the_samples_that_are_trained_on(fashion: DataSet) -> None:
    part = fashion.train.take(torch.arange(300)).split(0.33, seed=1)[0]
    styx = Styx("zero", samples=5)
    styx.begin_epoch(MODEL, part, 0)
    white = replace(part, images=torch.ones(len(part), 1, 28, 28))
    assert len(part) == 201 and int(changed(trained(styx, white), white).flatten(1).any(1).sum()) == 100


def test_a_fixed_mask_is_the_same_for_all_images_and_epochs() -> None:
    data = made_data(30, 3, 9, 11)
    styx = Styx("zero", samples=30, data_ratio=1)
    mask = changed(trained(styx, data), data)
    assert (mask == mask[:1]).all() and torch.equal(mask, changed(trained(styx, data, 7), data))
    other = Styx("zero", samples=30, data_ratio=1, seed=1)
    assert not torch.equal(mask, changed(trained(other, data), data))


def test_masks_per_image_hang_on_the_index_alone() -> None:
    data = made_data(40, 1, 12, 12)
    styx = Styx("zero", samples=40, data_ratio=1, masks="image")
    whole = trained(styx, data)
    rows = changed(whole, data).flatten(1)
    assert len(torch.unique(rows, dim=0)) == 40
    assert torch.equal(whole, trained(styx, data, 3))
    mixed = torch.randperm(40)
    assert torch.equal(trained(Styx("zero", samples=40, data_ratio=1, masks="image"), data.take(mixed)), whole[mixed])


@pytest.mark.parametrize("mutator", [*MUTATORS, "mixture"])
def test_only_masks_per_epoch_change_with_the_epoch(mutator: str) -> None:
    data = made_data(20, 3, 8, 8)
    for masks, same in (("fixed", True), ("image", True), ("epoch", False)):
        styx = Styx(mutator, samples=20, masks=masks)  # type: ignore[arg-type]
        assert torch.equal(trained(styx, data, 1), trained(styx, data, 2)) == same


def test_samples_are_drawn_anew_only_where_that_is_asked_for() -> None:
    data = made_data(50, 1, 4, 4)

    def who(styx: Styx, epoch: int) -> Tensor:
        return changed(trained(styx, data, epoch), data).flatten(1).any(1)

    kept, anew = Styx("zero", samples=50, masks="epoch"), Styx("zero", samples=50, redraw=True)
    assert torch.equal(who(kept, 0), who(kept, 1))
    assert not torch.equal(who(anew, 0), who(anew, 1)) and who(anew, 1).sum() == 25
    assert torch.equal(who(anew, 0), who(kept, 0))


def test_the_mutators_share_masks_and_samples() -> None:
    data = made_data(20, 1, 6, 6)
    masks = [changed(trained(Styx(name, samples=20), data), data) for name in ("zero", "random", "average")]
    assert torch.equal(masks[0], masks[1]) and torch.equal(masks[0], masks[2])


@pytest.mark.parametrize("masks", ["fixed", "epoch"])
def test_the_way_of_a_gpu_gives_the_same_images(masks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There all rows are computed and the picked ones kept, so that shapes stay the same."""
    data = made_data(24, 3, 7, 5)
    styx = Styx(samples=24, masks=masks)  # type: ignore[arg-type]
    found = trained(styx, data, 4)
    monkeypatch.setattr("ukemi.variations.mutators.ROWWISE", ())
    assert torch.equal(found, trained(styx, data, 4))


def test_state_carries_the_drawn_samples_over() -> None:
    data = made_data(30, 1, 5, 5)
    styx = Styx(redraw=True)
    styx.begin_epoch(MODEL, data, 3)
    other = Styx(redraw=True)
    other.load_state_dict(styx.state_dict())
    assert torch.equal(trained(styx, data, 3), trained(other, data, 3))
    with pytest.raises(UserError, match=r"samples, the number of training samples, is needed \(or begin_epoch\)"):
        trained(other, data, 4)
    other.begin_epoch(MODEL, data, 4)
    styx.begin_epoch(MODEL, data, 4)
    assert torch.equal(trained(styx, data, 4), trained(other, data, 4))
    with pytest.raises(UserError, match="population is not the state of a Styx"):
        other.load_state_dict({"population": torch.zeros(1)})


def bright(images: Tensor, mask: Tensor, draw: Draw) -> Tensor:
    return images + draw(1)[0]


def test_ones_own_mutator_by_name_and_as_a_function() -> None:
    data = made_data(10, 3, 6, 6)
    first = trained(Styx(bright, samples=10), data)
    config = Styx.Config(mutator=f"{__name__}:bright")
    built = config.build(None, 0, False)  # type: ignore[arg-type]
    built.begin_epoch(MODEL, data, 0)
    assert torch.equal(first, trained(built, data)) and first.max() <= 1
    assert mutated(data, mutator=bright).images[:].shape == first.shape  # type: ignore[index]
    assert Styx.Config(mutator=bright).model_dump(mode="json")["mutator"] == f"{__name__}:bright"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mutator": "blur"}, r"augmenter\.mutator: 'blur' is none of zero, average, random, gaussian, mixture"),
        ({"data_ratio": 1.5}, r"augmenter\.data-ratio: should be less than or equal to 1, but 1\.5 was given\."),
        ({"pixel_ratio": -0.1}, r"augmenter\.pixel-ratio: should be greater than or equal to 0, but -0\.1 was given\."),
        ({"sigma": -1}, r"augmenter\.sigma: should be greater than or equal to 0, but -1 was given\."),
        ({"masks": "all"}, r"augmenter\.masks: should be 'fixed', 'image' or 'epoch', but 'all' was given\."),
        ({"pixels": "patch"}, r"augmenter\.pixels: should be 'position' or 'channel', but 'patch' was given\."),
        ({"samples": 0}, r"samples: there should be at least one, but 0 was given\."),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Styx(**settings)  # type: ignore[arg-type]


def test_samples_are_needed_and_checked() -> None:
    data = made_data(10, 1, 4, 4)
    with pytest.raises(UserError, match="styx: samples, the number of training samples, is needed"):
        trained(Styx(), data)
    with pytest.raises(UserError, match="index: 9 is outside the 5 samples"):
        trained(Styx(samples=5), data)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"count": 0}, r"^count: should be greater than or equal to 1, but 0 was given\.$"),
        ({"data_ratio": 2}, r"^data-ratio: should be less than or equal to 1, but 2 was given\.$"),
        ({"mutator": "blur"}, r"^mutator: 'blur' is none of"),
        ({"masks": "epoch"}, r"^masks: there are no epochs before training"),
    ],
)
def test_wrong_settings_before_training_are_named(settings: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        mutated(made_data(4, 1, 4, 4), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("mutator", [*MUTATORS, "mixture"])
@pytest.mark.parametrize("masks", ["fixed", "image"])
def test_before_training_gives_what_training_gives(mutator: str, masks: str) -> None:
    data = made_data(700, 3, 6, 5)
    before = mutated(data, mutator=mutator, masks=masks, seed=4)  # type: ignore[arg-type]
    while_training = trained(Styx(mutator, masks=masks, samples=700, seed=4), data, 9)  # type: ignore[arg-type]
    assert torch.equal(before.images, while_training)  # type: ignore[arg-type]
    assert torch.equal(before.index, data.index) and torch.equal(before.labels, data.labels)
    assert before.identities == 700 and before.groups is None and before.classes == data.classes


def test_bytes_stay_bytes() -> None:
    data = made_data(600, 1, 16, 16, uint8=True)
    original = data.images.clone()  # type: ignore[attr-defined]
    found = mutated(data, mutator="gaussian", data_ratio=1, seed=2).images
    assert isinstance(found, Tensor) and found.dtype == torch.uint8
    floats = trained(Styx("gaussian", data_ratio=1, samples=600, seed=2), data)
    assert (found.float() / 255 - floats).abs().max() <= 0.5 / 255 + 1e-6
    blackened = mutated(data, mutator="zero", data_ratio=1).images
    mask = (blackened == 0).expand_as(original)  # type: ignore[union-attr]
    assert int(mask.sum()) == 600 * round(0.1 * 256) and torch.equal(blackened[~mask], original[~mask])  # type: ignore[index]
    assert torch.equal(data.images, original)  # type: ignore[arg-type]


@pytest.mark.parametrize("grouped", [False, True])
def test_variants_are_laid_out_behind_the_set(grouped: bool) -> None:
    data = made_data(21, 1, 8, 8)
    data = replace(data, index=data.index + 100, identities=130, groups=torch.arange(21) // 3 if grouped else None)
    found = mutated(data, mutator="random", count=3, masks="image")
    once = mutated(data, mutator="random", masks="image")
    who = changed(once.images, data).flatten(1).any(1).nonzero().flatten()
    assert len(who) == 10 and len(found) == 41 and found.identities == 150
    assert found.index.tolist() == [*range(100, 121), *range(130, 150)]
    origin = torch.cat([torch.arange(21), who, who])
    assert torch.equal(found.labels, data.labels[origin])
    groups = data.index if data.groups is None else data.groups
    assert found.groups is not None and torch.equal(found.groups, groups[origin])
    images: Tensor = found.images  # type: ignore[assignment]
    originals: Tensor = data.images[origin]
    assert torch.equal(images[:21], once.images)  # type: ignore[arg-type]
    masks = (images != originals).flatten(1)
    assert (masks[21:].sum(1) == 6).all()  # from the original: nothing adds up
    assert len(torch.unique(masks[torch.cat([who, torch.arange(21, 41)])], dim=0)) == 30
    for part in found.split(0.4, seed=0):
        assert part.groups is not None
    first, second = found.split(0.4, seed=0)
    assert not set(first.groups.tolist()) & set(second.groups.tolist())  # type: ignore[union-attr]


def test_variants_under_a_fixed_mask() -> None:
    data = made_data(8, 1, 6, 6)
    for mutator, copies in (("zero", True), ("average", True), ("random", False), ("gaussian", False)):
        images: Tensor = mutated(data, mutator=mutator, count=2, data_ratio=1).images  # type: ignore[assignment]
        assert torch.equal(images[:8], images[8:]) == copies


class OnDemand:
    """Pixels that are decoded row by row."""

    def __init__(self, images: Tensor) -> None:
        self._images, self.shape, self.asked = images, images.shape, 0

    def __getitem__(self, positions: Tensor) -> Tensor:
        self.asked += len(positions)
        return self._images[positions]


def test_images_on_demand_are_mutated_on_demand() -> None:
    data = made_data(12, 3, 5, 5, uint8=True)
    lazy = OnDemand(data.images)  # type: ignore[arg-type]
    found = mutated(replace(data, images=lazy), count=2, masks="image")
    whole = mutated(data, count=2, masks="image")
    assert lazy.asked == 0 and tuple(found.images.shape) == (18, 3, 5, 5)
    rows = torch.tensor([17, 2, 5])
    assert torch.equal(found.images[rows], whole.images[rows]) and lazy.asked == 3
    assert torch.equal(found.take(rows).batch(torch.arange(3), "cpu").images, whole.batch(rows, "cpu").images)


def without_a_value(images: Tensor, mask: Tensor, draw: Draw) -> Tensor:
    return images / 0 * 0


def test_a_mutator_that_gives_no_numbers_is_named_before_anything_is_made_of_it(fashion: DataSet) -> None:
    """Bytes could not say it, and a run would leave a folder behind."""
    for uint8 in (True, False):
        with pytest.raises(UserError, match=r"^mutator: image 0 has a pixel that is NaN or infinite"):
            mutated(made_data(6, 1, 4, 4, uint8=uint8), mutator=without_a_value)
    with pytest.raises(UserError, match=r"^augmenter.mutator: image 0 has a pixel that is NaN or infinite"):
        Styx(without_a_value).rehearse(MODEL, fashion.train)


def test_no_model_is_asked(fashion: DataSet) -> None:
    class Never(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise AssertionError("STYX needs no scores")

    batch = fashion.train.batch(torch.arange(16), "cpu")
    styx = Styx(samples=len(fashion.train))
    assert styx(Never(), batch.images, batch.labels, batch.index, 0).shape == (16, 1, 28, 28)
    assert styx.forwards == 0 and styx.genes is None
