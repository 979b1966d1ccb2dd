"""The pages in headless Chromium: clicks, filters, sliders, hovering, copying, both themes; nothing leaves the file."""

import csv
import io
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from report_samples import LOG, sample
from test_dare_tables import lines
from test_report_page import page_load

from ukemi.comparing import Comparison
from ukemi.data import labelled
from ukemi.experiments import ExperimentConfig, Findings
from ukemi.measures.uncertainty import Profile, Profiled
from ukemi.reports import (
    Evaluation,
    UncertaintyReport,
    made_by,
    write_comparison,
    write_experiment,
    write_page,
    write_training_page,
    write_uncertainty,
)
from ukemi.reports.comparison import measure_rows
from ukemi.reports.texts import as_latex, as_markdown
from ukemi.uncertainty import Thresholds, Uncertainty

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed (apt-get install chromium)")

HOSTILE = ("<img src=x onerror=window.bad=1>", "</script><script>window.bad=1</script>", "\"' & <b>")
THIN = "\N{NARROW NO-BREAK SPACE}"
GENES = [{"gene": "rotation", "low": -30.0, "high": 30.0, "levels": 61, "counts": [9, *[3] * 13, 9]}]
SPENT = {"genes": GENES, "data_seconds": 0.1, "validation_seconds": 0.2, "scoring_seconds": 0.5}
PAGES = ("training", "evaluation", "comparison", "uncertainty", "experiment")


def synthetic() -> Comparison:
    """The benchmark's comparison, with names that a page must not trust."""
    return page_load().comparison(16, classes=(*HOSTILE, "bag"))


def uncertain() -> UncertaintyReport:
    model, data = sample()
    share = torch.linspace(0, 1, len(data))
    with torch.no_grad():
        guess = model(data.images[torch.arange(len(data))]).argmax(1)
    metrics = Uncertainty(guess, share, share, share.flip(0), share, share, 10)
    named = labelled(data.images[torch.arange(len(data))], data.labels, HOSTILE)
    profile = Profile(Thresholds((0.5, 0.5), (0.2, 0.2)), (Profiled("benign", named, metrics),))
    return UncertaintyReport("a model", profile, 10, "dropout", "given", {"seed": 0}, "cpu", 1.0)


def experiment(folder: Path) -> Findings:
    """DARE's mining with names that a page must not trust."""
    cells = [{"name": name, "data": "fashion-mini", "model": "demo-cnn"} for name in HOSTILE]
    told = ExperimentConfig(title=HOSTILE[1], experiment="dare", part="mining", cells=cells, out=folder)
    kept = [{**one, "cell": name, "device": "cpu", "torch": "2"} for name in HOSTILE for one in lines()]
    return Findings(told, tuple(kept), {}, 0)


@pytest.fixture(scope="module")
def pages(make: Callable[..., Evaluation], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every kind of page, made once."""
    folder = tmp_path_factory.mktemp("pages")
    log = [{**line, **SPENT} for line in LOG]
    with made_by(["evaluate", "a run", *HOSTILE]):
        write_training_page(folder / "training.html", HOSTILE[0], log, {"seed": 0})
        write_page(folder / "evaluation.html", [make(log=log, gallery=12, seconds=2.0)], HOSTILE[1])
        write_comparison(folder / "comparison", synthetic(), command="ukemi compare")
        write_uncertainty(folder / "uncertainty", uncertain())
        write_experiment(folder / "experiment", experiment(folder / "experiment"), command="ukemi run", notes=HOSTILE)
    inside = {name: folder / name / "page.html" for name in ("comparison", "uncertainty", "experiment")}
    return {name: inside.get(name, folder / f"{name}.html") for name in PAGES}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def visit(browser: Any, pages: dict[str, Path]) -> Iterator[Callable[..., Any]]:
    """Opens a page; behind the test nothing may have gone wrong on any, and nothing may have left the file."""
    wrong: list[str] = []
    contexts = []

    def opened(name: str, before: str = "", **settings: Any) -> Any:
        context = browser.new_context(**settings)
        contexts.append(context)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        tab = context.new_page()
        tab.on("console", lambda said: wrong.append(said.text))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("request", lambda asked: re.match("(file|data|blob):", asked.url) or wrong.append(asked.url))
        if before:
            tab.add_init_script(before)
        tab.goto(pages[name].as_uri())
        return tab

    yield opened
    bad = [tab.evaluate("window.bad") for context in contexts for tab in context.pages]
    for context in contexts:
        context.close()
    assert wrong == [] and set(bad) <= {None}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_on_a_phone_and_on_a_screen(visit: Callable[..., Any], name: str, scheme: str) -> None:
    for width in (390, 1200):
        tab = visit(name, color_scheme=scheme, viewport={"width": width, "height": 800})
        paper = "getComputedStyle(document.body).backgroundColor"
        own = tab.evaluate(paper)
        assert (sum(map(int, re.findall(r"\d+", own))) < 200) == (scheme == "dark")
        button = tab.locator("#theme")
        assert ("light" if scheme == "dark" else "dark") in button.inner_text()
        button.click()
        assert tab.evaluate(paper) != own and scheme in button.inner_text()
        button.click()
        assert tab.evaluate(paper) == own
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.locator("h1").count() == 1 and tab.locator(".lead").first.is_visible()


SMALLEST = """() => Math.min(...[...document.querySelectorAll("svg.chart text")].map((text) => {
  const svg = text.ownerSVGElement;
  return parseFloat(getComputedStyle(text).fontSize) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
}).filter((size) => size > 0))"""
"""pixels of the smallest letters that a chart shows"""


@pytest.mark.parametrize("name", PAGES)
def test_letters_in_charts_can_be_read(visit: Callable[..., Any], name: str) -> None:
    for width in (390, 1200):
        assert visit(name, viewport={"width": width, "height": 800}).evaluate(SMALLEST) > 8.9


@pytest.mark.parametrize("name", PAGES)
def test_every_table_can_be_copied(visit: Callable[..., Any], name: str) -> None:
    tab = visit(name)
    tables = tab.locator("table").count()
    assert tables > 0
    for kind in ("Markdown", "LaTeX", "CSV"):
        assert tab.locator(".copies button", has_text=kind).count() == tables


def test_copies_are_what_the_files_say(visit: Callable[..., Any]) -> None:
    tab, rows = visit("comparison"), measure_rows(synthetic())

    def copied(kind: str) -> str:
        button = tab.locator(".copies button", has_text=kind).first
        button.click()
        tab.wait_for_function("[...document.querySelectorAll('button')].some((one) => one.textContent === 'copied')")
        return str(tab.evaluate("navigator.clipboard.readText()"))

    assert copied("Markdown") == as_markdown(rows).replace(THIN, " ")
    assert copied("LaTeX") == as_latex(rows).replace(r"\,", " ")
    plain = [[cell.replace(THIN, " ") for cell in cells] for cells in (rows.names, *rows.rows)]
    assert list(csv.reader(io.StringIO(copied("CSV")))) == plain


def test_signs_are_escaped_where_a_table_is_copied(visit: Callable[..., Any]) -> None:
    tab = visit("training")
    tab.evaluate("document.querySelector('td').textContent = 'a|b, \"c\" \\\\ {1} $x_2 50 % −1 <i> L∞ *'")
    said = {}
    for kind in ("Markdown", "LaTeX", "CSV"):
        tab.locator(".copies button", has_text=kind).first.click()
        said[kind] = str(tab.evaluate("navigator.clipboard.readText()"))
    assert r'a\|b, "c" \\ {1} $x_2 50 % −1 \<i> L∞ \*' in said["Markdown"]
    written = r'a\textbar{}b, "c" \textbackslash{} \{1\} \$x\_2 50 \% $-$1 \textless{}i\textgreater{} L$\infty$ *'
    assert written in said["LaTeX"]
    assert '"a|b, ""c"" \\ {1} $x_2 50 % -1 <i> L∞ *"' in said["CSV"]


def test_without_a_clipboard_copying_still_works(visit: Callable[..., Any]) -> None:
    tab = visit("comparison", "Object.defineProperty(navigator, 'clipboard', { value: undefined });")
    tab.locator(".copies button", has_text="text").last.click()
    tab.evaluate("document.body.append(document.createElement('textarea'))")
    tab.locator("textarea").focus()
    tab.keyboard.press("Control+V")
    assert tab.locator("textarea").input_value() == "ukemi compare"


@pytest.mark.parametrize(
    ("name", "chart", "said"),
    [
        ("training", ".chart:not(.heat)", r"training, epoch 1: 2\.1"),
        ("training", ".chart.heat", r"epoch 1: ×\d"),
        ("training", ".chart.cost", r"this run, waiting for data: 0\.2.s"),
        ("evaluation", ".charts .chart", r"plain <model>, −30°: \d+\.\d.%"),
        ("evaluation", ".terrain .chart.heat", r"30°, −10.%: loss \d"),
        ("comparison", ".sides .chart.heat", r"30°, −10.%: loss \d\.\d\d"),
        ("comparison", ".charts .chart", r"standard, epoch 1: 2"),
        ("experiment", ".chart.grouped", r"null random, BIM: −49\.\d.% ± 8\.\d.%"),
        ("uncertainty", ".chart.scatter", r"benign, image \d+: <img src=x onerror=window.bad=1>.*; PCS [01]\.?\d*, VR"),
    ],
)
def test_points_say_what_they_are(visit: Callable[..., Any], name: str, chart: str, said: str) -> None:
    tab = visit(name)
    tip, svg = tab.locator(".tip"), tab.locator(chart).first
    svg.scroll_into_view_if_needed()
    assert tip.is_hidden()
    svg.focus()
    tab.keyboard.press("ArrowRight")
    assert re.search(said, tip.inner_text()), tip.inner_text()
    tab.keyboard.press("Escape")
    assert tip.is_hidden()
    spot = svg.locator("[data-tip], [data-cells]").first
    box = spot.bounding_box()
    if "heat" in chart:
        tab.mouse.move(box["x"] + 1, box["y"] + 1)
    else:
        tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert re.search(said, tip.inner_text()), tip.inner_text()
    tab.mouse.move(0, 0)
    assert tip.is_hidden()


def test_a_touch_shows_a_value_until_the_next(visit: Callable[..., Any]) -> None:
    tab = visit("training", has_touch=True, viewport={"width": 390, "height": 800})
    first, last = tab.locator(".chart").first.locator(".mark").all()[:2]
    first.tap(force=True)
    assert tab.locator(".tip").inner_text() == "training, epoch 1: 2.1"
    last.tap(force=True)
    assert tab.locator(".tip").inner_text() == "training, epoch 2: 1.2"


def _shown(tab: Any, gallery: str) -> list[str]:
    """All that fit, where there are more than the first ones too."""
    more = tab.locator(f"[data-filters={gallery}] button")
    if more.is_visible():
        more.click()
    return list(tab.locator(f"#{gallery} > li:visible .said").all_inner_texts())


@pytest.mark.parametrize(("name", "gallery", "labels"), [("evaluation", "gallery-1", 2), ("comparison", "gallery", 4)])
def test_the_gallery_is_filtered(visit: Callable[..., Any], name: str, gallery: str, labels: int) -> None:
    tab = visit(name)
    every = _shown(tab, gallery)
    label = tab.locator(f"[data-filters={gallery}] select[name=label]")
    options = label.locator("option").all_inner_texts()
    assert len(options) >= 1 + labels and options[0] == "any"
    some = 0
    for text in options[1:]:
        label.select_option(label=text)
        shown = _shown(tab, gallery)
        assert shown == [said for said in every if said.startswith(f"{text} →")] and shown
        assert tab.locator("output", has_text=f"{len(shown)} of {len(every)} shown").count() == 1
        some += len(shown)
    assert some == len(every)
    label.select_option(label="any")
    gene = tab.locator(f"[data-filters={gallery}] select[name=gene]")
    gene.select_option(label="rotation: clockwise")
    how = tab.locator(f"#{gallery} > li:visible .how").all_inner_texts()
    assert 0 < len(how) < len(every) and all(re.search(r"° clockwise", said) for said in how)


def test_a_comparison_is_filtered_by_method_too(visit: Callable[..., Any]) -> None:
    tab = visit("comparison")
    assert tab.locator("#gallery > li:visible").count() == 24
    tab.locator("select[name=method]").select_option(label="sensei")
    assert tab.locator("#gallery > li:visible").count() == 24
    assert tab.locator("output", has_text="24 of 200 shown").count() == 1
    tab.locator(".filters button", has_text="show all 50").click()
    how = tab.locator("#gallery > li:visible .how").all_inner_texts()
    assert len(how) == 50 and all("sensei" in said for said in how)
    assert tab.locator(".filters button").is_hidden()


@pytest.mark.parametrize(("name", "models"), [("evaluation", 1), ("comparison", 4)])
def test_sliders_move_an_image_over_its_genes(visit: Callable[..., Any], name: str, models: int) -> None:
    tab = visit(name)
    card = tab.locator(".sweep").first
    rotation, shift = card.locator("input").nth(0), card.locator("input").nth(1)
    assert card.locator(".how").inner_text() == "unchanged" and card.locator(".strip:visible").count() == 1
    assert card.locator("output").count() == models
    rest = card.locator(".frame").screenshot()
    rotation.focus()
    tab.keyboard.press("Home")
    assert card.locator(".how").inner_text() == "rotated 30° clockwise"
    assert card.locator(".frame").screenshot() != rest
    assert re.search(r", \d+.%", card.locator("output").first.inner_text())
    shift.fill("8")
    assert card.locator(".how").inner_text() == f"moved right 10{THIN}%"
    assert rotation.input_value() == "4" and card.locator(".strip:visible").count() == 1
    shift.fill("4")
    assert card.locator(".how").inner_text() == "unchanged" and card.locator(".frame").screenshot() == rest


def test_the_answer_and_the_command_are_there_without_scripts(visit: Callable[..., Any]) -> None:
    tab = visit("evaluation", java_script_enabled=False)
    assert tab.locator("button:visible").count() == tab.locator("select:visible").count() == 0
    assert tab.locator("input:visible").count() == 0 and tab.locator(".gallery > li:visible").count() > 2
    assert tab.locator("pre.copy").inner_text().startswith("ukemi evaluate 'a run' '<img")


def test_pictures_keep_their_shape(browser: Any, tmp_path: Path) -> None:
    """A black border around wide images would look like what a rotation leaves behind."""
    data = labelled(torch.rand(4, 1, 8, 20), torch.arange(4) % 2)
    metrics = Uncertainty(torch.zeros(4).long(), *[torch.rand(4)] * 5, 10)
    profile = Profile(Thresholds((0.5, 0.5), (0.2, 0.2)), (Profiled("benign", data, metrics),))
    write_uncertainty(tmp_path, UncertaintyReport("a model", profile, 10, "dropout", "given", {"seed": 0}, "cpu", 1.0))
    tab = browser.new_page()
    tab.goto((tmp_path / "page.html").as_uri())
    ratios = tab.eval_on_selector_all(".picture", "every => every.map(one => one.clientWidth / one.clientHeight)")
    tab.close()
    assert ratios and all(abs(ratio - 2.5) < 0.1 for ratio in ratios)


def test_long_names_stay_within_their_cards(browser: Any, tmp_path: Path) -> None:
    data = labelled(torch.rand(4, 1, 8, 8), torch.arange(4) % 2)
    metrics = Uncertainty(torch.zeros(4).long(), *[torch.rand(4)] * 5, 10)
    names = ("benign", "run/generated/LH-misclassified/generated.safetensors")
    profile = Profile(Thresholds((0.5, 0.5), (0.2, 0.2)), tuple(Profiled(name, data, metrics) for name in names))
    write_uncertainty(tmp_path, UncertaintyReport("a model", profile, 10, "dropout", "given", {"seed": 0}, "cpu", 1.0))
    tab = browser.new_page(viewport={"width": 360, "height": 800})
    tab.goto((tmp_path / "page.html").as_uri())
    wide = tab.eval_on_selector_all(".gallery .how", "every => every.map(one => one.scrollWidth - one.clientWidth)")
    whole = tab.evaluate("document.documentElement.scrollWidth")
    tab.close()
    assert wide and max(wide) <= 0 and whole <= 360


def test_a_name_without_spaces_makes_no_page_wider(browser: Any, tmp_path: Path) -> None:
    """Nor does it leave the table's numbers, or the model's answer, no room."""
    found, long = synthetic(), "set_of_images_" * 8
    method = found.methods[0]
    (case,) = found.cases
    renamed = {
        name: {long if one == method else one: runs for one, runs in getattr(case, name).items()}
        for name in ("outcomes", "shown")
    }
    case, methods = replace(case, name=f"{long}.npz", **renamed), (long, *found.methods[1:])
    write_comparison(tmp_path, replace(found, cases=(case,), methods=methods, baseline=long), command="ukemi compare")
    for width in (390, 1200):
        tab = browser.new_page(viewport={"width": width, "height": 800})
        tab.goto((tmp_path / "page.html").as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate("document.querySelector('tbody th').offsetWidth") <= width / 2
        answer = tab.evaluate("document.querySelector('.answers output').offsetWidth")
        tab.close()
        assert answer > 150


def test_names_from_right_to_left_stay_where_they_are(
    make: Callable[..., Evaluation], browser: Any, tmp_path: Path
) -> None:
    """Else the arrow would point from what the image is taken for to what it is."""
    write_page(tmp_path / "page.html", [replace(make(gallery=6), classes=("חתול", "כלב", "עוף"))], "page")
    tab = browser.new_page()
    tab.goto((tmp_path / "page.html").as_uri())
    lefts = "every => every.map(one => [...one.children].map(part => part.getBoundingClientRect().left))"
    places = tab.eval_on_selector_all(".gallery .said", lefts)
    tab.close()
    assert len(places) == 6 and all(label < guess for label, guess in places)
