"""`ukemi.fused`: what is compiled gives what it gives launch by launch, and nothing else is compiled."""

from typing import Any

import pytest
import torch
from torch import Tensor

from ukemi.augmenters import AUGMENTERS
from ukemi.fused import compiled, fusable
from ukemi.genetics.breeding import Breeding, bred
from ukemi.genetics.operators import step
from ukemi.randomness import Stream, uniform
from ukemi.spaces import T3, T6
from ukemi.variations import vary

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
on_both = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
# torch's compiler imports what torch calls old
compiles = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def marked(test: Any) -> Any:
    for mark in [*compiles, on_both]:
        test = mark(test)
    return test


def frames() -> int:
    """How often something was compiled."""
    return int(torch._dynamo.utils.counters["frames"]["ok"])


@marked
def test_one_compiled_kernel_draws_the_same_bits(device: str) -> None:
    index = torch.tensor([0, 1, 5, 10**9, 2**40, 77], device=device)

    def drawn() -> list[Tensor]:
        shapes = ((1, 1, 0), (110, 3, 0), (10, 4, 0), (3, 2, 5))
        told = [(seed, epoch, shape) for seed in (0, 9) for epoch in (0, 3) for shape in shapes]
        return [
            uniform(index, many, genes, seed=seed, stream=Stream.CHILDREN, epoch=epoch, first=first)
            for seed, epoch, (many, genes, first) in told
        ]

    plain = drawn()
    torch._dynamo.utils.counters.clear()
    with compiled(device):
        fused = drawn()
    assert all(torch.equal(one, other) for one, other in zip(plain, fused, strict=True))
    assert 1 <= frames() <= 4  # the key is no constant: one kernel per kind of shape
    assert all(torch.equal(one, other) for one, other in zip(plain, drawn(), strict=True))


@marked
@pytest.mark.parametrize(("space", "size"), [(T3, (3, 32, 32)), (T6, (1, 28, 20))], ids=["t3", "t6"])
def test_a_compiled_warp_gives_nearly_the_same_pixels(space: Any, size: tuple[int, ...], device: str) -> None:
    torch._dynamo.utils.counters.clear()
    for rows in (6, 17, 40):
        images = torch.rand(rows, *size, device=device)
        genes = space.sample(torch.arange(rows, device=device), seed=3)[:, 0]
        genes[0] = space.identity(genes.device)
        plain = vary(images, genes, space)
        with compiled(device):
            fused = vary(images, genes, space)
        assert torch.equal(fused[0], images[0]) and fused.shape == plain.shape and fused.dtype == plain.dtype
        assert not torch.equal(plain[1:], images[1:])
        assert torch.allclose(fused, plain, atol=2e-5)
        assert float(fused.min()) >= 0 and float(fused.max()) <= 1
    assert 1 <= frames() <= 2  # any number of rows is served by one kernel


@marked
@pytest.mark.parametrize("how", [Breeding(), Breeding(mutation=step, invalid="clip", apart=True, parents="fittest")])
def test_compiled_breeding_gives_the_same_children(how: Breeding, device: str) -> None:
    for rows in (5, 12):
        index = torch.arange(rows, device=device)
        parents = T3.encode(T3.sample(index, 4, seed=1)).int()
        alive = torch.full_like(index, 4)
        plain = bred(parents, alive, index, 10, T3, seed=2, epoch=1, how=how)
        with compiled(device):
            fused = bred(parents, alive, index, 10, T3, seed=2, epoch=1, how=how)
        assert torch.equal(plain, fused) and plain.shape == (rows, 10, 4)


@marked
def test_compiled_flips_are_the_same(device: str) -> None:
    augmenter = AUGMENTERS["standard"]().build(T3, 0, True)
    images, index = torch.rand(9, 3, 8, 8, device=device), torch.arange(9, device=device)
    plain = augmenter.flipped(images, index, 2)
    with compiled(device):
        assert torch.equal(augmenter.flipped(images, index, 2), plain)
    assert not torch.equal(plain, images)


def test_what_is_computed_on_another_device_meanwhile_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objectives plan an epoch by numbers on the CPU, while the training draws on a GPU."""
    plain = uniform(torch.arange(5), 2, 3, seed=1, stream=Stream.MIXTURE)
    monkeypatch.setattr(torch, "compile", lambda function, **_: lambda *_: pytest.fail("a kernel for the CPU"))
    with compiled():
        assert torch.equal(uniform(torch.arange(5), 2, 3, seed=1, stream=Stream.MIXTURE), plain)
    assert torch.equal(uniform(torch.arange(5), 2, 3, seed=1, stream=Stream.MIXTURE), plain)


def test_only_inside_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(torch, "compile", lambda function, **_: made.append(function) or (lambda x: function(x) + 1))

    @fusable
    def doubled(x: Tensor) -> Tensor:
        return 2 * x

    one = torch.ones(3)
    with compiled("cpu"):
        with compiled("cpu"):
            assert float(doubled(one)[0]) == 3
        assert float(doubled(one)[0]) == 3  # the inner one ended, the outer one did not
    assert float(doubled(one)[0]) == 2 and len(made) == 1 and doubled.__name__ == "doubled"


def test_tensors_are_the_callers_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark left on a batch would have its network compiled anew, for any batch size."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    given: list[Tensor] = []

    @fusable
    def kept(x: Tensor, names: tuple[str, ...]) -> Tensor:
        given.append(x)
        return x * len(names)

    x = torch.ones(3, 2)
    before = dict(vars(x))
    with compiled("cpu"):
        kept(x, ("one",))
    assert vars(x) == before and vars(given[0]) != before and torch.equal(given[0], x)
