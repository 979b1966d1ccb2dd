"""What a model does not know: tables, a page with scatters of PCS and VR, and JSON."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from rich.text import Text
from torch import Tensor

from ukemi.data import as_float
from ukemi.errors import UserError, field_called
from ukemi.measures.examples import drawn
from ukemi.measures.uncertainty import Profile, Profiled
from ukemi.reports import charts, words
from ukemi.reports.charts import Series
from ukemi.reports.curves import Curves
from ukemi.reports.gallery import name_of
from ukemi.reports.pictures import picture, side_for
from ukemi.reports.terminal import captioned
from ukemi.reports.writing import finite, ran, versions, write_html, write_numbers
from ukemi.uncertainty import METRICS, PATTERNS, Thresholds, patterns_of

SCHEMA = 1
"""Version of the summary's fields: raised when one changes its meaning or goes."""
NOTHING = "–"
"""what stands where there is no image to measure"""
POINTS = 150
"""points of one source's scatter; of more, as many are drawn by their identities"""
ANSWERS = ("recognised", "misclassified")
"""what the points of a scatter are, by colour and mark"""
SAID = {
    "LL": "low PCS, low VR: unsure, and steadily so",
    "LH": "low PCS, high VR: unsure, and wavering",
    "HL": "high PCS, low VR: sure, and steady",
    "HH": "high PCS, high VR: sure, but wavering",
}
PCS_IS = {"margin": "how far the first class is ahead of the second", "max": "the probability of the first class"}
VR_COUNTS_FROM = {"prediction": "it", "mode": "what most of them say"}


@dataclass(frozen=True)
class UncertaintyReport:
    """All that is shown about one profile."""

    title: str
    profile: Profile
    passes: int
    source: str
    """dropout or ensemble"""
    found_by: str
    """where the thresholds come from"""
    settings: Mapping[str, Any]
    device: str
    seconds: float
    gallery: int = 3
    """pictures per pattern"""
    seed: int = 0
    model: str = ""
    """SHA-256 of the model's weights (`training.sets.weights_hash`)"""


def pattern_table(profile: Profile) -> Table:
    """One row per source: images, accuracy, the share of each pattern, unstable ones, the entropy of the shares."""
    (pcs, vr), caption = _limits(profile.thresholds), "high: PCS at least {}, VR at least {}; unstable: VR within {}"
    about = caption.format(pcs, vr, "sampling error of its limit; entropy: of the pattern shares, in bits")
    found = captioned(about)
    found.add_column("source", overflow="fold")
    for name in ("images", *(f"{name} %" for name in _shares(profile)), "entropy"):
        found.add_column(name, justify="right", no_wrap=True)
    for name, cells in _pattern_rows(profile):
        found.add_row(Text(name), *(cell.removesuffix(f"{words.THIN}%") for cell in cells))
    return found


def auroc_table(profile: Profile) -> Table:
    """One row per source: how well each metric tells it from the benign images."""
    found = captioned("AUROC against the benign images: 0.5 is chance, 1 parts them all")
    found.add_column("source", overflow="fold")
    for name in METRICS:
        found.add_column(name.upper(), justify="right")
    for name, cells in _auroc_rows(profile):
        found.add_row(Text(name), *cells)
    return found


def uncertainty_summary(report: UncertaintyReport) -> dict[str, Any]:
    """All numbers as JSON knows them; what is not finite is None."""
    profile, bins = report.profile, report.profile.reliability()
    shares = profile.shares()
    aurocs = {name: {metric: finite(value) for metric, value in row.items()} for name, row in profile.aurocs().items()}
    rows = [
        {
            "source": one.name,
            "images": len(one.data),
            "accuracy": one.accuracy,
            "patterns": shares[one.name].patterns,
            "between": shares[one.name].between,
            "unstable": shares[one.name].unstable,
            "pattern_entropy_bits": abs(shares[one.name].entropy),
            "auroc": aurocs.get(one.name),
            "mean": {name: float(getattr(one.metrics, name).mean()) for name in METRICS},
        }
        for one in profile.sources
    ]
    rows += [_empty_row(name) for name in profile.empty]
    return {
        "schema": SCHEMA,
        "title": report.title,
        "model_sha256": report.model or None,
        "passes": report.passes,
        "source": report.source,
        "thresholds": thresholds_row(profile.thresholds) | {"found_by": report.found_by},
        "sources": rows,
        "calibration": {
            "expected_error": bins.expected_error,
            "largest_error": bins.largest_error,
            "count": bins.count.tolist(),
            "confidence": list(map(finite, bins.confidence.tolist())),
            "accuracy": list(map(finite, bins.accuracy.tolist())),
        },
        "settings": dict(report.settings),
        "seconds": report.seconds,
        "device": report.device,
        "versions": versions(),
    }


def _empty_row(name: str) -> dict[str, Any]:
    """A source without images has no number but their count."""
    whole = dict.fromkeys(("accuracy", "between", "unstable", "pattern_entropy_bits"))
    metrics: dict[str, None] = dict.fromkeys(METRICS)
    return {
        "source": name,
        "images": 0,
        **whole,
        "patterns": dict.fromkeys(PATTERNS),
        "auroc": metrics,
        "mean": metrics,
    }


def thresholds_row(thresholds: Thresholds) -> dict[str, Any]:
    """Thresholds as JSON knows them: low and high of each."""
    return {"pcs": list(thresholds.pcs), "vr": list(thresholds.vr)}


@dataclass(frozen=True)
class KnownProfile:
    """What an uncertainty.json says to those who take its thresholds."""

    thresholds: Thresholds
    model: str | None
    """SHA-256 of the weights they were found for; older files don't say"""
    passes: int | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """what it was told: confidence, against, …"""


def read_profile(path: Path) -> KnownProfile:
    """That of an uncertainty.json."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found.get("schema", SCHEMA) > SCHEMA:
            raise UserError(f"profile: {path} was written by a newer ukemi; this one reads schemas up to {SCHEMA}.")
        row = found["thresholds"]
        with field_called(f"profile: {path}", "pcs-thresholds", "vr-thresholds"):
            limits = Thresholds(tuple(row["pcs"]), tuple(row["vr"]))
        return KnownProfile(limits, found.get("model_sha256"), found.get("passes"), dict(found.get("settings", {})))
    except FileNotFoundError:
        raise UserError(f"profile: there is no file {path}.") from None
    except OSError as error:
        raise UserError(f"profile: {path} can't be read ({error.strerror or error}).") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"profile: {path} is no uncertainty.json, as `ukemi uncertainty` writes it.") from None


def write_uncertainty(folder: Path, report: UncertaintyReport) -> None:
    """Writes uncertainty.json and page.html."""
    write_numbers(folder / "uncertainty.json", uncertainty_summary(report))
    profile = report.profile
    pcs, vr = _limits(profile.thresholds)
    write_html(
        folder / "page.html",
        "uncertainty.html",
        heading=f"What {report.title} does not know",
        glance=_glance(report),
        scatters=_scatters(profile),
        legend=[(name, charts.dot(at)) for at, name in enumerate(ANSWERS)],
        reliability=_diagram(profile),
        calibration=words.percent(profile.reliability().expected_error),
        patterns=_pattern_rows(profile),
        pattern_columns=("images", *_shares(profile), "entropy, bits"),
        aurocs=_auroc_rows(profile),
        metrics=[name.upper() for name in METRICS],
        meant=_meant(report),
        limits={"pcs": pcs, "vr": vr, "found_by": report.found_by},
        galleries=_galleries(report),
        settings=ran(report.seconds, report.device, report.settings),
    )


def _meant(report: UncertaintyReport) -> str:
    """What PCS and VR are here: there are several kinds of both."""
    pcs = PCS_IS[report.settings.get("confidence", "margin")]
    counted = VR_COUNTS_FROM[report.settings.get("against", "prediction")]
    drawn = "members of the ensemble" if report.source == "ensemble" else "stochastic passes"
    return f"PCS is {pcs} in one certain pass; VR is the share of {drawn} that disagree with {counted}."


def _limits(thresholds: Thresholds) -> tuple[str, str]:
    said = (
        words.below_one(low) if low == high else f"{words.below_one(high)} (low below {words.below_one(low)})"
        for low, high in (thresholds.pcs, thresholds.vr)
    )
    pcs, vr = said
    return pcs, vr


def _shares(profile: Profile) -> tuple[str, ...]:
    """The columns that are shares; without a gap between low and high nothing can lie between them."""
    gap = any(low < high for low, high in (profile.thresholds.pcs, profile.thresholds.vr))
    return ("right", *PATTERNS, *(["between"] if gap else []), "unstable")


def _pattern_rows(profile: Profile) -> list[tuple[str, tuple[str, ...]]]:
    rows, columns = [], _shares(profile)
    for one, share in zip(profile.sources, profile.shares().values(), strict=True):
        known = {"right": one.accuracy, **share.patterns, "between": share.between, "unstable": share.unstable}
        cells = [words.percent(known[name]) for name in columns]
        rows.append((one.name, (words.count(share.count), *cells, f"{abs(share.entropy):.2f}")))
    nothing = ("0", *[NOTHING] * (len(columns) + 1))
    return rows + [(name, nothing) for name in profile.empty]


def _auroc_rows(profile: Profile) -> list[tuple[str, tuple[str, ...]]]:
    rows = [(name, tuple(f"{row[metric]:.3f}" for metric in METRICS)) for name, row in profile.aurocs().items()]
    return rows + [(name, (NOTHING,) * len(METRICS)) for name in profile.empty]


def _glance(report: UncertaintyReport) -> list[str]:
    shares = report.profile.shares()
    benign = shares[report.profile.benign.name].patterns
    most = max(PATTERNS, key=lambda name: benign[name])
    said = [
        f"Of {words.plural(len(report.profile.benign.data), 'benign image')} {words.percent(benign[most])} are {most}"
        f" ({SAID[most]})."
    ]
    best: dict[str, list[str]] = {}
    for name, row in report.profile.aurocs().items():
        known = {metric: value for metric, value in row.items() if isfinite(value)}
        if known:
            best.setdefault(max(known, key=lambda metric: known[metric]).upper(), []).append(name)
    if best:
        told = "; ".join(f"{', '.join(names)} by {metric}" for metric, names in best.items())
        said.append(f"Best told from benign images: {told}.")
    if report.profile.empty:
        said.append(f"No image came of {words.listed(list(report.profile.empty))}.")
    return said


def _scatters(profile: Profile) -> list[Curves]:
    """A scatter of every source, with the pattern that most of its inputs have."""
    shares, limits, found = profile.shares(), profile.thresholds, []
    for one in profile.sources:
        share = shares[one.name]
        most, often = max({**share.patterns, "between": share.between}.items(), key=lambda item: item[1])
        some = drawn(one.data, torch.ones(len(one.data), dtype=torch.bool), POINTS, 0)
        svg = charts.scatter(
            [_points(one, name, at, some[one.right.cpu()[some] == (at == 0)]) for at, name in enumerate(ANSWERS)],
            title=f"{one.name}: every input by its PCS and VR",
            x_label="PCS",
            y_label="VR",
            x_rules=sorted(set(limits.pcs)),
            y_rules=sorted(set(limits.vr)),
        )
        found.append(Curves(f"{one.name}: {most} {words.percent(often, 0)}", svg, ()))
    return found


def _points(one: Profiled, name: str, style: int, rows: Tensor) -> Series:
    points = tuple(zip(one.metrics.pcs[rows].tolist(), one.metrics.vr[rows].tolist(), strict=True))
    return Series(name, points, style, tuple(_tip(one, row) for row in rows.tolist()))


def _tip(one: Profiled, at: int) -> str:
    names, pcs, vr = one.data.classes, float(one.metrics.pcs[at]), float(one.metrics.vr[at])
    label, guess = (name_of(names, int(number[at])) for number in (one.data.labels, one.metrics.prediction))
    taken = label if bool(one.right[at]) else f"{label} taken for {guess}"
    return f"{one.name}, image {int(one.data.index[at])}: {taken}; PCS {words.below_one(pcs)}, VR {vr:.2f}"


def _diagram(profile: Profile) -> Any:
    bins = profile.reliability()
    points = zip(bins.confidence.tolist(), bins.accuracy.tolist(), strict=True)
    known = tuple((x, y) for x, y in points if isfinite(x) and isfinite(y))
    return charts.lines(
        [Series("as it should be", ((0.0, 0.0), (1.0, 1.0)), charts.COLOURS - 1), Series("benign images", known, 0)],
        title="Accuracy by confidence",
        x_label="confidence",
        x_ticks=(0.0, 0.25, 0.5, 0.75, 1.0),
        y_limits=(0.0, 1.0),
    )


def _galleries(report: UncertaintyReport) -> list[dict[str, Any]]:
    """Some inputs of each pattern, the sources in turn."""
    profile, found = report.profile, []
    side = side_for(4 * report.gallery * len(profile.sources), profile.benign.data.channels)
    for number, pattern in enumerate(PATTERNS):
        cards = [card for one in profile.sources for card in _cards(one, number, report, side)]
        found.append({"pattern": pattern, "said": SAID[pattern], "cards": cards})
    return found


def _cards(one: Profiled, number: int, report: UncertaintyReport, side: int) -> list[dict[str, Any]]:
    own: Tensor = patterns_of(one.metrics.pcs, one.metrics.vr, report.profile.thresholds) == number
    rows = drawn(one.data, own, report.gallery, report.seed)
    if not len(rows):
        return []
    names = one.data.classes
    return [
        {
            "image": picture(image, side),
            "smooth": max(image.shape[1:]) > side,
            "label": names[int(one.data.labels[at])],
            "guess": name_of(names, int(one.metrics.prediction[at])),
            "right": bool(one.right[at]),
            "source": one.name,
            "pcs": words.below_one(float(one.metrics.pcs[at]), 2),
            "vr": f"{float(one.metrics.vr[at]):.2f}",
        }
        for at, image in zip(rows.tolist(), as_float(one.data.images[rows.to(one.data.labels.device)]), strict=True)
    ]
