"""What a page says of a model that does not notice that it breaks."""

import torch

from ukemi.measures.doubts import Doubted, Doubts
from ukemi.reports import words
from ukemi.reports.doubts import doubts_section
from ukemi.uncertainty import Uncertainty


def doubted(pcs: list[float], guesses: list[int]) -> Doubted:
    count, zeros = len(pcs), torch.zeros(len(pcs), dtype=torch.float64)
    sure = torch.tensor(pcs, dtype=torch.float64)
    found = Uncertainty(torch.tensor(guesses), sure, sure, zeros, zeros, zeros, 20)
    return Doubted(torch.arange(count), torch.zeros(count).long(), found)


def test_a_pcs_close_to_1_is_not_said_as_1() -> None:
    found = Doubts(doubted([0.99993] * 4, [0] * 4), doubted([0.99996, 0.4], [1, 1]), True)
    told = doubts_section(found, ("shirt", "bag"))
    assert told is not None
    assert told["said"][0] == (
        f"Of 2 variants that break it, it is as sure of 1 (50{words.THIN}%) as of three quarters of the images that it"
        " recognises: right of the dashed line, PCS 0.99993 or more."
    )
    for tip in ("image 0, shirt: taken for bag; PCS 0.99996, VR 0.00", "taken for bag; PCS 0.4, VR 0.00"):
        assert tip in str(told["svg"])
