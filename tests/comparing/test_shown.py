"""A run's pictures come back as they were taken, and a run without any is still a run."""

from pathlib import Path

import pytest
import torch
from torch import nn

from ukemi import robust_accuracy
from ukemi.comparing.plan import Measured
from ukemi.comparing.shown import ASKED, GALLERY, NEAR, read_shown, shown_path, write_shown
from ukemi.data import DataSet
from ukemi.measures.doubts import doubts
from ukemi.measures.examples import broken_images, drawn, sweeps, terrains
from ukemi.spaces import named_grid
from ukemi.training import Run
from ukemi.training.checkpoints import write_checkpoint


@pytest.mark.parametrize("grid", ["t2-27", "t3-81-3px"])
def test_what_is_written_is_read(grid: str, tiny_net: nn.Module, fashion: DataSet, tmp_path: Path) -> None:
    test, model = fashion.test.take(torch.arange(60)), tiny_net.eval()
    space, rows = named_grid(grid, test.size)
    found = robust_accuracy(model, test.batch(torch.arange(60), "cpu").images, test.labels, space, rows)
    run, measured = Run(tmp_path), Measured((grid,), 60, {}, None)
    assert read_shown(run, measured) is None
    write_shown(run, measured, model, test, found)
    shown = read_shown(run, measured)
    assert shown is not None and shown.classes == test.classes and shown.space == space
    broken = drawn(test, found.correct & ~found.robust, GALLERY, 0)
    assert 0 < len(shown.gallery) == len(broken) <= GALLERY and len(shown.terrains) == NEAR
    for one, two in zip(shown.gallery, broken_images(model, test, found, broken), strict=True):
        assert (one.index, one.label, one.guess, one.genes, one.loss) == (
            two.index, two.label, two.guess, two.genes, two.loss
        )  # fmt: skip
        assert torch.equal(one.image, two.image) and torch.equal(one.variant, two.variant)
    near = drawn(test, torch.ones(60, dtype=torch.bool), NEAR, 0)
    for ground, other in zip(shown.terrains, terrains(model, test, space, near), strict=True):
        assert ground.landscape.down == other.landscape.down and ground.landscape.across == other.landscape.across
        assert torch.equal(ground.landscape.losses, other.landscape.losses) and torch.equal(ground.image, other.image)
    for swept, again in zip(shown.sweeps, sweeps(model, test, space, near), strict=True):
        assert (swept.index, swept.guesses, swept.axes) == (again.index, again.guesses, again.axes)
        assert torch.equal(torch.tensor(swept.confidences), torch.tensor(again.confidences))
    sure, asked = shown.doubts, doubts(model, test, found, images=ASKED)
    assert sure is not None and asked is not None and len(asked.broken.found) > 0 and sure.inserted == asked.inserted
    assert (sure.limit, sure.unnoticed, sure.auroc) == (asked.limit, asked.unnoticed, asked.auroc)
    for one, other in ((sure.recognised, asked.recognised), (sure.broken, asked.broken)):
        assert torch.equal(one.index, other.index) and torch.equal(one.labels, other.labels)
        assert torch.equal(one.found.vr, other.found.vr) and one.found.passes == other.found.passes


def test_a_run_whose_model_takes_no_dropout_has_no_doubts(fashion: DataSet, tmp_path: Path) -> None:
    class Sums(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            rows = images.flatten(1)
            return torch.stack([part.sum(1) for part in rows.split(rows.shape[1] // 9, 1)], 1)[:, :10]

    test = fashion.test.take(torch.arange(60))
    space, rows = named_grid("t2-27", test.size)
    found = robust_accuracy(Sums(), test.batch(torch.arange(60), "cpu").images, test.labels, space, rows)
    run, measured = Run(tmp_path), Measured(("t2-27",), 60, {}, None)
    write_shown(run, measured, Sums(), test, found)
    shown = read_shown(run, measured)
    assert shown is not None and shown.doubts is None and len(shown.terrains) == NEAR


def test_a_damaged_file_is_no_pictures(tmp_path: Path) -> None:
    run, measured = Run(tmp_path), Measured(("t3-81",), None, {}, None)
    shown_path(run, measured).write_bytes(b"not a file of ours")
    assert read_shown(run, measured) is None


@pytest.mark.parametrize(("values", "known"), [({}, True), ({"shown_schema": 2}, False), ({"kind": "outcome"}, False)])
def test_what_another_version_shows_is_no_pictures(values: dict[str, object], known: bool, tmp_path: Path) -> None:
    run, measured = Run(tmp_path), Measured(("t3-81",), None, {}, None)
    told = {"kind": "shown", "shown_schema": 1, "classes": ["a"], **values}
    write_checkpoint(shown_path(run, measured), {}, told)
    assert (read_shown(run, measured) is not None) == known
