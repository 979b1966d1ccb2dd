"""`--attacked`: what attacks turned is kept for the next command."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from ukemi.cli import turned as room
from ukemi.cli.main import run
from ukemi.data import Data
from ukemi.measures.uncertainty import attack_of
from ukemi.training.checkpoints import read_checkpoint

NETS = """
import torch
from torch import nn
from ukemi.attacks import fgsm

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Dropout(0.3), nn.Linear(49, 10))

class Darker(nn.Sequential):
    def forward(self, images):
        return super().forward(images * 0.5)

def darker():
    return Darker(*net())

def mine(model, images, labels):
    return fgsm(model, images, labels, epsilon=0.3)
"""
FEW = ["--data", "fashion-mini", "--images", "60", "--validation-images", "60", "--passes", "4", "--device", "cpu"]
BARE = ["--fuzzers", "--variants", "None", "--attacks", "fgsm", "deepfool", "--epsilon", "0.3"]
KEPT = ["--attacked", "kept"]


@pytest.fixture(autouse=True)
def attacks(elsewhere: None, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of images that were attacked, one for each run of an attack."""
    Path("turned_nets.py").write_text(NETS)
    seen: list[int] = []
    plain = room.turned_by

    def counted(model, data, *rest):  # type: ignore[no-untyped-def]
        seen.append(len(data))
        return plain(model, data, *rest)

    monkeypatch.setattr(room, "turned_by", counted)
    return seen


def profiled(*flags: str, net: str = "net", out: str = "o") -> dict[str, object]:
    assert run(["uncertainty", "--model", f"turned_nets:{net}", *FEW, *BARE, *flags, "--out", out]) == 0
    found = json.loads(Path(out, "uncertainty.json").read_text())
    return {name: found[name] for name in ("thresholds", "sources", "settings")}


def test_what_was_kept_is_not_attacked_again_and_says_the_same(attacks: list[int]) -> None:
    bare = profiled()
    assert attacks == [60] * 4  # two attacks on validation and on test images
    attacks.clear()
    assert profiled(*KEPT) == bare and attacks == [60] * 4
    assert len(list(Path("kept").iterdir())) == 4
    attacks.clear()
    assert profiled(*KEPT) == bare and attacks == []
    defend = ["defend", "--model", "turned_nets:net", *FEW, *BARE[3:], "--defences", "bit-depth", "--out", "d"]
    assert run(defend) == 0
    wanted = json.loads(Path("d/defences.json").read_text())
    attacks.clear()
    assert run([*defend, *KEPT]) == 0 and attacks == []
    found = json.loads(Path("d/defences.json").read_text())
    assert [found[name] for name in ("sources", "defences")] == [wanted[name] for name in ("sources", "defences")]


@pytest.mark.parametrize("changed", [["--epsilon", "0.2"], ["--seed", "1"], ["--images", "50"], ["--split", "train"]])
def test_other_settings_or_images_are_attacked(attacks: list[int], changed: list[str]) -> None:
    profiled(*KEPT)
    attacks.clear()
    assert profiled(*KEPT, *changed) == profiled(*changed)
    assert len(attacks) > 4


def test_another_network_of_the_same_weights_is_attacked(attacks: list[int]) -> None:
    profiled(*KEPT)
    attacks.clear()
    assert profiled(*KEPT, net="darker") == profiled(net="darker")
    assert len(attacks) == 8


def test_other_weights_labels_or_identities_have_another_key() -> None:
    torch.manual_seed(0)
    models = [nn.Linear(2, 2) for _ in range(2)]
    images, index = torch.rand(3, 1, 2, 2), torch.arange(3)
    labels = torch.tensor([0, 1, 0])
    others = [(labels, index), (1 - labels, index), (labels, index.flip(0))]
    sets = [Data(images, own, ("a", "b"), numbers, 3) for own, numbers in others]
    told = attack_of("fgsm", 0.1)
    keys = {room._key(model, data, told, 0) for model in models for data in sets}
    assert len(keys) == 6 == len(keys | {room._key(models[0], sets[0], told, 0)})


def test_an_attack_of_ones_own_is_always_run(attacks: list[int]) -> None:
    for _ in range(2):
        profiled(*KEPT, "--attacks", "turned_nets:mine")
    assert attacks == [60] * 4 and not Path("kept").exists()


def test_what_is_damaged_or_no_folder_is_said_in_a_sentence(
    attacks: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    profiled(*KEPT)
    path = next(path for path in Path("kept").iterdir() if path.name.startswith("fgsm"))
    body = bytearray(path.read_bytes())
    body[-1] ^= 1
    path.write_bytes(body)
    wrong = ["uncertainty", "--model", "turned_nets:net", *FEW, *BARE, "--out", "other"]
    capsys.readouterr()
    assert run([*wrong, *KEPT]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("ukemi: attacked: ") and path.name in said and not Path("other").exists()
    assert run([*wrong, "--attacked", "turned_nets.py"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("ukemi: attacked: turned_nets.py is a file")


def test_an_attack_that_turned_nothing_is_kept_too(attacks: list[int]) -> None:
    flags = [*KEPT, "--pcs-thresholds", "0.5", "--vr-thresholds", "0.2", "--attacks", "fgsm", "--epsilon", "1e-9"]
    first = profiled(*flags)
    attacks.clear()
    assert profiled(*flags) == first and attacks == []
    assert all(len(read_checkpoint(path).tensors["images"]) == 0 for path in Path("kept").iterdir())
