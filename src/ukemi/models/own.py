"""A user's own network: made by their factory, filled from their file."""

import inspect
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ukemi.errors import UserError
from ukemi.models.inference import evaluating
from ukemi.models.normalize import Normalize, behind_normalize
from ukemi.schema import FAILURES, current_directory, imported, reason

_AROUND = {"module.": ", without DataParallel around it", "_orig_mod.": ", without torch.compile around it"}
"""what a name in a state dictionary begins with where the model was saved from inside of something known"""


def load_own(
    name: str,
    arguments: Mapping[str, Any] | None = None,
    weights: Path | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """What the factory `package.module:name` makes of `arguments`, with `weights` loaded into it.

    The module is looked for in the current directory too. Weights are a state dictionary in `.safetensors`, or as
    torch saves it, in `.pt`, `.pth` and the like; nothing is unpickled but tensors. With `mean` and `std` a `Normalize`
    is put in front; weights may be those of the network alone, or of both (the `model.safetensors` of a run).
    """
    check_normalisation(mean, std)
    network = _made(name, dict(arguments or {}))
    whole = network if mean is None or std is None else behind_normalize(Normalize(mean, std), network)
    if weights is not None:
        load_into(whole, weights)
    return whole


def check_normalisation(mean: Sequence[float] | None, std: Sequence[float] | None) -> None:
    """A mean and a deviation of pixels in [0, 1], or neither."""
    if (mean is None) != (std is None):
        raise UserError(f"{'std' if std is None else 'mean'}: mean and std belong together, but one is missing.")
    for value in mean or ():
        if not 0 <= value <= 1:
            raise UserError(
                f"mean: pixels lie in [0, 1], and so does their mean, but {value:g} was given"
                + (f" (of pixels in 0 to 255 it is {value:g}/255, and so is std)." if 1 < value <= 255 else ".")
            )


def _made(name: str, arguments: dict[str, Any]) -> nn.Module:
    with current_directory():
        factory = imported(name, "model")
        if not callable(factory) or isinstance(factory, nn.Module):
            kind = type(factory).__name__
            other = "not one itself" if isinstance(factory, nn.Module) else f"but it is of type {kind}"
            raise UserError(f"model: {name!r} should be a function or class that makes a network, {other}.")
        _check_arguments(name, factory, arguments)
        try:
            network = factory(**arguments)
        except FAILURES as error:  # a user's factory fails in any way it likes
            raise UserError(f"model: {name!r} made no network ({reason(error)}).") from error
    if not isinstance(network, nn.Module):
        raise UserError(f"model: {name!r} should make a torch.nn.Module, but it made a {type(network).__name__}.")
    _check_modes(name, network)
    return network


def _check_modes(name: str, network: nn.Module) -> None:
    try:
        with evaluating(network):
            return
    except Exception as error:  # a program of torch.export, for one, refuses
        raise UserError(
            f"model: {name!r} made a network that can't be set to evaluation ({reason(error)}); where that is its mode"
            " for good, let the function set training = False on all its modules()."
        ) from error


def _check_arguments(name: str, factory: Any, arguments: dict[str, Any]) -> None:
    try:
        inspect.signature(factory).bind(**arguments)
    except TypeError as error:
        raise UserError(f"model: {name!r} does not take these arguments ({error}).") from None
    except ValueError:
        return  # some callables have no signature; the call itself will tell


def load_into(whole: nn.Module, path: Path) -> None:
    """Weights of a network alone into one that may stand behind its normalisation, or of both."""
    given, inner = _read(path), getattr(whole, "network", None)
    behind = isinstance(getattr(whole, "normalize", None), Normalize) and isinstance(inner, nn.Module)
    _fill(inner if behind and "normalize.mean" not in given else whole, given, path)  # type: ignore[arg-type]


def load_weights(network: nn.Module, path: Path) -> None:
    """Fills the network from a file; the first key or shape that does not fit is named."""
    _fill(network, _read(path), path)


def _fill(network: nn.Module, given: dict[str, Tensor], path: Path) -> None:
    own = network.state_dict()  # a lazy layer has no shapes yet: it takes those of the file
    for key, value in given.items():
        if key not in own:
            around = _around(given, own)
            mended = f"; save model.{around}state_dict(){_AROUND.get(around, '')}" if around else ""
            raise UserError(f"weights: {path} has {key!r}, which the model does not have{mended}.")
        if not is_lazy(own[key]) and value.shape != own[key].shape:
            shapes = f"{list(value.shape)}, but the model's {list(own[key].shape)}"
            raise UserError(f"weights: the shape of {key!r} in {path} is {shapes}.")
    present = {_place(own[key]) for key in given if not is_lazy(own[key])}
    for key, tensor in own.items():
        # Of tied tensors a file may hold only one.
        if key not in given and (is_lazy(tensor) or _place(tensor) not in present):
            raise UserError(f"weights: {path} lacks {key!r}, which the model has.")
    network.load_state_dict(given, strict=False)


def _around(given: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> str:
    """What stands before the names of all the model's tensors in a file that holds more than the model."""
    befores = dict.fromkeys(key.removesuffix(name) for key in given for name in own if key.endswith(f".{name}"))
    return next((one for one in befores if all(one + name in given for name in own)), "")


def _place(tensor: Tensor) -> tuple[int, torch.Size, tuple[int, ...]]:
    return tensor.data_ptr(), tensor.shape, tensor.stride()


_PICKLED = (".pt", ".pth", ".bin", ".ckpt", ".tar")
"""endings that people give to what torch.save wrote; .tar: model.pth.tar"""


def check_weights(path: Path) -> None:
    """What can be known to be wrong of a file before it is read."""
    if path.suffix not in (".safetensors", *_PICKLED):
        raise UserError(f"weights: {path} should end in .safetensors, {', '.join(_PICKLED)}.")
    if not path.is_file():
        raise UserError(f"weights: there is no file {path}.")


def _read(path: Path) -> dict[str, Tensor]:
    check_weights(path)
    return _pickled(path) if path.suffix in _PICKLED else _safetensors(path)


def _safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"weights: {path} is not a readable safetensors file ({error}).") from None


def _pickled(path: Path) -> dict[str, Tensor]:
    try:
        with warnings.catch_warnings(action="ignore"):  # it warns of a TorchScript file, and then refuses it
            values = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or hostile pickle fails in any way it likes
        raise UserError(
            f"weights: {path} is not a state dictionary of tensors, and nothing else is unpickled; "
            f"save model.state_dict() ({type(error).__name__})."
        ) from error
    return _state_of(values, path)


def _state_of(values: Any, path: Path) -> dict[str, Tensor]:
    """The file's state dictionary, or of a checkpoint (weights beside optimiser and epoch) the only one in it."""
    if isinstance(values, dict) and "state_dict" in values:
        values = values["state_dict"]
    if _is_state(values):
        return values
    inner = [key for key, value in values.items() if _is_state(value)] if isinstance(values, dict) else []
    if len(inner) == 1:
        return values[inner[0]]
    if inner:
        named = ", ".join(map(repr, inner))
        raise UserError(f"weights: {path} holds several state dictionaries, {named}: save the one that you mean alone.")
    raise UserError(f"weights: {path} should hold a state dictionary of tensors: save model.state_dict().")


def _is_state(values: Any) -> bool:
    return isinstance(values, dict) and bool(values) and all(isinstance(value, Tensor) for value in values.values())
