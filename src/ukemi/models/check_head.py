"""Whether a model's head fits the labels."""

import torch
from torch import Tensor, nn

from ukemi.errors import UserError
from ukemi.models.inference import scoring, untouched
from ukemi.models.normalize import Normalize
from ukemi.schema import FAILURES, reason

PROBABILITIES = "model: its outputs look like probabilities (each row adds up to 1); logits are needed."


def check_head(model: nn.Module, images: Tensor, classes: int) -> int:
    """The number of logits that `model` gives for `images_NCHW`, found with one forward pass of two images.

    Raises `UserError` where the model can't take the images or writes into them, gives no logits [N, K], or has fewer
    than `classes`.
    Modes, statistics and random state of the model are left as they are.
    """
    few_NCHW = images[:2]
    _check_channels(model, few_NCHW)
    outputs = _forward(model, few_NCHW)
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or len(outputs) != len(few_NCHW):
        raise UserError(f"model: logits of shape [images, classes] are expected, but {_what(outputs)}.")
    logits = outputs.shape[1]
    if logits < classes:
        raise UserError(f"model: labels that don't fit the model's head: {classes} classes, but {logits} logits.")
    return logits


def are_probabilities(outputs_NK: Tensor) -> bool:
    """Whether no output is below 0 and every row adds up to 1, but for rounding."""
    off_N = (outputs_NK.double().sum(1) - 1).abs()
    slack = 1e-2 if outputs_NK.dtype in (torch.float16, torch.bfloat16) else 1e-4
    return not bool((outputs_NK < 0).any()) and bool((off_N < slack).all())


def gives_probabilities(model: nn.Module, images: Tensor) -> bool:
    """Whether a model's outputs are probabilities: a loss would take their softmax again.

    The first two images are asked, and their negatives: logits of one image may add up to 1 by chance.
    """
    few_NCHW = images[:2]
    outputs = _forward(model, torch.cat([few_NCHW, 1 - few_NCHW]))
    return isinstance(outputs, Tensor) and outputs.ndim == 2 and are_probabilities(outputs)


def check_logits(model: nn.Module, images: Tensor) -> None:
    """Refuses a model that gives probabilities."""
    if gives_probabilities(model, images):
        raise UserError(PROBABILITIES)


def _check_channels(model: nn.Module, images_NCHW: Tensor) -> None:
    # Left alone, three means and one grey channel would silently broadcast to three channels.
    channels = images_NCHW.shape[1]
    for layer in model.modules():
        if isinstance(layer, Normalize) and (means := len(layer.mean)) != channels:
            raise UserError(
                f"model: it normalises {means} channel{'s' * (means > 1)}, but the images have {channels}"
                " (mean and std have one number per channel)."
            )


def _forward(model: nn.Module, images_NCHW: Tensor) -> object:
    # Ordinary tensors, not inference tensors: a lazy layer creates its parameters in its first forward pass.
    with scoring(model, images_NCHW.device), torch.inference_mode(False), torch.no_grad():
        try:
            return untouched(model, images_NCHW.clone())
        except UserError:
            raise
        except FAILURES as error:  # a user's network fails in any way it likes
            shape = "×".join(map(str, images_NCHW.shape[1:]))
            raise UserError(f"model: it can't take images of {shape} ({reason(error)}).") from error


def _what(outputs: object) -> str:
    if isinstance(outputs, Tensor):
        return f"shape {list(outputs.shape)} came out"
    return f"a {type(outputs).__name__} came out; put a module around it whose forward gives the logits alone"
