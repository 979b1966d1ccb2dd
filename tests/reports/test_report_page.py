"""The page is whole, safe and carries everything inside itself."""

import importlib.util
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from report_samples import HOSTILE, LOG

from ukemi import T2, T6, Gene, Space
from ukemi.reports import Evaluation, write_page, write_training_page
from ukemi.reports.page import glance
from ukemi.reports.writing import flat

VOID = {"meta", "img", "br", "input"}


class Reader(HTMLParser):
    """Checks that tags are balanced, and gathers what a test asks for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.text += data

    def said(self) -> str:
        return re.sub(r"\s+", " ", self.text)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def page_load() -> ModuleType:
    """The benchmark, which makes comparisons by hand."""
    path = Path(__file__).parents[2] / "benchmarks" / "page_load.py"
    spec = importlib.util.spec_from_file_location("page_load", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path: Path) -> Reader:
    """The page after the checks that every page must pass."""
    text = path.read_text(encoding="utf-8")
    page = Reader(text)
    assert not re.search(r"https?:|//[a-z]|url\(|@import", re.sub(r"base64,[A-Za-z0-9+/=]+", "", text))
    assert not re.search(r"\b(nan|inf|None|Undefined)\b", page.said())
    assert {"link", "iframe"}.isdisjoint(tag for tag, _ in page.tags)
    assert page.all("script") == [{}]  # our own, inside the page
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes)
        if tag in ("img", "image"):
            assert (attributes.get("src") or attributes.get("href") or "").startswith("data:image/png;base64,")
        if tag == "img":
            assert attributes.get("alt")
        if tag == "svg":
            assert attributes.get("aria-label") or attributes.get("aria-hidden")
    assert len(page.all("caption")) == len(page.all("table"))
    assert [attributes["lang"] for attributes in page.all("html")] == ["en"]
    assert len(page.all("h1")) == 1
    return page


def test_one_model(evaluation: Evaluation, tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", [evaluation], "A <heading>")
    page = read(tmp_path / "page.html")
    found = evaluation.robustness
    assert "A <heading>" in page.said()
    assert f"Of 24 images of noise & dots, {int(found.correct.sum())} are recognised" in page.said()
    assert len(page.all("img")) == 2 * 5 + 2 + 2 * 4  # gallery, landscapes, strips
    for heading in ("What breaks it", "The images that break it", "Around single images", "Class by class"):
        assert heading in page.said()
    assert "How it was trained" in page.said()
    assert "augmenter.k" in page.said()


def test_hostile_names_stay_text(evaluation: Evaluation, tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", [evaluation], HOSTILE[0])
    text = (tmp_path / "page.html").read_text()
    assert text.count("<script") == 1 and "<script>alert" not in text
    page = read(tmp_path / "page.html")
    for name in (*HOSTILE, "plain <model>"):
        assert name in page.said()
    assert any(HOSTILE[0] in (attributes["alt"] or "") for attributes in page.all("img"))


def test_several_models_are_compared(evaluation: Evaluation, unbroken: Evaluation, tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", [evaluation, unbroken], "Two")
    page = read(tmp_path / "page.html")
    assert "Side by side" in page.said()
    places = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    links = {(attributes["href"] or "#").removeprefix("#") for attributes in page.all("a")}
    assert links <= places
    lines = [attributes for attributes in page.all("g") if attributes.get("class") in ("s0", "s1")]
    assert len(lines) >= 2 * 4  # both models in each of the four genes' charts


def test_of_many_models_the_first_glance_tells_the_ends(
    evaluation: Evaluation, unbroken: Evaluation, tmp_path: Path
) -> None:
    many = [evaluation, unbroken, *(replace(evaluation, title=f"model {at}") for at in range(8))]
    write_page(tmp_path / "page.html", many, "Many")
    page = read(tmp_path / "page.html")
    assert "Most robust: unbroken." in page.said()
    assert "Least robust: model 7." in page.said()
    assert len([attributes for attributes in page.all("p") if attributes.get("class") == "lead"]) == 2
    text = (tmp_path / "page.html").read_text()
    shown = re.findall(r"<details( open)?>\s*<summary>The images that break ([\w ]+), and more", text)
    assert [name for is_open, name in shown if is_open] == ["unbroken", "model 7"] and len(shown) == 9


def _light(colour: str) -> float:
    """Relative luminance as WCAG defines it."""
    parts = [value / 255 for value in bytes.fromhex(colour.removeprefix("#"))]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
def test_colours_stand_out(mode: int) -> None:
    style = files("ukemi.reports").joinpath("templates/style.css").read_text()
    found = re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\)", style)
    colours = {name: both[mode] for name, *both in found}

    def contrast(a: str, b: str) -> float:
        dark, light = sorted((_light(colours[a]), _light(colours[b])))
        return (light + 0.05) / (dark + 0.05)

    for ground in ("paper", "card"):
        assert min(contrast(name, ground) for name in ("ink", "soft", "accent", "wrong")) >= 4.5
        assert min(contrast(f"c{at}", ground) for at in range(6)) >= 3


def test_without_log_gallery_and_landscapes(make: Callable[..., Evaluation], tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", [make(gallery=0, landscapes=0)], "Bare")
    page = read(tmp_path / "page.html")
    assert not page.all("img")
    for heading in ("images that break it", "Around single images", "How it was trained"):
        assert heading not in page.said()


@pytest.mark.parametrize(
    "space",
    [T2, T6, Space((Gene("brightness", -0.5, 0.5, 0, 0.5),)), Space((Gene("fade", 0, 1, 0, 1, lambda x, v: x * 0.5),))],
    ids=lambda space: "-".join(gene.name for gene in space.genes),
)
def test_every_space_has_a_page(make: Callable[..., Evaluation], space: Space, tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", [make(space=space)], "Space")
    charts = [svg for svg in read(tmp_path / "page.html").all("svg") if svg.get("class") == "chart"]
    assert len(charts) == len(space)


def test_models_of_different_spaces_share_a_page(make: Callable[..., Evaluation], tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", [make(space=T2), make(space=T6)], "Spaces")
    charts = [svg for svg in read(tmp_path / "page.html").all("svg") if svg.get("class") == "chart"]
    assert len(charts) == len(T6)


def test_large_pictures_keep_the_page_small(make: Callable[..., Evaluation], tmp_path: Path) -> None:
    large = make(channels=3, size=80, gallery=12, landscapes=4)
    write_page(tmp_path / "page.html", [large] * 3, "Large")
    read(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 2_500_000


def test_many_classes_are_cut_to_those_that_hold_least(evaluation: Evaluation, tmp_path: Path) -> None:
    count = 100
    correct = torch.ones(count, dtype=torch.bool)
    robust = torch.arange(count) >= 40
    found = replace(evaluation.robustness, correct=correct, robust=robust, broken_by=torch.full((count,), -1))
    names = tuple(f"kind-{at:03d}" for at in range(count))
    many = replace(evaluation, classes=names, labels=torch.arange(count), robustness=found, gallery=(), landscapes=())
    write_page(tmp_path / "page.html", [many], "Many")
    said = read(tmp_path / "page.html").said()
    assert "For the 30 classes that hold least" in said
    assert "kind-029" in said
    assert "kind-030" not in said


def test_a_guess_beyond_the_classes_is_named_by_its_number(evaluation: Evaluation, tmp_path: Path) -> None:
    wide = replace(evaluation, gallery=(replace(evaluation.gallery[0], guess=7),))
    write_page(tmp_path / "page.html", [wide], "Wide")
    assert "class 7" in read(tmp_path / "page.html").said()


def test_the_glance_speaks_properly(evaluation: Evaluation, unbroken: Evaluation) -> None:
    assert glance(unbroken)[0].endswith("24 are recognised; 24 stay recognised under all 16 variants.")
    one = torch.zeros(24, dtype=torch.bool)
    one[0] = True
    found = replace(evaluation.robustness, correct=torch.ones_like(one), robust=one)
    assert glance(replace(evaluation, robustness=found))[0].endswith(
        "24 are recognised; only 1 stays recognised under all 16 variants."
    )
    found = replace(found, robust=torch.zeros_like(one))
    assert "24 are recognised; none stays recognised" in glance(replace(evaluation, robustness=found))[0]
    still = tuple(replace(some, rates=(0.0,) * len(some.rates)) for some in evaluation.failures)
    assert glance(replace(evaluation, failures=still))[1] == "No gene alone breaks any of the images that were tried."


def test_settings_are_flattened() -> None:
    nested: dict[str, Any] = {"a_b": {"k": 10, "on": True, "rate": 0.1}, "sizes": [1, 2], "none": None, "empty": []}
    assert flat(nested) == [
        ("a-b.k", "10"),
        ("a-b.on", "yes"),
        ("a-b.rate", "0.1"),
        ("sizes", "1, 2"),
        ("none", "none"),
        ("empty", "none"),
    ]


def test_a_training_page_at_every_moment(tmp_path: Path) -> None:
    for lines, said in ((0, "No epoch is done yet."), (1, "1 epoch done in 1.5 s."), (2, "2 epochs done in 3.0 s.")):
        write_training_page(tmp_path / "page.html", "A <run>", LOG[:lines], {"seed": 0})
        page = read(tmp_path / "page.html")
        assert said in page.said().replace("\u202f", " ")
        assert len([svg for svg in page.all("svg") if svg.get("class") == "chart"]) == (3 if lines else 0)
    assert "Validation accuracy is 60.0 %, its best so far." in page.said().replace("\u202f", " ")


def test_curves_leave_out_what_is_missing_or_not_finite(tmp_path: Path) -> None:
    lines = [{"epoch": at, "loss": loss} for at, loss in enumerate((1.0, float("nan"), None, float("inf"), 0.5))]
    lines += [{"epoch": 5, "robust_accuracy": 0.5}, {"epoch": 6, "robust_accuracy": 0.25}]
    write_training_page(tmp_path / "page.html", "Odd", lines, {})
    page = read(tmp_path / "page.html")
    assert "Robust accuracy is 25.0 %; it was best in epoch 6 with 50.0 %." in page.said().replace("\u202f", " ")
    assert len([attributes for attributes in page.all("path") if attributes.get("class") == "mark"]) == 4 + 2


def test_the_same_evaluation_gives_the_same_bytes(evaluation: Evaluation, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_page(tmp_path / name, [evaluation], "Same")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
