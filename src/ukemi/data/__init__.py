"""Data sets: readers of the official formats, the embedded set, image folders."""

from ukemi.data.dataset import Batch, Data, DataSet, Images, as_float, check_pixels, labelled
from ukemi.data.npz import fashion_mini
from ukemi.errors import UserError

__all__ = ["Batch", "Data", "DataSet", "Images", "as_float", "check_pixels", "labelled", "load"]


def load(name: str) -> DataSet:
    """A data set by name."""
    if name == "fashion-mini":
        return fashion_mini()
    raise UserError(f"data: {name!r} is not known.")
