"""Adversarial sets: what is written is read, and what was made for something else is refused in one sentence."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ukemi import UserError
from ukemi.attacks import Attacked, fgsm
from ukemi.attacks.config import AttackConfig
from ukemi.data import Data, DataSet
from ukemi.measures.attacks import UnderAttack, under_attack
from ukemi.training.checkpoints import read_checkpoint, write_checkpoint
from ukemi.training.sets import (
    AdversarialSet,
    Recorder,
    as_data,
    check_set,
    fuzzed_set,
    originals,
    read_set,
    some_inputs,
    weights_hash,
    write_set,
)
from ukemi.training.setup import in_classes
from ukemi.uncertainty import Fuzzed

CONFIG = AttackConfig(attack="pgd", epsilon="4/255", steps=3, norm="linf")


@pytest.fixture
def some(fashion: DataSet) -> Data:
    return fashion.test.take(torch.arange(5, 1000, 15))


@pytest.fixture
def net(some: Data) -> nn.Module:
    """Linear, and fitted to the images so that it recognises most of them."""
    images = some.batch(torch.arange(len(some)), "cpu").images.flatten(1)
    goal = nn.functional.one_hot(some.labels, 10).float()
    layer = nn.Linear(784, 10)
    with torch.no_grad():
        weights = torch.linalg.solve(images @ images.T + 300 * torch.eye(len(images)), goal)
        layer.weight.copy_(8 * (images.T @ weights).T)
        layer.bias.zero_()
    return nn.Sequential(nn.Flatten(), layer)


def recorded(net: nn.Module, some: Data, config: AttackConfig = CONFIG) -> tuple[AdversarialSet, UnderAttack]:
    recorder = Recorder(config.made(7))
    found = under_attack(net, some, recorder)
    return recorder.set(net, some, config, data="fashion-mini", split="test", seed=7), found


def test_a_set_holds_what_the_measure_saw_and_reads_back(net: nn.Module, some: Data, tmp_path: Path) -> None:
    made, found = recorded(net, some)
    assert 0 < int(made.success.sum()) < len(made) == int(found.right.sum())
    assert torch.equal(made.index, some.index[found.right]) and torch.equal(made.success, found.fooled[found.right])
    assert torch.equal(made.labels, some.labels[found.right]) and made.images.dtype == torch.float32
    assert float(made.distance.max()) <= 4 / 255 + 1e-7
    write_set(tmp_path / "a.safetensors", made)
    back = read_set(tmp_path / "a.safetensors")
    for name in ("images", "labels", "index", "success", "distance"):
        assert torch.equal(getattr(back, name), getattr(made, name))
    assert (back.attack, back.settings, back.norm, back.seed) == ("pgd", CONFIG.settings(), "linf", 7)
    assert (back.data, back.split, back.classes) == ("fashion-mini", "test", some.classes)
    assert back.model == weights_hash(net) and len(back.model) == 64 and back.config() == CONFIG
    write_set(tmp_path / "b.safetensors", back)
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    check_set(back, some, net)


def test_distances_are_the_sets_own_whatever_an_attack_says(net: nn.Module, some: Data) -> None:
    """Else a set would be refused on its own data."""

    def modest(model: nn.Module, images: Tensor, labels: Tensor) -> Attacked:
        found = fgsm(model, images, labels, epsilon=0.1)
        return replace(found, distance=torch.zeros_like(found.distance))

    made, _ = recorded(net, some, AttackConfig(attack=modest))
    assert float(made.distance.min()) > 0.09
    check_set(made, some, net)


def test_as_data_keeps_identities_and_only_what_fools(net: nn.Module, some: Data) -> None:
    made, _ = recorded(net, some)
    fooling, every = as_data(made), as_data(made, fooling=False)
    assert len(fooling) == int(made.success.sum()) and len(every) == len(made)
    assert torch.equal(fooling.index, made.index[made.success]) and fooling.identities == some.identities
    batch = fooling.batch(torch.arange(len(fooling)), "cpu")
    assert bool((net(batch.images).argmax(1) != batch.labels).all())
    own = originals(fooling, some)
    assert torch.equal(own.index, fooling.index) and torch.equal(own.labels, fooling.labels)
    with pytest.raises(UserError, match="no image in it that fools"):
        as_data(replace(made, success=torch.zeros_like(made.success)))


def test_an_attack_without_index_and_a_model_that_knows_nothing(net: nn.Module, some: Data, tmp_path: Path) -> None:
    made, _ = recorded(net, some.take(torch.arange(20)), AttackConfig(attack="deepfool"))
    assert made.norm == "l2" and bool(made.success.all())
    wrong = replace(some, labels=(some.labels + 5) % 10)
    stubborn = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    with torch.no_grad():
        stubborn[1].weight.zero_()
        stubborn[1].bias.copy_(torch.eye(10)[0])
    empty, _ = recorded(stubborn, wrong.take((wrong.labels != 0).nonzero().flatten()))
    write_set(tmp_path / "empty.safetensors", empty)
    back = read_set(tmp_path / "empty.safetensors")
    assert len(back) == 0 and back.images.shape[1:] == (1, 28, 28)
    check_set(back, some, stubborn)
    with pytest.raises(UserError, match="no image in it"):
        as_data(back, fooling=False)


def test_what_else_is_known_of_a_set_goes_round(net: nn.Module, some: Data, tmp_path: Path) -> None:
    made, _ = recorded(net, some)
    vr = torch.linspace(0, 1, len(made), dtype=torch.float64)
    told = replace(made, attack="generate", extras={"vr": vr}, notes={"success_rate": 0.5, "pattern": "HH"})
    write_set(tmp_path / "a.safetensors", told)
    back = read_set(tmp_path / "a.safetensors")
    assert torch.equal(back.extras["vr"], vr) and back.notes == told.notes and set(back.extras) == {"vr"}
    with pytest.raises(UserError, match=r"^adversarial-set: it was made by ukemi generate, not by an attack"):
        back.config()
    short = replace(told, extras={"vr": vr[:-1]})
    write_set(tmp_path / "a.safetensors", short)
    with pytest.raises(UserError, match="doesn't hold together"):
        read_set(tmp_path / "a.safetensors")


def test_a_set_of_before_has_no_extras(net: nn.Module, some: Data, tmp_path: Path) -> None:
    made, _ = recorded(net, some)
    path = tmp_path / "a.safetensors"
    write_set(path, made)
    old = read_checkpoint(path)
    write_checkpoint(path, old.tensors, {name: value for name, value in old.values.items() if name != "notes"})
    back = read_set(path)
    assert back.extras == {} and back.notes == {} and torch.equal(back.images, made.images)


def test_fuzzed_inputs_are_a_set_too(net: nn.Module, some: Data, tmp_path: Path) -> None:
    batch = some.batch(torch.tensor([1, 1, 4]), "cpu")
    made = (batch.images * 0.5).clamp(0, 1)
    distance = (made - batch.images).flatten(1).abs().amax(1)
    turned = torch.tensor([True, False, True])
    found = Fuzzed(made, batch.labels, batch.index, turned, torch.zeros(3, 7), distance, (0.25, 0.5), 24)
    kept = fuzzed_set(net, some, found, data="fashion-mini", split="test", seed=3)
    write_set(tmp_path / "fuzz.safetensors", kept)
    back = read_set(tmp_path / "fuzz.safetensors")
    check_set(back, some, net)
    assert len(as_data(back)) == 2 and len(as_data(back, fooling=False)) == 3 and back.notes["coverage"] == [0.25, 0.5]
    with pytest.raises(UserError, match="not by an attack"):
        back.config()


def test_some_inputs_are_a_choice_by_the_seed_in_the_order_of_the_set(some: Data) -> None:
    data = replace(some.take(torch.arange(20).repeat(3)), labels=torch.arange(60))  # several inputs of one image
    chosen = {seed: some_inputs(data, 30, seed).labels.tolist() for seed in range(4)}
    for rows in chosen.values():
        assert len(rows) == 30 and rows == sorted(set(rows)) and rows != list(range(30))
    assert len({tuple(rows) for rows in chosen.values()}) == 4
    assert some_inputs(data, 30, 2).labels.tolist() == chosen[2]
    images = data.index[chosen[0]].unique(return_counts=True)[1]
    assert any(images == 1) and any(images > 1)
    assert some_inputs(data, 99, 0).labels.tolist() == list(range(60))


def test_another_model_is_named(net: nn.Module, some: Data) -> None:
    made, _ = recorded(net, some)
    other = copy.deepcopy(net)
    assert weights_hash(other) == made.model
    with torch.no_grad():
        other[1].bias[3] += 1e-6
    with pytest.raises(UserError, match=r"^adversarial-set: it was made for another model \(weights .*\)\.$"):
        check_set(made, model=other)


def test_other_data_are_named(net: nn.Module, some: Data, fashion: DataSet) -> None:
    made, _ = recorded(net, some)
    assert isinstance(some.images, torch.Tensor)
    moved = some.images.clone()
    moved[int(made.index[2] - 5) // 15, 0, 14, 14] ^= 128
    relabelled = some.labels.clone()
    relabelled[int(made.index[0] - 5) // 15] = (int(made.labels[0]) + 1) % 10
    for data, why in (
        (replace(some, images=moved), f"image {int(made.index[2])} has other pixels here"),
        (replace(some, labels=relabelled), f"image {int(made.index[0])} was '.*' and is '.*' here"),
        (replace(some, classes=("x", *some.classes[1:])), "class 'T-shirt/top' is not among theirs"),
        (replace(some, images=some.images[..., :20]), r"their images are \[1, 28, 20\]"),
        (some.take(torch.arange(3)), "they have no image"),
        (fashion.train, "image .* (was|has other)"),
    ):
        with pytest.raises(UserError, match=rf"^adversarial-set: it was made from other data than these \({why}"):
            check_set(made, data)


def test_classes_in_another_order_are_the_same_data(net: nn.Module, some: Data) -> None:
    made, _ = recorded(net, some)
    check_set(made, in_classes(some, tuple(reversed(some.classes))))


def test_damaged_and_foreign_files_are_refused(net: nn.Module, some: Data, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    made, _ = recorded(net, some)
    write_set(path, made)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-100] ^= 1
    path.write_bytes(bytes(flipped))
    with pytest.raises(UserError, match=r"^adversarial-set: .* is damaged"):
        read_set(path)
    path.write_bytes(whole[:-200])
    with pytest.raises(UserError, match=r"^adversarial-set: .* is truncated"):
        read_set(path)
    with pytest.raises(UserError, match=r"^adversarial-set: there is no file"):
        read_set(tmp_path / "none.safetensors")
    write_checkpoint(path, net.state_dict(), {"classes": []})
    with pytest.raises(UserError, match=r"is no adversarial set; `ukemi attack` writes one"):
        read_set(path)
    write_checkpoint(path, {"images": made.images}, {"kind": "adversarial set", "set_schema": 1})
    with pytest.raises(UserError, match=r"has no attack"):
        read_set(path)
    write_checkpoint(path, {"images": made.images}, {"kind": "adversarial set", "set_schema": 2})
    with pytest.raises(UserError, match=r"newer ukemi"):
        read_set(path)
