"""What happens inside a network: the outputs of its layers, and what coverage and surprise make of them."""

from ukemi.activations.coverage import scaled_mean, scaled_means, sections, unit_mean, unit_means
from ukemi.activations.gradcam import grad_cam
from ukemi.activations.recording import check_rows, layers_of, over_data, recording
from ukemi.activations.surprise import (
    Densities,
    Neighbours,
    densities,
    distance_surprise,
    likelihood_surprise,
    neighbours,
)

__all__ = [
    "Densities",
    "Neighbours",
    "check_rows",
    "densities",
    "distance_surprise",
    "grad_cam",
    "layers_of",
    "likelihood_surprise",
    "neighbours",
    "over_data",
    "recording",
    "scaled_mean",
    "scaled_means",
    "sections",
    "unit_mean",
    "unit_means",
]
