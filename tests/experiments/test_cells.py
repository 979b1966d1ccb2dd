"""Both experiments on a tiny set: sets, tuned models and lines are made once, and what was torn is made again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_cell import placed

from ukemi.cli.generate import GenerateConfig
from ukemi.cli.parse import parse
from ukemi.cli.uncertainty import UncertaintyConfig
from ukemi.errors import UserError
from ukemi.experiments.dare import DareCell
from ukemi.experiments.uncertain import Uncertain
from ukemi.training import Run
from ukemi.training.sets import read_set


def test_dare_keeps_what_it_makes_and_makes_again_what_is_torn(small: Path, tmp_path: Path) -> None:
    place = placed("dare", small, tmp_path, train={"learning-rate": 0.1, "batch-size": 75, "schedule": "constant"})
    cell = DareCell(place)
    original = cell.line("original")
    # frozen sets hold what fools the base model, and nothing else
    assert set(original["frozen"]["minimal"].values()) == {0.0} and original["clean"] > 0.5
    assert original["sizes"]["white-box"] == 10 and original["seconds"]["train"] > 0
    tuned = {method: cell.line(method) for method in ("dare", "adv fgsm")}
    json.dumps(tuned)
    assert tuned["adv fgsm"]["missed"] or tuned["adv fgsm"]["seconds"]["generate"] > 0
    assert all(line["missed"] or 0 <= line["clean"] <= 1 for line in tuned.values())
    sets = {path: path.stat().st_mtime_ns for path in (place.folder / "sets").iterdir()}
    assert len(sets) == 8 + 5 + 1  # test, choosing, and what FGSM is tuned on
    folder = cell.folder_of("dare")
    Run(folder).weights_path.unlink()  # killed while it was tuned
    again = DareCell(place)
    assert again.line("dare")["clean"] == tuned["dare"]["clean"] and Run(folder).weights_path.exists()
    assert {path: path.stat().st_mtime_ns for path in (place.folder / "sets").iterdir()} == sets


def test_variants_tune_on_as_many_images_as_were_mined(small: Path, tmp_path: Path) -> None:
    """Twins double what there is, and a random target has every image: neither may tune on more than DARE does."""
    train = {"learning-rate": 0.1, "batch-size": 75, "schedule": "constant"}
    cell = DareCell(placed("dare", small, tmp_path, train=train, sizes={"tuning": 10_000}))
    said = {method: cell.line(method)["chosen"] for method in ("dare", "dare-adv", "rand")}
    assert 1 < said["dare"]["mined"] < said["rand"]["mined"]
    assert {chosen["samples"] for chosen in said.values()} == {said["dare"]["mined"]}


def test_frozen_sets_may_be_made_of_training_images(small: Path, tmp_path: Path) -> None:
    """As the released code does; folders and lines of the usual choice don't know of it."""
    train = {"learning-rate": 0.1, "batch-size": 75, "schedule": "constant"}
    usual = placed("dare", small, tmp_path, train=train)
    released = placed("dare", small, tmp_path, train=train, sizes={"frozen-from": "train"})
    assert usual.folder != released.folder
    assert "frozen-from" not in usual.sizes.as_json() and released.sizes.as_json()["frozen-from"] == "train"
    cell = DareCell(released)
    made = cell.adversarial("fgsm", "test")
    own = set(cell.ground.train.index.tolist())
    assert len(made) > 0 and set(made.index.tolist()) <= own
    labels = dict(zip(cell.ground.train.index.tolist(), cell.ground.train.labels.tolist(), strict=True))
    assert [labels[index] for index in made.index.tolist()] == made.labels.tolist()
    paths = list((released.folder / "sets").iterdir())
    assert [read_set(path).split for path in paths] == ["train"]
    with pytest.raises(UserError, match=r"sizes\.frozen-from: should be 'test' or 'train'"):
        placed("dare", small, tmp_path, sizes={"frozen-from": "validation"})


def test_uncertainty_is_a_chain_of_commands_that_share_their_folders(small: Path, tmp_path: Path) -> None:
    said: list[list[str]] = []

    def noted(words: list[str]) -> int:
        """Writes what the command would have written last."""
        said.append(words)
        out = Path(words[words.index("--out") + 1])
        out.mkdir(parents=True)
        found = {"thresholds": {}, "sources": [], "passes": 4, "calibration": {"expected_error": 0.1}}
        name = {"uncertainty": "uncertainty.json", "generate": "generation.json"}[words[0]]
        (out / name).write_text(json.dumps(found if words[0] == "uncertainty" else {"success_rate": 0.5}))
        return 0

    told = {"train": {"dropout": 0.2, "epochs": 2, "batch_size": 75}}
    place = placed("uncertainty", small, tmp_path, epsilon=0.3, **told)
    place = replace(place, command=noted)
    made = Uncertain(place).line("generate LH misclassified")
    assert made == {"success_rate": 0.5, "settings": None}
    assert [words[0] for words in said] == ["uncertainty", "generate"]  # limits first
    run = str(place.folder / "base")
    assert all(words[1] == run and words[words.index("--epsilon") + 1] == "0.3" for words in said)
    assert said[1][said[1].index("--profile") + 1] == str(place.folder / "uncertainty" / "uncertainty.json")
    assert Uncertain(place).line("profile")["epochs"] == 2 and len(said) == 2
    Uncertain(place).line("generate LH kept")
    assert len(said) == 3 and said[2][said[2].index("--goal") + 1] == "kept"
    for words in said:  # the commands read these very words
        parse({"uncertainty": UncertaintyConfig, "generate": GenerateConfig}[words[0]], words[1:], words[0])


def test_nothing_is_begun_after_its_time(small: Path, tmp_path: Path) -> None:
    place = placed("dare", small, tmp_path)

    def late(piece: str) -> None:
        raise TimeoutError(piece)

    with pytest.raises(TimeoutError, match="tiny 0 base"):
        DareCell(replace(place, before=late)).line("original")
    assert not place.folder.exists()
