"""Forward passes that leave no trace: no gradient, no statistics, no random numbers, shapes that stay fixed."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import prod
from time import monotonic
from typing import Any

import torch
from torch import Tensor, nn

from ukemi.errors import UserError
from ukemi.schema import reason

BUDGET = {"cpu": 3 * 2**17, "cuda": 3 * 2**23}
"""How many pixel values one pass may hold: 128 images of 3 x 32 x 32 on a processor, where larger ones fall out of its
caches, 8,192 on a GPU."""
FEW = 512
"""rows of a chunk on a GPU where some hundred images are asked many times: a chunk is padded to its size"""
WRITES = (
    "model: it writes into the images that it is given (x -= mean, or a first layer with inplace=True); let it work on"
    " a copy (x = x - mean)."
)


def home_of(model: nn.Module) -> torch.device:
    """The device that a model's parameters are on; a model without any works on the CPU."""
    check_module(model)
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def check_module(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise UserError(f"model: a torch.nn.Module is needed, but a {type(model).__name__} was given.")


def rows_per_pass(image_shape: tuple[int, ...], device: torch.device) -> int:
    """How many images of this shape `(C, H, W)` go through the model at once."""
    return max(1, BUDGET.get(device.type, BUDGET["cpu"]) // prod(image_shape))


@contextmanager
def scoring(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Evaluation mode without gradient; the model's modes and the global random state are as before afterwards."""
    with evaluating(model), _same_random_state(device), torch.inference_mode():
        yield


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode; every module's mode is as before afterwards."""
    check_module(model)
    modes = [(module, module.training) for module in model.modules()]
    # written only where it differs: a module takes its time over every attribute, longer than a launch
    if any(mode for _, mode in modes):
        model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            if module.training != mode:
                module.training = mode


def recording(device: torch.device) -> bool:
    """Whether a CUDA graph is being captured: meanwhile no value can be read, so checks of values wait."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _same_random_state(device: torch.device) -> AbstractContextManager[None]:
    """A CUDA graph keeps its own account of random numbers, and its generator can't be read while it is captured."""
    if recording(device):
        return nullcontext()
    return torch.random.fork_rng([device] if device.type == "cuda" else [])


def padded(rows: Tensor, count: int) -> Tensor:
    """`rows` with its first row repeated behind it until there are `count`: a chunk's shape never changes."""
    missing = count - len(rows)
    return rows if missing == 0 else torch.cat([rows, rows[:1].expand(missing, *rows.shape[1:])])


def logits(model: nn.Module, images: Tensor, chunk: int) -> Tensor:
    """The model's logits for `images`, in chunks of one size, the last one padded."""
    parts = []
    with scoring(model, images.device):
        for start in range(0, len(images), chunk):
            rows = images[start : start + chunk]
            parts.append(untouched(model, padded(rows, chunk))[: len(rows)].float())
        result = torch.cat(parts)
    return result.clone()  # outside inference mode: an ordinary tensor


def untouched(model: nn.Module, images: Tensor) -> Any:
    """The model's outputs. One that writes into its images is refused: they are scored, trained on and shown later."""
    before = writes(images)
    try:
        outputs = model(images)
    except RuntimeError as error:
        if images.requires_grad and "in-place" in str(error):  # nobody may write into a leaf: is that the reason?
            with torch.no_grad():
                untouched(model, images.detach().clone())
        if "type" in str(error) and (own := _weights_type(model)) not in (None, images.dtype):
            said = f"images: they are {images.dtype}, but the model's weights are {own}"
            raise UserError(f"{said}; make them alike, as by model.float() ({reason(error)}).") from error
        raise
    if writes(images) != before:
        raise UserError(WRITES)
    return outputs


def _weights_type(model: nn.Module) -> torch.dtype | None:
    """The type of the model's first weights."""
    return next((weight.dtype for weight in model.parameters() if weight.is_floating_point()), None)


def writes(images: Tensor) -> int:
    """How often they were written into, which PyTorch counts outside of a caller's inference mode."""
    return 0 if images.is_inference() else images._version


def right(logits_NK: Tensor, labels_N: Tensor) -> Tensor:
    """Which rows are classified right, bool `[N]`; a row with a logit that is not finite is wrong."""
    return (logits_NK.argmax(1) != labels_N) == _nought(logits_NK)


def wrong(logits_NK: Tensor, labels_N: Tensor) -> Tensor:
    """The others, without a negation: small networks on a GPU pay for every launch."""
    return (logits_NK.argmax(1) != labels_N) != _nought(logits_NK)


def _nought(logits_NK: Tensor) -> Tensor:
    """0, or NaN, which equals nothing, where a logit is not finite, `[N]`."""
    return (logits_NK * 0).sum(1)


def default_chunk(image_shape: tuple[int, ...], device: torch.device, most: int = 4096) -> int:
    """Rows per chunk that keep a processor's caches or a GPU busy; on a GPU at most `most`."""
    return min(rows_per_pass(image_shape, device), most if device.type == "cuda" else 256)


def seconds_per_image(model: nn.Module, images: Tensor, repeats: int = 3) -> float:
    """What a pass takes per image, timed on passes of the usual size filled with `images`."""
    rows = rows_per_pass(tuple(images.shape[1:]), images.device)
    filled = images.repeat(-(-rows // len(images)), 1, 1, 1)[:rows]
    times = []
    for _ in range(repeats):
        began = _now(images.device)
        with scoring(model, images.device):
            model(filled)
        times.append(_now(images.device) - began)
    return min(times) / rows


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return monotonic()
