"""How fast a training goes, and how long it waits for its data."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from time import monotonic

from ukemi.data import Batch


@dataclass
class Flow:
    """The batches of an epoch, or of what is left of it: begun anew by every call."""

    images: int = 0
    """of all ranks"""
    waited: float = 0.0
    """seconds that this rank waited for batches"""
    began: float = field(default_factory=monotonic)

    def __call__(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The same batches; waiting for each is timed."""
        self.images, self.waited, self.began = 0, 0.0, monotonic()
        waiting, asked = iter(batches), monotonic()
        for batch in waiting:
            self.waited += monotonic() - asked
            yield batch
            asked = monotonic()

    def line(self) -> dict[str, float]:
        """What the log says of it."""
        rate = self.images / max(monotonic() - self.began, 1e-9)
        return {"images_per_second": round(rate, 1), "data_seconds": round(self.waited, 3)}
