"""The claims of paper 3, each judged by what was measured: shown, refuted, too close to tell, or open."""

from collections.abc import Callable, Sequence
from statistics import mean, median

from ukemi.experiments.uncertain import ATTACKS, CONTINUED, FUZZERS
from ukemi.reports.sections import Line, Lines, Section
from ukemi.reports.texts import Rows
from ukemi.reports.uncertain_tables import METRICS, ROWS, Missing, gain, generated_ratio, named, of, state
from ukemi.reports.words import listed, percent, signed
from ukemi.uncertainty import PATTERNS

Judge = Callable[[Lines, str], str]
OPEN = ""
SEEN = 0.001
"""a tenth of a point: less does not show in what is printed"""
LETTERS = (
    "H is high, L is low: of a pattern's letters the first is PCS (how far the first class leads), the second VR (how"
    " often passes disagree)."
)


def claims_section(part: str, lines: Lines, models: Sequence[str], missing: Missing) -> Section | None:
    """The claims that a part can judge, model by model."""
    judged = CLAIMS.get(part, {})
    rows = [
        [claim, *(judge(lines, model) or state(model, missing) for model in models)] for claim, judge in judged.items()
    ]
    return Section("The paper's claims", [LETTERS], Rows(["claim", *models], rows)) if rows else None


def _mostly(sources: Sequence[str], pattern: str) -> Judge:
    """More than half of the inputs, on average over the sources; those whose largest share is another are named."""

    def judge(lines: Lines, model: str) -> str:
        found = of(lines, model, "profile")
        each = {name: _shares(rows) for name in sources if (rows := named(found, name))}
        if not each:
            return OPEN
        shares = {name: mean(one[name] for one in each.values()) for name in PATTERNS}
        most = _largest(shares)
        verdict = "refuted" if most != pattern else "shown" if shares[most] > 0.5 else "in part"
        others = [f"{name} {_said(one)}" for name, one in each.items() if _largest(one) != pattern]
        besides = f" (but {listed(others)})" if most == pattern and others else ""
        return f"{verdict}: {_said(shares)}{besides}"

    return judge


def _shares(rows: Sequence[Line]) -> dict[str, float]:
    return {name: mean(row["patterns"][name] for row in rows) for name in PATTERNS}


def _largest(shares: dict[str, float]) -> str:
    return max(shares, key=lambda name: shares[name])


def _said(shares: dict[str, float]) -> str:
    return f"{_largest(shares)} {percent(max(shares.values()), 0)}"


def _diverse(lines: Lines, model: str) -> str:
    found = of(lines, model, "profile")
    parts = [
        [row["pattern_entropy_bits"] for name in names for row in named(found, name)] for names in (FUZZERS, ATTACKS)
    ]
    if not all(parts):
        return OPEN
    testers, attacks = map(mean, parts)
    return f"{'shown' if testers > attacks else 'refuted'}: {testers:.2f} and {attacks:.2f} bits"


def _separate(lines: Lines, model: str) -> str:
    rows = [row["auroc"] for name in (*ATTACKS, *FUZZERS) for row in named(of(lines, model, "profile"), name)]
    rows = [row for row in rows if row and None not in row.values()]
    if not rows:
        return OPEN
    means = {metric: mean(row[metric] for row in rows) for metric in METRICS}
    order = sorted(METRICS, key=lambda metric: -means[metric])
    verdict = "shown" if set(order[:2]) == {"pcs", "vr"} else "refuted"
    return f"{verdict}: " + ", ".join(f"{metric.upper()} {means[metric]:.3f}" for metric in order)


def _uncommon(ratio: Callable[[Line, Line], float | None]) -> Judge:
    """By the median over defences and seeds."""

    def judge(lines: Lines, model: str) -> str:
        found = [ratio(line, row) for line in of(lines, model, "defend") for row in line["defences"]]
        known = [one for one in found if one is not None]
        if not known:
            return OPEN
        middle = median(known)
        return f"{'shown' if middle > 1 else 'refuted'}: median × {middle:.2f}, up to × {max(known):.2f}"

    return judge


def _best(score: Callable[[Line], float | None], wanted: str, said: Callable[[float], str]) -> Judge:
    """Only groups of equal size are compared."""

    def judge(lines: Lines, model: str) -> str:
        rows = {row: [one for one in of(lines, model, "retrain", row) if "after" in one] for row in ROWS[1:]}
        most = max((line["samples"] for found in rows.values() for line in found), default=0)
        means = {}
        for row, found in rows.items():
            known = [value for value in map(score, found) if value is not None]
            if known and all(line["samples"] == most for line in found):
                means[row] = mean(known)
        if wanted not in means or len(means) < 2:
            fewer = [line["samples"] for line in rows[wanted] if line["samples"] < most]
            return f"open: {wanted} has {min(fewer)} of {most} inputs" if fewer else OPEN
        best = max(means, key=lambda row: means[row])
        shown = best == wanted and means[best] > 0
        return f"{'shown' if shown else 'refuted'}: best {best} {said(means[best])}, {wanted} {said(means[wanted])}"

    return judge


def _gains(lines: Lines, model: str, row: str) -> list[float]:
    found = [gain(line, "accuracy") for line in of(lines, model, "retrain", row) if "after" in line]
    return [value for value in found if value is not None]


def _negative(lines: Lines, model: str) -> str:
    known = {row: _gains(lines, model, row) for row in ("deepfool", "carlini-wagner", CONTINUED)}
    if not all(known.values()):
        return OPEN
    means = {row: mean(values) for row, values in known.items()}
    said = ", ".join(f"{row} {_points(value)}" for row, value in means.items())
    lost = min(0, means.pop(CONTINUED)) - max(means.values())
    verdict = "too close to tell" if abs(lost) < SEEN else "shown" if lost > 0 else "refuted"
    return f"{verdict}: {said}"


def _points(gained: float) -> str:
    return f"{signed(100 * gained)} points"


def _calibrated(line: Line) -> float | None:
    rate: float | None = line["after"]["mean_calibration"]
    return rate


CLAIMS: dict[str, dict[str, Judge]] = {
    "study": {
        "benign inputs are mostly HL": _mostly(("benign",), "HL"),
        "attacked inputs are mostly LH": _mostly(ATTACKS, "LH"),
        "testers are more diverse than attacks (entropy)": _diverse,
        "PCS and VR separate best (AUROC)": _separate,
    },
    "defences": {
        "uncommon patterns reveal more (paper: 35 % on average, up to 79 %)": _uncommon(
            lambda line, row: row["uncommon_ratio"]
        ),
        "so they do among generated inputs alone": _uncommon(generated_ratio),
    },
    "retraining": {
        "HL gains most accuracy": _best(lambda line: gain(line, "accuracy"), "HL", _points),
        "DeepFool and C&W data cost accuracy": _negative,
        "LH has the best calibration rate (paper, NIN: 92.3 %)": _best(_calibrated, "LH", percent),
    },
}
"""By the part of the experiment that can judge them."""
