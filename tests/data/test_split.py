"""Splits: disjoint, complete, whole groups, and a function of the seed and the identities alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ukemi.data import Data, DataSet, labelled
from ukemi.errors import UserError


def made(count: int, groups: list[int] | None = None) -> Data:
    images = torch.zeros(count, 1, 2, 2, dtype=torch.uint8)
    return labelled(images, torch.arange(count) % 2, "ab", groups=None if groups is None else torch.tensor(groups))


@given(st.integers(2, 60), st.floats(0.01, 0.9), st.integers(0, 2**31))
def test_parts_are_disjoint_complete_and_of_the_right_size(count: int, share: float, seed: int) -> None:
    wanted = max(1, round(share * count))
    if wanted == count:
        return
    first, second = made(count).split(share, seed)
    assert len(second) == wanted
    assert sorted(first.index.tolist() + second.index.tolist()) == list(range(count))


@given(st.lists(st.integers(0, 9), min_size=8, max_size=60), st.integers(0, 2**31))
def test_groups_never_part(groups: list[int], seed: int) -> None:
    try:
        parts = made(len(groups), groups).split(0.3, seed)
    except UserError:
        return
    names = [set(part.groups.tolist()) for part in parts if part.groups is not None]
    assert not names[0] & names[1]
    assert sum(len(part) for part in parts) == len(groups)


@given(st.integers(4, 40), st.integers(0, 2**31), st.randoms(use_true_random=False))
def test_a_split_does_not_depend_on_the_order(count: int, seed: int, random: object) -> None:
    whole = made(count, [number // 2 for number in range(count)])
    order = list(range(count))
    random.shuffle(order)  # type: ignore[attr-defined]
    shuffled = whole.take(torch.tensor(order))
    for one, other in zip(whole.split(0.3, seed), shuffled.split(0.3, seed), strict=True):
        assert sorted(one.index.tolist()) == sorted(other.index.tolist())


def test_the_seed_draws_the_split() -> None:
    tests = [tuple(made(50).split(0.2, seed)[1].index.tolist()) for seed in (0, 0, 1, 2)]
    assert tests[0] == tests[1]
    assert len(set(tests)) == 3


def test_large_groups_go_over_where_that_comes_nearest() -> None:
    for seed in range(10):
        first, second = made(100, [number // 20 for number in range(100)]).split(0.1, seed)
        assert (len(first), len(second)) == (80, 20)


def test_what_can_not_be_split_is_told() -> None:
    with pytest.raises(UserError, match=r"10 samples in 1 groups leaves one part empty"):
        made(10, [3] * 10).split(0.2, 0)
    with pytest.raises(UserError, match=r"a share of 0\.99 of 10 samples leaves one part empty"):
        made(10).split(0.99, 0)
    with pytest.raises(UserError, match=r"share should lie between 0 and 1, but 1.5 was given"):
        made(10).split(1.5, 0)


@given(st.integers(4, 40), st.integers(0, 2**31))
def test_a_set_that_was_split_is_had_whole_again(count: int, seed: int) -> None:
    images = torch.arange(count, dtype=torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 1, 2, 2).contiguous()
    one = labelled(images, torch.arange(count) % 2, "ab", groups=torch.arange(count) // 2)
    whole = DataSet("mine", *one.split(0.3, seed)).whole()
    assert whole is not None and whole.groups is not None and one.groups is not None
    for mine, given_ in ((whole.images, images), (whole.labels, one.labels), (whole.index, one.index)):
        assert torch.equal(torch.as_tensor(mine), torch.as_tensor(given_))
    assert torch.equal(whole.groups, one.groups)


def test_a_set_with_a_test_part_of_its_own_is_not_one() -> None:
    assert DataSet("mine", made(5), made(5)).whole() is None
