"""The papers' networks, the layer that normalises pixels, and a user's own network."""

from ukemi.models.create import Row, create, listing
from ukemi.models.normalize import Normalize
from ukemi.models.registry import MODELS
from ukemi.models.shape import Entry, Shape

__all__ = ["MODELS", "Entry", "Normalize", "Row", "Shape", "create", "listing"]
