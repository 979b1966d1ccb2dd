"""The log odds that PGD and BIM raise, and their gradient in closed form, beside autograd's."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ukemi.attacks import log_odds, log_odds_for
from ukemi.attacks.base import rising_odds, rising_odds_for, up_the_odds

PAIRS = [(rising_odds, log_odds), (rising_odds_for, log_odds_for)]


def drawn(classes: int, scale: float, seed: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    keyed = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(7, classes, generator=keyed, dtype=torch.float64)
    return logits.to(dtype), torch.randint(classes, (7,), generator=keyed)


@pytest.mark.parametrize(("rising", "odds"), PAIRS)
@given(classes=st.integers(2, 12), scale=st.floats(0, 1e4), seed=st.integers(0, 99))
def test_values_and_gradient_are_those_of_log_odds(rising, odds, classes: int, scale: float, seed: int) -> None:  # type: ignore[no-untyped-def]
    logits, aims = drawn(classes, scale, seed)
    leaf = logits.clone().requires_grad_()
    expected = odds(leaf, aims)
    (slope,) = torch.autograd.grad(expected.sum(), leaf)
    values, weights = rising(logits, aims)
    torch.testing.assert_close(values, expected.detach(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(weights, slope, rtol=1e-9, atol=1e-12)


def test_fgsm_follows_the_same_gradient() -> None:
    logits, aims = drawn(10, 5.0, 0)
    torch.testing.assert_close(up_the_odds(logits, aims), rising_odds(logits, aims)[1])


def test_a_sure_model_still_gives_a_gradient() -> None:
    logits = torch.tensor([[200.0, 0.0, 1.0]])
    values, weights = rising_odds(logits, torch.tensor([0]))
    shares = torch.tensor([0.0, 1.0]).softmax(0)
    torch.testing.assert_close(values, torch.tensor([0.0, 1.0]).logsumexp(0, keepdim=True) - 200)
    torch.testing.assert_close(weights, torch.cat([torch.tensor([-1.0]), shares])[None])


def test_logits_of_half_precision_keep_their_type_for_the_way_back() -> None:
    logits, aims = drawn(10, 3.0, 1, torch.bfloat16)
    values, weights = rising_odds(logits, aims)
    assert (values.dtype, weights.dtype) == (torch.float32, torch.bfloat16)
    torch.testing.assert_close(values, log_odds(logits.float(), aims))
