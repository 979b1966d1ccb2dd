"""Every attack finds on a GPU what it finds on a processor, in double precision."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ukemi.attacks import ATTACKS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")

LONG: dict[str, dict[str, Any]] = {
    "fgsm": {"epsilon": 0.03},
    "bim": {"epsilon": 0.02, "steps": 15},
    "pgd": {"epsilon": 0.02, "steps": 15},
    "deepfool": {},
    "carlini-wagner": {"steps": 60, "searches": 3},
    "jsma": {"theta": 0.5},
    "square": {"epsilon": 0.05, "steps": 60},
}
"""enough steps that recorded ones are replayed"""


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("targeted", [False, True])
def test_a_gpu_finds_what_a_processor_finds(
    name: str, targeted: bool, trained: tuple[nn.Module, Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    model, images, labels = trained[0].double(), trained[1].double(), trained[2]
    aims = {"targets": (labels + 1) % 10} if targeted and name != "deepfool" else {}
    here = ATTACKS[name](model, images, labels, **LONG[name], **aims)
    there = ATTACKS[name](
        model.cuda(), images.cuda(), labels.cuda(), **LONG[name], **{key: aim.cuda() for key, aim in aims.items()}
    )
    model.cpu()
    same_N = there.success.cpu() == here.success
    close_N = (there.distance.cpu() - here.distance).abs() < 1e-5
    assert bool(here.success.any())
    # a tie, or a sign of a slope near 0, may fall otherwise where sums are taken in another order
    assert bool(same_N.float().mean() >= 0.98) and bool(close_N.float().mean() >= 0.98)
