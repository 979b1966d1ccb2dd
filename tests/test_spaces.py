"""Genes, spaces, grids."""

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ukemi
from ukemi import GRIDS, T2, T3, T6, Gene, Space, UserError, named_grid
from ukemi.spaces import BUILT_IN, space_of


def test_the_papers_spaces() -> None:
    assert [gene.name for gene in T6.genes] == [
        "rotation",
        "translate_x",
        "translate_y",
        "shear",
        "zoom",
        "brightness",
        "contrast",
    ]
    assert T3.genes == T6.genes[:4] and T2.genes == T6.genes[:3]
    assert [gene.levels for gene in T6.genes] == [61, 7, 7, 41, 21, 33, 17]
    ranges = [(gene.low, gene.high, gene.identity) for gene in T6.genes]
    assert ranges[0] == (-30, 30, 0) and ranges[1] == (-0.1, 0.1, 0) and ranges[4] == (0.9, 1.1, 1)
    assert ranges[5] == (-32 / 255, 32 / 255, 0) and ranges[6] == (0.8, 1.2, 1)


@pytest.mark.parametrize(("space", "rows"), [(T2, 27), (T3, 81), (T6, 2187)])
def test_grid_is_every_combination(space: Space, rows: int) -> None:
    grid = space.grid(3)
    axes = [(gene.low, (gene.low + gene.high) / 2, gene.high) for gene in space.genes]
    assert torch.equal(grid, torch.tensor(list(itertools.product(*axes))))
    assert len(torch.unique(grid, dim=0)) == rows and space.contains(grid).all()
    assert (grid == space.identity()).all(1).sum() == 1


def test_grid_with_levels_of_its_own() -> None:
    assert len(T2.grid((31, 5, 5))) == 775
    assert T2.grid(1).tolist() == [[0.0, 0.0, 0.0]]
    for levels in (0, (3, 3), (3, 3, 0)):
        with pytest.raises(UserError, match="levels"):
            T2.grid(levels)


def test_a_grid_too_large_to_hold_is_refused_before_it_is_made() -> None:
    said = r"^levels: 300 levels of t3 are 8,100,000,000 variants; at most 1,000,000 are allowed\.$"
    with pytest.raises(UserError, match=said):
        T3.grid(300)
    with pytest.raises(UserError, match=r"levels: 101 x 100 x 100 levels of t2 are 1,010,000 variants"):
        T2.grid((101, 100, 100))
    assert T2.check_levels(100) == [100, 100, 100]


def genes() -> st.SearchStrategy[Gene]:
    def make(low: float, width: float, levels: int, share: float) -> Gene:
        high = low + width
        identity = low + share * (high - low)
        return Gene("own", low, high, identity, (high - low) / (levels - 1), kernel=lambda images, values: images)

    return st.builds(
        make,
        st.floats(-100, 100).map(lambda v: round(v, 3)),
        st.floats(0.5, 100).map(lambda v: round(v, 3)),
        st.integers(2, 200),
        st.floats(0, 1),
    )


@given(genes(), st.booleans(), st.integers(0, 1000))
def test_samples_lie_inside_and_reach_exact_ends(gene: Gene, discrete: bool, seed: int) -> None:
    space = Space((gene,), discrete=discrete)
    drawn = space.sample(torch.arange(300), 10, seed=seed)
    assert drawn.dtype == torch.float32 and drawn.shape == (300, 10, 1) and space.contains(drawn).all()
    last = gene.levels - 1 if discrete else 65534
    ends = space.decode(torch.tensor([[0], [last]])).flatten().tolist()
    assert ends == torch.tensor([gene.low, gene.high]).tolist()
    if discrete:
        lattice = space.decode(torch.arange(gene.levels)[:, None]).flatten()
        assert torch.isin(drawn.flatten(), lattice).all()


@given(st.lists(st.floats(-1000, 1000, width=32), min_size=4, max_size=4))
def test_clip_is_the_nearest_member(values: list[float]) -> None:
    row = torch.tensor(values)
    clipped = T3.clip(row)
    assert T3.contains(clipped)
    assert torch.equal(clipped == row, (row >= T3.clip(row - 1e6)) & (row <= T3.clip(row + 1e6)))
    assert bool(T3.contains(row)) == torch.equal(clipped, row)


def test_limits_are_compared_in_float32() -> None:
    assert T3.contains(torch.tensor([30.0, 0.1, -0.1, 0.1])) and float(torch.tensor(0.1)) > 0.1


@pytest.mark.parametrize("size", [1, 7, 128])
def test_sample_does_not_depend_on_batch_or_order(size: int) -> None:
    index = torch.arange(256)
    whole = T6.sample(index, 10, seed=3, epoch=4)
    parts = [T6.sample(part, 10, seed=3, epoch=4) for part in index.flip(0).split(size)]
    assert torch.equal(whole, torch.cat(parts).flip(0))
    assert not torch.equal(whole, T6.sample(index, 10, seed=3, epoch=5))


def test_every_level_is_drawn_equally_often() -> None:
    drawn = T3.sample(torch.arange(61_000), seed=0)[:, 0, 0]
    counts = torch.bincount((drawn + 30).round().long(), minlength=61)
    assert (counts - 1000).abs().max() < 5 * 1000**0.5


def test_the_identity_is_exact_off_the_middle_of_a_range() -> None:
    space = Space((replace(T3.genes[0], low=-10, high=20),))
    assert (space.decode(torch.arange(31)[:, None]) == 0).sum() == 1 and (space.grid(4) == 0).sum() == 1


def test_continuous_draws_between_the_levels() -> None:
    drawn = T3.continuous().sample(torch.arange(1000), seed=0)[:, 0, 0]
    assert len(drawn.unique()) > 900 and not T3.continuous().discrete and T3.discrete


def test_named_grids() -> None:
    sizes = {name: len(named_grid(name, (28, 28))[1]) for name in GRIDS}
    assert sizes == {name: int(name.split("-")[1]) for name in GRIDS}
    space, rows = named_grid("engstrom-775", (32, 40))
    assert torch.allclose(rows[:, 1].unique() * 40, torch.tensor([-3, -1.5, 0, 1.5, 3]))
    assert torch.allclose(rows[:, 2].unique() * 32, torch.tensor([-3, -1.5, 0, 1.5, 3]))
    assert [gene.levels for gene in space.genes] == [31, 5, 5]
    pixels, rows = named_grid("t3-81-3px", (32, 32))
    assert torch.allclose(rows[:, 1].unique() * 32, torch.tensor([-3.0, 0, 3])) and pixels.genes[1].levels == 7
    with pytest.raises(UserError, match="grid: 'x' is none of t2-27"):
        named_grid("x", (28, 28))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"low": 40}, "low should lie below high"),
        ({"identity": 31}, "identity should lie in -30 to 30"),
        ({"step": 7}, "step should divide"),
        ({"step": 0}, "step should divide"),
        ({"step": -1}, "step should divide"),
        ({"high": float("nan")}, "finite"),
        ({"identity": 5}, "its identity is 0, but 5 was given"),
        ({"name": "blur"}, "needs a kernel"),
        ({"name": "blur", "kernel": "ukemi:T3"}, "should be a function"),
        ({"name": "blur", "kernel": ":blur"}, "package.module:name"),
        ({"name": "blur", "kernel": "nowhere"}, "package.module:name"),
        ({"name": "blur", "kernel": "nowhere:blur"}, "can't be imported"),
        ({"name": "blur", "kernel": "ukemi:blur"}, "has no name 'blur'"),
    ],
)
def test_a_wrong_gene_is_named(change: dict[str, float], said: str) -> None:
    with pytest.raises(UserError, match=said):
        replace(T3.genes[0], **change)


def test_protocols() -> None:
    assert {space.protocol for space in (T2, T3, T6, Space(T3.genes))} == {"ukemi"}
    for name, plain, protocol in (("t3-released", T3, "released"), ("t6-released", T6, "released")):
        space = space_of(name)
        assert (space.genes, space.name, space.protocol) == (plain.genes, name, protocol) and space != plain
        assert space_of(f"{name}-continuous") == space.continuous() and space.continuous().protocol == protocol
        assert space.in_pixels(3, (32, 32)).protocol == protocol
    assert space_of("T3-KAIST").protocol == "kaist" and not space_of("t3-kaist-continuous").discrete
    with pytest.raises(UserError, match="protocol: 'opencv' is none of ukemi, released, kaist"):
        replace(T3, protocol="opencv")
    with pytest.raises(UserError, match=r"protocol: 'kaist' has rotation, .*, but not zoom"):
        replace(T6, protocol="kaist")


def test_grids_with_the_papers_operators() -> None:
    for name, protocol in (("t3-81-released", "released"), ("t6-2187-released", "released"), ("t3-81-kaist", "kaist")):
        assert GRIDS[name][0].endswith("regression only") and named_grid(name, (32, 40))[0].protocol == protocol
    _, rows = named_grid("t6-2187-released", (32, 40))
    assert torch.allclose(rows[:, 1].unique() * 40, torch.tensor([-3.0, 0, 3]))
    assert torch.allclose(rows[:, 2].unique() * 32, torch.tensor([-3.0, 0, 3]))
    assert torch.equal(named_grid("t3-81-kaist", (32, 40))[1], T3.grid(3))


def test_genes_out_of_range_are_named() -> None:
    T3.check(torch.tensor([30.0, 0.1, -0.1, 0.0]))
    with pytest.raises(UserError, match="grid: rotation should lie in -30 to 30, but 31 was given"):
        T3.check(torch.tensor([[0.0, 0, 0, 0], [31.0, 0, 0, 0]]), "grid")
    with pytest.raises(UserError, match="4 genes per row"):
        T3.check(torch.zeros(2, 3))
    with pytest.raises(UserError, match="translate_y"):
        T3.check(torch.tensor([0, 0, torch.nan, 0]))


def test_spaces_by_name() -> None:
    assert space_of("t3") is T3 and space_of("T6-continuous") == T6.continuous()
    assert space_of("ukemi:T2") is T2 and space_of("t3", [T3.genes[0]]).genes == (T3.genes[0],)
    for name, said in {"t9": "none of t2, t3, t6", "ukemi:vary": "not a ukemi.Space", "ukemi:T9": "no name"}.items():
        with pytest.raises(UserError, match=said):
            space_of(name)
    for twice in ((), (T3.genes[0], T3.genes[0])):
        with pytest.raises(UserError, match="each name once"):
            ukemi.Space(twice)


@pytest.mark.parametrize(
    ("name", "low", "high", "said"),
    [
        ("translate_x", -3, 3, "it is a share of the width, not pixels, so -1 to 1 is allowed, but -3 to 3 was given"),
        ("translate_y", -0.1, 1.1, "a share of the height, not pixels, so -1 to 1"),
        ("shear", -10, 10, "a factor, not degrees, so -2 to 2"),
        ("zoom", 0, 2, "a factor, so 0.01 to 100"),
        ("zoom", -1, 2, "a factor, so 0.01 to 100"),
        ("brightness", -32, 32, "added to pixels in 0 to 1, so -1 to 1"),
        ("contrast", -1, 3, "a factor, so 0 to 100"),
        ("rotation", -720, 720, "in degrees, so -360 to 360"),
    ],
)
def test_a_mistaken_unit_is_named(name: str, low: float, high: float, said: str) -> None:
    gene = Gene(name, low, high, BUILT_IN[name], (high - low) / 2)
    with pytest.raises(UserError, match=f"gene '{name}': it is .*"):
        Space((gene,))
    with pytest.raises(UserError, match=said):
        Space((gene,), protocol="released")
    assert Space((replace(gene, kernel=lambda images, values: images),)).genes[0].low == low


def test_pixels_and_degrees_are_the_units_of_one_protocol() -> None:
    genes = Gene("translate_x", -3, 3, 0, 1), Gene("shear", -10, 10, 0, 1)
    assert len(Space(genes, protocol="kaist")) == 2


def test_a_space_of_ones_own_is_a_grid_of_three_levels() -> None:
    space, rows = named_grid("ukemi:T2", (28, 28))
    assert space is T2 and torch.equal(rows, T2.grid(3))
