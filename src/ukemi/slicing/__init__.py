"""Slicing: which synapses and neurons of a network matter to which class (NNSlicer, as DARE uses it)."""

from ukemi.slicing.slices import Slices, check_slices, read_slices, write_slices
from ukemi.slicing.slicing import Reading, slices_of
from ukemi.slicing.tracing import KeyLayer, activation_of, key_layers

__all__ = [
    "KeyLayer",
    "Reading",
    "Slices",
    "activation_of",
    "check_slices",
    "key_layers",
    "read_slices",
    "slices_of",
    "write_slices",
]
