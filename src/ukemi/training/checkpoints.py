"""Checkpoints that survive: one safetensors file each, written aside, flushed and renamed, with a checksum inside."""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ukemi.errors import UserError

SCHEMA = 1
"""Version of the checkpoint format; one file of every version is kept among the tests and loaded there."""
KEPT = 2
HEADER = "ukemi"


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name (`model.…`, `optimiser.…`, `augmenter.…`, `sums.…`) and everything else as plain values."""

    tensors: dict[str, Tensor]
    values: dict[str, Any]

    def part(self, name: str) -> dict[str, Tensor]:
        """The tensors whose names begin with `name.`, without that."""
        return {key[len(name) + 1 :]: tensor for key, tensor in self.tensors.items() if key.startswith(name + ".")}


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Writes the file whole or not at all; a failure leaves nothing behind and names the path."""
    stored, tied = _untied(tensors)
    header = {"schema": SCHEMA, "tied": tied, **values}
    # one entry, because safetensors writes several in any order: equal checkpoints are equal files
    text = json.dumps({"checksum": _checksum(stored, header), **header})
    write_whole(path, save(stored, metadata={HEADER: text}))


def read_checkpoint(path: Path) -> Checkpoint:
    """Reads and verifies; a truncated, altered or foreign file is refused in one sentence."""
    try:
        if path.is_dir():  # what the reader says of one depends on the system
            raise IsADirectoryError
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise UserError(f"checkpoint: there is no file {path}.") from None
    except IsADirectoryError:
        raise UserError(f"checkpoint: {path} is a folder; a file is needed.") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"checkpoint: {path} is truncated or no safetensors file ({error}).") from None
    if HEADER not in header:
        raise UserError(f"checkpoint: {path} was not written by ukemi.")
    values = _values(header[HEADER])
    if values.pop("checksum", None) != _checksum(stored, values):
        raise UserError(f"checkpoint: {path} is damaged (its checksum doesn't fit).")
    if values.pop("schema") > SCHEMA:
        raise UserError(f"checkpoint: {path} was written by a newer ukemi; this one reads schemas up to {SCHEMA}.")
    for name, source in values.pop("tied").items():
        stored[name] = stored[source]
    return Checkpoint(stored, values)


def newest(folder: Path) -> list[Path]:
    """The checkpoints of a run, newest first."""
    return sorted(folder.glob("checkpoint-*.safetensors"), reverse=True)


def checkpoint_path(folder: Path, epoch: int, step: int) -> Path:
    """Named so that sorting by name is sorting by time."""
    return folder / f"checkpoint-{epoch:06d}-{step:08d}.safetensors"


def forget_old(folder: Path) -> None:
    """Keeps the last two checkpoints; also clears what a killed process left half written."""
    for path in newest(folder)[KEPT:]:
        path.unlink(missing_ok=True)
    for path in folder.glob("*.partial"):
        path.unlink(missing_ok=True)


def write_whole(path: Path, body: bytes) -> None:
    """Writes aside, flushes to the disk and renames: readers see the old file or the new one, never half of one."""
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        _flush_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        reason = error.strerror or error
        raise UserError(f"{path} can't be written: {reason}; what was there before is whole.") from None


def check_folder(folder: Path, field: str = "out") -> None:
    """Refuses, before any work is done, a folder that can't be made or written to; nothing is left behind."""
    try:
        place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if place.is_file():
            so = "a folder is needed" if place == folder else f"{folder} can't be made in it"
            raise UserError(f"{field}: {place} is a file; {so}.")
        with TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise UserError(f"{field}: {folder} can't be written ({error.strerror or error}).") from None


def check_file(path: Path, field: str) -> None:
    """The same for a file: its folder is looked at, and it may not be a folder itself."""
    if path.is_dir():
        raise UserError(f"{field}: {path} is a folder; the name of a file is needed.")
    check_folder(path.parent, field)


def _flush_folder(folder: Path) -> None:
    """A rename is on the disk only once its folder is; not every system lets a folder be opened."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _untied(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Contiguous CPU copies; a tensor that is the same memory under two names is stored once."""
    stored: dict[str, Tensor] = {}
    seen: dict[tuple[Any, ...], str] = {}
    tied: dict[str, str] = {}
    for name, tensor in tensors.items():
        identity = (tensor.data_ptr(), tensor.dtype, tensor.device, tuple(tensor.shape), tensor.stride())
        if tensor.numel() and identity in seen:
            tied[name] = seen[identity]
            continue
        seen[identity] = name
        stored[name] = tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
    return stored, tied


def _values(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def _checksum(tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
