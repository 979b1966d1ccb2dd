"""DARE's tables against lines made by hand."""

from typing import Any

import pytest

from ukemi.experiments.frozen import FIXED, MINIMAL
from ukemi.reports import dare_tables


def line(method: str, seed: int, frozen: float, **changes: Any) -> dict[str, Any]:
    white = {"pgd_accuracy": 0.5, "pgd_success": 0.4, "cw_success": 0.9, "cw_distance": 0.1 * frozen}
    found = {"cell": "c", "method": method, "seed": seed, "missed": False, "clean": 0.8, "white_box": white}
    found |= {"frozen": {"minimal": dict.fromkeys(MINIMAL, frozen), "fixed": dict.fromkeys(FIXED, frozen / 2)}}
    found |= {"images": dict.fromkeys((*MINIMAL, *FIXED), 100), "sizes": {"white-box": 100}}
    return found | {"seconds": {"mine": 1.0, "tune": 2.0}, "chosen": {"learning_rate": 1e-4, "epochs": 2}} | changes


def lines() -> list[dict[str, Any]]:
    found = [line("dare", seed, value) for seed, value in enumerate((0.5, 0.6, 0.7))]
    found += [line("null random", seed, 0.3) for seed in range(3)]
    found += [line("null continued", seed, value) for seed, value in enumerate((0.4, 0.2, 0.3))]
    return [*found, {"cell": "c", "method": "rand", "seed": 0, "missed": True, "seconds": {"tune": 1.0}}]


def test_the_papers_figures_stand_beside_ours() -> None:
    paper = {"dare": {"frozen": [1, 2, 3, 4, 5], "clean": 9.5}}
    rows = dare_tables.main_section("c", lines(), ["dare", "rand", "adv bim"], paper["dare"] and paper).table
    assert rows is not None and len({len(row) for row in (rows.names, *rows.rows)}) == 1
    dare, rand, adv = rows.rows
    assert dare[:5] == ["dare", "3", "80.0 ± 0.0 (9.5)", "60.0 ± 10.0 (1)", "60.0 ± 10.0 (2)"]
    assert rand[:3] == ["rand", "1", "-"] and adv[:3] == ["adv bim", "0", "open"]
    for sizes, released in (({}, False), ({"frozen-from": "train"}, True)):
        (said,) = dare_tables.main_section("c", [line("dare", 0, 0.5, sizes=sizes)], ["dare"], {}).said
        assert ("images that the base model was trained on" in said) == released


def test_the_verdict_is_the_lead_over_the_better_control_seed_by_seed() -> None:
    section = dare_tables.verdict_section("c", lines())
    assert section.table is not None
    minimal, fixed, white, distance = section.table.rows
    # leads 0.1, 0.3, 0.4: mean 0.2667, standard error 0.0882
    assert minimal == ["frozen, minimal", "3", "yes", "+26.7 points", "8.8 points", "+10.0, +30.0, +40.0"]
    assert fixed[2] == "yes" and white[2:4] == ["no", "+0.0 points"] and distance[3] == "+0.027"
    assert "in 2 of 2 measures on frozen sets, and in 1 of 2 when it is attacked itself." in section.said[-1]
    alone = dare_tables.verdict_section("c", [one for one in lines() if one["seed"] == 0])
    assert alone.table is not None
    # one seed: sqrt((0.5 * 0.5 + 0.4 * 0.6) / 100) = 0.07, so 0.1 is not twice that; distances get no verdict
    assert alone.table.rows[0][2:5] == ["no", "+10.0 points", "7.0 points"] and alone.table.rows[3][4] == "no verdict"
    assert dare_tables.verdict_section("c", [line("dare", 0, 0.5)]).said[-1].startswith("Open")
    missed = [line(method, 0, 0.5, missed=True) for method in ("dare", "null random", "null continued")]
    assert dare_tables.verdict_section("c", missed).said[-1] == "No verdict: DARE lost too much accuracy."


def test_a_cell_in_a_row_shows_how_far_each_kind_holds() -> None:
    more = [*lines(), *(line("original", seed, 0.0) for seed in range(3)), line("adv cw", 0, 0.95)]
    more += [line("adv bim", seed, 0.9) for seed in range(3)]
    rows = dare_tables.short_section({"c": more, "bare": lines()}).table  # nothing to compare with: no row
    assert rows is not None and len({len(row) for row in (rows.names, *rows.rows)}) == 1
    minimal, white = rows.rows
    assert minimal[:3] == ["c", "3", "frozen, minimal"]
    # adv cw has one seed of three, so it is in no mean over all
    assert minimal[3:8] == ["0.0", "60.0", "30.0 (null random)", "90.0 (adv bim)", "open"]
    assert minimal[8] == "+26.7 points, more than twice its standard error (8.8 points)"
    assert white[2:4] == ["white-box PGD 8/255", "50.0"] and "not more than" in white[8]


def test_variants_are_relative_to_dare_with_the_same_seed() -> None:
    more = [*lines(), line("dare-s", 0, 0.25), line("dare-s", 2, 0.7)]
    rows = dare_tables.variant_section({"c": more}).table
    assert rows is not None and [row[1] for row in rows.rows] == ["dare-s", "null random", "null continued"]
    assert rows.rows[0][2] == "-25.0 ± 35.4" and rows.rows[0][-1] == "-25.0, +0.0"


def test_a_scenario_has_one_winner_among_those_that_all_have() -> None:
    more = [*lines(), *(line("adv bim", seed, 0.9 if seed else 0.0) for seed in range(3))]
    rows = dare_tables.best_section({"c": more, "other": []}).table
    assert rows is not None and rows.rows[0] == ["as in the paper", "5", "tie 5"]  # 0.6 and 0.6
    more[-1] = line("adv bim", 2, 1.0)
    better = dare_tables.best_section({"c": more}).table
    assert better is not None and better.rows[0][2] == "adv bim 5"


@pytest.mark.parametrize("seeds", [2, 5])
def test_shares_are_shown_seed_by_seed_where_they_are_few(seeds: int) -> None:
    chosen = {"chosen": {"key_neurons": 0.9}}
    found = [line(f"q {q}", seed, q / 100, **chosen) for q in (75, 95) for seed in range(seeds)]
    found += [line("null random", seed, 0.9) for seed in range(seeds)]
    rows = dare_tables.share_section("c", found, ["q 75", "q 95", "q 100", "null random"]).table
    assert rows is not None and len({len(row) for row in (rows.names, *rows.rows)}) == 1
    assert rows.rows[0][:3] == ["75", str(seeds), "80.0 ± 0.0"] and rows.rows[2][2] == "open"
    assert rows.rows[0][-1] == ("-20.0, -20.0" if seeds == 2 else "") and rows.rows[1][-1] == ""
    assert rows.rows[3][0] == "null random" and rows.rows[3][-1] == ("-5.0, -5.0" if seeds == 2 else "")
    white = rows.names.index("white-box PGD 8/255")
    assert rows.rows[3][white] == rows.rows[0][white] != "" and rows.rows[3][-2] == "–"


def test_seconds_are_summed() -> None:
    rows = dare_tables.seconds_section("c", lines(), ["dare"], {"dare": "43 + 40 + 20"}).table
    assert rows is not None
    assert rows.rows == [["dare", "mine 1.0 ± 0.0 + tune 2.0 ± 0.0 (43 + 40 + 20)", "3.0 ± 0.0"]]
