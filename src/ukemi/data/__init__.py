"""Data sets: readers of the official formats, image folders, .npz files and the embedded set."""

from ukemi.data.dataset import Batch, Data, DataSet, Images, as_float, check_pixels, check_shape, labelled
from ukemi.data.folders import read_folder
from ukemi.data.loading import Row, load, places, survey
from ukemi.data.npz import read_npz
from ukemi.data.sharing import in_a_row, is_shared, shared
from ukemi.data.sources import SOURCES, Source

__all__ = [
    "SOURCES",
    "Batch",
    "Data",
    "DataSet",
    "Images",
    "Row",
    "Source",
    "as_float",
    "check_pixels",
    "check_shape",
    "in_a_row",
    "is_shared",
    "labelled",
    "load",
    "places",
    "read_folder",
    "read_npz",
    "shared",
    "survey",
]
