"""Uncertainty-guided retraining: which inputs of a group are trained on."""

import torch

from ukemi.repairs.uncertain import _some


def test_some_inputs_are_a_choice_by_the_seed_in_the_order_of_the_sets() -> None:
    index = torch.arange(20).repeat(3)  # several inputs of one image
    chosen = {seed: _some(index, 30, seed).tolist() for seed in range(4)}
    for rows in chosen.values():
        assert len(rows) == 30 and rows == sorted(set(rows)) and rows != list(range(30))
    assert len({tuple(rows) for rows in chosen.values()}) == 4 and _some(index, 30, 2).tolist() == chosen[2]
    assert any(index[chosen[0]].bincount() == 1) and any(index[chosen[0]].bincount() > 1)
