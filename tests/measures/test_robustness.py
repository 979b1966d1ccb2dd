"""Robust accuracy against the slow full evaluation, and what it must refuse."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from ukemi import T2, T3, T6, Gene, Normalize, Space, UserError, robust_accuracy, vary
from ukemi.data import DataSet, labelled
from ukemi.measures import accuracy
from ukemi.measures.robustness import far_first, robustness_of
from ukemi.models.inference import padded


class Brightest(nn.Module):
    """Says 1 where the mean pixel is above a half: its verdicts are known in closed form."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        mean = self.scale * x.flatten(1).mean(1)
        return torch.stack([0.5 - mean, mean - 0.5], 1)


LIGHT = Space((Gene("brightness", -0.2, 0.2, 0, 0.1),), "light")


def slow(model: nn.Module, images: Tensor, labels: Tensor, space: Space, rows: Tensor, chunk: int) -> Tensor:
    """Every variant of every image at the same chunk size: right or wrong, `[rows + 1, N]`."""
    results = []
    for row in [space.identity(), *rows]:
        guesses = []
        for part in images.split(chunk):
            variants = vary(part, row.expand(len(part), -1), space)
            with torch.no_grad():
                guesses.append(model.eval()(padded(variants, chunk))[: len(part)].argmax(1))
        results.append(torch.cat(guesses) == labels)
    return torch.stack(results)


@pytest.mark.parametrize(("chunk", "space"), [(64, T3), (256, T3), (13, T2.continuous())])
def test_same_verdict_as_the_slow_evaluation(chunk: int, space: Space, tiny_net: nn.Module, fashion: DataSet) -> None:
    few = fashion.test.batch(torch.arange(40), "cpu")
    # a lightly trained network, so that some images hold and some break
    rows = space.grid(3) * 0.3
    optimiser = torch.optim.Adam(tiny_net.parameters(), 0.01)
    for _ in range(25):
        optimiser.zero_grad()
        nn.functional.cross_entropy(tiny_net(few.images), few.labels).backward()
        optimiser.step()
    right = slow(tiny_net, few.images, few.labels, space, rows, chunk)
    found = robust_accuracy(tiny_net, few.images, few.labels, space, rows, chunk=chunk)
    assert torch.equal(found.correct, right[0]) and torch.equal(found.robust, right.all(0))
    assert 0 < found.robust_accuracy < found.accuracy
    for at, row in enumerate(found.broken_by.tolist()):
        assert (row >= 0) == bool(right[0, at] and not right[:, at].all())
        assert row < 0 or not right[row + 1, at]
    assert found.forwards <= right.numel() and found.share_evaluated < 1
    whole = robust_accuracy(tiny_net, few.images, few.labels, space, rows, chunk=chunk, mean=True)
    assert torch.equal(whole.robust, found.robust) and torch.equal(whole.correct, found.correct)
    assert whole.mean_accuracy == pytest.approx(right[1:].double().mean().item(), abs=1e-12)
    assert found.mean_accuracy is None and whole.share_evaluated == 1


@given(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=30))
def test_closed_form(levels: list[float]) -> None:
    images = torch.tensor(levels)[:, None, None, None].expand(-1, 1, 4, 4).contiguous()
    labels = (images.mean((1, 2, 3)) > 0.5).long()
    labels[0], labels[1] = 0, 1
    model = Brightest()
    found = robust_accuracy(model, images, labels, LIGHT, 5)
    for at, level in enumerate(images[:, 0, 0, 0]):
        shown = (level + torch.tensor([0, -0.2, -0.1, 0.1, 0.2])).clamp(0, 1)
        guesses = model(shown[:, None, None, None].expand(-1, 1, 4, 4)).argmax(1)
        assert bool(found.correct[at]) == bool(guesses[0] == labels[at])
        assert bool(found.robust[at]) == bool((guesses == labels[at]).all())


def test_far_variants_come_first_and_the_identity_is_left_out() -> None:
    rows = T3.grid(3)
    order, left_out = far_first(rows, T3)
    assert left_out == 1 and len(order) == 80
    ranges = torch.tensor([60, 0.2, 0.2, 0.2])
    distances = (rows[order] / ranges).norm(dim=1)
    assert (distances[:-1] >= distances[1:] - 1e-6).all() and (rows[order[0]] != 0).all()


def test_broken_images_leave() -> None:
    images = torch.full((50, 1, 4, 4), 0.55)
    images[0] = 0.0
    found = robust_accuracy(Brightest(), images, (images.mean((1, 2, 3)) > 0.5).long(), LIGHT, 5, chunk=10)
    assert found.robust_accuracy == 1 / 50
    assert found.forwards == 50 + 50 + 50 + 3 or found.forwards < 50 * 4
    assert set(found.broken_by[1:].tolist()) == {0}


def test_uint8_pixels_and_named_grids(fashion: DataSet, tiny_net: nn.Module) -> None:
    few = fashion.test.take(torch.arange(20))
    raw = robust_accuracy(tiny_net, few.images, few.labels, T3)  # type: ignore[arg-type]
    floats = robust_accuracy(tiny_net, few.batch(torch.arange(20), "cpu").images, few.labels, T3)
    assert torch.equal(raw.robust, floats.robust) and torch.equal(raw.broken_by, floats.broken_by)
    named = robust_accuracy(tiny_net, few.images, few.labels, T3, "engstrom-775")  # type: ignore[arg-type]
    assert len(named.grid) == 775 and named.space.name == "engstrom"


def test_blocks_of_a_large_set_are_joined(
    fashion: DataSet, tiny_net: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = fashion.test.take(torch.arange(50))
    told: list[int] = []
    whole = robustness_of(tiny_net, few, T2, chunk=16)
    monkeypatch.setattr("ukemi.measures.robustness.BLOCK", 20)
    parts = robustness_of(tiny_net, few, T2, chunk=16, mean=True, report=lambda done, total: told.append(done))
    assert torch.equal(whole.robust, parts.robust) and parts.mean_accuracy is not None
    assert told == sorted(told) and told[-1] == 50


def test_plain_accuracy(fashion: DataSet, tiny_net: nn.Module) -> None:
    few = fashion.test.take(torch.arange(77))
    found, loss = accuracy(tiny_net, few, torch.device("cpu"))
    rows = few.batch(torch.arange(77), "cpu")
    logits = tiny_net.eval()(rows.images)
    assert found == (logits.argmax(1) == rows.labels).double().mean().item()
    assert loss == pytest.approx(nn.functional.cross_entropy(logits, rows.labels).item(), rel=1e-5)


@pytest.mark.parametrize(
    ("images", "labels", "grid", "said"),
    [
        (torch.full((3, 1, 8, 8), torch.nan), [0, 1, 0], 3, "NaN or infinite"),
        (torch.full((3, 1, 8, 8), 1.5), [0, 1, 0], 3, r"pixels should lie in \[0, 1\]"),
        (torch.zeros(3, 1, 8, 8), [0, 1], 3, "3 images but 2 labels"),
        (torch.zeros(3, 1, 8, 8), [0, 5, 0], 3, "doesn't fit the model's head"),
        (torch.zeros(3, 1, 8, 8), [0, -1, 0], 3, "labels should count from 0"),
        (torch.zeros(0, 1, 8, 8), [], 3, "no image"),
        (torch.zeros(3, 1, 8, 8), [0, 1, 0], torch.tensor([[2.0]]), "brightness should lie in -0.2 to 0.2"),
        (torch.zeros(3, 1, 8, 8), [0, 1, 0], "nothing", "grid: 'nothing' is none of"),
        (torch.zeros(3, 1, 8, 8), [0, 1, 0], 1, "grid: at least 2 levels per gene are needed, but 1 was given"),
        (torch.zeros(3, 1, 8, 8), [0, 1, 0], 2_000_000, "levels: 2000000 levels of light are 2,000,000 variants"),
        (torch.zeros(3, 1, 8, 8).numpy(), [0, 1, 0], 3, "images: a torch tensor is needed, but a ndarray was given"),
        (torch.zeros(3, 8), [0, 1, 0], 3, "shape"),
    ],
)
def test_bad_input_is_named(images: Tensor, labels: list[int], grid: object, said: str) -> None:
    with pytest.raises(UserError, match=said):
        robust_accuracy(Brightest(), images, torch.tensor(labels), LIGHT, grid)  # type: ignore[arg-type]


class Two(nn.Module):
    """The images beside the logits."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return Brightest()(x), x


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Brightest().forward, r"^model: a torch\.nn\.Module is needed, but a method was given\.$"),
        (Two(), r"^model: logits of shape \[images, classes\] are expected, but a tuple came out; put a module"),
        (nn.Linear(9, 2), "^model: it can't take images of 1×8×8 "),
        (Normalize([0.5] * 3, [0.5] * 3), "^model: it normalises 3 channels, but the images have 1 "),
    ],
)
def test_what_is_no_classifier_of_these_images_is_named(model: nn.Module, said: str) -> None:
    with pytest.raises(UserError, match=said):
        robust_accuracy(model, torch.zeros(4, 1, 8, 8), torch.zeros(4, dtype=torch.long), LIGHT)


def test_a_space_may_be_named() -> None:
    images, labels = torch.zeros(4, 1, 8, 8), torch.zeros(4, dtype=torch.long)
    assert robust_accuracy(Brightest(), images, labels, "t2").space == T2
    with pytest.raises(UserError, match="space: 't9' is none of"):
        robust_accuracy(Brightest(), images, labels, "t9")
    with pytest.raises(UserError, match=r"space: a ukemi\.Space or the name of one is needed, but 3 was given"):
        robust_accuracy(Brightest(), images, labels, 3)  # type: ignore[arg-type]


def test_logits_that_are_not_finite_are_wrong() -> None:
    class Lost(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.full((len(x), 2), torch.nan)

    images, labels = torch.zeros(4, 1, 8, 8), torch.tensor([0, 1, 0, 1])
    assert robust_accuracy(Lost(), images, labels, LIGHT).accuracy == 0
    assert accuracy(Lost(), labelled(images, labels), torch.device("cpu"))[0] == 0
    with pytest.raises(UserError, match="chunk: at least 1"):
        robust_accuracy(Brightest(), images, labels, LIGHT, chunk=-1)
    with pytest.raises(UserError, match="labels should be whole numbers"):
        robust_accuracy(Brightest(), images, labels + 0.5, LIGHT)


def test_images_of_one_class_can_be_measured() -> None:
    found = robust_accuracy(Brightest(), torch.zeros(4, 1, 8, 8), torch.zeros(4, dtype=torch.long), LIGHT)
    assert found.robust_accuracy == 1


def test_colour_images_of_any_size() -> None:
    data = labelled(torch.rand(6, 3, 20, 31), torch.tensor([0, 1, 0, 1, 0, 1]))
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 20 * 31, 2))
    found = robustness_of(model, data, T6)
    assert len(found.grid) == 2187 and found.robust_accuracy <= found.accuracy


def test_it_shows_the_answer_in_one_line() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    found = robust_accuracy(model, torch.rand(8, 1, 4, 4), torch.zeros(8).long(), T3)
    said = f"Robustness(accuracy={found.accuracy:.4g}, robust_accuracy={found.robust_accuracy:.4g}, images=8, variants="
    assert repr(found) == said + f"81, space='t3', forwards={found.forwards})"
