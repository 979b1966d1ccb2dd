"""The outputs of a network's layers during a forward pass: the neurons of coverage and surprise."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from ukemi.data import Batch, Data
from ukemi.errors import UserError
from ukemi.models.inference import default_chunk, home_of, padded, scoring, untouched

ACTIVATIONS: tuple[type[nn.Module], ...] = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.Threshold),
    *(nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.GLU, nn.Softplus, nn.Softsign),
    *(nn.Tanh, nn.Hardtanh, nn.Tanhshrink, nn.Softshrink, nn.Hardshrink),
    *(nn.Sigmoid, nn.Hardsigmoid, nn.LogSigmoid, nn.Hardswish),
)
WEIGHTED: tuple[type[nn.Module], ...] = (nn.Conv2d, nn.Linear)

Keep = Callable[[Tensor], Tensor]
"""what is kept of a layer's output"""


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The layers whose outputs count as neurons, in the order in which the model holds them.

    These are its activation modules. The Linear that gives the logits is left out: its outputs are the answer, which
    every fitness has anyway. A model without activation modules (it calls `F.relu`) shows all its Conv2d and Linear
    layers instead, the last one too, so that a single Linear is not without neurons.
    """
    for kinds in (ACTIVATIONS, WEIGHTED):
        if found := [module for module in model.modules() if isinstance(module, kinds)]:
            return found
    raise UserError(
        f"activations: {type(model).__name__} has no activation module, Conv2d or Linear, so it has no neurons to read."
    )


@contextmanager
def recording(model: nn.Module, keep: Keep = torch.clone) -> Iterator[list[Tensor]]:
    """A list that fills with the outputs of `layers_of(model)` in the order of execution; the model is as before
    afterwards.

    A module that is called twice gives two entries; a second forward pass appends to the first. `keep` is what is
    kept of each output: a copy, since the network may write into its tensor later (`x += y`), or less (`unit_mean`).

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    >>> with recording(model) as outputs:
    ...     logits = model(torch.rand(5, 2))
    >>> [output.shape for output in outputs]
    [torch.Size([5, 3])]
    """
    outputs: list[Tensor] = []

    def note(module: nn.Module, given: tuple[object, ...], output: Tensor) -> None:
        outputs.append(keep(output))

    with ExitStack() as hooks:
        hooks.enter_context(eager(model))
        for layer in layers_of(model):
            handle = layer.register_forward_hook(note)
            hooks.callback(handle.remove)
        yield outputs


def check_rows(outputs: Sequence[Tensor], images: int) -> None:
    """Refuses layers that do not give one row per image: patches or tokens in their place would be taken for images."""
    if not outputs:
        raise UserError("activations: none of the model's layers that have neurons takes part in its answers.")
    rows = [len(output) for output in outputs]
    if any(count != images for count in rows):
        raise UserError(
            f"activations: every layer should give one row per image (attention with batch_first=True, patches behind"
            f" the images), but {images} images gave {', '.join(map(str, rows))} rows."
        )


def eager(model: nn.Module) -> AbstractContextManager[object]:
    """Compiled code does not look for hooks that came after it: while we record, such a model runs uncompiled."""
    compiled = any(
        hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
        for module in model.modules()
    )
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()


def over_data(
    model: nn.Module, data: Data, keep: Keep, positions: Tensor | None = None, *, last: bool = False
) -> Iterator[tuple[Batch, list[Tensor]]]:
    """Walks over the samples of `data` (those at `positions`) in their order: each batch, and what `keep` kept of its
    rows, layer by layer; with `last` of the layer that ran last only.

    Evaluation mode, no gradient, chunks of one shape; the model, its statistics and the random state stay as they are.
    """
    device = home_of(model)
    chunk = default_chunk((data.channels, *data.size), device)
    positions = torch.arange(len(data)) if positions is None else positions
    if not len(positions):
        raise UserError("activations: there is no image to read them of.")
    for batch in data.batches(positions.split(chunk), device):
        with scoring(model, device), recording(model, keep) as outputs:
            untouched(model, padded(batch.images, chunk))
        wanted = outputs[-1:] if last else outputs
        check_rows(wanted, chunk)
        # outside inference mode: ordinary tensors
        yield batch, [output[: len(batch.labels)].clone() for output in wanted]
