"""PCS, VR, PE and MI beside their formulas in NumPy, and what must hold for any probabilities."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ukemi import UserError
from ukemi.uncertainty import Sampled, measured, mutual_information, prediction_confidence, variation_ratio
from ukemi.uncertainty.metrics import Against, Confidence, joined


def drawn(seed: int, passes: int, count: int, classes: int, sharpness: float = 2.0) -> Sampled:
    generator = torch.Generator().manual_seed(seed)
    shape = (passes + 1, count, classes)
    p = (sharpness * torch.randn(shape, generator=generator, dtype=torch.float64)).softmax(2)
    return Sampled(p[0], p[1:])


@pytest.mark.parametrize("confidence", ["margin", "max"])
@pytest.mark.parametrize("against", ["prediction", "mode"])
def test_the_metrics_are_their_formulas(confidence: Confidence, against: Against) -> None:
    sampled = drawn(0, 7, 40, 5)
    found = measured(sampled, confidence, against)
    certain, p = sampled.certain.numpy(), sampled.drawn.numpy()
    for n in range(40):
        ranked = sorted(certain[n], reverse=True)
        votes = [int(np.argmax(p[t, n])) for t in range(7)]
        most = min(label for label, count in Counter(votes).items() if count == max(Counter(votes).values()))
        label = int(np.argmax(certain[n])) if against == "prediction" else most
        mean = p[:, n].mean(0)
        pe = -sum(mean * np.log(mean))
        each = np.mean([-sum(p[t, n] * np.log(p[t, n])) for t in range(7)])
        assert int(found.prediction[n]) == int(np.argmax(certain[n]))
        assert float(found.confidence[n]) == pytest.approx(ranked[0])
        assert float(found.pcs[n]) == pytest.approx(ranked[0] - ranked[1] if confidence == "margin" else ranked[0])
        assert float(found.vr[n]) == pytest.approx(1 - votes.count(label) / 7)
        assert float(found.pe[n]) == pytest.approx(pe)
        assert float(found.mi[n]) == pytest.approx(pe - each, abs=1e-12)
    assert found.passes == 7


@given(st.integers(0, 1000), st.integers(2, 9), st.integers(2, 12), st.floats(0, 60))
def test_limits_hold_for_any_probabilities(seed: int, passes: int, classes: int, sharpness: float) -> None:
    sampled = drawn(seed, passes, 9, classes, sharpness)
    for one in (sampled, Sampled(sampled.certain.float(), sampled.drawn.float())):
        found = measured(one)
        assert ((found.pcs >= 0) & (found.pcs <= 1)).all()
        assert ((found.vr >= 0) & (found.vr <= 1)).all()
        assert ((found.mi >= 0) & (found.mi <= found.pe)).all()
        assert (found.pe <= np.log(classes) + 1e-6).all()


def test_equal_passes_disagree_about_nothing() -> None:
    one = drawn(1, 1, 20, 4).drawn
    same = Sampled(one[0], one.expand(6, -1, -1))
    found = measured(same)
    assert (found.vr == 0).all()
    assert float(found.mi.max()) < 1e-12
    assert (found.pe > 0.01).any()


def test_vr_counts_from_the_label_that_is_given() -> None:
    p = torch.tensor([[[0.9, 0.1]], [[0.2, 0.8]], [[0.3, 0.7]], [[0.6, 0.4]], [[0.1, 0.9]]])
    assert float(variation_ratio(p, torch.tensor([0]))) == pytest.approx(3 / 5)
    assert float(variation_ratio(p)) == pytest.approx(2 / 5)


def test_a_share_of_passes_is_that_number_whatever_type_they_have() -> None:
    drawn = torch.tensor([[[0.9, 0.1]]] * 3 + [[[0.1, 0.9]]] * 7)  # float32, in which 0.7 lies below 0.7
    found = measured(Sampled(drawn[0], drawn))
    assert found.vr.tolist() == [0.7] and found.pcs.dtype == found.pe.dtype == torch.float64


def test_certain_probabilities_of_zero_are_no_nan() -> None:
    sure = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    assert float(mutual_information(sure)) == pytest.approx(np.log(2))
    assert float(prediction_confidence(sure[0])) == 1


def test_limits_hold_where_a_softmax_is_rounded_above_one() -> None:
    above = torch.tensor([[1.0000001, 0.0]])
    assert float(above[0, 0]) > 1
    for kind in ("margin", "max"):
        assert float(prediction_confidence(above, kind)) == 1  # type: ignore[arg-type]
    found = measured(Sampled(above, torch.stack([above, above.flip(1)])))
    assert 0 < float(found.mi) <= float(found.pe)


def test_parts_are_joined_and_taken_in_order() -> None:
    whole = measured(drawn(3, 4, 10, 3))
    parts = [whole.take(torch.arange(4)), whole.take(torch.arange(4, 10))]
    again = joined(parts)
    assert len(again) == 10 and again.passes == 4
    assert torch.equal(again.vr, whole.vr) and torch.equal(again.prediction, whole.prediction)


def test_unknown_kinds_are_named() -> None:
    with pytest.raises(UserError, match="confidence: 'top3' is none of margin, max"):
        measured(drawn(0, 2, 2, 3), "top3")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="against: 'label' is none of prediction, mode"):
        measured(drawn(0, 2, 2, 3), against="label")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["margin", "max"])
def test_a_single_class_is_refused(kind: Confidence) -> None:
    with pytest.raises(UserError, match="model: at least 2 classes are needed"):
        measured(drawn(0, 2, 2, 1), kind)
