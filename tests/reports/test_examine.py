"""What `examine` picks and says."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from report_samples import sample
from torch import nn

from ukemi import T3, UserError, robust_accuracy, vary
from ukemi.data import Data
from ukemi.reports import Evaluation, examine, summary, write_page
from ukemi.reports.page import glance


def _of(data: Data, index: int) -> tuple[torch.Tensor, int]:
    return data.images[torch.tensor([index])][0], int(data.labels[index])


def test_the_gallery_shows_broken_images_beside_a_variant_that_is_misclassified(evaluation: Evaluation) -> None:
    model, data = sample()
    found = evaluation.robustness
    assert len(evaluation.gallery) == 5
    for pair in evaluation.gallery:
        image, label = _of(data, pair.index)
        assert found.correct[pair.index]
        assert not found.robust[pair.index]
        assert torch.equal(pair.image, image)
        assert pair.label == label != pair.guess
        again = vary(image[None], torch.tensor([pair.genes]), found.space)
        assert torch.equal(pair.variant, again[0])
        assert int(model(again).argmax()) == pair.guess


def test_the_gallery_is_spread_over_the_classes(evaluation: Evaluation) -> None:
    found = evaluation.robustness
    broken = Counter(evaluation.labels[found.correct & ~found.robust].tolist())
    shown = Counter(pair.label for pair in evaluation.gallery)
    assert set(shown) == set(broken)
    short = [label for label in broken if shown[label] < broken[label]]
    assert max(shown.values()) - min([shown[label] for label in short], default=0) <= 1
    assert [pair.label for pair in evaluation.gallery] == sorted(shown.elements())


def test_landscapes_are_of_recognised_images(evaluation: Evaluation) -> None:
    assert len(evaluation.landscapes) == 2
    for ground in evaluation.landscapes:
        assert evaluation.robustness.correct[ground.index]
        assert int(evaluation.labels[ground.index]) == ground.label


def test_it_is_the_same_every_time_and_another_with_another_seed(
    make: Callable[..., Evaluation], evaluation: Evaluation
) -> None:
    picked = [pair.index for pair in evaluation.gallery]
    assert picked == [pair.index for pair in make().gallery]
    assert any(picked != [pair.index for pair in make(seed=seed).gallery] for seed in (1, 2, 3))


def test_a_model_that_recognises_nothing_is_examined_too(tmp_path: Path) -> None:
    model, data = sample()
    wrong = (data.labels + 1) % 3
    with torch.no_grad():
        wrong = (model(data.images[torch.arange(len(data))]).argmax(1) + 1) % 3
    lost = Data(data.images, wrong, data.classes, data.index, data.identities)
    found = robust_accuracy(model, data.images[torch.arange(len(data))], wrong, T3, 2)
    empty = examine(model, lost, found, title="lost", model_name="linear", data_name="noise")
    assert empty.gallery == empty.landscapes == ()
    assert {one.images for one in empty.failures} == {0}
    assert [one for one in glance(empty) if "guessing" not in one] == glance(empty)[:1]  # no gene was tried
    write_page(tmp_path / "page.html", [empty], "Lost")
    assert "What breaks it" not in (tmp_path / "page.html").read_text()


def test_a_result_of_other_data_is_refused(evaluation: Evaluation) -> None:
    model, data = sample(count=12)
    with pytest.raises(UserError, match="24 images, but the data has 12"):
        examine(model, data, evaluation.robustness, title="", model_name="", data_name="")


def test_how_sure_the_model_is_stands_on_the_page_and_in_the_summary(tmp_path: Path) -> None:
    _, data = sample()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(100, 3)).eval()
    found = robust_accuracy(model, data.images[torch.arange(len(data))], data.labels, T3, 2)
    evaluation = examine(model, data, found, title="sure", model_name="linear", data_name="noise")
    asked = evaluation.doubts
    assert asked is not None
    told = summary(evaluation)["doubts"]
    assert told["broken"] == len(asked.broken.index) > 0 and told["unnoticed"] == asked.unnoticed
    assert told["dropout_inserted"] == 0.2 and set(told["auroc"]) == {"pcs", "vr", "pe", "mi"}
    write_page(tmp_path / "page.html", [evaluation], "found")
    page = (tmp_path / "page.html").read_text()
    assert "Does it notice?" in page
    assert page.count("; PCS ") == len(asked.broken.index) + len(asked.recognised.index)
    write_page(tmp_path / "page.html", [replace(evaluation, doubts=None)], "found")
    assert "Does it notice?" not in (tmp_path / "page.html").read_text()
    assert summary(replace(evaluation, doubts=None))["doubts"] is None
