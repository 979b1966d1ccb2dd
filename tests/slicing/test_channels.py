"""Contributions between channels beside plain loops over Formula 2."""

import torch
from torch import Tensor, nn

from ukemi.activations import unit_mean
from ukemi.slicing import channels
from ukemi.slicing.channels import Activity
from ukemi.slicing.steps import Weighted, plan_of
from ukemi.slicing.tracing import Watch


def test_real_contributions_carry_how_much_their_neuron_contributes() -> None:
    """They part synapses whose signs add up to the same: CONTRIB_n counts as it is, not by its sign alone."""
    torch.manual_seed(3)
    layers = [nn.Linear(3, 8), nn.Linear(8, 9), nn.Linear(9, 2)]
    model = nn.Sequential(nn.Flatten(), layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2]).double().eval()
    images = torch.rand(6, 3, 1, 1, dtype=torch.float64)
    found: dict[str, Tensor] = {}

    def add(step: Weighted, label: int, signs_OI: Tensor, reals_OI: Tensor) -> None:
        found[step.name] = reals_OI

    with torch.no_grad():
        plan = plan_of(model, images)
        watch = Watch(model, plan.graph, channels.needed(plan), unit_mean)
        watch.run(images)
        means = {name: values.mean(0) for name, values in watch.kept.items()}
        start = torch.eye(2, dtype=torch.float64)[[1] * 6]
        channels.walk_back(plan, Activity(watch.kept, means), start, [(1, slice(0, 6))], add)
        inputs = [images.flatten(1)]
        outputs = []
        for layer in layers:
            outputs.append(layer(inputs[-1]))
            inputs.append(outputs[-1].relu())
    contrib_NO, largest = start, 0.0
    for name, layer, given, gave in zip("531", layers[::-1], inputs[2::-1], outputs[::-1], strict=True):
        dy, dx = gave - gave.mean(0), given - given.mean(0)
        terms_NOI = (contrib_NO * dy)[:, :, None] * layer.weight.detach() * dx[:, None]
        assert torch.allclose(found[name], terms_NOI.sum(0), atol=1e-12)
        contrib_NO = terms_NOI.sign().sum(1)
        largest = max(largest, float(contrib_NO.abs().max()))
    assert largest > 1
