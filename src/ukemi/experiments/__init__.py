"""Experiments that are no comparison of trainings: cells x seeds x pieces, kept piece by piece."""

from ukemi.experiments.config import KINDS, ExperimentConfig
from ukemi.experiments.place import CellConfig, Command, Place
from ukemi.experiments.running import Findings, Line, conduct, gathered
from ukemi.training.setup import machine

__all__ = [
    "KINDS",
    "CellConfig",
    "Command",
    "ExperimentConfig",
    "Findings",
    "Line",
    "Place",
    "conduct",
    "gathered",
    "machine",
]
