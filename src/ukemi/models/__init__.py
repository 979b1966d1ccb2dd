"""The papers' networks, the layer that normalises pixels, and a user's own network."""

from ukemi.models.check_head import check_head
from ukemi.models.create import create
from ukemi.models.imdb import freeze_first
from ukemi.models.listing import Row, listing
from ukemi.models.normalize import Normalize
from ukemi.models.own import check_weights, load_own, load_weights
from ukemi.models.registry import MODELS
from ukemi.models.separate_norm import SeparateNorm
from ukemi.models.shape import Entry, Shape

__all__ = [
    "MODELS",
    "Entry",
    "Normalize",
    "Row",
    "SeparateNorm",
    "Shape",
    "check_head",
    "check_weights",
    "create",
    "freeze_first",
    "listing",
    "load_own",
    "load_weights",
]
