"""`ukemi generate`, and the profiles that bring thresholds: what it writes, what it says, and its exit codes."""

import json
from pathlib import Path

import pytest
from uncertainty_samples import FEW, GIVEN, OWN, PLAIN, QUICK, TEN

from ukemi.cli.main import run
from ukemi.data import load
from ukemi.training.sets import check_set, read_set

pytestmark = pytest.mark.usefixtures("unsure_net")


def test_generate_writes_a_set_that_uncertainty_reads(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--pattern", "lh", "--epsilon", "0.3", *GIVEN, "--population", "16", "--generations", "10"]
    assert run(["generate", *OWN, *flags, "--images", "20", "--gallery", "2"]) == 0
    said = capsys.readouterr().out
    assert "LH, misclassified" in said and "claimed" in said and max(map(len, said.splitlines())) <= 80
    folder = Path("generated/LH-misclassified")
    made, found = read_set(folder / "generated.safetensors"), json.loads((folder / "generation.json").read_text())
    assert made.attack == "generate" and made.notes["pattern"] == "LH" and made.notes["goal"] == "misclassified"
    assert found["success"] == int(made.success.sum()) > 0 and found["seeds"] == len(made)
    assert made.notes["success_rate"] == pytest.approx(found["success"] / found["seeds"])
    assert float(made.distance.max()) <= 0.3 and set(made.extras) >= {"pcs", "vr", "pe", "mi"}
    assert (made.extras["pcs"][made.success] < 0.5).all() and (made.extras["vr"][made.success] >= 0.2).all()
    check_set(made, load("fashion-mini").test)
    page = (folder / "page.html").read_text()
    assert page.count('class="trio"') == 2 and "http" not in page.split("<body")[1]
    sets = ["--sets", str(folder / "generated.safetensors")]
    assert run(["uncertainty", *OWN, *FEW, *GIVEN, *sets, "--fuzzers"]) == 0
    rows = json.loads(Path("uncertainty/uncertainty.json").read_text())["sources"]
    assert rows[-1]["source"].endswith("generated.safetensors") and rows[-1]["images"] == found["success"]


def test_what_is_generated_from_another_part_of_the_data_lies_apart() -> None:
    flags = ["generate", *OWN, "--epsilon", "0.3", *GIVEN, *QUICK, "--images", "10"]
    assert run(flags) == run([*flags, "--split", "train"]) == 0
    made = {path.name: read_set(path / "generated.safetensors") for path in Path("generated").iterdir()}
    assert {name: one.split for name, one in made.items()} == {
        "HH-misclassified": "test",
        "HH-misclassified-train": "train",
    }


def test_what_can_not_be_reached_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    hard = ["--pcs-thresholds", "0.999", "--vr-thresholds", "0.99", "--epsilon", "0.01"]
    assert run(["generate", *OWN, *hard, *QUICK, "--images", "10"]) == 0
    assert "0.0" in capsys.readouterr().out
    found = json.loads(Path("generated/HH-misclassified/generation.json").read_text())
    assert found["success"] == 0 and found["best_fitness"] < 0 and found["mean_generations"] == 3
    page = Path("generated/HH-misclassified/page.html").read_text()
    assert "None was found within the budget" in page and "these came nearest" in page


def test_a_profile_brings_its_thresholds_and_genes_are_the_other_generator() -> None:
    assert run(["uncertainty", *OWN, *FEW, *GIVEN, "--fuzzers"]) == 0
    flags = ["--profile", "uncertainty/uncertainty.json", "--generator", "natural", "--space", "t6", "--goal", "kept"]
    assert run(["generate", *OWN, *flags, *QUICK, "--images", "12", "--pattern", "HL", "--out", "made"]) == 0
    found = json.loads(Path("made/generation.json").read_text())
    assert found["thresholds"] == {"pcs": [0.5, 0.5], "vr": [0.2, 0.2]}
    assert found["found_by"] == "uncertainty/uncertainty.json" and found["settings"]["generator"] == "natural"


def test_a_profile_of_another_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["uncertainty", *OWN, *FEW, *GIVEN, "--fuzzers"]) == 0
    path = Path("uncertainty/uncertainty.json")
    flags = ["--profile", str(path), *QUICK, "--images", "4", "--out", "made"]
    other = [each.replace("tiny.safetensors", "other.safetensors") for each in OWN]
    capsys.readouterr()
    assert run(["generate", *other, *flags]) == 2
    assert "profile: uncertainty/uncertainty.json was found for another model" in capsys.readouterr().err
    assert not Path("made").exists()
    assert run(["generate", *OWN, *flags, "--passes", "6"]) == 0
    assert "thresholds from 10 passes, but 6 are made here" in capsys.readouterr().err
    assert "from 10 passes" in json.loads(Path("made/generation.json").read_text())["found_by"]
    known = json.loads(path.read_text())
    del known["model_sha256"]
    path.write_text(json.dumps(known))  # as an earlier version wrote it
    assert run(["generate", *other, *flags]) == 0
    assert "doesn't say for which model" in capsys.readouterr().err


def test_a_profile_of_another_kind_of_pcs_or_vr_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    few = [*FEW, "--fuzzers", "--variants", "None"]
    assert run(["uncertainty", *PLAIN, *few, *GIVEN, "--confidence", "max", "--against", "mode"]) == 0
    flags = ["--profile", "uncertainty/uncertainty.json", *QUICK, "--images", "4", "--out", "made"]
    for kinds, field in ((["--against", "mode"], "confidence"), (["--confidence", "max"], "against")):
        capsys.readouterr()
        assert run(["generate", *PLAIN, *flags, *kinds]) == 2
        assert capsys.readouterr().err.startswith(
            f"ukemi: {field}: uncertainty/uncertainty.json has its thresholds for"
        )
    assert not Path("made").exists()
    same = ["--confidence", "max", "--against", "mode"]
    assert run(["generate", *PLAIN, *flags, *same]) == 0
    assert "note" not in capsys.readouterr().err
    assert run(["generate", *PLAIN, *flags, *same, "--dropout", "0.5"]) == 0
    assert "its thresholds at dropout 0.2, but 0.5 is put in here" in capsys.readouterr().err
    assert run(["generate", *PLAIN[: -len(TEN)], *flags, *same, "--ensemble", "other.safetensors"]) == 0
    assert "its thresholds from dropout, but an ensemble is asked here" in capsys.readouterr().err


@pytest.mark.parametrize("text", [None, "{}", "[1]", "no json"])
def test_what_is_no_profile_is_refused_in_a_sentence(text: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    if text is not None:
        Path("p.json").write_text(text)
    assert run(["generate", *OWN, "--profile", "p.json"]) == 2
    why = (
        "there is no file p.json."
        if text is None
        else "p.json is no uncertainty.json, as `ukemi uncertainty` writes it."
    )
    assert capsys.readouterr().err == f"ukemi: profile: {why}\n"


def test_a_profile_with_crossed_thresholds_or_of_a_newer_version_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for known, said in (
        ({"thresholds": {"pcs": [0.7, 0.3], "vr": [0.2, 0.2]}}, "p.json: low should not lie above high"),
        ({"schema": 2, "thresholds": {"pcs": [0.7], "vr": [0.2]}}, "p.json was written by a newer ukemi"),
    ):
        Path("p.json").write_text(json.dumps(known))
        assert run(["generate", *OWN, "--profile", "p.json"]) == 2
        assert capsys.readouterr().err.startswith(f"ukemi: profile: {said}")
