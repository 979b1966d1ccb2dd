"""Does a model notice that it breaks? PCS and VR of what it recognises, and of the variants that broke images."""

from dataclasses import dataclass, replace

from torch import Tensor, nn

from ukemi.data import Batch, Data
from ukemi.errors import UserError
from ukemi.measures.examples import drawn
from ukemi.measures.robustness import Robustness
from ukemi.models.inference import home_of
from ukemi.uncertainty import DropoutPasses, Uncertainty, aurocs, measured, with_dropout
from ukemi.uncertainty.dropout import drops
from ukemi.variations import vary

PASSES = 20
RATE = 0.2
"""of the dropout before the classifier of a network that has none"""
QUARTILE = 0.25


@dataclass(frozen=True)
class Doubted:
    """Some inputs and how sure the model is of each, on the CPU."""

    index: Tensor
    """the samples' identities"""
    labels: Tensor
    found: Uncertainty


@dataclass(frozen=True)
class Doubts:
    """How sure a model is where it is right, and where a variant broke it."""

    recognised: Doubted
    """unchanged images"""
    broken: Doubted
    """of images that are recognised unchanged, the variants that broke them"""
    inserted: bool
    """whether the network had no dropout of its own"""

    @property
    def limit(self) -> float:
        """The PCS that three quarters of the recognised images reach."""
        return float(self.recognised.found.pcs.quantile(QUARTILE))

    @property
    def unnoticed(self) -> int:
        """How many broken variants the model is as sure of as of three quarters of what it recognises."""
        return int((self.broken.found.pcs >= self.limit).sum())

    @property
    def auroc(self) -> dict[str, float]:
        """How well each metric tells a broken variant from a recognised image."""
        return aurocs(self.recognised.found, self.broken.found)


def doubts(model: nn.Module, data: Data, found: Robustness, *, images: int = 300, seed: int = 0) -> Doubts | None:
    """Asks about at most `images` recognised images and as many broken variants; None where nothing broke, nothing is
    recognised, or the network takes no dropout."""
    right, broke = (
        drawn(data, which, images, seed) for which in (found.correct, found.correct & (found.broken_by >= 0))
    )
    if not len(right) or not len(broke):
        return None
    home = home_of(model)
    unchanged, whole = data.batch(right, home), data.batch(broke, home)
    genes_NG = found.grid[found.broken_by[broke]].to(home)
    try:
        source = DropoutPasses(with_dropout(model, RATE, unchanged.images), PASSES, seed=seed)
        asked = (
            _asked(source, unchanged),
            _asked(source, replace(whole, images=vary(whole.images, genes_NG, found.space))),
        )
    except (UserError, RuntimeError, TypeError):  # no classifier that dropout could stand before, or no copy of it
        return None
    return Doubts(*asked, inserted=not drops(model)) if all(len(one.index) for one in asked) else None


def _asked(source: DropoutPasses, batch: Batch) -> Doubted:
    """What the model says; where that is not finite, it says nothing."""
    found = measured(source(batch.images, batch.index)).cpu()
    said = found.pcs.isfinite() & found.pe.isfinite()
    return Doubted(batch.index.cpu()[said], batch.labels.cpu()[said], found.take(said))
