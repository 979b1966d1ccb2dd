"""The search for patterns: operators stay in the ball, draws are keyed, a trained network's patterns are reached."""

from copy import deepcopy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

from ukemi import T3, UserError
from ukemi.attacks.norms import cube, radius_of
from ukemi.data import Data
from ukemi.genetics import tournament
from ukemi.uncertainty import (
    DropoutPasses,
    Ensemble,
    Generated,
    Sampled,
    SearchSettings,
    Target,
    Thresholds,
    generate,
    measured,
    natural,
    uncertainty_of,
)
from ukemi.uncertainty.generation import CHECK, CONFIRM, _Search
from ukemi.uncertainty.patterns import PATTERNS, patterns_of
from ukemi.uncertainty.pixels import between, exchanged, mutated, noisy, rows_of

LIMITS = Thresholds((0.5, 0.5), (0.2, 0.2))
SMALL = SearchSettings(population=24, generations=30, epsilon=0.4)


class Doubled(DropoutPasses):
    """A float64 network for float32 images."""

    def __call__(self, images: Tensor, index: Tensor, *, turn: int = 0, shared: int = 1) -> Sampled:
        return super().__call__(images.double(), index, turn=turn, shared=shared)

    def linked(self, images: Tensor, index: Tensor, *, turn: int = 0) -> Sampled:
        return super().linked(images.double(), index, turn=turn)


@given(st.integers(0, 10**6), st.floats(0.001, 1), st.floats(0, 0.99), st.floats(0, 1), st.floats(0.001, 1))
def test_every_operator_stays_in_ball_and_box(
    seed: int, epsilon: float, edge: float, share: float, rate: float
) -> None:
    images = torch.rand(2, 2, 3, 4, generator=torch.Generator().manual_seed(seed))
    images[0, 0, 0, :2] = torch.tensor([0.0, 1.0])
    index = torch.tensor([seed, seed + 7])
    radius = radius_of(epsilon, images, "linf")
    box = cube(images, radius)

    def held(made: Tensor) -> bool:
        far = (made - images[:, None]).abs().flatten(1).amax(1)
        return bool((far <= radius).all()) and float(made.min()) >= 0 and float(made.max()) <= 1

    first = noisy(box, index, 5, seed=seed, edge=edge, grains=(1, 2))
    assert held(first)
    chosen = tournament(torch.rand(2, 5), index, 10, rounds=2, seed=seed, epoch=1)
    one, two = (rows_of(first, half) for half in chosen.chunk(2, 1))
    child = exchanged(one, two, index, share=share, seed=seed, generation=1)
    assert held(child)
    assert held(mutated(child, box, index, rate=rate, seed=seed, generation=1, edge=edge, grains=(2, 3)))
    assert held(between(torch.rand(2, 5, 2, 3, 4), box))


def test_a_child_has_each_pixel_from_one_of_its_parents_with_all_channels() -> None:
    one, two = torch.zeros(3, 4, 3, 8, 8), torch.ones(3, 4, 3, 8, 8)
    child = exchanged(one, two, torch.arange(3), share=0.25, seed=0, generation=2)
    assert set(child.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(child[:, :, 0], child[:, :, 2])
    assert float(child.mean()) == pytest.approx(0.25, abs=0.06)


def test_mutation_redraws_its_share_evenly_and_can_be_left_out() -> None:
    low, high = torch.zeros(2, 1, 30, 30), torch.ones(2, 1, 30, 30)
    still = torch.full((2, 20, 1, 30, 30), 2.0)  # outside the box, so that what was drawn anew is seen
    made = mutated(still, (low, high), torch.arange(2), rate=0.1, seed=0, generation=0)
    fresh = made[made != 2]
    assert len(fresh) / made.numel() == pytest.approx(0.1, abs=0.01)
    assert float(fresh.mean()) == pytest.approx(0.5, abs=0.02) and float(fresh.std()) == pytest.approx(0.289, abs=0.02)
    assert mutated(still, (low, high), torch.arange(2), rate=0, seed=0, generation=0) is still
    ends = mutated(still, (low, high), torch.arange(2), rate=0.1, seed=0, generation=0, edge=0.5)
    at_end = ends[ends != 2]
    assert all(float((at_end == end).double().mean()) == pytest.approx(0.25, abs=0.03) for end in (0, 1))
    inner = at_end[(at_end > 0) & (at_end < 1)]
    assert float(inner.mean()) == pytest.approx(0.5, abs=0.03) and float(inner.std()) == pytest.approx(0.289, abs=0.02)


def test_seed_generation_and_index_all_change_what_is_drawn() -> None:
    box, index = (torch.zeros(1, 1, 9, 9), torch.ones(1, 1, 9, 9)), torch.tensor([3])
    one, two = torch.zeros(1, 2, 1, 9, 9), torch.ones(1, 2, 1, 9, 9)

    def drawn(index: Tensor, seed: int, generation: int) -> list[Tensor]:
        key = {"seed": seed, "generation": generation}
        return [
            noisy(box, index, 2, **key),  # type: ignore[arg-type]
            exchanged(one, two, index, share=0.5, **key),
            mutated(one, box, index, rate=0.5, **key),  # type: ignore[arg-type]
        ]

    base = drawn(index, 0, 0)
    assert all(torch.equal(*pair) for pair in zip(base, drawn(index, 0, 0), strict=True))
    for other in (drawn(index, 1, 0), drawn(index, 0, 1), drawn(index + 1, 0, 0)):
        assert not any(torch.equal(*pair) for pair in zip(base, other, strict=True))
    assert not any(torch.equal(made[:, 0], made[:, 1]) for made in base)  # nor are two individuals alike


def test_noise_at_the_ends_is_as_frequent_as_said() -> None:
    box = (torch.zeros(1, 1, 50, 50), torch.ones(1, 1, 50, 50))
    made = noisy(box, torch.zeros(1, dtype=torch.int64), 4, seed=1, edge=0.4)
    assert float((made == 1).double().mean()) == pytest.approx(0.2, abs=0.02)
    assert float((made == 0).double().mean()) == pytest.approx(0.2, abs=0.02)
    inner = made[(made > 0) & (made < 1)]
    assert float(inner.mean()) == pytest.approx(0.5, abs=0.02)


def test_patches_are_drawn_as_one_and_individuals_take_turns() -> None:
    box = (torch.zeros(2, 3, 7, 9), torch.ones(2, 3, 7, 9))
    index = torch.tensor([4, 9])
    made, single = (noisy(box, index, 5, seed=2, grains=grains) for grains in ((1, 2, 4), (1,)))
    for number in range(5):
        side = (1, 2, 4)[number % 3]
        for row in range(7):
            for column in range(9):
                first = single[:, number, :, row // side * side, column // side * side]
                assert torch.equal(made[:, number, :, row, column], first)
    assert torch.equal(made[:, 0], single[:, 0]) and not torch.equal(made[:, 1], single[:, 1])
    still = torch.full((2, 3, 3, 7, 9), 2.0)
    changed = mutated(still, box, index, rate=0.3, seed=0, generation=1, grains=(7,)) != 2
    assert torch.equal(changed, changed[..., :1, :].expand_as(changed)) and 0 < int(changed.sum()) < changed.numel()


def test_a_find_must_hold_over_all_checks_together(dropping: nn.Module, recognised: Data) -> None:
    """Its mean VR over four more sets of masks, and then over sixteen, is one that lasts in nine of ten sets."""
    source, target = DropoutPasses(dropping, 10), Target("LH", "kept", Thresholds((0.9, 0.9), (0.1, 0.1)))
    search = _Search(source, target, SearchSettings(), *_rows(recognised))
    images, labels, index = _rows(recognised)
    found = search._checked(images, torch.arange(len(index)), 3)
    drawn = [source(images, index, turn=CHECK + 16 * 3 + check) for check in range(16)]
    certain = drawn[0].certain.double()
    other = torch.stack([one.drawn.argmax(2) != certain.argmax(1) for one in drawn]).double().mean(1)
    lasting = 1 - 0.1 ** (1 / 10)  # at least one of ten passes differs, in nine of ten sets
    top = certain.topk(2, 1).values
    met = (certain.argmax(1) == labels) & (top[:, 0] - top[:, 1] < 0.9)
    early, late = (met & (other[:many].mean(0) >= lasting) for many in (4, 16))
    assert torch.equal(found >= 1, early & late) and 0 < int((early & late).sum()) < int(early.sum()) < len(index)
    assert search._evaluations == 4 * len(index) + 12 * int(early.sum())


@given(passes=st.integers(2, 80), limit=st.floats(0.001, 0.999), high=st.booleans(), nearer=st.floats(0.001, 0.2))
def test_the_vr_that_lasts_is_the_nearest_that_does(passes: int, limit: float, high: bool, nearer: float) -> None:
    aimed = Target("LH" if high else "LL", "kept", Thresholds((0.5, 0.5), (limit, limit))).aimed_vr(passes)

    def holds(share: float) -> float:
        differ = torch.arange(passes + 1).double() / passes
        side = patterns_of(torch.zeros_like(differ), differ, Thresholds((0.5, 0.5), (limit, limit))) == int(high)
        return float(stats.binom.pmf(range(passes + 1), passes, share)[side.numpy()].sum())

    assert 0 <= aimed <= 1 and holds(aimed) >= 0.9 - 1e-9
    if aimed != limit:
        assert (aimed > limit) == high and holds(aimed + (limit - aimed) * nearer) < 0.9 + 1e-6


@pytest.mark.parametrize("high", [True, False])
def test_the_vr_that_lasts_is_known_for_thousands_of_passes(high: bool) -> None:
    aimed = Target("LH" if high else "LL", "kept", Thresholds((0.5, 0.5), (0.3, 0.3))).aimed_vr(3000)
    below = stats.binom.cdf(899, 3000, aimed)
    assert (1 - below if high else below) == pytest.approx(0.9, abs=1e-6)
    few = Target("LL", "kept", Thresholds((0.5, 0.5), (4e-4, 4e-4))).aimed_vr(3000)
    assert stats.binom.cdf(1, 3000, few) == pytest.approx(0.9, abs=1e-6)  # one of them may differ


def _rows(data: Data) -> tuple[Tensor, Tensor, Tensor]:
    batch = data.batch(torch.arange(len(data)), "cpu")
    return batch.images, batch.labels, batch.index


def test_the_fitter_wins_its_tournament() -> None:
    fitness = torch.tensor([[0.0, 3.0, 1.0, 2.0]])
    picked = tournament(fitness, torch.tensor([4]), 400, rounds=3, seed=0, epoch=0)[0]
    share = torch.bincount(picked, minlength=4) / 400
    # the best of three out of four: 1 - (3/4)^3, and so on down
    assert share.tolist() == pytest.approx([1 / 64, 37 / 64, 7 / 64, 19 / 64], abs=0.06)


def certain(p: float, other: float, passes: list[int]) -> Sampled:
    rest = 1 - p - other
    drawn = torch.eye(3, dtype=torch.float64)[torch.tensor(passes)][:, None]
    return Sampled(torch.tensor([[p, other, rest]], dtype=torch.float64), drawn)


def test_the_fitness_has_its_pieces_in_order() -> None:
    target = Target("HH", "kept", LIMITS)
    steady, mixed = [0] * 20, [0, 1] * 10
    wrong_far = target.scored(certain(0.01, 0.98, mixed), torch.tensor([0]))
    wrong_near = target.scored(certain(0.45, 0.5, mixed), torch.tensor([0]))
    short = target.scored(certain(0.95, 0.03, steady), torch.tensor([0]))
    nearer = target.scored(certain(0.95, 0.03, [0] * 17 + [1] * 3), torch.tensor([0]))
    there = target.scored(certain(0.95, 0.03, mixed), torch.tensor([0]))
    ranked = [float(one.fitness) for one in (wrong_far, wrong_near, short, nearer, there)]
    assert ranked == sorted(ranked) and len(set(ranked)) == 5
    assert ranked[1] < -2 and -1 <= ranked[2] < 0 and ranked[4] >= 1
    assert bool(there.met) and bool(there.safe) and not bool(nearer.met)
    assert not bool(Target("HH", "misclassified", LIMITS).scored(certain(0.95, 0.03, mixed), torch.tensor([0])).met)


def test_at_the_limit_it_is_met_but_not_safe() -> None:
    scores = Target("HH", "kept", LIMITS).scored(certain(0.95, 0.03, [0] * 16 + [1] * 4), torch.tensor([0]))
    assert bool(scores.met) and not bool(scores.safe)


def test_a_find_at_the_very_limit_is_a_success(seeds: Data) -> None:
    """The search wants more than it counts: a VR that would last."""
    images, labels, index = (part[:1] for part in _rows(seeds))

    class AtTheLimit(DropoutPasses):
        def __call__(self, images: Tensor, index: Tensor, *, turn: int = 0, shared: int = 1) -> Sampled:
            return certain(0.95, 0.03, [0] * 16 + [1] * 4)

    source = AtTheLimit(nn.Dropout(), 20)
    search = _Search(source, Target("HH", "kept", LIMITS), SearchSettings(), images, 0 * labels, index)
    assert search.result().success.tolist() == [True]


@pytest.fixture(scope="module")
def seeds(recognised: Data) -> Data:
    return recognised.take(torch.arange(6))


def test_a_trained_network_reaches_a_pattern(dropping: nn.Module, seeds: Data) -> None:
    source = DropoutPasses(dropping, 20)
    found = generate(source, seeds, Target("LH", "misclassified", LIMITS), SMALL)
    assert found.success_rate >= 0.8
    again = measured(source(found.images, found.index, turn=CONFIRM))
    there = (patterns_of(again.pcs, again.vr, LIMITS) == PATTERNS.index("LH")) & (again.prediction != found.labels)
    assert torch.equal(there, found.success)
    originals = seeds.batch(torch.arange(len(seeds)), "cpu").images
    far = (found.images - originals).flatten(1).abs().amax(1)
    assert float(far.max()) <= 0.4 and torch.equal(far, found.distance)
    assert (found.generations <= 30).all() and found.evaluations >= 6 * 24


def test_keeping_the_label_is_the_other_goal(dropping: nn.Module, seeds: Data) -> None:
    settings = SearchSettings(population=16, generations=10, epsilon=0.05)
    found = generate(DropoutPasses(dropping, 20), seeds, Target("HL", "kept", LIMITS), settings)
    assert found.success_rate >= 0.5
    assert (found.metrics.prediction == found.labels)[found.success].all()


def test_what_can_not_be_reached_ends_after_its_budget(dropping: nn.Module, seeds: Data) -> None:
    limits = Thresholds((0.999, 0.999), (0.95, 0.95))
    settings = SearchSettings(population=4, generations=3, epsilon=0.01)
    found = generate(DropoutPasses(dropping, 10), seeds, Target("HH", "misclassified", limits), settings)
    assert not found.success.any() and not found.claimed.any()
    # four individuals three times, and twice the slopes of the two that climb
    assert (found.generations == 3).all() and found.evaluations == 6 * (4 * 3 + 2 * 2)
    assert found.fitness.isfinite().all() and (found.fitness < 0).all()


class Noting(DropoutPasses):
    """Says which masks it was asked for."""

    asked: list[tuple[int, int]]

    def __call__(self, images: Tensor, index: Tensor, *, turn: int = 0, shared: int = 1) -> Sampled:
        self.asked = [*getattr(self, "asked", []), (turn, shared)]
        return super().__call__(images, index, turn=turn, shared=shared)


def test_no_masks_are_used_twice(dropping: nn.Module, seeds: Data) -> None:
    """Each generation has its own, the same for all individuals; what counts is judged under others again."""
    source, target = Noting(dropping, 10), Target("LH", "misclassified", LIMITS)
    made = generate(source, seeds, target, SearchSettings(population=8, generations=9, epsilon=0.4))
    *searched, last = source.asked
    whole = [turn for turn, shared in searched if shared == 8]
    assert whole == list(range(1, int(made.generations.max()) + 1)) and len(whole) > 3
    checks = [turn for turn, shared in searched if shared == 1]
    assert made.claimed.any() and min(checks) >= CHECK and max(checks) < CONFIRM
    assert len(set(checks)) == len(checks) and last == (CONFIRM, 1)


def same(first: Generated, second: Generated, rows: Tensor) -> bool:
    names = ("images", "labels", "index", "success", "claimed", "fitness", "generations")
    return all(torch.equal(getattr(first, name)[rows], getattr(second, name)) for name in names)


@pytest.mark.parametrize("natural_genes", [False, True])
def test_a_seed_does_not_depend_on_its_batch(dropping: nn.Module, seeds: Data, natural_genes: bool) -> None:
    source = Doubled(deepcopy(dropping).double(), 10)
    settings = SearchSettings(population=8, generations=4, epsilon=0.1)
    maker = {"maker": natural(T3)} if natural_genes else {}
    target = Target("LH", "misclassified", LIMITS)
    whole = generate(source, seeds, target, settings, **maker)  # type: ignore[arg-type]
    rows = torch.tensor([4, 1])
    part = generate(source, seeds.take(rows), target, settings, **maker)  # type: ignore[arg-type]
    # fitness agrees to the last bits of float64, images exactly: every choice was the same
    assert torch.allclose(whole.fitness[rows], part.fitness, atol=1e-9)
    assert torch.equal(whole.images[rows], part.images) and torch.equal(whole.success[rows], part.success)


@pytest.mark.parametrize("elite", [0, 5])
def test_any_number_of_elites_leaves_room_for_a_child(dropping: nn.Module, seeds: Data, elite: int) -> None:
    settings = SearchSettings(population=2, generations=3, epsilon=0.1, elite=elite, climbers=0)
    target = Target("HH", "misclassified", Thresholds((0.999, 0.999), (0.95, 0.95)))
    for maker in ({}, {"maker": natural(T3)}):
        found = generate(DropoutPasses(dropping, 4), seeds, target, settings, **maker)  # type: ignore[arg-type]
        assert found.evaluations == 6 * 2 * 3


def test_blocks_of_seeds_are_joined(dropping: nn.Module, seeds: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = Doubled(deepcopy(dropping).double(), 5), Target("LL", "kept", LIMITS)
    settings = SearchSettings(population=4, generations=2, epsilon=0.1)
    heard: list[int] = []
    whole = generate(source, seeds, target, settings)
    monkeypatch.setattr("ukemi.uncertainty.generation.VALUES", {"cpu": 2 * 4 * 784})
    parts = generate(source, seeds, target, settings, report=lambda done, total: heard.append(done))
    assert torch.equal(whole.images, parts.images) and whole.evaluations == parts.evaluations
    assert heard == sorted(heard) and heard[-1] == 6 and len(parts.metrics) == 6


def test_natural_variations_are_variations(dropping: nn.Module, seeds: Data) -> None:
    settings = SearchSettings(population=20, generations=6)
    found = generate(
        DropoutPasses(dropping, 20), seeds, Target("LH", "misclassified", LIMITS), settings, maker=natural(T3)
    )
    assert found.success_rate >= 0.5
    # turned and moved, not noisy: black corners stay black
    assert float(found.distance.max()) > 0.2 and float(found.images[:, :, 0, 0].max()) < 0.5


def test_bad_targets_are_named() -> None:
    with pytest.raises(UserError, match="pattern: 'HX' is none of LL, LH, HL, HH"):
        Target("HX", "kept", LIMITS)
    with pytest.raises(UserError, match="goal: 'fooled' is none of misclassified, kept"):
        Target("HH", "fooled", LIMITS)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="confidence: 'top' is none of margin, max"):
        Target("HH", "kept", LIMITS, "top")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="against: 'label' is none of prediction, mode"):
        Target("HH", "kept", LIMITS, against="label")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="population"):
        SearchSettings(population=1)
    assert Target("hl", "kept", LIMITS).pattern == "HL"


def test_what_is_not_finite_is_worst() -> None:
    """NaN would sort above every number: such an individual would live on and breed."""
    sampled = Sampled(torch.full((1, 3), torch.nan), torch.full((4, 1, 3), torch.nan))
    for goal in ("misclassified", "kept"):
        scores = Target("LH", goal, LIMITS).scored(sampled, torch.tensor([0]))  # type: ignore[arg-type]
        assert float(scores.fitness) == -3 and not bool(scores.met)


def test_what_an_ensemble_answers_is_no_luck(dropping: nn.Module, seeds: Data) -> None:
    """Its members answer the same every time: what is there needs no margin and no second look."""
    others = [deepcopy(dropping) for _ in range(2)]
    torch.nn.init.zeros_(list(others[0].parameters())[-1])  # one of three differs at most: a VR near the limit
    source, target = Ensemble([dropping, *others]), Target("LH", "misclassified", Thresholds((0.9, 0.9), (0.3, 0.3)))
    found = generate(source, seeds, target, SearchSettings(population=16, generations=12, epsilon=0.3, climbers=0))
    assert found.success.any() and torch.equal(found.success, found.claimed)
    assert found.evaluations == 16 * int(found.generations.sum())
    assert (found.generations[found.success] <= 12).all() and (found.fitness[found.success] >= 1).all()


def test_the_best_so_far_is_kept_and_luck_is_taken_back(dropping: nn.Module, seeds: Data) -> None:
    target, (images, labels, index) = Target("LH", "misclassified", LIMITS), _rows(seeds)
    search = _Search(DropoutPasses(dropping, 4), target, SearchSettings(), images, labels, index)
    search._checked = lambda made, rows, generation: torch.tensor([-0.25, 1.25]).double()  # type: ignore[method-assign]
    made = torch.rand(3, 6, 2, *images.shape[1:])
    given = [torch.full((6, 2), low).double() for low in (-0.5, -0.5, -0.6)]  # of equals the first
    given[2][0, 1], given[2][3, 1] = 1.5, 1.1  # both seem to be there; the first was lucky
    done = [search._noted(made[at], given[at], torch.arange(6), at) for at in range(3)]
    assert done[0] is None and done[1] is None and done[2] is not None and done[2].nonzero().tolist() == [[3]]
    assert float(given[2][0, 1]) == -0.25  # it breeds as what it is
    found = search.result()
    assert found.fitness.tolist() == [-0.25, -0.5, -0.5, 1.25, -0.5, -0.5] and found.claimed.nonzero().tolist() == [[3]]
    assert torch.equal(found.images[[0, 3]], made[2, [0, 3], 1]) and torch.equal(found.images[1], made[0, 1, 0])


def test_what_was_made_is_measured_in_the_targets_kinds(dropping: nn.Module, seeds: Data) -> None:
    source, target = DropoutPasses(dropping, 10), Target("LH", "kept", LIMITS, "max", "mode")
    made = generate(source, seeds, target, SearchSettings(population=6, generations=3, epsilon=0.3))
    sampled = source(made.images, made.index, turn=CONFIRM)
    kinds, usual = measured(sampled, "max", "mode"), measured(sampled)
    assert torch.allclose(made.metrics.pcs, kinds.pcs) and torch.equal(made.metrics.vr, kinds.vr)
    assert not torch.allclose(kinds.pcs, usual.pcs)


def test_no_image_is_said(dropping: nn.Module, recognised: Data) -> None:
    source, none = DropoutPasses(dropping, 4), recognised.take(torch.arange(0))
    with pytest.raises(UserError, match="data: there is no image to search from"):
        generate(source, none, Target("LH", "kept", Thresholds((0.5, 0.5), (0.2, 0.2))))
    with pytest.raises(UserError, match="data: there is no image to ask about"):
        uncertainty_of(source, none)
