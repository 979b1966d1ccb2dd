"""Parts of a search that are a user's own, from flags and from files."""

import json
import sys
from pathlib import Path

import pytest
import torch
from command_samples import small

from ukemi.cli.main import run
from ukemi.training import Run

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_a_gene_with_a_kernel_from_a_file(images: Path, tmp_path: Path) -> None:
    (tmp_path / "mist.py").write_text("def fog(images, values):\n    return images + values[:, None, None, None]\n")
    Path("fog.toml").write_text(
        f'data = "{images}"\nepochs = 1\nbatch-size = 16\naugmenter = "random"\n[[genes]]\n'
        'name = "fog"\nlow = 0\nhigh = 0.5\nidentity = 0\nstep = 0.1\nkernel = "mist:fog"\n'
    )
    assert run(["train", "--config", "fog.toml", "--out", "here", "--device", "cpu"]) == 0
    assert Run.config_of(Path("here")).genes[0].kernel == "mist:fog"
    assert run(["train", "--resume", "here"]) == 0
    assert run(["evaluate", "here"]) == 0
    assert json.loads(Path("here/evaluation/evaluation.json").read_text())["variants"] == 3
    assert run(["train", "--config", "fog.toml", "--space", "t2", "--out", "there", "--device", "cpu"]) == 0
    assert Run.config_of(Path("there")).chosen_space().name == "t2"


OWN_PARTS = """
import torch

def least(fitness_NK, index_N, keep, *, seed, epoch):
    return fitness_NK.argsort(dim=1, stable=True)[:, :keep]

def dark(scored):
    return -scored.images.flatten(1).sum(1)
"""


def test_own_parts_of_a_search_from_flags_and_from_toml(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my_parts.py").write_text(OWN_PARTS)
    Path("mine.toml").write_text(
        'epochs = 1\nmodel = "lenet5"\nbatch-size = 1000\n[augmenter]\nname = "sensei"\nwarmup = 0\npopulation = 2\n'
        'fitness = "my_parts:dark"\n[objective]\nname = "consistency"\nkind = "l2"\n'
    )
    flags = ["--augmenter.selection", "my_parts:least", "--out", "r", "--device", "cpu", "--objective.weight", "1/2"]
    assert run(["train", "--config", "mine.toml", *flags]) == 0
    config = Run.config_of(Path("r"))
    assert config.augmenter.fitness == "my_parts:dark" and config.augmenter.selection == "my_parts:least"  # type: ignore[union-attr]
    assert config.objective.weight == 0.5 and config.objective.kind == "l2"  # type: ignore[union-attr]
    capsys.readouterr()


def test_a_part_that_only_training_uses_need_not_be_there_to_measure(
    images: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("gone_parts.py").write_text(OWN_PARTS + "from ukemi import T2 as SPACE\n")
    own = ["--augmenter", "worst-of", "--augmenter.k", "2", "--augmenter.fitness", "gone_parts:dark"]
    assert run(small(images, *own, "--space", "gone_parts:SPACE", "--out", "r")) == 0
    Path("gone_parts.py").unlink()
    monkeypatch.delitem(sys.modules, "gone_parts")
    capsys.readouterr()
    few = ["--images", "4", "--device", "cpu"]
    assert run(["evaluate", "r", *few, "--space", "t2"]) == 0
    assert run(["evaluate", "r", *few, "--grid", "t2-27"]) == 0
    assert run(["attack", "r", *few, "--attack", "fgsm", "--epsilon", "0.1"]) == 0
    found = json.loads(Path("r/evaluation/evaluation.json").read_text())
    assert found["settings"]["augmenter"] == "worst-of" and found["variants"] == 27
    flags = ["--generations", "1", "--seeds", "1", "--methods", "random"]
    assert run(["search", "r", *few, *flags, "--space", "t2"]) == 0
    assert run(["slice", "r", "--reading", "set-mean", "--device", "cpu"]) == 0
    limits = ["--pcs-thresholds", "0.5", "--vr-thresholds", "0.1"]
    assert run(["uncertainty", "r", *few, "--passes", "2", "--fuzzers", "--attacks", *limits]) == 0
    capsys.readouterr()
    for needs in (["evaluate", "r", *few], ["train", "--resume", "r"]):
        assert run(needs) == 2 and "'gone_parts:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--augmenter", "sensai"], "augmenter: 'sensai' is none of standard, random, worst-of, sensei, sensei-sa"),
        (["--objective", "hope"], "objective: 'hope' is none of cross-entropy, consistency, mixup"),
        (["--augmenter", "sensei", "--augmenter.fitness", "hope"], "fitness: 'hope' is not known"),
        (
            ["--augmenter", "sensei", "--augmenter.crossing", "no.such:one"],
            "augmenter.crossing: 'no.such:one' can't be",
        ),
        (["--augmenter", "ukemi", "--augmenter.population", "1"], "augmenter.population: should be greater than or"),
        (["--average", "1"], "average: should be less than 1"),
        (["--data", "no.such:data"], "data: 'no.such:data' can't be imported"),
    ],
)
def test_wrong_parts_are_one_sentence(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", *flags, "--out", "r"]) == 2
    told = capsys.readouterr().err
    assert said in " ".join(told.split()) and "Traceback" not in told and not Path("r").exists()


ENDING = """
import sys
import torch

class Net(torch.nn.Module):
    def forward(self, images):
        sys.exit(0)

def ends(*anything, **else_):
    sys.exit(0)
"""


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model", "a_script:main"], "model: 'a_script:main' can't be imported (SystemExit: 0, a_script.py line 2)."),
        (["--model", "ending:ends"], "model: 'ending:ends' made no network (SystemExit: 0, ending.py line 10)."),
        (["--model", "ending:Net"], "model: it can't take images of 1×28×28 (SystemExit: 0, ending.py line 7)."),
        (["--data", "ending:ends"], "data: ending:ends failed (SystemExit: 0, ending.py line 10)."),
        (["--augmenter", "own", "--augmenter.of", "ending:ends"], "augmenter.of: ends failed (SystemExit: 0,"),
    ],
)
def test_code_that_ends_python_ends_no_command_as_if_all_were_well(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a_script.py").write_text("import sys\nsys.exit(0)\n")
    Path("ending.py").write_text(ENDING)
    assert run(["train", *flags, "--out", "r"]) == 2
    assert said in " ".join(capsys.readouterr().err.split()) and not Path("r").exists()


def test_the_list_of_augmenters_names_presets_fitness_and_objectives(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["augmenters"]) == 0
    said = capsys.readouterr().out
    for name in ("sensei-released", "ukemi", "neuron-coverage", "consistency", "--objective.weight"):
        assert name in said


FAILING = """
def attack(model, images, labels, *, epsilon, norm):
    raise ValueError("no luck")

def mutator(images, mask, draw):
    raise ValueError("no luck")
"""


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--objective", "adversarial", "--objective.attack", "failing:attack"], "ukemi: attack: attack failed"),
        (["--augmenter", "styx", "--augmenter.mutator", "failing:mutator"], "augmenter.mutator: mutator failed"),
    ],
)
def test_a_part_that_fails_is_one_sentence_and_nothing_is_written(
    flags: list[str], said: str, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    assert run(small(images, "--out", "here", *flags)) == 2
    err = capsys.readouterr().err
    assert f"{said} (ValueError: no luck" in err and err.count("\n") == 1 and not Path("here").exists()


def test_a_network_that_wants_normalised_pixels_is_trained_from_its_weights(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The flags of `evaluate --model` are those of `train`, and every command on the run knows the normalisation."""
    Path("wants.py").write_text(
        "from torch import nn\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(256, 2))\n"
    )
    for name in ("net.pt", "other.pt", "third.pt"):
        torch.save({"1.weight": torch.randn(2, 256), "1.bias": torch.randn(2)}, name)
    own = ["--model", "wants:net", "--weights", "net.pt", "--mean", "0.6", "--std", "0.1"]
    assert run(["evaluate", *own, "--data", str(images), "--out", "before"]) == 0
    assert run(small(images, *own, "--learning-rate", "1e-30", "--out", "trained")) == 0
    assert run(["evaluate", "trained", "--out", "after"]) == 0
    found = [json.loads(Path(at, "evaluation.json").read_text()) for at in ("before", "after")]
    assert found[0]["robust_accuracy"] == found[1]["robust_accuracy"] and found[0]["forwards"] == found[1]["forwards"]
    assert Run.config_of(Path("trained")).mean == (0.6,)
    assert run(["repair", "retrain", "trained", "--epochs", "1"]) == 0
    ensemble = [
        "--ensemble",
        "other.pt",
        "trained/model.safetensors",
        "--pcs-thresholds",
        "0.5",
        "--vr-thresholds",
        "0.1",
    ]
    own[3] = "third.pt"
    assert run(["uncertainty", *own, "--data", str(images), *ensemble, "--attacks", "--fuzzers", "--out", "asked"]) == 0
    capsys.readouterr()
    for flags, said in (
        (
            ["--mean", "0.5", "--std", "0.1", "--model", "demo-cnn"],
            "mean: demo-cnn is normalised by its training images",
        ),
        (["--mean", "0.5", "--model", "wants:net"], "std: mean and std belong together"),
    ):
        assert run(small(images, *flags, "--out", "none")) == 2
        assert said in capsys.readouterr().err and not Path("none").exists()


COLOUR = """
from torch import nn

def make():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
"""


def test_a_colour_network_on_grey_images(images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "colour.py").write_text(COLOUR)
    flags = ["--model", "colour:make", "--data", str(images)]
    assert run(["evaluate", *flags, "--out", "there"]) == 2 and not Path("there").exists()
    assert capsys.readouterr().err.endswith("; --channels 3 reads grey images as three equal channels.\n")
    assert run(["evaluate", *flags, "--channels", "2"]) == 2
    assert "channels: 1 or 3 is needed, but 2 was given." in capsys.readouterr().err
    assert run(["evaluate", *flags, "--channels", "3", "--out", "there"]) == 0
    assert run([*small(images, "--model", "colour:make"), "--channels", "3", "--out", "run"]) == 0
    assert Run.config_of(Path("run")).channels == 3
    assert run(["evaluate", "run"]) == run(["evaluate", "run", "--data", str(images)]) == 0  # read as it was trained


LATE_PARTS = """
import torch
from ukemi import Gene, Space
from ukemi.fitness import Fitness

class Late(Fitness):
    def begin_epoch(self, model, data, epoch):
        raise ValueError("too late")
    def __call__(self, scored):
        return scored.logits[:, 0]

class Wide(Fitness):
    def __call__(self, scored):
        return scored.logits

def fails(images, values):
    raise ValueError("no fog")

def nothing(images, values):
    return None

def dark(images, values):
    return images / 0 * 0

def none(**settings):
    class Bare(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))
        def forward(self, x):
            return x.mean((1, 2, 3))[:, None] * self.weight
    return Bare()

FAILS, NOTHING, DARK = (Space((Gene("fog", 0, 1, 0, 0.5, kernel=kernel),)) for kernel in (fails, nothing, dark))
"""


@pytest.mark.parametrize("augmenter", ["sensei", "worst-of"])
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--augmenter.fitness", "predictive-entropy"], "predictive-entropy needs a network with dropout"),
        (["--augmenter.fitness", "neuron-coverage", "--model", "late_parts:none"], "it has no neurons to read"),
        (["--augmenter.fitness", "distance-surprise", "--model", "late_parts:none"], "it has no neurons to read"),
        (["--augmenter.fitness", "late_parts:Wide"], "fitness: Wide gave [4, 2], but one number per variant, [4]"),
        (["--space", "late_parts:FAILS"], "gene 'fog': fails failed (ValueError: no fog"),
        (["--space", "late_parts:NOTHING"], "gene 'fog': its kernel gave a NoneType for [2, "),
        (["--space", "late_parts:DARK"], "gene 'fog': its kernel gave a pixel that is NaN or infinite for 1"),
    ],
)
def test_what_the_search_would_stumble_on_shows_before_anything_is_written(
    augmenter: str, flags: list[str], said: str, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("late_parts.py").write_text(LATE_PARTS)
    said = said.replace("[4", "[20") if augmenter == "sensei" else said
    assert run(small(images, "--out", "here", "--epochs", "3", "--augmenter", augmenter, *flags)) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1 and not Path("here").exists()


def test_a_fitness_that_fails_while_it_learns_is_one_sentence(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("late_parts.py").write_text(LATE_PARTS)
    flags = ["--augmenter.fitness", "late_parts:Late", "--augmenter.warmup", "0"]
    assert run(small(images, "--out", "here", "--augmenter", "sensei", *flags)) == 2
    assert "fitness: begin_epoch failed (ValueError: too late, late_parts.py line" in capsys.readouterr().err
