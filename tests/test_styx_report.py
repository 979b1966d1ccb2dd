"""The report of `benchmarks/styx.py`: what it counts, and that sizes are never mixed."""

import importlib.util
import tomllib
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SIZES = ("epochs_changed", "images", "few")


def written(lines: list[dict[str, Any]]) -> str:
    spec = importlib.util.spec_from_file_location("styx_report", BENCHMARKS / "styx_report.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.text(lines, tomllib.loads((BENCHMARKS / "styx.toml").read_text()), SIZES))


def line(model: str, method: str, seed: int, robust: float, seconds: float = 10.0, **size: Any) -> dict[str, Any]:
    groups = ("fgsm-l1", "fgsm-l2", "bim-l1", "deepfool", "fgsm", "bim")
    under = {"robustness": robust, "distance": 1.5}
    return {
        **dict(zip(SIZES, (None, 100, 10), strict=True)),
        "model": model,
        "method": method,
        "seed": seed,
        "seconds": seconds,
        "epoch_seconds": 1.0,
        "epochs": 10,
        "mutation_seconds": seconds - 10,
        "accuracy": 0.9,
        "robustness": dict.fromkeys(groups, robust),
        "device": "CPU",
        "torch": "2",
        "commit": "abc",
        "beyond": {"pgd": under, "carlini-wagner": under, "jsma": under},
        **size,
    }


def complete(model: str, own: float, traditional: float, adversarial: float, seed: int = 0) -> list[dict[str, Any]]:
    """Mutators around `own`, a tenth slower."""
    others = [line(model, "traditional", seed, traditional), line(model, "adversarial", seed, adversarial)]
    shifts = {"zero": -0.1, "average": 0.1, "random": -0.05, "gaussian": 0.05}
    return others + [line(model, name, seed, own + shift, 11.0) for name, shift in shifts.items()]


def test_wins_and_gains_are_counted_on_the_mean_of_the_four() -> None:
    said = written([*complete("mnist MLP", 0.6, 0.5, 0.4), *complete("mnist CNN", 0.6, 0.5, 0.8)])
    assert "| fgsm | 2 of 5 | 2 | 1 | +10.0 | +8.8 |" in said
    assert "3 wins of 6 against the better of the two others (paper: 7 of 15), 6 of 6 against traditional" in said
    assert "9 of 15 are open" in said and "| mnist MLP | 1.10 |" in said and "| fashion MLP | open |" in said
    assert "| styx, mean of the four | 1 | 90.0 | 60.0 (70) | 60.0 (71) | 60.0 (94) |" in said
    assert "| styx mixture | open |" in said and "- mnist MLP, mixture: seed 0, 1, 2" in said
    assert "- mnist MLP, zero: seed 1, 2" in said and "adversarial 8/255: seed 0, 1, 2" in said


def test_seeds_become_a_mean_and_a_deviation() -> None:
    lines = [*complete("mnist MLP", 0.6, 0.5, 0.4), *complete("mnist MLP", 0.7, 0.5, 0.4, seed=1)]
    said = written(lines)
    assert "| styx, mean of the four | 2 | 90.0 ± 0.0 | 65.0 ± 7.1 (70) |" in said
    assert "| traditional | 1 |" in written(lines[:1])  # a mean needs all four, a row of its own only itself
    assert "styx, mean of the four | open" in written(lines[:5])


def test_other_sizes_have_tables_of_their_own() -> None:
    said = written([line("mnist MLP", "zero", 0, 0.5), line("mnist MLP", "zero", 1, 0.7, images=50)])
    assert said.count("\n## ") == 2 and said.count("| styx zero | 1 |") == 2 and "50 images for the grid" in said
    assert "Every cell is open." in written([])


def test_devices_share_a_table_but_their_seconds_are_not_compared() -> None:
    here, there = complete("mnist MLP", 0.6, 0.5, 0.4), complete("mnist CNN", 0.6, 0.5, 0.4)
    there[0]["device"] = "GPU"
    said = written([*here, *there])
    assert said.count("\n## ") == 1 and "CPU, torch 2" in said and "GPU, torch 2" in said
    assert "| mnist MLP | 1.10 |" in said and "| mnist CNN | open |" in said


def test_seconds_on_a_shared_device_are_left_out() -> None:
    alone = complete("mnist MLP", 0.6, 0.5, 0.4)
    said = written([{**one, "shared": True} for one in alone])
    assert "| 10.0 (32) |" in written(alone) and "| 10.0 (32) |" not in said
    assert "time was measured apart" in said and "| mnist MLP | open | | |" not in said


def test_lines_of_which_only_the_printed_part_is_known_count_where_they_can() -> None:
    whole, part = complete("mnist MLP", 0.6, 0.5, 0.4), complete("mnist MLP", 0.7, 0.5, 0.4, seed=1)
    assert "only what the command printed" not in written(whole)
    for one in part:
        one["robustness"] = {name: one["robustness"][name] for name in ("fgsm", "bim", "deepfool")}
        one["printed"], one["shared"] = True, True
        del one["beyond"], one["epoch_seconds"], one["mutation_seconds"]
    said = written([*part, *whole])
    assert "| adversarial | 2 | 90.0 ± 0.0 | 40.0 ± 0.0 (26) |" in said and "| 40.0 | 1.500 | 40.0 |" in said
    assert "| adversarial | 40.0 | 40.0 | 40.0 |" in said  # per norm: one seed
    assert "mnist MLP, adversarial, seed 1; mnist MLP, zero, seed 1" in said and "printed is known" in said


def test_lines_without_attacks_become_a_table_of_times_alone() -> None:
    lines = [{**one, "images": 0, "few": 0} for one in complete("mnist MLP", 0.6, 0.5, 0.4)]
    for one in lines:
        del one["robustness"], one["beyond"]
    said = written(lines)
    assert "time alone" in said and "| mnist MLP | 1.00 + 0.00 | 1.00 + 0.00 | 1.00 + 1.00 |" in said
    assert "32, STYX 43" in said and "| yes | 1.00 |" in said  # adversarial training, over traditional
    assert "| mnist MLP | 1.10 |" in said and "Wins" not in said and "| fashion MLP | open |" in said
    shared = written([{**one, "shared": True} for one in lines])
    assert "| mnist MLP | open |" in shared and "1.10 |" not in shared
