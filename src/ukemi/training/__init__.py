"""Training: the loop, its config, its checkpoints."""

from ukemi.training.choosing import choose_mutator
from ukemi.training.config import TrainConfig
from ukemi.training.guard import TrainingStopped
from ukemi.training.interrupt import Interrupted
from ukemi.training.loop import train
from ukemi.training.run import Run

__all__ = ["Interrupted", "Run", "TrainConfig", "TrainingStopped", "choose_mutator", "train"]
