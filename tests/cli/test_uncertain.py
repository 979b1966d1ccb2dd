"""What the commands about uncertainty share: refused models, names of sources, settings that are shown."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from ukemi.attacks.config import AttackConfig
from ukemi.cli.main import run
from ukemi.cli.uncertain import _without, asked
from ukemi.cli.uncertainty import UncertaintyConfig
from ukemi.data import labelled, load
from ukemi.measures.attacks import under_attack
from ukemi.models.own import load_own
from ukemi.repairs.more import DATA, write_data
from ukemi.training import TrainConfig
from ukemi.training.checkpoints import write_checkpoint
from ukemi.training.run import Run
from ukemi.training.sets import Recorder, read_set, write_set
from ukemi.training.setup import load_sets, make_model
from ukemi.uncertainty import measured, uncertainty_of
from ukemi.uncertainty.generation import CONFIRM

NETS = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Dropout(0.3), nn.Linear(49, 10))

def plain():
    torch.manual_seed(0)
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, 10))

def dull():
    made = plain()
    made[-1].weight.data.zero_()
    made[-1].bias.data[:] = torch.arange(10) == 11  # never right where class 0 has no image
    return made

class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.relu, self.head = nn.Linear(28, 8), nn.ReLU(), nn.Linear(8, 10)

    def forward(self, images):
        return self.head(self.relu(self.layer(images.reshape(-1, 28))).view(len(images), -1, 8).mean(1))

def coloured():
    return nn.Sequential(nn.Conv2d(3, 10, 28), nn.Flatten())

def sure():
    return nn.Sequential(*net(), nn.Softmax(1))
"""
GIVEN = ["--pcs-thresholds", "0.5", "--vr-thresholds", "0.2", "--passes", "4", "--device", "cpu"]
FEW = ["--images", "60", "--validation-images", "20"]
QUICK = ["--population", "4", "--generations", "2"]
BARE = ["--fuzzers", "--variants", "None"]


def own(name: str) -> list[str]:
    return ["--model", f"unsure_nets:{name}", "--data", "fashion-mini"]


@pytest.fixture(autouse=True)
def _here(elsewhere: None) -> None:
    Path("unsure_nets.py").write_text(NETS)


@pytest.fixture
def fooling() -> list[str]:
    """Sets of `ukemi attack` in files that are called as the benign images are."""
    model, data = load_own("unsure_nets:net").eval(), load("fashion-mini").test.take(torch.arange(200))
    told = AttackConfig(attack="fgsm", epsilon=0.3)
    recorder = Recorder(told.made())
    under_attack(model, data, recorder)
    names = ["benign", "a/benign"]
    for name in names:
        write_set(Path(name), recorder.set(model, data, told, data="fashion-mini", split="test"))
    return names


def test_the_seed_is_that_of_the_masks_too() -> None:
    told = {"model": "unsure_nets:net", "data": "fashion-mini", "device": "cpu", "passes": 4}
    answers = []
    for seed in (0, 0, 1):
        found = asked(UncertaintyConfig(seed=seed, **told), 4)  # type: ignore[arg-type]
        answers.append(found.source(torch.ones(2, 1, 28, 28), torch.arange(2)).drawn)
    assert torch.equal(answers[0], answers[1]) and not torch.equal(answers[0], answers[2])


def test_every_command_asks_for_the_kinds_of_pcs_and_vr_that_it_was_told() -> None:
    kinds = ["--confidence", "max", "--against", "mode"]
    limits = ["--pcs-thresholds", "0.099", *GIVEN[2:]]  # one of ten classes has a tenth at least, and here little more
    few = ["--images", "60", "--validation-images", "20", "--out", "o"]
    found = asked(UncertaintyConfig(model="unsure_nets:net", data="fashion-mini", device="cpu", passes=4), 60)

    assert run(["uncertainty", *own("net"), *limits, *kinds, *BARE, "--attacks", "fgsm", *few]) == 0
    row = json.loads(Path("o/uncertainty.json").read_text())["sources"][0]
    wanted = uncertainty_of(found.source, found.data, confidence="max", against="mode")
    other = uncertainty_of(found.source, found.data)
    assert row["mean"]["pcs"] == float(wanted.pcs.mean()) != float(other.pcs.mean())
    assert row["mean"]["vr"] == float(wanted.vr.mean()) != float(other.vr.mean())

    assert run(["generate", *own("net"), *limits, *kinds, *QUICK, *few]) == 0
    made = read_set(Path("o/generated.safetensors"))
    known = found.data.take((other.prediction == found.data.labels).nonzero().flatten())
    assert made.index.equal(known.index) and 0 < len(made) < 60  # only what the model recognises
    again = measured(found.source(made.images, made.index, turn=CONFIRM), "max", "mode")
    assert made.extras["pcs"].equal(again.pcs) and made.extras["vr"].equal(again.vr)

    defend = ["--defences", "bit-depth", "--attacks", "fgsm", "--epsilon", "0.3"]
    for told, low in (([], True), (kinds, False)):
        assert run(["defend", *own("net"), *limits, *told, *defend, *few]) == 0
        counts = json.loads(Path("o/defences.json").read_text())["patterns"]
        assert (counts["LL"] + counts["LH"] > 0) == low


def test_settings_that_took_no_part_are_not_shown() -> None:
    few = ["--images", "40", "--validation-images", "40", "--attacks", "deepfool", *QUICK, "--out", "o"]
    limits, natural = GIVEN[:4], ["--generator", "natural", "--space", "t6"]
    bred, found = {"tournament", "exchange", "mutation", "grains"}, {"attacks", "validation_images"}
    for name, flags, unused in (
        ("net", [*limits, *natural], {"dropout", "epsilon"} | bred | found),
        ("plain", limits, {"space"} | found),
        ("plain", natural, bred),
    ):
        assert run(["generate", *own(name), *GIVEN[4:], *flags, *few]) == 0
        shown = json.loads(Path("o/generation.json").read_text())["settings"]
        assert {"dropout", "epsilon", "space", *bred, *found} - shown.keys() == unused
    assert run(["uncertainty", *own("net"), *GIVEN, *BARE, "--images", "4", "--attacks", "fgsm", "--out", "o"]) == 0
    assert "dropout" not in json.loads(Path("o/uncertainty.json").read_text())["settings"]


def test_of_an_ensemble_it_is_not_said_that_anything_was_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    weights = load_own("unsure_nets:plain").state_dict()
    save_file({name: 1.1 * tensor for name, tensor in weights.items()}, "member.safetensors")
    flags = [*GIVEN[:4], "--device", "cpu", "--images", "40", "--ensemble", "member.safetensors", "--out", "o"]
    assert run(["generate", *own("plain"), *flags, *QUICK]) == 0
    said, page = capsys.readouterr().out, Path("o/page.html").read_text()
    for text in (said, page):
        assert "with dropout under masks that the search never saw" in " ".join(text.split())
    assert "under fresh masks" not in page


@pytest.mark.parametrize("command", [["uncertainty", *BARE, "--attacks"], ["generate", *QUICK]])
def test_a_model_that_gives_probabilities_is_refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, *own("sure"), *GIVEN, *FEW, "--out", "o"]) == 2
    assert "model: its outputs look like probabilities" in capsys.readouterr().err
    assert not Path("o").exists()


@pytest.mark.parametrize(
    ("command", "file"), [(["uncertainty", *BARE], "uncertainty"), (["defend", "--defences", "bit-depth"], "defences")]
)
def test_a_set_is_never_taken_for_the_benign_images(command: list[str], file: str, fooling: list[str]) -> None:
    flags = ["--attacks", "fgsm", "--sets", *fooling, "--out", "o"]
    assert run([*command, *own("net"), *GIVEN, *FEW, *flags]) == 0
    found: dict[str, Any] = json.loads(Path(f"o/{file}.json").read_text())
    if file == "defences":
        assert list(found["sources"]) == ["./benign", "a", "fgsm"] and found["defences"][0]["accuracy"] > 0
    else:
        rows = {row["source"]: row for row in found["sources"]}
        assert rows["benign"]["images"] == 60 and rows["benign"]["accuracy"] > 0 == rows["./benign"]["accuracy"]


def test_a_model_that_recognises_nothing_is_profiled_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Only what is recognised can be turned: attacks and fuzzers have rows without an image."""
    test = load("fashion-mini").test
    some = test.batch((test.labels > 0).nonzero().flatten()[:40], "cpu")
    images, labels = (some.images.mul(255).byte()[:, 0].numpy(), some.labels.numpy())
    np.savez("some.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    flags = ["--model", "unsure_nets:dull", "--data", "some.npz", *GIVEN, *FEW, "--attacks", "fgsm", "--keep-fuzzed"]
    assert run(["uncertainty", *flags, "--out", "o"]) == 0, capsys.readouterr().err
    rows = json.loads(Path("o/uncertainty.json").read_text())["sources"]
    images_of = {row["source"]: row["images"] for row in rows}
    assert images_of == {"benign": 40, "natural t3": 40, "fgsm": 0, "deephunter": 0, "tensorfuzz": 0}
    assert len(read_set(Path("o/tensorfuzz.safetensors"))) == rows[0]["accuracy"] == 0


def test_layers_that_fuzzers_cannot_read_are_named_before_the_long_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = [*own("Patches"), *FEW, "--passes", "4", "--attacks", "fgsm", "--epsilon", "0.3"]
    assert run(["defend", *flags, *GIVEN[:4], "--out", "d"]) == 0
    assert "left out: adversarial-classifier (activations: every layer should give one" in capsys.readouterr().out
    monkeypatch.setattr("ukemi.cli.turned.turned_by", None)  # attacks: never reached
    assert run(["uncertainty", *flags, "--out", "o"]) == 2
    assert "ukemi: fuzzers: every layer should give one row per image" in capsys.readouterr().err
    assert not Path("o").exists()


def test_a_member_that_takes_other_images_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    config = TrainConfig(model="unsure_nets:coloured", out=Path("odd"))
    write_checkpoint(Run.start(config).weights_path, {}, {"classes": list(load("fashion-mini").classes)})
    flags = [*GIVEN[:4], "--device", "cpu", "--attacks", "fgsm", "--ensemble", "odd", "--out", "o"]
    assert run(["uncertainty", *own("net"), *flags]) == 2
    assert "ukemi: ensemble: odd: it can't take images of 1×28×28" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["uncertainty", *BARE], ["generate", *QUICK], ["defend", "--defences", "jpeg"]])
def test_brackets_in_a_path_are_part_of_it(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for out in ("o[red]", "o[/bold]"):
        assert run([*command, *own("net"), *GIVEN, *FEW, "--attacks", "fgsm", "--out", out]) == 0
        assert f"page:    {out}/page.html" in capsys.readouterr().out


def test_what_a_fuzzer_kept_stands_apart_from_what_is_attacked(capsys: pytest.CaptureFixture[str]) -> None:
    flags = [*own("net"), *GIVEN, *FEW, "--attacks", "fgsm", "--epsilon", "0.3", "--out", "o"]
    assert run(["uncertainty", *flags, "--variants", "None", "--fuzzers", "deephunter", "--keep-fuzzed"]) == 0
    capsys.readouterr()
    assert run(["defend", *flags, "--defences", "bit-depth", "--sets", "o/deephunter.safetensors"]) == 0
    heads = next(line.split() for line in capsys.readouterr().out.splitlines() if "benign" in line)
    assert heads == ["passes", "%", "benign", "fuzzed", "attacked", "common", "uncommon", "×"]


def test_an_attack_of_ones_own_that_fails_is_named_as_it_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["uncertainty", *own("net"), *GIVEN, *FEW, *BARE, "--attacks", "unsure_nets:plain"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("ukemi: attacks: plain failed (TypeError")


def _repaired(folder: Path, origin: Run, *given: torch.Tensor) -> Path:
    """A run of some made images, or of those given, in a file of its own, as a repair leaves it behind."""
    images, labels = given or (torch.rand(100, 1, 28, 28), torch.arange(100) % 10)
    write_data(folder, images, labels, load("fashion-mini").test)
    config = {"model": "lenet5", "weights": origin.weights_path, "validation": 0, "seed": 0}
    made = Run.start(TrainConfig(data=str(folder / DATA), out=folder, **config))  # type: ignore[arg-type]
    made.weights_path.write_bytes(origin.weights_path.read_bytes())
    return folder


def test_made_images_that_a_repair_trained_on_find_no_thresholds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = TrainConfig(model="lenet5", validation=0.2, out=tmp_path / "run")
    origin, data = Run.start(config), load("fashion-mini")
    model = make_model(config, data.train, data.classes, None)
    write_checkpoint(origin.weights_path, model.state_dict(), {"classes": list(data.classes)})
    twice = _repaired(tmp_path / "twice", Run(_repaired(tmp_path / "once", origin)))
    found = asked(UncertaintyConfig(run=twice, device="cpu"), 10)
    aside = load_sets(config).validation
    assert aside is not None and set(found.validation.index.tolist()) <= set(aside.index.tolist())
    rows = found.validation.index  # of fashion-mini, whose training part is numbered from 0
    assert torch.equal(found.validation.images, data.train.images[rows])
    (tmp_path / "run" / "config.toml").unlink()
    assert not capsys.readouterr().err
    found = asked(UncertaintyConfig(run=twice, device="cpu"), 10)
    assert len(found.validation) == 100
    assert f"validation-images: some may be made ones, since {tmp_path / 'run'}, which" in capsys.readouterr().err


@pytest.mark.parametrize(("aside", "among"), [(0.2, 0), (0, 50)])
def test_what_a_repair_trained_on_is_told_from_validation_images_by_its_pixels(
    aside: float, among: int, tmp_path: Path
) -> None:
    """Its file numbers the images anew."""
    config = TrainConfig(model="lenet5", validation=aside, out=tmp_path / "run")
    origin, own = Run.start(config), load_sets(config)
    model = make_model(config, own.train, own.train.classes, None)
    write_checkpoint(origin.weights_path, model.state_dict(), {"classes": list(own.train.classes)})
    backwards = own.train.take(torch.arange(len(own.train)).flip(0))
    repaired = _repaired(tmp_path / "repaired", origin, backwards.images, backwards.labels)
    asking = UncertaintyConfig(run=repaired, split="train", validation_images=50, device="cpu")
    found = asked(asking, len(own.train), apart=True)
    assert len(found.validation) == 50 and len(found.data) == len(own.train) - among
    taken, measured = ({one.numpy().tobytes() for one in part.images} for part in (found.validation, found.data))
    assert not taken & measured


def test_what_the_thresholds_leave_to_measure_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    data = labelled(torch.rand(5, 1, 8, 8), torch.arange(5) % 2)
    left = _without(data, data.take(torch.tensor([1, 3])), numbered_alike=True)
    assert left.index.tolist() == [0, 2, 4]
    assert "data: 2 of 5 images find the thresholds, which leaves 3 to measure" in capsys.readouterr().err
    none = data.take(torch.empty(0, dtype=torch.int64))
    assert _without(data, none, numbered_alike=True) is data
    assert not capsys.readouterr().err
