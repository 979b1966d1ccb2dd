"""Detectors that look at answers: to squeezed images, of mutated models, under dropout."""

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ukemi import randomness
from ukemi.data import Data
from ukemi.defences.base import Detector, key_of
from ukemi.defences.hardening import squeezers
from ukemi.errors import UserError
from ukemi.models.inference import home_of
from ukemi.randomness import Stream
from ukemi.uncertainty import DropoutPasses, measured

MUTANTS = 20
LARGEST, KEPT = 0.5, 0.9
"""the size of a mutation, in deviations of each weight tensor, that is tried first; it is halved until the mutants
agree with the model on this share of benign images"""
SMALLEST = 1e-4


class Squeezing(Detector):
    """Feature squeezing (Xu et al. 2018): the largest L1 distance between the probabilities of an image and of its
    squeezed forms."""

    def score(self, images_NCHW: Tensor) -> Tensor:
        own_NK = self.model(images_NCHW).float().softmax(1)
        forms = [squeeze(images_NCHW) for squeeze in squeezers(images_NCHW.shape[1])]
        distances = [(self.model(form).float().softmax(1) - own_NK).abs().sum(1) for form in forms]
        return torch.stack(distances).amax(0)


class Dropping(Detector):
    """MC-dropout: the predictive entropy of T passes, masks keyed by the picture. Feinman et al. (2017) take the
    variance of their probabilities."""

    def __init__(self, model: nn.Module, passes: int = 50, seed: int = 0) -> None:
        super().__init__(model)
        self._source = DropoutPasses(model, passes, seed=seed)

    def score(self, images_NCHW: Tensor) -> Tensor:
        return measured(self._source(images_NCHW, key_of(images_NCHW))).pe


class Mutating(Detector):
    """Mutation testing of the model (Wang et al. 2019): the share of mutants that give the image another label.

    A mutant has Gaussian noise on all its weights (after their GF operator). The noise is as large as leaves the labels
    of benign images alone: see `LARGEST`, `KEPT`. All mutants are asked, where their sequential test asks as many as it
    needs.
    """

    def __init__(self, model: nn.Module, benign: Data, mutants: int = MUTANTS, seed: int = 0) -> None:
        super().__init__(model)
        if mutants < 1:
            raise UserError(f"mutants: at least 1 is needed, but {mutants} was given.")
        self._mutants, self._seed, self.size = mutants, seed, LARGEST
        few = benign.batch(torch.arange(min(len(benign), 200)), home_of(model)).images
        while self.size > SMALLEST and float(self.scores(few).mean()) > 1 - KEPT:
            self.size /= 2

    def score(self, images_NCHW: Tensor) -> Tensor:
        own_N = self.model(images_NCHW).argmax(1)
        changed = torch.zeros(len(images_NCHW), dtype=torch.float64, device=images_NCHW.device)
        for number in range(self._mutants):
            changed += functional_call(self.model, self.mutant(number), (images_NCHW,)).argmax(1) != own_N
        return changed / self._mutants

    def mutant(self, number: int) -> dict[str, Tensor]:
        """The weights of one mutant by their names, drawn when they are asked for: all at once would take the memory of
        as many models."""
        named = [(name, weight.detach()) for name, weight in self.model.named_parameters() if weight.numel() > 1]
        return {
            name: weight + self.size * _noise(weight, place, number, self._seed)
            for place, (name, weight) in enumerate(named)
        }


def _noise(weight: Tensor, place: int, mutant: int, seed: int) -> Tensor:
    """Gaussian draws in the shape of the weight, with its own deviation (Box and Muller)."""
    values = torch.arange(weight.numel(), device=weight.device)
    key = {"seed": seed, "stream": Stream.WEIGHT_MUTATION, "epoch": place, "first": mutant}
    u_V2 = randomness.uniform(values, 1, 2, **key)[:, 0].double()  # type: ignore[arg-type]
    normal_V = (-2 * (1 - u_V2[:, 0]).log()).sqrt() * (2 * torch.pi * u_V2[:, 1]).cos()
    return (normal_V.view_as(weight) * weight.double().std()).to(weight.dtype)
