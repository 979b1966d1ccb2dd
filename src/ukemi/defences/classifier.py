"""A binary classifier that tells adversarial from benign images by what happens inside the network."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ukemi import randomness
from ukemi.activations import check_rows, recording, unit_mean
from ukemi.data import Data
from ukemi.defences.base import Detector
from ukemi.errors import UserError
from ukemi.models.inference import FEW, default_chunk, home_of, padded, scoring
from ukemi.randomness import Stream

WIDTH, STEPS, RATE, DECAY = 32, 300, 0.01, 1e-3


class Classifying(Detector):
    """A small head on the mean activation of every neuron (after Metzen et al. 2017, who look at one layer's maps).

    It is trained on benign images and on adversarial ones that were made of such: two dense layers, Adam, the whole
    set in each step, both kinds weighing the same. Its threshold belongs on other images than these.
    """

    def __init__(self, model: nn.Module, benign: Data, adversarial: Data, seed: int = 0) -> None:
        super().__init__(model)
        if not len(benign) or not len(adversarial):
            raise UserError(
                f"adversarial-classifier: it learns from benign and adversarial images, but {len(benign)} and"
                f" {len(adversarial)} were given."
            )
        values = [self._features(data) for data in (benign, adversarial)]
        self._mean, self._deviation = values[0].mean(0), values[0].std(0, correction=0) + 1e-6
        self._head = self._trained(values, seed)

    def score(self, images_NCHW: Tensor) -> Tensor:
        return self._head(self._scaled(self._read(images_NCHW)))[:, 0]

    def _read(self, images_NCHW: Tensor) -> Tensor:
        with recording(self.model, unit_mean) as outputs:
            self.model(images_NCHW)
        check_rows(outputs, len(images_NCHW))
        return torch.cat(outputs, 1).float()

    def _features(self, data: Data) -> Tensor:
        device = home_of(self.model)
        chunk, parts = default_chunk((data.channels, *data.size), device, FEW), []
        for batch in data.batches(torch.arange(len(data)).split(chunk), device):
            with scoring(self.model, device):
                found = self._read(padded(batch.images, chunk))[: len(batch.labels)]
            parts.append(found.clone())
        return torch.cat(parts)

    def _scaled(self, values_NU: Tensor) -> Tensor:
        return ((values_NU - self._mean) / self._deviation).clamp(-10, 10)

    def _trained(self, values: list[Tensor], seed: int) -> nn.Module:
        device = values[0].device
        inputs = self._scaled(torch.cat(values))
        wanted = torch.cat([torch.full((len(one), 1), float(kind)) for kind, one in enumerate(values)]).to(device)
        weight = torch.cat([torch.full((len(one), 1), 1 / len(one)) for one in values]).to(device)
        with torch.random.fork_rng([]):
            # the processor's alone: torch.manual_seed would leave those of GPUs changed
            torch.default_generator.manual_seed(randomness.key(seed, Stream.HALVES))
            head = nn.Sequential(nn.Linear(inputs.shape[1], WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)).to(device)
        optimiser = torch.optim.Adam(head.parameters(), RATE, weight_decay=DECAY)
        with torch.enable_grad():
            for _ in range(STEPS):
                loss = F.binary_cross_entropy_with_logits(head(inputs), wanted, weight, reduction="sum") / 2
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
        return head.eval().requires_grad_(False)


def halves(data: Data, seed: int = 0) -> tuple[Data, Data]:
    """Two halves by the identities: images made of one sample are always in the same."""
    own = randomness.bits(data.index, seed=seed, stream=Stream.HALVES) % 2 == 0
    return data.take(own.nonzero().flatten()), data.take((~own).nonzero().flatten())
