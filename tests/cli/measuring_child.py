"""A command as one of several ranks, in a process of its own; and a network whose weights are drawn by themselves."""

import os
import socket
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from ukemi.cli.main import run

HERE = str(Path(__file__).parent)


class Net(nn.Module):
    """One convolution, dropout and a linear head, in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.drop, self.head = nn.Conv2d(1, 4, 3, stride=2), nn.Dropout(0.3), nn.Linear(4 * 25, 4)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.drop(self.convolution(images.double()).relu().flatten(1)))


def make() -> nn.Module:
    """Trained for a moment, so that it recognises what is bright in one way or another."""
    torch.manual_seed(3)
    net, images, labels = Net().double(), *pictures(64)
    optimiser = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(40):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(images / 255), labels).backward()
        optimiser.step()
    return net.eval()


def other() -> nn.Module:
    """Other weights on every rank."""
    torch.manual_seed(int(os.environ["RANK"]))
    return Net().double()


def pictures(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Bright quarters, with noise: uint8 `[count, 1, 12, 12]` and which quarter it is."""
    labels = torch.arange(count) % 4
    pixels = torch.randint(0, 130, (count, 1, 12, 12), generator=torch.Generator().manual_seed(seed))
    for row, label in enumerate(labels.tolist()):
        top, left = 6 * (label // 2), 6 * (label % 2)
        pixels[row, 0, top : top + 6, left : left + 6] += 60
    return pixels.to(torch.uint8), labels


def command(arguments: list[str], rank: int, size: int, port: int, out: str) -> None:
    torch.set_num_threads(1)
    sys.path.insert(0, HERE)
    if size > 1:
        os.environ |= {"TORCHELASTIC_RUN_ID": "test", "RANK": str(rank), "LOCAL_RANK": str(rank)}
        os.environ |= {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    sys.stdout = sys.stderr = open(out, "w")  # noqa: SIM115
    code = run(arguments)
    sys.stdout.flush()
    os._exit(code)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
