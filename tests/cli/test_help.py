"""`--help` of every command: what a flag takes, its default, and lines that end where the terminal does."""

import re
from pathlib import Path

import pytest

from ukemi.cli.help import paragraphs
from ukemi.cli.main import COMMANDS, run
from ukemi.cli.repair import WAYS


def said(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        run([*command, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [60, 100])
@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"repair"}))
def test_no_line_is_longer_than_the_terminal_and_nothing_is_said_of_none(
    command: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = said([command], capsys)
    assert max(len(line) for line in text.splitlines() if not line.startswith("usage: ")) <= width
    assert f"usage: ukemi {command} " in text
    assert not re.search(r"\{None\}|default: (None|False)?\)", text)


def flags(text: str) -> dict[str, str]:
    """What is said of each, by its name, what it takes included."""
    whole = " ".join(line.strip("│ ") for line in text.splitlines())
    parts = re.split(r" (?=(?:--[a-z][\w.-]*|RUN) )", whole.partition("show this help message and exit")[2])
    return {part.split()[0]: " ".join(part.split()) for part in parts if part.startswith("--")}


def test_defaults_are_said_as_they_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    found = flags(said(["selfcheck"], capsys))
    assert found["--epsilon"].startswith("--epsilon NUMBER ") and found["--epsilon"].endswith("(default: 8/255)")
    assert found["--tolerance"].endswith("(default: 0.02)") and found["--steps"].endswith("(default: 40)")
    assert found["--split"].startswith("--split {test,train,all} ") and found["--split"].endswith("(default: test)")
    assert found["--weights"] == "--weights PATH The model's weights: safetensors, or .pt with tensors only."
    assert found["--size"] == "--size INT Resize images to this side."
    assert flags(said(["evaluate"], capsys))["--norm"].startswith("--norm {l1,l2,linf} ")  # one of these, or none


def test_what_is_given_beside_help_is_the_default_that_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.toml").write_text('size = 32\n[augmenter]\nname = "worst-of"\nk = 7\n')
    found = flags(said(["train", "--config", str(tmp_path / "mine.toml")], capsys))
    assert found["--augmenter.k"].endswith("(default: 7)") and found["--size"].endswith("(default: 32)")
    assert "--augmenter.population" not in found


def test_which_parts_are_usual_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(said(["train"], capsys).split())
    assert "styx, own (default: standard); its own settings follow as --augmenter.SETTING, and" in text
    assert "grouped-mixup (default: cross-entropy);" in text
    text = " ".join(said(["train", "--augmenter", "ukemi"], capsys).split())
    assert "(default: ukemi);" in text and "grouped-mixup (default: consistency);" in text


def test_paragraphs_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert paragraphs("One two three\nfour five six.\n\n--flag-with-hyphens is one word") == (
        "One two three four\nfive six.\n\n--flag-with-hyphens\nis one word"
    )


def test_commands_and_ways_are_listed_a_row_each(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for asked, names in ((["--help"], COMMANDS), (["repair", "--help"], WAYS)):
        assert run(asked) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 60
        assert [line.split()[0] for line in lines if re.match(r"  [a-z]", line)] == list(names)
