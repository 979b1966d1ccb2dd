"""What can be known to be wrong is said before anything is done; what changes a result changes its folder."""

from pathlib import Path
from typing import Any

import pytest
from quick_experiment import config

from ukemi.errors import UserError
from ukemi.experiments import KINDS, ExperimentConfig
from ukemi.recipes import recipe_of

CELL = {"name": "a", "data": "fashion-mini", "model": "demo-cnn"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"experiment": "other"}, "experiment: should be 'uncertainty' or 'dare', but 'other' was given."),
        ({"part": "study"}, "part: 'study' is none of effectiveness, variants, share, mining, efficiency."),
        ({"cells": []}, "cells: at least one is needed."),
        ({"cells": [CELL, CELL]}, "cells: 'a' is there twice; each needs a name of its own."),
        ({"cells": [{"name": "a", "data": "fashion-mini"}]}, "cells.model is missing."),
        ({"cells": [CELL | {"train": {"epoch": 1}}]}, "epoch is not a known field"),
        ({"cells": [CELL | {"sizes": {"test": 0}}]}, "sizes.test: should be greater than or equal to 1, but 0"),
        ({"sizes": {"images": 3}}, "sizes.images is not a known field; known are epochs, tuning"),
        ({"seeds": 0}, "seeds: should be greater than or equal to 1, but 0 was given."),
    ],
)
def test_a_mistake_is_one_sentence(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        config(tmp_path, **{"part": "share", **changes})
    assert str(error.value).startswith(said) and not list(tmp_path.iterdir())


def test_what_changes_a_result_has_a_folder_of_its_own(tmp_path: Path) -> None:
    def folder(**changes: Any) -> Path:
        told = config(tmp_path, **{"part": "share", **changes})
        return told.placed(told.cells[0], 0).folder

    same = (folder(), folder(part="mining"), folder(seeds=5), folder(jobs=2, title="other", device="auto"))
    assert len(set(same)) == 1 and same[0].parent == tmp_path / "runs"
    others = (
        folder(sizes={"test": 7}),
        folder(cells=[CELL | {"train": {"flips": True}}]),
        folder(cells=[CELL | {"shifts": True}]),
    )
    assert len({same[0], *others}) == 4
    paper = [CELL | {"paper": {"minutes": {}}, "not_run": ""}]
    assert folder(cells=paper) == same[0]


def test_a_cells_own_sizes_come_on_top(tmp_path: Path) -> None:
    told = config(tmp_path, part="share", sizes={"test": 9, "white-box": 8}, cells=[CELL | {"sizes": {"white-box": 3}}])
    sizes = told.placed(told.cells[0], 0).sizes
    assert (sizes.test, sizes.white_box, sizes.epochs) == (9, 3, 200)
    assert sizes.as_json()["white-box"] == 3 and sizes.as_json()["grids"]["dare"] == [1e-6, 1e-5, 1e-4]


def test_full_sizes_are_the_papers(tmp_path: Path) -> None:
    told = recipe_of("dare-rq1").config("full", out=tmp_path)
    assert isinstance(told, ExperimentConfig) and len(told.cells) == 9
    cell = next(one for one in told.cells if one.name == "svhn-vgg19")
    assert cell.paper["adv pgd"] == {"frozen": [78.4, 60.2, 67.7, 71.3, 80.3], "clean": 94.8}
    assert cell.paper["minutes"]["dare"] == "241 + 190 + 80" and cell.paper["rand"]["clean"] == 73.6
    sizes = told.placed(cell, 0).sizes
    assert (sizes.epochs, sizes.test, sizes.choosing) == (200, 5000, 5000)
    assert [len(kind.parts) for kind in KINDS.values()] == [4, 5]
