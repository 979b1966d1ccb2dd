"""Sweeps: what a model says to an image while its genes move one by one."""

import torch
from torch import nn

from ukemi import T2, T6, vary
from ukemi.data import DataSet
from ukemi.measures.examples import SWEPT, sweeps, swept_axes, swept_genes, terrains
from ukemi.measures.sensitivity import landscape, landscape_axes


def test_a_sweep_is_the_model_on_each_variant(tiny_net: nn.Module, fashion: DataSet) -> None:
    data, positions = fashion.test, torch.tensor([5, 2])
    model = tiny_net.eval()
    found = sweeps(model, data, T6, positions)
    assert [one.index for one in found] == data.index[positions].tolist()
    for one in found:
        assert [axis.gene for axis in one.axes] == [gene.name for gene in T6.genes]
        for at, axis in enumerate(one.axes):
            assert len(axis.values) == SWEPT and axis.values[axis.rest] == T6.genes[at].identity
            for place, value in enumerate(axis.values):
                row = T6.identity()
                row[at] = value
                with torch.no_grad():
                    odds = model(vary(one.image[None], row[None], T6)).softmax(1)[0]
                assert int(odds.argmax()) == one.guesses[at][place]
                assert abs(float(odds.max()) - one.confidences[at][place]) < 1e-5
    assert sweeps(model, data, T6, torch.tensor([], dtype=torch.long)) == ()


def test_swept_chromosomes_move_one_gene_each() -> None:
    axes = swept_axes(T2)
    rows = swept_genes(T2, axes)
    assert len(rows) == SWEPT * len(T2)
    moved = (rows != T2.identity()).sum(1)
    assert int(moved.max()) == 1 and int((moved == 0).sum()) == len(T2)


def test_terrains_are_landscapes_with_the_axes_of_their_space(tiny_net: nn.Module, fashion: DataSet) -> None:
    model = tiny_net.eval()
    (one,) = terrains(model, fashion.test, T2, torch.tensor([3]))
    again = landscape(model, one.image, one.label, T2)
    assert torch.equal(one.landscape.losses, again.losses) and torch.equal(one.landscape.wrong, again.wrong)
    assert [one.landscape.down, one.landscape.across] == landscape_axes(T2)
