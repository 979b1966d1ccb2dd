"""`benchmarks/pieces.py`: lines of one base model belong together, those of a replaced one do not."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.delitem(sys.modules, "pieces", raising=False)
    import pieces

    return pieces


def line(seed: int, method: str, base: str | None, sizes: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"cell": "demo", "seed": seed, "method": method, "sizes": sizes}
    return found if base is None else found | {"base": base}


def test_the_last_base_of_a_network_a_seed_and_a_size_counts(pieces: Any) -> None:
    kept = [line(0, "dare", "b"), line(1, "dare", "a"), line(0, "dare", "a", "small"), line(2, "dare", None)]
    gone = [line(0, "original", None), line(0, "original", "a")]
    assert pieces.of_one_base([*gone, *kept]) == kept


def test_a_network_that_was_trained_anew_is_measured_anew(
    pieces: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, weights = tmp_path / "lines.jsonl", tmp_path / "model.safetensors"
    subject = SimpleNamespace(run=SimpleNamespace(folder=tmp_path), line=lambda piece: {"seconds": 0.0})
    kind = SimpleNamespace(subject=lambda place: subject)
    kind.subject.key = lambda name, piece: {"cell": name, "method": piece}
    place = SimpleNamespace(cell=SimpleNamespace(name="demo"), name="demo", seed=0, before=lambda piece: None)
    monkeypatch.setattr(pieces, "pieces_of", lambda config, cell: ["original", "dare"])
    config = SimpleNamespace(kind=kind, device="cpu")
    args = SimpleNamespace(out=out, commit="x", shared=True, pieces=None)

    def run() -> list[str]:
        before = len(out.read_text().splitlines()) if out.exists() else 0
        pieces._run_pieces(config, place, "", args)
        return [json.loads(one)["method"] for one in out.read_text().splitlines()[before:]]

    weights.write_bytes(b"first")
    assert run() == ["original", "dare"]
    assert run() == []
    weights.unlink()
    assert run() == []  # all is there, of one base: nothing is trained for it
    args.pieces, weights = ["dare"], tmp_path / "model.safetensors"
    weights.write_bytes(b"second")
    out.write_text("".join(out.read_text().splitlines(keepends=True)[:1]))
    assert run() == ["dare"]
    args.pieces = None
    assert run() == ["original"]
    bases = [json.loads(one)["base"] for one in out.read_text().splitlines()]
    assert bases[1] == bases[2] != bases[0]
