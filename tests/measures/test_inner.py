"""The quality of a search against closed forms, a slow search, and what it must refuse."""

import copy
from collections.abc import Callable
from math import exp, log

import pytest
import torch
from torch import Tensor, nn

from ukemi import T2, T3, Augmenter, Gene, Random, Sensei, Space, UserError, WorstOf, vary
from ukemi.augmenters import PRESETS
from ukemi.data import Data, DataSet, labelled
from ukemi.measures import MethodQuality, inner, search_quality
from ukemi.measures.inner import SEARCHES, Method

LIGHT = Space((Gene("brightness", -0.2, 0.2, 0, 0.05),), "light")


class Grey(nn.Module):
    """Logits (-m, m) for m = 2 (mean pixel - 1/2): the loss of class 0 is log(1 + exp(2 m)), rising with brightness,
    that of class 1 falls. The worst of a space lies at its end, for every image."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        m = self.scale * (x.flatten(1).mean(1) - 0.5)
        return torch.stack([-m, m], 1)


def grey(levels: list[float]) -> Data:
    images = torch.tensor(levels)[:, None, None, None].expand(-1, 1, 4, 4).contiguous()
    return labelled(images, torch.arange(len(levels)) % 2)


def loss_at(level: float, label: int, brightness: float) -> float:
    m = 2 * (min(1.0, max(0.0, level + brightness)) - 0.5)
    return log(1 + exp(2 * m if label == 0 else -2 * m))


LEVELS = [0.3, 0.4, 0.5, 0.6, 0.7]


def test_the_grids_maximum_is_the_closed_form() -> None:
    found = search_quality(Grey(), grey(LEVELS), LIGHT, ["random"], generations=1)
    ends = [loss_at(level, at % 2, 0.2 if at % 2 == 0 else -0.2) for at, level in enumerate(LEVELS)]
    assert found.grid.tolist() == pytest.approx(ends, abs=1e-6)
    assert found.clean.tolist() == pytest.approx([loss_at(v, at % 2, 0) for at, v in enumerate(LEVELS)], abs=1e-6)
    assert len(found.rows) == 3 and found.budget == 10


@pytest.mark.parametrize("name", [*SEARCHES, "sensei-sa"])
def test_every_method_finds_the_end_of_a_line(name: str) -> None:
    """Nine values of one gene: two hundred passes find the end, and nothing lies above it."""
    one = search_quality(Grey(), grey(LEVELS), LIGHT, [name], seed=[0, 1]).methods[name]
    assert one.share().tolist() == pytest.approx([1, 1], abs=1e-6) and one.reached().tolist() == [1, 1]
    assert bool((one.best <= one.grid + 1e-6).all()) and one.best.shape == one.current.shape


def test_a_grid_that_misses_the_worst_is_beaten() -> None:
    rows = LIGHT.identity()[None]
    found = search_quality(Grey(), grey(LEVELS), LIGHT, ["worst-of"], grid=rows)
    one, clean = found.methods["worst-of"], found.clean
    assert torch.equal(found.grid, clean) and one.reached().item() == 1
    ends = sum(loss_at(level, at % 2, 0.2 if at % 2 == 0 else -0.2) for at, level in enumerate(LEVELS))
    assert one.share().item() == pytest.approx(ends / float(clean.double().sum()), abs=1e-6)


def test_what_a_search_found_counts_up_to_rounding() -> None:
    best = torch.tensor([[[1.0, 2.0, 3.0], [2.0, 1.0, 3.5]]])
    one = MethodQuality("x", torch.tensor([10.0, 20.0]).double(), best, torch.tensor([2.0, 2.0000005, 4.0]))
    assert one.best[0].tolist() == [[1, 2, 3], [2, 2, 3.5]]
    assert one.share().item() == pytest.approx(7.5 / 8) and one.share(19).item() == pytest.approx(6 / 8)
    assert one.reached().item() == pytest.approx(2 / 3) and one.reached(10).item() == pytest.approx(1 / 3)
    assert one.share(9).isnan().all() and one.reached(9).isnan().all()


@pytest.mark.parametrize("name", SEARCHES)
def test_best_so_far_never_falls_and_passes_are_equal(name: str, tiny_net: nn.Module, fashion: DataSet) -> None:
    few = fashion.test.take(torch.arange(30))
    one = search_quality(tiny_net, few, T3, [name], generations=3).methods[name]
    assert bool((one.best.diff(dim=1) >= 0).all()) and torch.equal(one.best.amax(1), one.current.amax(1))
    step = 1 if name == "random" else 10
    assert one.forwards.tolist() == [step * at for at in range(1, 30 // step + 1)]
    assert one.current.shape == (1, 30 // step, 30)


def test_who_keeps_its_parents_forgets_nothing(tiny_net: nn.Module, fashion: DataSet) -> None:
    few = fashion.test.take(torch.arange(40))
    found = search_quality(tiny_net, few, T3, ["worst-of", "sensei", "ukemi"], generations=6, grid=2).methods
    assert bool((found["ukemi"].current.diff(dim=1) >= 0).all())
    assert all(bool((found[name].current.diff(dim=1) < 0).any()) for name in ("worst-of", "sensei"))


@pytest.mark.parametrize(
    ("make", "forwards"),
    [
        (WorstOf.Config(k=3), [3, 6, 9, 12, 15, 18]),
        (WorstOf.Config(k=20), [20]),
        (WorstOf.Config(k=4, fitness="kl"), [5, 10, 15, 20]),
        (PRESETS["ukemi"](population=7), [7, 14]),
        (PRESETS["augmentation"](warmup=3), [10, 20]),
        (lambda space, seed: Random(space, seed=seed), list(range(1, 21))),
    ],
)
def test_passes_are_those_that_the_network_saw(
    make: Method, forwards: list[int], tiny_net: nn.Module, fashion: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted at the network, without the measure's own passes; a method that scores nothing is charged one each."""
    few = fashion.test.take(torch.arange(8))
    seen, own = [0], [False]

    def count(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        seen[0] += 0 if own[0] else len(output)

    def quiet(function: Callable[..., object]) -> Callable[..., object]:
        def called(*arguments: object) -> object:
            own[0] = True
            try:
                return function(*arguments)
            finally:
                own[0] = False

        return called

    for name in ("logits", "check_head"):
        monkeypatch.setattr(inner, name, quiet(getattr(inner, name)))
    tiny_net.register_forward_hook(count)
    one = search_quality(tiny_net, few, T3, {"mine": make}, generations=2).methods["mine"]
    assert one.forwards.tolist() == forwards and len(one.current[0]) == len(forwards)
    scored = not (callable(make) and isinstance(make(T3, 0), Random))
    assert seen[0] == (8 * forwards[-1] if scored else 0)


def slow_best(model: nn.Module, data: Data, k: int, seed: int, generations: int) -> list[list[float]]:
    """Worst-of-k in plain Python, one variant at a time: the highest loss of each image after each generation."""
    batch = data.batch(torch.arange(len(data)), "cpu")
    best = [float("-inf")] * len(data)
    curve = []
    for epoch in range(generations):
        drawn = T3.sample(batch.index, k, seed=seed, epoch=epoch)
        for at in range(len(data)):
            for row in drawn[at]:
                with torch.no_grad():
                    logits = model.eval()(vary(batch.images[at : at + 1], row[None], T3))
                loss = nn.functional.cross_entropy(logits, batch.labels[at : at + 1]).item()
                best[at] = max(best[at], loss)
        curve.append(list(best))
    return curve


def test_worst_of_equals_the_slow_search(tiny_net: nn.Module, fashion: DataSet) -> None:
    few = fashion.test.take(torch.tensor([5, 3, 900, 77]))
    found = search_quality(tiny_net, few, T3, {"five": WorstOf.Config(k=5)}, generations=2, seed=[7, 4])
    for at, seed in enumerate((7, 4)):
        expected = torch.tensor(slow_best(tiny_net, few, 5, seed, 4))
        torch.testing.assert_close(found.methods["five"].best[at], expected, rtol=1e-5, atol=1e-6)


def test_the_grids_maximum_equals_the_slow_one(tiny_net: nn.Module, fashion: DataSet) -> None:
    few = fashion.test.take(torch.arange(5))
    found = search_quality(tiny_net, few, T2, ["random"], generations=1, grid="t2-27")
    batch = few.batch(torch.arange(5), "cpu")
    with torch.no_grad():
        losses = [
            nn.functional.cross_entropy(
                tiny_net.eval()(vary(batch.images, row.expand(5, -1), T2)), batch.labels, reduction="none"
            )
            for row in T2.grid(3)
        ]
    torch.testing.assert_close(found.grid, torch.stack(losses).amax(0), rtol=1e-5, atol=1e-6)


def test_a_named_grid_brings_its_space(tiny_net: nn.Module, fashion: DataSet) -> None:
    few = fashion.test.take(torch.arange(3))
    found = search_quality(tiny_net, few, T3, ["worst-of"], generations=1, grid="engstrom-775")
    assert found.space.name == "engstrom" and len(found.rows) == 775


def test_same_seed_same_curves_and_the_model_is_left_alone(tiny_net: nn.Module, fashion: DataSet) -> None:
    few = fashion.test.take(torch.arange(20))
    tiny_net.train()
    tiny_net[0].eval()
    modes, state = [module.training for module in tiny_net.modules()], copy.deepcopy(tiny_net.state_dict())
    generator = torch.get_rng_state()
    first = search_quality(tiny_net, few, T3, generations=2, seed=[3, 5], grid=2)
    assert [module.training for module in tiny_net.modules()] == modes
    assert all(torch.equal(state[key], value) for key, value in tiny_net.state_dict().items())
    assert all(parameter.grad is None for parameter in tiny_net.parameters())
    assert torch.equal(generator, torch.get_rng_state())
    torch.rand(7)
    again = search_quality(tiny_net, few, T3, generations=2, seed=5, grid=2)
    for name, one in first.methods.items():
        assert torch.equal(one.current[1], again.methods[name].current[0]), name
        assert not torch.equal(one.current[0], one.current[1])
    assert set(first.methods) == set(SEARCHES) and first.seeds == (3, 5)


def test_progress_reaches_its_end_and_images_may_be_decoded_on_demand(tiny_net: nn.Module, fashion: DataSet) -> None:
    whole = fashion.test.take(torch.arange(9))

    class Rows:
        shape = whole.images.shape
        asked = 0

        def __getitem__(self, positions: Tensor) -> Tensor:
            self.asked += 1
            return whole.images[positions]

    rows = Rows()
    told: list[tuple[int, int]] = []
    lazy = Data(rows, whole.labels, whole.classes, whole.index, whole.identities)
    methods = {"random": Random.Config(), "three": WorstOf.Config(k=3)}
    found = search_quality(
        tiny_net, lazy, T2, methods, generations=1, report=lambda done, total: told.append((done, total))
    )
    assert rows.asked == 1 and torch.equal(found.grid, search_quality(tiny_net, whole, T2, methods).grid)
    assert told == sorted(told) and told[-1] == (9 * (27 + 2 * 10), 9 * (27 + 2 * 10))


class Flipping(Random):
    def __init__(self, space: Space, seed: int) -> None:
        super().__init__(space, seed=seed, flips=True)


@pytest.mark.parametrize(
    ("methods", "options", "said"),
    [
        (["luck"], {}, "methods: 'luck' is none of standard, random, worst-of"),
        ([], {}, "methods: a list of names is needed"),
        ("ukemi", {}, "methods: a list of names is needed"),
        (["standard"], {}, "there is no search in it"),
        ({"mine": Flipping}, {}, "flips=False"),
        (["random"], {"generations": 0}, "at least one generation"),
        (["random"], {"seed": []}, "different seeds are needed"),
        (["random"], {"seed": [1, 1]}, "different seeds are needed"),
        (["random"], {"grid": "t9"}, "grid: 't9' is none of"),
        (["random"], {"grid": torch.zeros(0, 1)}, "at least one chromosome"),
        (["random"], {"grid": torch.full((1, 1), 9.0)}, "brightness should lie in"),
    ],
)
def test_what_it_refuses(methods: list[str], options: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said.replace("(", r"\(")):
        search_quality(Grey(), grey(LEVELS), LIGHT, methods, **options)  # type: ignore[arg-type]


def test_models_that_do_not_fit_are_named() -> None:
    class Odd(Grey):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * torch.nan

    with pytest.raises(UserError, match="not finite"):
        search_quality(Odd(), grey(LEVELS), LIGHT, ["random"])
    with pytest.raises(UserError, match="model's head"):
        search_quality(nn.Sequential(nn.Flatten(), nn.Linear(16, 1)), grey(LEVELS), LIGHT, ["random"])


def test_a_generation_above_the_budget_is_refused() -> None:
    with pytest.raises(UserError, match="one of WorstOf takes 50 passes per image, above the budget of 20"):
        search_quality(Grey(), grey(LEVELS), LIGHT, {"many": WorstOf.Config(k=50)}, generations=2)


def test_a_model_without_parameters_can_be_searched() -> None:
    found = search_quality(nn.Flatten(), grey(LEVELS), LIGHT, ["random", "augmentation"], generations=2)
    assert all(method.best.isfinite().all() for method in found.methods.values())


def test_a_search_that_skips_is_charged_for_less() -> None:
    """Samples whose every variant has a low loss are skipped, so that the same passes last for more generations."""

    def skipping(space: Space, seed: int) -> Augmenter:
        return Sensei(space, seed=seed, settings="sensei-sa", threshold=0.55)

    found = search_quality(Grey(), grey([0.0, 1.0, 0.5, 0.5]), LIGHT, {"mine": skipping}, generations=4, seed=[0, 1, 2])
    one = found.methods["mine"]
    assert one.forwards[0] == 11 and one.forwards[-1] <= 40 and len(one.forwards) > 4
    assert one.current.shape == (3, len(one.forwards), 4)
