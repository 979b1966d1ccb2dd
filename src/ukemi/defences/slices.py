"""Our own detector: does an image use the network as images of the class do that it is taken for?

A class's slice is what its images' contributions add up to, synapse by synapse (`ukemi.slicing`, reading `paper`); an
image's own slice is the signs of its contributions, followed back from the logit of the predicted class. Their cosine,
averaged over the layers, says how alike they are. No image's slice is ever stored: the sum over synapses of the product
of three factors (output, input, class) is taken directly, at the cost of about one forward pass per class present.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ukemi.activations import unit_mean
from ukemi.data import Data, as_float
from ukemi.defences.base import Detector
from ukemi.errors import UserError
from ukemi.models.inference import default_chunk, home_of, scoring
from ukemi.slicing import channels, key_layers, slices_of
from ukemi.slicing.channels import Activity
from ukemi.slicing.profiling import Profiler
from ukemi.slicing.steps import Weighted, plan_of
from ukemi.slicing.tracing import Watch


class Slicing(Detector):
    """Scores an image by how little its slice is like the slice of the class that the model takes it for."""

    def __init__(self, model: nn.Module, reference: Data) -> None:
        super().__init__(model)
        if not len(reference):
            raise UserError("slices: without an image there is nothing to slice by.")
        device, classes = home_of(model), sorted(set(reference.labels.tolist()))
        few = as_float(reference.images[torch.arange(min(2, len(reference)))]).to(device)
        with scoring(model, device), torch.inference_mode(False), torch.no_grad():
            key_layers(model)
            self._plan = plan_of(model, few)
            self._wanted = frozenset(channels.needed(self._plan))
            chunk = default_chunk(tuple(few.shape[1:]), device)
            profiler = Profiler(model, self._plan, self._wanted, unit_mean, chunk, device, lambda samples: None)
            self._means = profiler.means(reference)
        found = slices_of(model, reference, classes=classes).contributions
        if self._plan.logits < len(reference.classes):
            raise UserError("slices: the model's head has fewer outputs than the data have classes.")
        # a class without an image has no slice: nothing is like it
        self._slices = {name: self._filled(sums, classes) for name, sums in found.items()}

    def _filled(self, sums_KOI: Tensor, classes: list[int]) -> Tensor:
        """One slice per logit, each of length 1."""
        wide = sums_KOI.new_zeros(self._plan.logits, *sums_KOI.shape[1:])
        wide[classes] = F.normalize(sums_KOI.flatten(1), dim=1).view_as(sums_KOI)
        return wide

    def score(self, images_NCHW: Tensor) -> Tensor:
        with torch.inference_mode(False), torch.no_grad():
            watch = Watch(self.model, self._plan.graph, self._wanted, unit_mean)
            prediction_N = watch.run(images_NCHW.clone()).argmax(1)
            activity = Activity(watch.kept, self._means)
            alike: list[Tensor] = []

            def visit(step: Weighted, pulled_NGO: Tensor, moved_NGI: Tensor, weight_GOI: Tensor) -> None:
                alike.append(self._alike(step, pulled_NGO.sign(), moved_NGI.sign(), weight_GOI.sign(), prediction_N))

            start_NK = F.one_hot(prediction_N, self._plan.logits).to(next(iter(self._means.values())).dtype)
            channels.visited(self._plan, activity, start_NK, visit)
        return -torch.stack(alike).mean(0)

    def _alike(self, step: Weighted, out_NGO: Tensor, in_NGI: Tensor, weight_GOI: Tensor, class_N: Tensor) -> Tensor:
        """The cosine of each image's signs and its class's sums over the synapses of a layer, `[N]`."""
        dot_N = torch.zeros(len(class_N), dtype=out_NGO.dtype, device=out_NGO.device)
        for label, slice_OI in enumerate(self._slices[step.weight]):
            weighed_GOI = slice_OI.view_as(weight_GOI) * weight_GOI
            of_label = torch.einsum("ngo,goi,ngi->n", out_NGO, weighed_GOI, in_NGI)
            dot_N = torch.where(class_N == label, of_label, dot_N)
        signs_N = torch.einsum("ngo,goi,ngi->n", out_NGO.abs(), weight_GOI.abs(), in_NGI.abs())
        return dot_N / signs_N.sqrt().clamp(min=1e-9)
