"""Genes and numbers as people say them; directions are checked against what `vary` does."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from ukemi import T3, T6, Gene, Space, vary
from ukemi.reports.words import directions, duration, gene_value, in_words, percent, plain, plural, wilson
from ukemi.spaces import space_of


@given(st.integers(0, 500), st.integers(1, 500))
def test_wilson_agrees_with_scipy(hits: int, total: int) -> None:
    hits = min(hits, total)
    low, high = wilson(hits, total)
    expected = binomtest(hits, total).proportion_ci(method="wilson")
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= low <= hits / total <= high <= 1


def test_wilson_of_nothing_is_everything() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


def _moved(gene: str, value: float) -> tuple[float, float]:
    """Where (right, down of the centre) a dot right below the centre's right goes."""
    image = torch.zeros(1, 1, 21, 21)
    image[0, 0, 10, 16] = 1
    most = 180 if gene == "rotation" else 1
    space = Space((Gene(gene, -most, most, 0, 1),))
    out = vary(image, torch.tensor([[value]]), space)[0, 0]
    rows, columns = torch.meshgrid(torch.arange(21.0) - 10, torch.arange(21.0) - 10, indexing="ij")
    return float((columns * out).sum() / out.sum()), float((rows * out).sum() / out.sum())


def test_directions_are_those_of_the_variations() -> None:
    right, down = _moved("rotation", 90)
    assert (right, down) == pytest.approx((0, -6), abs=0.01)  # from the right to the top: counter-clockwise
    assert in_words([90], Space((Gene("rotation", -90, 90, 0, 1),))) == "rotated 90° counter-clockwise"
    assert _moved("translate_x", 1 / 21)[0] == pytest.approx(7, abs=0.01)
    assert _moved("translate_y", 1 / 21)[1] == pytest.approx(1, abs=0.01)


def test_a_chromosome_in_words() -> None:
    said = in_words([-30, -0.1, 0.1, 0], T3).replace("\u202f", " ")
    assert said == "rotated 30° clockwise, moved left 10 %, moved down 10 %"
    said = in_words([0, 0, 0, 0.1, 0.9, 32 / 255, 1.2], T6).replace("\u202f", " ")
    assert said == "sheared 10 % to the right, shrunk 10 %, brightened 12.5 %, contrast raised 20 %"


def test_float32_genes_at_the_identity_are_unchanged() -> None:
    assert in_words(T6.identity().tolist(), T6) == "unchanged"
    odd = Space((Gene("own", 0.5, 1.1, 0.7, 0.1, kernel=lambda images, values: images),))
    assert in_words(odd.identity().tolist(), odd) == "unchanged"


def test_a_gene_of_ones_own_keeps_its_name() -> None:
    space = Space((Gene("film_grain", 0, 2, 0, 1, kernel=lambda images, values: images),))
    assert in_words([1.5], space) == "film grain 1.5"
    assert gene_value("film_grain", -1.5) == "−1.5"
    assert directions("film_grain") == "film grain"


def test_numbers() -> None:
    assert gene_value("rotation", -30) == "−30°"
    assert gene_value("zoom", 0.9) == "×0.9"
    assert percent(0.8721).replace("\u202f", " ") == "87.2 %"
    assert [plain(number) for number in (0.1234, 999.6, 2500, -12345.6, 3e9)] == [
        "0.123",
        "1,000",
        "2,500",
        "\N{MINUS SIGN}12,346",
        "3e+09",
    ]
    assert percent(-0.0004, 0) == percent(0, 0) and percent(-0.12, 0).startswith("\N{MINUS SIGN}12")
    assert [duration(seconds).replace("\u202f", " ") for seconds in (3, 120, 7200)] == ["3.0 s", "2.0 min", "2.0 h"]
    assert (plural(1, "epoch"), plural(1200, "epoch")) == ("1 epoch", "1,200 epochs")


def test_another_protocols_genes_are_said_as_bare_values() -> None:
    assert in_words([30, 0.1, 0, 0], space_of("t3-kaist")) == "rotation 30, shift left or right 0.1"
