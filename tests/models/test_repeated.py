"""Steps taken many times: the same as a plain loop, recorded or not; on a GPU with attacks as users of it."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from ukemi.attacks import Attacked, carlini_wagner, jsma, pgd
from ukemi.attacks.base import Norm
from ukemi.attacks.norms import NORMS
from ukemi.models import create
from ukemi.models import repeated as room
from ukemi.models.repeated import WARM_UP, Repeated, launch_by_launch

GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"))
DEVICES = pytest.mark.parametrize("device", ["cpu", GPU])


@dataclass
class Walk:
    place: Tensor
    speed: Tensor
    taken: Tensor
    name: str = "walk"


def start(count: int, device: str) -> Walk:
    place = torch.arange(count, dtype=torch.float64, device=device)
    return Walk(place, torch.ones_like(place), torch.zeros(count, dtype=torch.int64, device=device))


calls: list[str] = []


def step(walk: Walk) -> None:
    calls.append(walk.name)
    walk.place = walk.place + walk.speed * 0.5
    walk.speed = torch.where(walk.place > 3, -walk.speed, walk.speed)
    walk.taken += 1


@pytest.fixture(autouse=True)
def _none_yet() -> None:
    calls.clear()
    room._scratch.cache_clear()  # after a recording that failed, torch 2.11 records nothing into it


@DEVICES
def test_it_walks_like_a_plain_loop(device: str) -> None:
    """Also where values change between calls, where fewer are left, and where a call is too short to be recorded."""
    mine, plain, repeated = start(7, device), start(7, device), Repeated(step)
    given = mine.place
    for times in (1, 3, 20, 5, 0, 2, 30):
        repeated(mine, times)
        for _ in range(times):
            step(plain)
        for one in (mine, plain):
            one.speed = one.speed * 1.25
        if times == 5:
            few = torch.tensor([0, 2, 6], device=device)
            mine, plain = (Walk(w.place[few], w.speed[few], w.taken[few]) for w in (mine, plain))
        assert all(torch.equal(getattr(mine, part), getattr(plain, part)) for part in ("place", "speed", "taken"))
    assert torch.equal(given, start(7, device).place)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_record_is_replayed_and_not_when_told() -> None:
    device, repeated = "cuda", Repeated(step)
    repeated(start(4, device), 50)
    repeated(start(4, device), 50)
    assert len(calls) == WARM_UP + 1
    repeated(start(5, device), 50)
    assert len(calls) == 2 * (WARM_UP + 1)
    with launch_by_launch():
        repeated(start(5, device), 50)
    assert len(calls) == 2 * (WARM_UP + 1) + 50


def test_launch_by_launch_may_be_nested() -> None:
    with launch_by_launch():
        with pytest.raises(ZeroDivisionError), launch_by_launch():
            raise ZeroDivisionError
        Repeated(step)(start(2, "cpu"), 3)
    assert len(calls) == 3


class Waits(nn.Module):
    """Asks the device for a value, which can't be recorded."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> Tensor:
        assert images.detach().min().item() >= 0
        given: Tensor = self.net(images)
        return given


def both(model: nn.Module, images: Tensor, labels: Tensor) -> list[Attacked]:
    return [
        pgd(model, images, labels, epsilon=0.03, steps=20),
        pgd(model, images, labels, epsilon=1.0, norm="l2", steps=20, early=False),
        pgd(model, images, labels, epsilon=5.0, norm="l1", steps=8),
        carlini_wagner(model, images, labels, searches=3, steps=100),
        jsma(model, images, labels, theta=0.5),
    ]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("waits", [False, True])
def test_attacks_find_the_same(waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    torch.manual_seed(0)
    model = create("demo-cnn", classes=10, channels=1, size=(28, 28)).cuda().eval().double()
    images = torch.rand(40, 1, 28, 28, device="cuda", dtype=torch.float64)
    with torch.no_grad():
        labels = model(images).argmax(1)
    mine = both(Waits(model) if waits else model, images, labels)
    with launch_by_launch():
        plain = both(model, images, labels)
    for one, other in zip(mine, plain, strict=True):
        assert bool(other.success.any())
        assert torch.equal(one.success, other.success) and torch.equal(one.forwards, other.forwards)
        assert torch.allclose(one.distance, other.distance, rtol=1e-6)
        assert torch.allclose(one.images, other.images, atol=1e-6)
    torch.rand(3, device="cuda")  # a recording that failed leaves the generator usable


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("norm", NORMS)
def test_pgd_is_recorded_in_every_norm(norm: Norm) -> None:
    """What is not counted in Python is replayed: a model is called a few times, whatever the steps."""
    torch.manual_seed(0)
    model = create("demo-cnn", classes=10, channels=1, size=(28, 28)).cuda().eval()
    images, seen = torch.rand(16, 1, 28, 28, device="cuda"), []
    model.register_forward_hook(lambda *_: seen.append(1))
    with torch.no_grad():
        labels = model(images).argmax(1)
    pgd(model, images, labels, epsilon=1e-6, norm=norm, steps=40, zero_start=False)
    assert len(seen) < 12
