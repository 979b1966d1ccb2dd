"""`ukemi uncertainty`: what it writes and says, its exit codes, and mistakes that `ukemi generate` shares."""

import json
import re
from pathlib import Path

import pytest
from uncertainty_samples import BASE, FEW, GIVEN, OWN, PLAIN, QUICK, TEN

from ukemi.cli.main import run
from ukemi.cli.uncertain import asked
from ukemi.cli.uncertainty import UncertaintyConfig
from ukemi.data import Data, load
from ukemi.training import TrainConfig
from ukemi.training.checkpoints import write_checkpoint
from ukemi.training.run import Run
from ukemi.training.sets import check_set, read_set
from ukemi.training.setup import load_sets, make_model, trained_model

pytestmark = pytest.mark.usefixtures("unsure_net")


def test_uncertainty_writes_tables_numbers_and_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    attacks = ["--attacks", "fgsm", "deepfool", "--epsilon", "0.1", "--gallery", "1", "--keep-fuzzed"]
    assert run(["uncertainty", *OWN, *FEW[:4], *attacks]) == 0
    said = capsys.readouterr().out
    for words in ("benign", "natural t3", "fgsm", "deepfool", "deephunter", "tensorfuzz", "AUROC", "calibration error"):
        assert words in said
    assert max(map(len, said.splitlines())) <= 80
    found = json.loads(Path("uncertainty/uncertainty.json").read_text())
    rows = {row["source"]: row for row in found["sources"]}
    assert list(rows) == ["benign", "natural t3", "fgsm", "deepfool", "deephunter", "tensorfuzz"]
    assert found["passes"] == 10 and found["source"] == "dropout" and rows["benign"]["images"] == 60
    for row in rows.values():
        assert sum(row["patterns"].values()) + row["between"] == pytest.approx(1)
        assert 0 <= row["pattern_entropy_bits"] <= 2 and 0 <= row["unstable"] <= 1
    assert rows["benign"]["auroc"] is None and rows["deepfool"]["auroc"]["pcs"] > 0.9
    assert rows["fgsm"]["accuracy"] == 0 and rows["deephunter"]["accuracy"] == 0
    limits = found["thresholds"]
    # an untold number of images would let limits of a handful look like any
    assert re.fullmatch(r"Youden’s J on \d+ validation images and \d+ that attacks turned", limits["found_by"])
    assert 0 < limits["pcs"][0] == limits["pcs"][1] < 1
    assert sum(found["calibration"]["count"]) == 60 and 0 <= found["calibration"]["expected_error"] <= 1
    fuzzed = read_set(Path("uncertainty/deephunter.safetensors"))
    assert fuzzed.attack == "fuzz" and int(fuzzed.success.sum()) == rows["deephunter"]["images"] < len(fuzzed)
    check_set(fuzzed, load("fashion-mini").test)
    page = Path("uncertainty/page.html").read_text()
    charts = sum(1 for row in found["sources"] if row["images"])
    assert page.count('class="limit"') == 2 * charts == 2 * page.count('class="s0 points"') and "data:image/png" in page
    body = page.split("<body")[1]
    assert "http" not in body and "nan" not in body.lower().replace("nano", "")
    assert 'src="' not in body.replace('src="data:image/png', "")


def test_given_thresholds_with_a_gap_leave_some_inputs_without_a_pattern() -> None:
    gap = ["--pcs-thresholds", "0.1", "0.95", "--vr-thresholds", "0.05", "0.9"]
    assert run(["uncertainty", *OWN, *FEW, *gap, "--fuzzers", "--variants", "None"]) == 0
    found = json.loads(Path("uncertainty/uncertainty.json").read_text())
    assert [row["source"] for row in found["sources"]] == ["benign", "fgsm"]
    assert found["thresholds"] == {"pcs": [0.1, 0.95], "vr": [0.05, 0.9], "found_by": "given"}
    assert found["sources"][0]["between"] > 0.1


def test_an_attack_that_fooled_nothing_has_a_row_too(capsys: pytest.CaptureFixture[str]) -> None:
    none = ["--attacks", "fgsm", "--epsilon", "1e-6"]
    assert run(["uncertainty", *OWN, *FEW[:4], *none, *GIVEN, "--fuzzers", "--variants", "None"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip().startswith("fgsm")]
    assert rows == [["fgsm", "0", *"–––––––"], ["fgsm", *"––––"]]
    found = json.loads(Path("uncertainty/uncertainty.json").read_text())["sources"][1]
    assert (found["source"], found["images"], found["accuracy"]) == ("fgsm", 0, None)
    assert found["patterns"] == dict.fromkeys(("LL", "LH", "HL", "HH"))
    page = Path("uncertainty/page.html").read_text()
    assert page.count('<th scope="row">fgsm</th>') == 2 and "No image came of fgsm." in page


def test_an_ensemble_answers_in_place_of_dropout() -> None:
    flags = [
        "--ensemble",
        "other.safetensors",
        "along.safetensors",
        *GIVEN,
        "--attacks",
        "fgsm",
        "--fuzzers",
        "--images",
        "30",
    ]
    assert run(["uncertainty", *PLAIN[: -len(TEN)], *flags]) == 0
    found = json.loads(Path("uncertainty/uncertainty.json").read_text())
    assert found["source"] == "ensemble" and found["passes"] == 3
    assert not {"passes", "dropout", "own_dropout_only"} & found["settings"].keys()  # nothing was dropped


def test_a_member_that_counts_the_classes_otherwise_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    data = load("fashion-mini")
    for name, classes in (("one", data.classes), ("fourth", data.classes), ("other", data.classes[::-1])):
        config = TrainConfig(model="lenet5", out=Path(name), seed=len(name))
        model = make_model(config, data.train, data.classes, None)
        write_checkpoint(Run.start(config).weights_path, model.state_dict(), {"classes": list(classes)})
    flags = ["uncertainty", "one", *GIVEN, "--images", "4", "--attacks", "fgsm", "--fuzzers", "--device", "cpu"]
    for path in ("", "/model.safetensors"):  # a run, or its weights alone
        assert run([*flags, "--ensemble", f"other{path}"]) == 2
        assert f"ensemble: other{path} knows the classes" in capsys.readouterr().err
        assert run([*flags, "--ensemble", f"fourth{path}"]) == 0


def test_a_member_that_is_there_already_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Two alike always agree: of several of them VR and MI are 0 for every image."""
    flags = ["uncertainty", *PLAIN[: -len(TEN)], *FEW, *GIVEN, "--ensemble"]
    for members, said in (
        (["tiny.safetensors"], "tiny.safetensors has the same weights as the model"),
        (["other.safetensors", "./other.safetensors"], "other.safetensors has the same weights as other.safetensors"),
    ):
        assert run([*flags, *members]) == 2
        assert f"ukemi: ensemble: {said}, so the two would always agree; leave it out." in capsys.readouterr().err
    assert not Path("uncertainty").exists()


def test_a_set_of_another_model_is_refused_before_anything_is_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--pattern", "LH", "--epsilon", "0.3", *GIVEN, *QUICK, "--images", "20", "--out", "made"]
    assert run(["generate", *OWN, *flags]) == 0
    other = [each.replace("tiny.safetensors", "other.safetensors") for each in OWN]
    monkeypatch.setattr("ukemi.cli.uncertainty.fuzz", None)  # never reached
    capsys.readouterr()
    sets = ["--sets", "made/generated.safetensors", "--keep-fuzzed"]
    assert run(["uncertainty", *other, *FEW, *GIVEN, *sets]) == 2
    assert "sets: made/generated.safetensors: it was made for another model" in capsys.readouterr().err
    assert not Path("uncertainty").exists()


def test_a_run_keeps_its_validation_images_aside_and_repeats_itself() -> None:
    config = TrainConfig(model="lenet5", validation=0.2, out=Path("here"))
    trained, data = Run.start(config), load("fashion-mini")
    model = make_model(config, data.train, data.classes, None)
    write_checkpoint(trained.weights_path, model.state_dict(), {"classes": list(data.classes)})
    flags = ["generate", "here", "--images", "40", "--device", "cpu", *GIVEN, *QUICK, "--passes", "4"]
    assert run([*flags]) == 0
    assert run([*flags, "--out", "again"]) == 0
    name = "generated.safetensors"
    assert (Path("here/generated/HH-misclassified") / name).read_bytes() == (Path("again") / name).read_bytes()
    again, _ = trained_model(trained, config, data.test)
    check_set(read_set(Path("again") / name), model=again)


def _numbers(data: Data) -> set[int]:
    return set(data.index.tolist())


@pytest.mark.parametrize("validation", [0.0, 0.2])
def test_thresholds_are_never_found_on_the_images_that_are_profiled(validation: float) -> None:
    config = TrainConfig(model="lenet5", validation=validation, out=Path("here"))
    trained, data = Run.start(config), load("fashion-mini")
    model = make_model(config, data.train, data.classes, None)
    write_checkpoint(trained.weights_path, model.state_dict(), {"classes": list(data.classes)})
    told = {"run": Path("here"), "split": "train", "device": "cpu", "validation_images": 400}
    found = asked(UncertaintyConfig(**told), 5800, apart=True)  # type: ignore[arg-type]
    assert len(found.validation) == 400 and len(found.data) == 5600
    assert not _numbers(found.data) & _numbers(found.validation)
    aside = load_sets(config).validation
    assert aside is None or _numbers(found.validation) <= _numbers(aside)  # nor what the run was trained on
    assert _numbers(asked(UncertaintyConfig(**told), 5800).data) & _numbers(found.validation)  # type: ignore[arg-type]


def test_a_profile_of_training_images_leaves_those_of_its_thresholds_out() -> None:
    few = [
        "--images",
        "6000",
        "--split",
        "train",
        "--attacks",
        "fgsm",
        "--epsilon",
        "0.1",
        "--fuzzers",
        "--gallery",
        "0",
    ]
    assert run(["uncertainty", *OWN, *few, "--variants", "None", "--validation-images", "5900"]) == 0
    found = json.loads(Path("uncertainty/uncertainty.json").read_text())
    assert found["sources"][0]["images"] == 100


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["uncertainty"], "uncertainty needs a run folder, or --model with --data"),
        (["generate", *OWN, "--pattern", "XY"], "pattern: 'XY' is none of LL, LH, HL, HH"),
        (["generate", *OWN, "--pcs-thresholds", "0.7", "0.3", "--vr-thresholds", "0.2"], "low should not lie above"),
        (["uncertainty", *OWN, "--vr-thresholds", "0.2"], "give those of PCS and of VR, or neither"),
        (["uncertainty", *OWN, "--passes", "1"], "passes: should be greater than or equal to 2"),
        (
            ["uncertainty", *PLAIN, *GIVEN, "--own-dropout-only"],
            "own-dropout-only: Sequential has no dropout layer; leave --own-dropout-only out",
        ),
        (
            ["uncertainty", "--model", "tiny_unsure:zero", *BASE, *GIVEN, "--own-dropout-only"],
            "own-dropout-only: Sequential has no dropout layer with a rate above 0",
        ),
        (["uncertainty", "--model", "tiny_unsure:breaking", *BASE, *FEW, *GIVEN], "of 60 images are not finite"),
        (["generate", "--model", "tiny_unsure:breaking", *BASE, *FEW, *GIVEN], "of 60 images are not finite"),
        (["uncertainty", *OWN, "--attacks", "fgms"], "ukemi: attacks: 'fgms' is none of"),
        (["uncertainty", *OWN, *GIVEN, "--dropout", "0.5"], "dropout: the network has dropout of its own, which keeps"),
        (["uncertainty", *OWN, "--sets", "none.safetensors"], "ukemi: sets: there is no file"),
        (["uncertainty", *OWN, "--profile", "none.json"], "profile: there is no file none.json"),
        (["uncertainty", *OWN, "--variants", "t9"], "variants: 't9' is none of"),
        (["uncertainty", *OWN, "--ensemble", "nope"], "ensemble: nope is neither a run folder nor a file of weights."),
        (
            ["uncertainty", *OWN[: -len(TEN)], "--ensemble", "other.safetensors", "--dropout", "0.4"],
            "dropout: an ensemble is asked once per member, without dropout",
        ),
        (
            ["generate", *OWN[: -len(TEN)], "--ensemble", "other.safetensors", "--own-dropout-only"],
            "own-dropout-only: an ensemble is asked",
        ),
        (["uncertainty", *OWN, "--ensemble", "other.safetensors"], "passes: an ensemble is asked"),
        (["generate", *OWN, "--space", "t6"], "space: it belongs to --generator natural"),
        (["generate", *OWN, "--generator", "natural", "--mutation", "0"], "mutation: it belongs to --generator pixels"),
        (["generate", *OWN, "--generator", "natural", "--grains", "3"], "grains: it belongs to --generator pixels"),
        (["generate", *OWN, "--generator", "natural", "--climbers", "3"], "climbers: it belongs to --generator pixels"),
        (["generate", *OWN, "--climbers", "-1"], "climbers: should be greater than or equal to 0"),
        (
            ["generate", *OWN, *GIVEN, "--generator", "natural", "--epsilon", "0.1"],
            "epsilon: natural variations have no",
        ),
        (["uncertainty", *OWN, "--out", "tiny.safetensors"], "out: tiny.safetensors is a file"),
        (["uncertainty", *OWN, *GIVEN, *FEW, "--out", "tiny.safetensors/x"], "tiny.safetensors is a file; "),
        (["generate", *OWN, *GIVEN, *FEW, "--out", "tiny.safetensors/x"], "tiny.safetensors is a file; "),
        (["generate", *OWN, "--epsilon", "0"], "epsilon"),
        (["uncertainty", *OWN, *FEW, "--attacks"], "attacks: without any"),
        (
            ["uncertainty", *OWN, "--split", "train", "--validation-images", "6000"],
            "validation-images: all 6000 images of this part find the thresholds, which leaves none to measure",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ukemi.cli.uncertain.turned", None)  # attacks: never reached
    before = sorted(Path().rglob("*.json"))
    try:
        code = run(flags)
    except SystemExit as ended:  # a flag that the parser itself refuses
        code = int(ended.code or 0)
    assert code == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert sorted(Path().rglob("*.json")) == before and not Path("uncertainty").exists()
