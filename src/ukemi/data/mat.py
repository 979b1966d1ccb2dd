"""MATLAB 5 files (`.mat`, as SVHN and IMDB-WIKI use them): numbers, text, cells and structs, nothing else."""

import math
import struct
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ukemi.errors import UserError

_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_CELL, _STRUCT, _CHAR = 1, 2, 4

_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""Element type to what its bytes are."""
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
"""Array class to what the numbers are; MATLAB stores them in the smallest type that holds them."""
_TEXT = {1: "latin1", 2: "latin1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}

_DAMAGED = (struct.error, ValueError, IndexError, KeyError, TypeError, zlib.error, OverflowError, RecursionError)


class _Element(NamedTuple):
    kind: int
    content: memoryview


def read_mat(path: Path, variables: Collection[str], fields: Collection[str] = ()) -> dict[str, Any]:
    """The named `variables` of a file: an array, a text, a list (cell) or a dictionary (struct) each.

    Of structs only `fields` are read. Arrays keep MATLAB's shape and order of axes.
    """
    content = _content(path)
    try:
        reader = _Reader("<" if bytes(content[126:128]) == b"IM" else ">", frozenset(fields))
        found: dict[str, Any] = {}
        for element in reader.elements(content[_HEADER:]):
            name, value = reader.variable(element, variables)
            if name in variables:
                found[name] = value
    except UserError as error:
        raise UserError(f"data: {path} {error}") from None
    except _DAMAGED as error:
        raise UserError(f"data: {path} is truncated or damaged ({error}).") from None
    missing = [name for name in variables if name not in found]
    if missing:
        raise UserError(f"data: {path} lacks the variable {' and '.join(missing)}.")
    return found


def _content(path: Path) -> memoryview:
    try:
        content = memoryview(path.read_bytes())
    except OSError as error:
        raise UserError(f"data: {path} can't be read ({error}).") from None
    if bytes(content[:10]) == b"MATLAB 7.3":
        raise UserError(f"data: {path} is a MATLAB 7.3 file; save it with -v7.")
    if bytes(content[126:128]) not in (b"IM", b"MI"):
        raise UserError(f"data: {path} is no MATLAB 5 file: its header lacks the magic letters IM.")
    return content


@dataclass(frozen=True)
class _Reader:
    order: str
    fields: frozenset[str]

    def elements(self, content: memoryview) -> Iterator[_Element]:
        """The elements that lie one after the other in `content`."""
        while content:
            element, content = self.element(content)
            yield element

    def element(self, content: memoryview) -> tuple[_Element, memoryview]:
        """The first element and what follows it."""
        first, size = struct.unpack_from(self.order + "II", content)
        if first >> 16:  # small: type and size share one word, four bytes of content follow
            return _Element(first & 0xFFFF, content[4 : 4 + (first >> 16)]), content[8:]
        end = 8 + size
        if end > len(content):
            raise UserError(f"is truncated: an element of {size} bytes has only {len(content) - 8} left.")
        padding = 0 if first == _COMPRESSED else -size % 8
        return _Element(first, content[8:end]), content[end + padding :]

    def variable(self, element: _Element, wanted: Collection[str]) -> tuple[str, Any]:
        """The name and, where it is `wanted`, the value of a variable."""
        if element.kind == _COMPRESSED:
            unpacker = zlib.decompressobj()
            unpacked = unpacker.decompress(element.content)
            if not unpacker.eof:
                raise UserError("is truncated: a compressed variable breaks off.")
            element, _ = self.element(memoryview(unpacked))
        if element.kind != _MATRIX:
            return "", None
        name = bytes(list(self._parts(element.content, 3))[2].content).decode("latin1")
        return name, self.matrix(element.content) if name in wanted else None

    def _parts(self, content: memoryview, count: int) -> Iterator[_Element]:
        for _ in range(count):
            element, content = self.element(content)
            yield element

    def matrix(self, content: memoryview) -> Any:
        """The value of an array of any class."""
        if not content:
            return np.empty((0, 0))
        flags, content = self.element(content)
        sizes, content = self.element(content)
        _, content = self.element(content)
        kind = struct.unpack_from(self.order + "I", flags.content)[0] & 0xFF
        shape = np.frombuffer(sizes.content, self.order + "i4").tolist()
        if kind == _CELL:
            return self._cells(content, math.prod(shape))
        if kind == _STRUCT:
            return self._struct(content, math.prod(shape))
        element, _ = self.element(content)
        if kind == _CHAR:
            return self._text(element)
        if kind not in _CLASSES:
            raise UserError(f"holds an array of MATLAB's class {kind}, which is not read here.")
        numbers = np.frombuffer(element.content, self.order + _NUMBERS[element.kind])
        return numbers.astype(_CLASSES[kind], copy=False).reshape(shape, order="F")

    def _text(self, element: _Element) -> str:
        encoding = _TEXT[element.kind]
        wide = encoding in ("utf-16", "utf-32")
        return bytes(element.content).decode(encoding + ("-le" if self.order == "<" else "-be") * wide)

    def _cells(self, content: memoryview, count: int) -> list[Any]:
        return [self.matrix(element.content) for element in self._parts(content, count)]

    def _struct(self, content: memoryview, count: int) -> dict[str, Any]:
        if count != 1:
            raise UserError(f"holds an array of {count} structs; one is read here.")
        length, content = self.element(content)
        names, content = self.element(content)
        width = struct.unpack_from(self.order + "i", length.content)[0]
        texts = [bytes(names.content[at : at + width]) for at in range(0, len(names.content), width)]
        keys = [text.split(b"\0")[0].decode("latin1") for text in texts]
        elements = zip(keys, self._parts(content, len(keys)), strict=True)
        return {key: self.matrix(element.content) for key, element in elements if key in self.fields}
