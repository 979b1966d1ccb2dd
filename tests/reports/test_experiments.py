"""What `ukemi run` writes of an experiment."""

import json
import re
from pathlib import Path
from urllib.parse import unquote

from test_dare_tables import lines

from ukemi import reports
from ukemi.experiments import ExperimentConfig, Findings


def test_the_page_gives_the_answer_first_and_names_its_size(tmp_path: Path) -> None:
    cells = [
        {"name": "c", "data": "fashion-mini", "model": "demo-cnn"},
        {"name": "far", "data": "svhn", "model": "alexnet"},
    ]
    told = ExperimentConfig(title="T", experiment="dare", part="mining", cells=cells, sizes={"epochs": 7}, out=tmp_path)
    kept = tuple({**one, "device": "cpu", "torch": "2"} for one in lines())
    found = Findings(told, kept, {"far": "no data"}, 2)
    reports.write_experiment(tmp_path, found, command="ukemi run x", notes=["A note."])
    page, table = (tmp_path / "page.html").read_text(), (tmp_path / "table.md").read_text()
    answer = reports.experiment_answer(found)
    beside = "rand lost too much accuracy, null random −30.0, null continued −30.0"
    assert answer[0] == f"c: on the frozen sets, in points from DARE: {beside}."
    assert answer[1].startswith("c: DARE beats its null controls in 2 of 2") and answer[2].startswith("2 pieces not")
    assert page.index(answer[0]) < page.index("<table") and "far was not run: no data." in page
    assert "3 seeds; epochs of the networks: c 7; epochs 7, tuning 20000" in page and table.startswith("Size: 3 seeds")
    assert page.count("ukemi run x") == 1 and "A note." in page and "<h2>far</h2>" in page
    assert not re.search(r"(src|href)=\"http", page)
    values = json.loads((tmp_path / "experiment.json").read_text())
    assert values["not_run"] == {"far": "no data"} and values["open_pieces"] == 2 and len(values["lines"]) == len(kept)
    assert (tmp_path / "table.tex").read_text().count(r"\begin{tabular}") == 3
    wide, narrow = (reports.experiment_tables(found, width) for width in (400, 80))
    assert [len(table.columns) for table in wide] == [8, 15, 6] and not any(table.caption for table in wide)
    assert narrow[1].caption == f"deviations and {15 - len(narrow[1].columns)} more columns in table.md"
    assert len(narrow[1].columns) > 5  # the frozen sets are seen


def test_pictures_stand_above_their_tables_and_pages_of_commands_are_linked(tmp_path: Path) -> None:
    name = "a & b"
    cells = [{"name": name, "data": "fashion-mini", "model": "demo-cnn"}]
    told = ExperimentConfig(experiment="dare", part="mining", cells=cells, seeds=1, out=tmp_path)
    kept = tuple({**one, "cell": name, "device": "cpu", "torch": "2"} for one in lines())
    place = told.placed(told.cells[0], 0).folder / "test" / "x y"
    place.mkdir(parents=True)
    (place / "page.html").touch()
    reports.write_experiment(tmp_path, Findings(told, kept, {}, 0), command="ukemi run x")
    page = (tmp_path / "page.html").read_text()
    assert page.index('class="chart grouped"') < page.index("<table") and "Relative to DARE: a &amp; b" in page
    (link,) = re.findall(r'href="([^"#]+\.html)"', page)
    assert "%20" in link and (tmp_path / unquote(link)).is_file()
    assert "a &amp; b, seed 0: test/x y/page.html" in page
