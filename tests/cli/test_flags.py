"""Wrong flags: one sentence each, that names the flag and what is allowed."""

from pathlib import Path

import pytest

from ukemi import UserError
from ukemi.cli.evaluate import EvaluateConfig
from ukemi.cli.flags import check_flags
from ukemi.cli.main import run
from ukemi.cli.parse import parse_train


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--epochs abc", "epochs: should be a valid integer, but 'abc' was given."),
        ("--epochs", "--epochs needs a value."),
        ("--epochs --flips", "--epochs needs a value."),
        ("--epochs 3 4", "'4' belongs to no flag of ukemi train (ukemi train --help lists them)."),
        ("--epoch 3", "--epoch is no flag of ukemi train; --epochs is."),
        ("--augmentr sensei", "--augmentr is no flag of ukemi train; --augmenter is."),
        ("--lr 0.1", "--lr is no flag of ukemi train; --learning-rate is."),
        ("--bogus 3", "--bogus is no flag of ukemi train (ukemi train --help lists them)."),
        (
            "--optimiser foo",
            "optimiser: should be 'sgd', 'adam', 'adamw', 'rmsprop' or 'adadelta', but 'foo' was given.",
        ),
        ("--batch_size=x", "batch-size: should be a valid integer, but 'x' was given."),
        ("--history foo", "history: should be 'half' or a valid integer, but 'foo' was given."),
        ("--drops 1 b", "drops.1: should be a valid integer, but 'b' was given."),
        ("--no-flips", "--no-flips: that is so anyway; --flips is the flag that changes it."),
        ("--no-epochs", "--no-epochs is no flag of ukemi train; --epochs is."),
        ("--augmenter styx --mutator auto", "--mutator is no flag of ukemi train; --augmenter.mutator is."),
        ("--augmenter.k 3", "--augmenter.k is no flag of ukemi train: --augmenter standard has no settings."),
        (
            "--learning-rate 8/0",
            "learning-rate: a number or a fraction such as 8/255 is expected, but '8/0' was given.",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(arguments: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        parse_train(arguments.split())
    assert str(error.value) == said


def test_flags_of_the_chosen_augmenter_are_known() -> None:
    picked = ["--augmenter", "worst-of", "--augmenter.k"]
    told = parse_train([*picked, "7", "--flips", "--drops", "1", "2", "--schedule", "step", "--epochs=3"])
    assert told.augmenter.k == 7 and told.flips and told.drops == (1, 2) and told.epochs == 3  # type: ignore[union-attr]
    with pytest.raises(UserError, match=r"augmenter\.k: should be a valid integer, but 'x' was given"):
        parse_train([*picked, "x"])


def test_none_and_negative_numbers_are_values() -> None:
    check_flags(EvaluateConfig(), ["RUN", "--images", "None"], "evaluate")
    with pytest.raises(UserError, match="seed: should be greater than or equal to 0, but '-3' was given"):
        check_flags(EvaluateConfig(), ["RUN", "--seed", "-3"], "evaluate")
    with pytest.raises(UserError, match="levels: should be a valid integer, but 'None' was given"):
        check_flags(EvaluateConfig(), ["RUN", "--levels", "None"], "evaluate")


def test_help_is_left_to_the_parser(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse_train(["--bogus", "--help"])
    assert end.value.code in (0, None) and "--epochs" in capsys.readouterr().out


def test_the_help_of_every_command_with_settings_names_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("compare", "run", "evaluate", "train"):
        with pytest.raises(SystemExit):
            run([command, "--help"])
        assert "--config FILE.toml reads settings from a file; flags come on top." in " ".join(
            capsys.readouterr().out.split()
        )


def test_the_overview_keeps_its_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([]) == 0
    lines = capsys.readouterr().out.splitlines()
    begun = lines.index(next(line for line in lines if line.startswith("  demo ")))
    rows = lines[begun : lines.index("", begun)]
    assert all(line.startswith("  ") and line[14] == " " and line[15] != " " for line in rows) and len(rows) > 17


@pytest.mark.parametrize("words", [["--run", "FOLDER"], ["--run=FOLDER"]])
def test_what_stands_by_itself_has_no_flag(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", *words]) == 2
    told = capsys.readouterr()
    said = "ukemi: --run is no flag of ukemi evaluate: what it names stands by itself, without it.\n"
    assert (told.out, told.err) == ("", said)


@pytest.mark.parametrize("part", ["augmenter", "objective"])
def test_a_parts_name_that_is_a_list_is_named(part: str, tmp_path: Path) -> None:
    """A file may hold anything; a list can't be looked up in a table of names."""
    (tmp_path / "told.toml").write_text(f'[{part}]\nname = ["a"]\n')
    with pytest.raises(UserError, match=rf"^{part}: \['a'\] is none of "):
        parse_train(["--config", str(tmp_path / "told.toml")])
