"""Surprise adequacy (Kim, Feldt, Yoo 2019): how far an image's trace of activations lies from the training data's.

A trace is a row of unit values. The paper compares an image with the training images of the class that the network
predicts; here it is the image's label, since a variant keeps the label of its image.
All of it is float64, which no autocast touches, and of fixed shape, so that scoring can be captured in a CUDA graph.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log, pi

import torch
from torch import Tensor

FLAT = 1e-5
"""A unit whose variance within a class is below this is left out of that class's density."""
RIDGE = 1e-6
"""The smallest variance that a class's covariance may have in any direction, as a share of its largest."""
PAIRS = 2**20
"""how many numbers of a matrix of pairs are held at once"""
NEAREST = 1e-12
"""the smallest distance to another class: equal traces in two classes would divide by 0"""


@dataclass(frozen=True)
class Densities:
    """A Gaussian kernel density estimate of each of K classes, over T training traces of D units."""

    points: Tensor
    """the traces `[T, D]`, each centred and whitened by its class"""
    members: Tensor
    """`[K, P]`: the numbers of each class's traces, -1 behind the last"""
    centre: Tensor
    """the mean trace of each class, `[K, D]`"""
    whitening: Tensor
    """`[K, D, D]`: brings a difference of traces to where the class's kernel is a unit Gaussian"""
    constant: Tensor
    """`[K]`: the logarithm of what the class's sum of kernels is divided by"""


def densities(traces_TD: Tensor, labels_T: Tensor, classes: int) -> Densities:
    """Scott's bandwidth, n^(-1/(d+4)), times each class's covariance, as `scipy.stats.gaussian_kde` has it.

    Units of too low variance are left out per class (`FLAT`); they add nothing and make the covariance singular. Where
    it still is nearly so, as with fewer traces than units, its smallest variances are raised (`RIDGE`). A class with
    no or one trace has a density of 1 everywhere.
    """
    traces_TD = traces_TD.double()
    fitted = [_density(traces_TD[labels_T == label]) for label in range(classes)]
    centre_KD, whitening_KDD, constant_K = (torch.stack(parts) for parts in zip(*fitted, strict=True))
    points_TD = _whitened(traces_TD, labels_T, centre_KD, whitening_KDD)
    return Densities(points_TD, _members(labels_T, classes), centre_KD, whitening_KDD, constant_K)


def _density(traces_ND: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Centre `[D]`, whitening `[D, D]` and constant of one class."""
    count, width = traces_ND.shape
    centre_D = traces_ND.sum(0) / max(1, count)
    from_centre_ND = traces_ND - centre_D
    covariance_DD = from_centre_ND.T @ from_centre_ND / max(1, count - 1)
    live_D = covariance_DD.diagonal() >= FLAT
    dimensions = int(live_D.sum())
    # a unit left out stands apart with the mean variance, which moves neither the largest variance nor the others
    filled = covariance_DD.diagonal()[live_D].mean() if dimensions else covariance_DD.new_ones(())
    covariance_DD = torch.where(live_D & live_D[:, None], covariance_DD, torch.diag(filled.expand(width)))
    variance_D, direction_DD = torch.linalg.eigh(covariance_DD)
    variance_D = variance_D.clamp(min=RIDGE * float(variance_D[-1]))
    bandwidth = max(1, count) ** (-1 / (dimensions + 4))
    whitening_DD = (direction_DD / (bandwidth * variance_D.sqrt())).T * live_D
    volume = (variance_D.log().sum() - (width - dimensions) * filled.log()) / 2 + dimensions * log(bandwidth)
    return centre_D, whitening_DD, volume + dimensions * log(2 * pi) / 2 + log(max(1, count))


def _whitened(traces_MD: Tensor, labels_M: Tensor, centre_KD: Tensor, whitening_KDD: Tensor) -> Tensor:
    """Each trace centred and whitened by its own class, `[M, D]`."""
    classes, width, _ = whitening_KDD.shape
    # by all classes in one product, which is faster than fetching a matrix for every row
    whitening_DKD = whitening_KDD.flatten(0, 1).T
    parts = []
    for rows in _chunks(len(traces_MD), classes * width):
        from_centre_RD = traces_MD[rows].double() - centre_KD[labels_M[rows]]
        own_R1D = labels_M[rows, None, None].expand(-1, -1, width)
        parts.append((from_centre_RD @ whitening_DKD).view(-1, classes, width).gather(1, own_R1D)[:, 0])
    return torch.cat(parts)


def likelihood_surprise(traces_MD: Tensor, labels_M: Tensor, kde: Densities) -> Tensor:
    """`-log` of the density that the training traces of the same class have at each trace, float64 `[M]`.

    Likelihood-based surprise adequacy. A class without training traces surprises nobody: 0.
    """
    points_MD = _whitened(traces_MD, labels_M, kde.centre, kde.whitening)
    surprise = []
    for rows in _chunks(len(points_MD), len(kde.points)):
        members_RP = kde.members[labels_M[rows]]
        squares_RP = _to_members(_squares(points_MD[rows], kde.points), members_RP)
        surprise_R = kde.constant[labels_M[rows]] - (-squares_RP / 2).logsumexp(1)
        surprise.append(torch.where(members_RP[:, 0] < 0, 0, surprise_R))
    return torch.cat(surprise)


@dataclass(frozen=True)
class Neighbours:
    """T training traces of K classes and how far each is from the nearest trace of another class."""

    traces: Tensor
    """`[T, D]`"""
    members: Tensor
    """`[K, P]`: the numbers of each class's traces, -1 behind the last"""
    gaps: Tensor
    """`[T]`"""


def neighbours(traces_TD: Tensor, labels_T: Tensor, classes: int) -> Neighbours:
    """Looks up every trace's nearest one of another class; where there is one class only, it is infinitely far."""
    traces_TD = traces_TD.double()
    gaps = []
    for rows in _chunks(len(traces_TD), len(traces_TD)):
        others_RT = labels_T[rows, None] != labels_T
        at_R = torch.where(others_RT, _squares(traces_TD[rows], traces_TD), torch.inf).argmin(1)
        gaps.append(torch.where(others_RT.any(1), _distance(traces_TD[rows], traces_TD[at_R]), torch.inf))
    return Neighbours(traces_TD, _members(labels_T, classes), torch.cat(gaps).clamp(min=NEAREST))


def distance_surprise(traces_MD: Tensor, labels_M: Tensor, reference: Neighbours) -> Tensor:
    """The distance to the nearest training trace of the same class, as a share of the distance from there to the
    nearest one of another class, float64 `[M]`.

    Distance-based surprise adequacy. A class without training traces surprises nobody: 0.
    """
    traces_MD = traces_MD.double()
    surprise = []
    for rows in _chunks(len(traces_MD), len(reference.traces)):
        members_RP = reference.members[labels_M[rows]]
        squares_RP = _to_members(_squares(traces_MD[rows], reference.traces), members_RP)
        at_R = members_RP.gather(1, squares_RP.argmin(1, keepdim=True))[:, 0].clamp(min=0)
        share_R = _distance(traces_MD[rows], reference.traces[at_R]) / reference.gaps[at_R]
        surprise.append(torch.where(members_RP[:, 0] < 0, 0, share_R))
    return torch.cat(surprise)


def _members(labels_T: Tensor, classes: int) -> Tensor:
    """The numbers of each class's traces, `[K, P]`, -1 behind the last of each."""
    own = [(labels_T == label).nonzero()[:, 0] for label in range(classes)]
    return torch.nn.utils.rnn.pad_sequence(own, batch_first=True, padding_value=-1)


def _to_members(squares_RT: Tensor, members_RP: Tensor) -> Tensor:
    """Of the squared distances to all traces those to each row's own class, `[R, P]`, infinite behind the last."""
    return torch.where(members_RP < 0, torch.inf, squares_RT.gather(1, members_RP.clamp(min=0)))


def _squares(left_RD: Tensor, right_TD: Tensor) -> Tensor:
    """Squared distances `[R, T]` by products: fast, and good to 1e-16 of the longest row's square."""
    squares_RT = torch.addmm(right_TD.square().sum(1), left_RD, right_TD.T, alpha=-2)
    return squares_RT.add_(left_RD.square().sum(1)[:, None]).clamp_(min=0)


def _distance(left_RD: Tensor, right_RD: Tensor) -> Tensor:
    """Row to row, `[R]`, with all digits: `_squares` is good enough to choose by, not for a distance near 0."""
    return (left_RD - right_RD).norm(dim=1)


def _chunks(rows: int, numbers_per_row: int) -> Iterator[slice]:
    """Slices over `rows`, few enough at once that memory stays bounded whatever M and T are."""
    step = max(1, PAIRS // max(1, numbers_per_row))
    return (slice(start, start + step) for start in range(0, max(1, rows), step))
