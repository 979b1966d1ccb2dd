"""What slices tell, and their file."""

from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from branching import branching, samples
from hypothesis import given
from hypothesis import strategies as some
from safetensors.torch import save_file

from ukemi.errors import UserError
from ukemi.slicing import Slices, check_slices, read_slices, slices_of, write_slices
from ukemi.slicing.cutting import kept_count, largest
from ukemi.training.checkpoints import write_checkpoint
from ukemi.training.sets import weights_hash


@pytest.fixture
def small() -> Slices:
    """Two layers and two classes, written out."""
    dense = torch.tensor([[[1, 1, 0]], [[0, 1, 1]]]).bool()
    conv = torch.tensor([[[1], [0]], [[1], [0]]]).bool()
    neurons = {"a": dense.any(2), "b": conv.any(2)}
    return Slices(("x", "y"), {"a.weight": dense, "b.weight": conv}, neurons, {}, model_hash="0" * 64)


def test_masks_spread_over_kernels(small: Slices) -> None:
    weight = torch.rand(2, 1, 3, 3)
    mask = small.mask("b.weight", 1, weight)
    assert mask.shape == weight.shape and mask[0].all() and not mask[1].any()
    assert small.mask("a.weight", 0, torch.rand(1, 3)).tolist() == [[True, True, False]]
    with pytest.raises(UserError, match=r"'c' is not among the sliced weights; there are a.weight, b.weight"):
        small.mask("c", 0, weight)
    with pytest.raises(UserError, match=r"'b.weight' is \[3, 1\], but its slice \[2, 1\]"):
        small.mask("b.weight", 0, torch.rand(3, 1))


def test_shares_and_overlap(small: Slices) -> None:
    assert {name: share.tolist() for name, share in small.shares().items()} == {
        "a.weight": pytest.approx([2 / 3, 2 / 3]),
        "b.weight": [0.5, 0.5],
    }
    # both keep one of three and one of two; each keeps three in all, so either keeps four
    assert small.overlap().tolist() == [[1, 0.5], [0.5, 1]]
    nothing = replace(small, synapses={name: kept & False for name, kept in small.synapses.items()})
    assert nothing.overlap().tolist() == [[0, 0], [0, 0]]


def test_the_overlap_counts_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    found = slices_of(branching(), samples(6), q=30)
    whole = found.overlap()
    monkeypatch.setattr("ukemi.slicing.slices._BLOCK", 5)
    assert found.overlap().equal(whole)
    kept = torch.cat([kept.flatten(1) for kept in found.synapses.values()], 1)
    assert float(whole[0, 1]) == int((kept[0] & kept[1]).sum()) / int((kept[0] | kept[1]).sum())


def test_a_file_brings_all_back(tmp_path: Path) -> None:
    model = branching()
    found = slices_of(model, samples(6), reading="released", q=30)
    write_slices(tmp_path / "s.safetensors", found)
    again = read_slices(tmp_path / "s.safetensors", model)
    for each in fields(Slices):
        one, other = getattr(found, each.name), getattr(again, each.name)
        if isinstance(one, dict):
            assert list(one) == list(other) and all(one[name].equal(other[name]) for name in one)
        else:
            assert one == other
    assert again.model_hash == weights_hash(model) and again.reading == "released"
    assert found.to("cpu").synapses["head.weight"].equal(found.synapses["head.weight"])


def test_contributions_may_stay_out(tmp_path: Path) -> None:
    found = slices_of(branching(), samples(6))
    write_slices(tmp_path / "s.safetensors", found, contributions=False)
    again = read_slices(tmp_path / "s.safetensors")
    assert again.contributions == {} and again.synapses.keys() == found.synapses.keys()


def test_a_file_of_another_model_is_refused(tmp_path: Path) -> None:
    model = branching()
    found = slices_of(model, samples(6))
    write_slices(tmp_path / "s.safetensors", found)
    check_slices(found, model)
    model.head.weight.data[0, 0] += 1
    with pytest.raises(UserError, match="slices: they were made for another model"):
        read_slices(tmp_path / "s.safetensors", model)


def test_foreign_and_damaged_files_are_refused(tmp_path: Path, small: Slices) -> None:
    path = tmp_path / "s.safetensors"
    with pytest.raises(UserError, match="slices: there is no file"):
        read_slices(path)
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(UserError, match=r"slices: .* was not written by ukemi"):
        read_slices(path)
    write_checkpoint(path, {"a": torch.zeros(1)}, {"kind": "adversarial set"})
    with pytest.raises(UserError, match="holds no slices"):
        read_slices(path)
    write_checkpoint(path, {}, {"kind": "slices", "slices_schema": 2})
    with pytest.raises(UserError, match="written by a newer ukemi"):
        read_slices(path)
    write_checkpoint(path, {}, {"kind": "slices", "slices_schema": 1, "classes": []})
    with pytest.raises(UserError, match="has no reading"):
        read_slices(path)
    write_slices(path, replace(small, classes=("x", "y", "z")))
    with pytest.raises(UserError, match="doesn't hold together"):
        read_slices(path)
    write_slices(path, small)
    body = bytearray(path.read_bytes())
    body[-1] ^= 1
    path.write_bytes(body)
    with pytest.raises(UserError, match=r"slices: .* is damaged"):
        read_slices(path)


@given(some.lists(some.tuples(some.integers(-2, 2), some.integers(-1, 1)), min_size=4, max_size=12), some.data())
def test_the_largest_are_those_that_sorting_gives(pairs: list[tuple[int, int]], data: some.DataObject) -> None:
    pairs = pairs[: len(pairs) // 2 * 2]
    keys = torch.tensor(pairs, dtype=torch.float32).view(2, -1, 2)
    count = data.draw(some.integers(1, keys.shape[1]))
    kept = largest([keys[..., 0], keys[..., 1]], count)
    for row, own in zip(keys.tolist(), kept, strict=True):
        ranked = sorted(row, reverse=True)[:count]
        assert sorted((row[at] for at in own.nonzero().flatten().tolist()), reverse=True) == ranked


@given(some.integers(1, 10_000), some.floats(0.01, 100))
def test_the_count_is_the_least_that_reaches_q(total: int, q: float) -> None:
    count = kept_count(total, q)
    assert 1 <= count <= total and count >= total * q / 100 - 1e-6 and (count == 1 or count - 1 < total * q / 100)


def test_a_share_that_rounding_lifts_is_not_one_more() -> None:
    assert 3000 * 1.1 / 100 > 33 and kept_count(3000, 1.1) == 33
