"""Grad-CAM (Selvaraju et al., ICCV 2017): where in an image a network finds the evidence for a class."""

from contextlib import ExitStack

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ukemi.activations.recording import ACTIVATIONS, eager
from ukemi.errors import UserError
from ukemi.models.inference import rows_per_pass


def grad_cam(model: nn.Module, images: Tensor, classes: Tensor, layer: str | None = None) -> Tensor:
    """How much each place of `images [N, C, H, W]` speaks for the classes `[N]`: maps `[N, H, W]`, 0 or more.

    A channel counts as much as the class's logit rises with it, on average over its places; the channels are added up
    by that, what speaks against the class is cut off, and the map is stretched to the image (bilinear). Maps are not
    scaled. `layer` is a module with an output `[N, c, h, w]`; by default that of the last convolution, behind the
    BatchNorm and activation modules that run right after it. Evaluation mode; the model's modes, parameters and
    gradients stay as they are.

    >>> net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2))
    >>> grad_cam(net, torch.rand(5, 1, 6, 6), torch.tensor([0, 1, 0, 1, 0])).shape
    torch.Size([5, 6, 6])
    """
    if classes.shape != (len(images),) or classes.is_floating_point():
        raise UserError(f"classes: one class per image, [{len(images)}], is needed, not {list(classes.shape)}.")
    if not len(images):
        return images.new_zeros(0, *images.shape[2:])
    was_training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with eager(model):
            place = _last_maps(model, images[:1]) if layer is None else _named(model, layer)
            size = rows_per_pass(tuple(images.shape[1:]), images.device)
            parts = [
                _maps(model, place, *both)
                for both in zip(images.split(size), classes.to(images.device).split(size), strict=True)
            ]
    finally:
        for module in was_training:
            module.training = True
    return torch.cat(parts)


def _maps(model: nn.Module, place: nn.Module, images: Tensor, classes: Tensor) -> Tensor:
    seen: list[Tensor] = []

    def part(module: nn.Module, given: tuple[object, ...], output: Tensor) -> Tensor:
        """The way back ends here, so nothing below is computed again; what follows may write into its copy."""
        if not isinstance(output, Tensor) or output.ndim != 4:
            raise UserError("layer: Grad-CAM needs a layer that gives maps [N, channels, height, width].")
        seen.append(output.detach().requires_grad_())
        return seen[-1].clone()

    handle = place.register_forward_hook(part)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            logits = model(images.detach().clone())
            if not seen:
                raise UserError("layer: it does not run when the model answers.")
            _check_classes(classes, logits.shape[1])
            own = logits.gather(1, classes.long()[:, None]).sum()
            (slope,) = torch.autograd.grad(own, seen[-1], allow_unused=True) if own.requires_grad else (None,)
    finally:
        handle.remove()
    channels = seen[-1].detach()
    if slope is None:  # the layer does not lead to the logits
        return images.new_zeros(len(images), *images.shape[2:])
    maps_N1hw = (slope.mean((2, 3), keepdim=True) * channels).sum(1, keepdim=True).relu()
    return F.interpolate(maps_N1hw, images.shape[2:], mode="bilinear", align_corners=False)[:, 0]


def _check_classes(classes: Tensor, count: int) -> None:
    if not 0 <= int(classes.min()) <= int(classes.max()) < count:
        raise UserError(f"classes: they should lie in 0 to {count - 1}.")


def _named(model: nn.Module, layer: str) -> nn.Module:
    try:
        return model.get_submodule(layer)
    except AttributeError:
        raise UserError(f"layer: {type(model).__name__} has no module {layer!r}.") from None


def _last_maps(model: nn.Module, images: Tensor) -> nn.Module:
    """The last Conv2d to run, or the last of the BatchNorms and activations that run right after it: in a residual
    block that is the activation behind the addition."""
    order: list[tuple[nn.Module, bool]] = []

    def note(module: nn.Module, given: tuple[object, ...], output: object) -> None:
        order.append((module, isinstance(output, Tensor) and output.ndim == 4))

    with ExitStack() as hooks, torch.no_grad():
        for module in model.modules():
            if not list(module.children()):
                hooks.callback(module.register_forward_hook(note).remove)
        model(images)
    runs = [at for at, (module, _) in enumerate(order) if isinstance(module, nn.Conv2d)]
    if not runs:
        raise UserError(f"layer: {type(model).__name__} has no Conv2d to look at; name a layer that gives maps.")
    last = runs[-1]
    while last + 1 < len(order) and order[last + 1][1] and isinstance(order[last + 1][0], (_BatchNorm, *ACTIVATIONS)):
        last += 1
    return order[last][0]
