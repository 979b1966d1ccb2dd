"""One rank of a training, in a process of its own, that writes down what it did."""

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import torch
from kill_child import arm
from torch import nn

from ukemi.augmenters.search import Searching
from ukemi.ranks import Ranks
from ukemi.training import Run, TrainConfig, loop, train
from ukemi.training.display import Display
from ukemi.training.guard import Guard

Values = dict[str, Any]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def as_rank(rank: int, size: int, port: int) -> None:
    """What torchrun tells the processes that it starts."""
    os.environ |= {"TORCHELASTIC_RUN_ID": "test", "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}


def child(values: Values, rank: int, size: int, port: int, notes: str, special: Values) -> None:
    """Trains or resumes; `notes` gets every step's samples and genes, every proposal, how many rows the network
    scored, and how it ended."""
    torch.set_num_threads(1)
    sys.path.insert(0, str(Path(__file__).parent))
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if size > 1:
        as_rank(rank, size, port)
    found: Values = {"steps": [], "proposals": [], "sent": 0, "scored": 0, "said": "", "kind": ""}
    _listen(found)
    _misbehave(rank, special)
    folder = Path(values["out"])
    try:
        if (folder / "config.toml").exists():
            train(Run.config_of(folder), resume=True, quiet=True)
        else:
            train(TrainConfig(**values), quiet=True)
    except Exception as error:
        found["said"], found["kind"] = str(error), type(error).__name__
        _end(notes, found)
    _end(notes, found)


def _end(notes: str, found: Values) -> None:
    """As the command line does: taking down a world may abort, or wait for ever for a lost rank."""
    Path(notes).write_text(json.dumps(found))
    os._exit(0)


def _listen(found: Values) -> None:
    remember, searched, leave, enter = Guard.remember, Searching.searched, Ranks.leave, Display.__enter__

    def remembered(self: Guard, epoch: int, step: int, index: Any, stepped: Any) -> None:
        count = len(stepped.losses)  # a rank without rows holds one that does not count
        genes = None if stepped.genes is None else stepped.genes.tolist()
        found["steps"].append([epoch, step, index[:count].tolist(), genes, stepped.scored])
        remember(self, epoch, step, index, stepped)

    def proposed(self: Searching, *given: Any, **options: Any) -> Any:
        index, epoch, genes = given[3], given[4], given[5]
        found["proposals"] += [[epoch, *row] for row in zip(index.tolist(), genes.tolist(), strict=True)]
        return searched(self, *given, **options)

    def entered(self: Display) -> Display:
        found["proposals"].clear()  # those of the rehearsal
        found["scored"] = 0
        return enter(self)

    def passed(module: nn.Module, given: Any, _output: Any) -> None:
        if type(module).__module__ == "rank_net" and not module.training:
            found["scored"] += len(given[0])

    def left(self: Ranks) -> None:
        found["sent"] = self.sent
        leave(self)

    Guard.remember, Searching.searched, Ranks.leave, Display.__enter__ = remembered, proposed, left, entered
    nn.modules.module.register_module_forward_hook(passed)


def _misbehave(rank: int, special: Values) -> None:
    """Dies, is interrupted, or runs out of memory at a step or a point of kill_child, where this is the rank that does
    so."""
    if special.get("rank") != rank:
        return
    if special["what"] == "kill":
        arm(special["point"], special["at"])
        return
    forward, at = loop._forward, [special["step"]]

    def disturbed(*given: Any) -> Any:
        at[0] -= 1
        if at[0] == -1:
            if special["what"] == "memory":
                raise torch.OutOfMemoryError("CUDA out of memory")
            os.kill(os.getpid(), getattr(signal, special["what"]))
        return forward(*given)

    loop._forward = disturbed
