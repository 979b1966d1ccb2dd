"""What gets past defences: counted as a slow loop counts it."""

from dataclasses import replace
from io import StringIO
from math import inf, isnan

import pytest
import torch
from rich.console import Console
from torch import nn

from ukemi import UserError
from ukemi.data import Data, DataSet
from ukemi.defences import DEFENCES, Detector, Squeezing, Transformed, study
from ukemi.defences.study import Judged, Study
from ukemi.defences.transforms import bit_depth
from ukemi.measures.uncertainty import Profile, Profiled, profile
from ukemi.reports import words
from ukemi.reports.defences import DefenceReport, _glance, _times, defence_summary, defence_table
from ukemi.uncertainty import DropoutPasses, Thresholds, patterns_of


@pytest.fixture(scope="session")
def profiled(net: nn.Module, attacked: Data, fashion: DataSet) -> Profile:
    few = fashion.test.take(torch.arange(0, 1000, 50))
    groups = {
        "benign": few,
        "fgsm": attacked.take(torch.arange(30)),
        "plain": fashion.test.take(torch.arange(1, 1000, 20)),
    }
    return profile(DropoutPasses(net, 10), groups, Thresholds((0.4, 0.6), (0.1, 0.3)))  # some lie between


def test_counts_are_those_of_a_slow_loop(net: nn.Module, benign: Data, profiled: Profile) -> None:
    made = {"bits": Transformed(net, lambda images: bit_depth(images, 1)), "squeezing": Squeezing(net).fitted(benign)}
    seen: list[tuple[int, int]] = []
    found = study(profiled, {name: lambda one=one: one for name, one in made.items()}, lambda *at: seen.append(at))
    assert seen == [(1, 2), (2, 2)] and [one.kind for one in found.judged] == ["hardening", "detector"]
    for one in found.judged:
        defence = made[one.name]
        hits = {"fgsm": [0, 0], "plain": [0, 0]}
        numbers: dict[int, list[int]] = {}
        lost = known = 0
        for source in profiled.sources:
            batch = source.data.batch(torch.arange(len(source.data)), "cpu")
            pattern = patterns_of(source.metrics.pcs, source.metrics.vr, profiled.thresholds)
            for at in range(len(batch.labels)):
                image, label = batch.images[at : at + 1], int(batch.labels[at])
                wrong = int(net(image).argmax()) != label
                if isinstance(defence, Detector):
                    stopped = bool(defence.flags(image))
                else:
                    stopped = int(defence(image).argmax()) == label
                if source.name == "benign":
                    known += not wrong
                    lost += not wrong and stopped == isinstance(defence, Detector)
                elif wrong:
                    for count in (hits[source.name], numbers.setdefault(int(pattern[at]), [0, 0])):
                        count[0] += not stopped
                        count[1] += 1
        assert one.false_positives == pytest.approx(lost / known)
        assert {name: int(passed.sum()) for name, passed in one.passed.items()} == {
            name: h[0] for name, h in hits.items()
        }
        for name, (passed, fooling) in hits.items():
            assert found.share(one, name) == pytest.approx(passed / fooling)
        assert found.share(one) == pytest.approx(sum(h[0] for h in hits.values()) / sum(h[1] for h in hits.values()))
        shares = found.by_pattern(one)
        for at, name in enumerate(("LL", "LH", "HL", "HH")):
            if at in numbers:
                assert shares[name] == pytest.approx(numbers[at][0] / numbers[at][1])
            else:
                assert isnan(shares[name])
        assert -1 in numbers  # without a pattern, neither common nor uncommon
        rare = [sum(numbers[at][part] for at in numbers if at in (0, 2, 3)) for part in (0, 1)]
        assert found.ratio(one) == pytest.approx(rare[0] / rare[1] / shares["LH"])


def _low_and_high(one: Profiled) -> Profiled:
    rows = ((one.metrics.pcs < 1) & (one.metrics.vr > 0)).nonzero().flatten()
    return Profiled(one.name, one.data.take(rows), one.metrics.take(rows))


def test_a_ratio_without_common_inputs_that_pass(profiled: Profile) -> None:
    def ratio(common: bool, uncommon: bool) -> float:
        passed = {}
        for source in profiled.sources[1:]:
            numbers = patterns_of(source.metrics.pcs, source.metrics.vr, profiled.thresholds)
            passed[source.name] = ~source.right & torch.where(numbers == 1, common, uncommon)
        judged = Judged("own", "hardening", 1.0, 0.0, passed)
        return Study(profiled, (judged,)).ratio(judged)

    assert ratio(True, True) == 1 and ratio(False, True) == inf and isnan(ratio(False, False))
    # nothing uncommon fools, and nothing common passes
    limits = Thresholds((1.0, 1.0), (1e-9, 1e-9))
    parts = tuple(_low_and_high(one) for one in profiled.sources)
    none = {one.name: torch.zeros(len(one.data), dtype=torch.bool) for one in parts}
    stopped = Judged("own", "hardening", 1.0, 0.0, none)
    common = Study(replace(profiled, thresholds=limits, sources=parts), (stopped,))
    assert common.counts()["LH"] == sum(int((~one.right).sum()) for one in parts[1:]) > 0
    assert isnan(common.ratio(stopped))
    with pytest.raises(UserError, match="at least one"):
        study(profiled, {})


def test_the_mean_ratio_says_over_how_many_defences_it_is(profiled: Profile) -> None:
    numbers = {one.name: patterns_of(one.metrics.pcs, one.metrics.vr, profiled.thresholds) for one in profiled.sources}
    fooling = {one.name: ~one.right for one in profiled.sources[1:]}
    rare = {name: rows & (numbers[name] != 1) for name, rows in fooling.items()}
    all_pass, common_stopped = (
        Judged(name, "hardening", 1.0, 0.0, rows) for name, rows in (("a", fooling), ("b", rare))
    )
    for judged, over in (
        ((all_pass, all_pass), "over the defences."),
        ((all_pass, common_stopped), "over 1 of 2 defences"),
    ):
        said = _glance(DefenceReport("net", Study(profiled, judged), "given", {}, "cpu", 1.0))
        counts = Study(profiled, judged).counts()
        rare_ones = counts["LL"] + counts["HL"] + counts["HH"]
        assert said[1].startswith(f"Inputs of uncommon patterns ({words.plural(rare_ones, 'input')}) pass")
        assert f"than those of LH ({words.plural(counts['LH'], 'input')})" in said[1]
        assert over in said[1] and ("that some of LH pass" in said[1]) == (judged[1] is common_stopped)


def test_one_defence_is_not_compared_with_itself(profiled: Profile) -> None:
    judged = Judged("a", "hardening", 1.0, 0.0, {one.name: ~one.right for one in profiled.sources[1:]})
    said = _glance(DefenceReport("net", Study(profiled, (judged,)), "given", {}, "cpu", 1.0))
    assert said[0] == f"Of the inputs that fool the bare model, 100.0{words.THIN}% pass a."
    assert f"pass 0{words.THIN}% more often" in said[1]


def test_an_attack_that_turned_nothing_is_named(profiled: Profile) -> None:
    judged = Judged("a", "hardening", 1.0, 0.0, {one.name: ~one.right for one in profiled.sources[1:]})
    empty = replace(profiled, empty=("fgsm", "bim"))
    said = _glance(DefenceReport("net", Study(empty, (judged,)), "given", {}, "cpu", 1.0))
    assert said[1] == "No image came of fgsm and bim."


def test_defences_that_let_as_many_pass_are_named_together(profiled: Profile) -> None:
    fooling = {one.name: ~one.right for one in profiled.sources[1:]}
    none = {name: torch.zeros_like(rows) for name, rows in fooling.items()}
    judged = tuple(
        Judged(name, "hardening", 1.0, 0.0, rows) for name, rows in (("a", none), ("b", fooling), ("c", none))
    )
    said = _glance(DefenceReport("net", Study(profiled, judged), "given", {}, "cpu", 1.0))
    ends = f"fewest pass a and c (0.0{words.THIN}%), most pass b (100.0{words.THIN}%)"
    assert said[0] == f"Of the inputs that fool the bare model, {ends}."
    said = _glance(DefenceReport("net", Study(profiled, judged[::2]), "given", {}, "cpu", 1.0))
    assert said[0] == f"Of the inputs that fool the bare model, 0.0{words.THIN}% pass a and c."


def test_the_names_of_defences_stay_whole_beside_all_kinds_of_sources(profiled: Profile) -> None:
    more = replace(profiled, sources=(*profiled.sources, replace(profiled.sources[1], name="made")))
    fooling = {one.name: ~one.right for one in more.sources[1:]}
    judged = tuple(Judged(name, "detector", 1.0, 0.0, fooling) for name in DEFENCES)
    kinds = dict(zip(fooling, ("attacked", "fuzzed", "generated"), strict=True))
    console = Console(width=80, record=True, file=StringIO())
    console.print(defence_table(Study(more, judged), kinds))
    printed = console.export_text()
    said, rare = " ".join(printed.split()), {name: Study(more, judged).counts()[name] for name in ("LL", "HL", "HH")}
    assert f"uncommon: LL, HL, HH ({words.plural(sum(rare.values()), 'input')})" in said
    assert all(f" {name} " in printed for name in DEFENCES) and max(map(len, printed.splitlines())) <= 80


def test_the_table_has_the_kinds_of_sources_and_both_kinds_of_patterns(profiled: Profile) -> None:
    numbers = {one.name: patterns_of(one.metrics.pcs, one.metrics.vr, profiled.thresholds) for one in profiled.sources}
    passed = {one.name: ~one.right & (numbers[one.name] == 1) for one in profiled.sources[1:]}
    own = Study(profiled, (Judged("own", "hardening", 1.0, 0.25, passed),))
    columns = defence_table(own, {"fgsm": "attacked", "plain": "fuzzed"}).columns
    found = {str(column.header): [str(cell) for cell in column.cells] for column in columns}
    shares = {name: int(rows.sum()) / int(own.fooling()[name].sum()) for name, rows in passed.items()}
    assert found == {
        "passes %": ["own"],
        "benign": ["25.0"],
        "attacked": [f"{100 * shares['fgsm']:.1f}"],
        "fuzzed": [f"{100 * shares['plain']:.1f}"],
        "common": ["100.0"],
        "uncommon": ["0.0"],
        "×": ["0.00"],
    }


def test_the_summary_has_every_share_and_the_mean_of_the_ratios(profiled: Profile) -> None:
    """All pass the first defence, of the second only common ones; of the third only others, a ratio without end."""
    numbers = {one.name: patterns_of(one.metrics.pcs, one.metrics.vr, profiled.thresholds) for one in profiled.sources}
    fooling = {one.name: ~one.right for one in profiled.sources[1:]}
    common = {name: rows & (numbers[name] == 1) for name, rows in fooling.items()}
    others = {name: rows & (numbers[name] != 1) for name, rows in fooling.items()}
    judged = tuple(
        Judged(name, "hardening", 0.9, 0.25, own) for name, own in zip("abc", (fooling, common, others), strict=True)
    )
    found = defence_summary(DefenceReport("net", Study(profiled, judged), "given", {}, "cpu", 1.0))
    rows = {row["defence"]: row for row in found["defences"]}
    assert (rows["a"]["accuracy"], rows["a"]["false_positives"]) == (0.9, 0.25)
    assert rows["a"]["passes"] == {"fgsm": 1, "plain": 1} and rows["b"]["passes_by_pattern"]["LH"] == 1
    assert [rows[name]["uncommon_ratio"] for name in "abc"] == [1, 0, None] and found["mean_uncommon_ratio"] == 0.5
    assert found["sources"]["fgsm"] == {"images": 30, "fooling": int(fooling["fgsm"].sum())}


def test_a_ratio_without_end_is_shown_as_one() -> None:
    assert [_times(ratio) for ratio in (1.5, inf, float("nan"))] == ["× 1.50", "× ∞", "–"]
