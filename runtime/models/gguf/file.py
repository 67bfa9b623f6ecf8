"""A GGUF file's header: what it says of a model, and where its tensors lie. Versions 2 and 3, little-endian.

::

    "GGUF"  version u32  number of tensors u64  number of keys u64
    keys      name, type u32, value             strings: length u64, UTF-8; arrays: type u32, length u64, values
    tensors   name, number of dimensions u32, dimensions u64 (the one of neighbours first), type u32, offset u64
    data      from the next multiple of `general.alignment` (32) on; a tensor begins at its offset from there

The file is mapped, and nothing is allocated by what a length claims: what would reach beyond the end of the file is
refused before it is read, with its place. Texts in arrays are decoded when they are asked for. Knows no architecture.

Source: the specification in ggml's docs/gguf.md.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import ModelError
from ..json_file import Fields
from .tensor_types import TYPES, UNREAD_TYPES, TensorType

MAGIC = b"GGUF"
VERSIONS = (2, 3)
_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {
    0: "u1",
    1: "i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    _BOOL: "u1",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_LEAST_KEY, _LEAST_TENSOR = 13, 24  # bytes of the shortest entries
_MOST_DIMENSIONS = 4
_MOST_SAID = 80  # characters of a name in a message


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies: `[..., rows, columns]` in blocks of its type, from byte `start` of the file."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    start: int
    num_bytes: int


class GgufFile:
    """An open GGUF file. Arrays that were given out keep the mapping alive.

    Attributes:
        values: every key that is not an array of strings; arrays of numbers as numpy arrays.
        tensors: by name.
    """

    def __init__(self, path: Path) -> None:
        """Raises ModelError: no GGUF file, cut off, or of a form that is not read; with the place."""
        self.path = path
        self._bytes = _map(path)
        self._at = 0
        self.values: dict[str, Any] = {}
        self.tensors: dict[str, TensorInfo] = {}
        self._strings: dict[str, tuple[list[int], int]] = {}
        self._read_header()

    def fields(self) -> Fields:
        """The values, checked as they are looked up."""
        return Fields(self.values, str(self.path))

    def strings(self, key: str) -> list[str]:
        """An array of strings.

        Raises:
            ModelError: there is none under this key, or a string is no UTF-8.
        """
        if key not in self._strings:
            raise ModelError(f"{self.path}: {key}: expected an array of strings, found {self._found(key)}")
        starts, end = self._strings[key]
        raw = self._bytes
        try:
            return [
                raw[start:stop].decode()
                for start, stop in zip(starts, [*(s - 8 for s in starts[1:]), end], strict=False)  # of none: an end
            ]
        except UnicodeDecodeError as error:
            raise ModelError(f"{self.path}: {key}: a string is no UTF-8 ({error})") from None

    def numbers(self, key: str, length: int) -> np.ndarray[Any, Any]:
        """An array of n numbers. Raises ModelError: there is none under this key, or of another length."""
        value = self.values.get(key)
        if not isinstance(value, np.ndarray) or len(value) != length:
            raise ModelError(f"{self.path}: {key}: expected an array of {length} numbers, found {self._found(key)}")
        return value

    def __contains__(self, key: str) -> bool:
        return key in self.values or key in self._strings

    def raw(self, info: TensorInfo) -> np.ndarray[Any, Any]:
        """The bytes of a tensor, `[..., rows, bytes of a row]` uint8, in the mapping and read only."""
        flat = np.frombuffer(self._bytes, np.uint8, info.num_bytes, info.start)
        return flat.reshape(*info.shape[:-1], info.type.row_bytes(info.shape[-1]))

    def rows(self, name: str) -> int:
        """Of a matrix. Raises ModelError: there is no tensor of that name, or of another number of dimensions."""
        info = self.tensors.get(f"{name}.weight")
        if info is None or len(info.shape) != 2:
            raise ModelError(f"{self.path}: tensor '{name}.weight' of two dimensions is missing; download it again")
        return info.shape[0]

    def factors(self, name: str, count: int) -> list[float]:
        """So many numbers in F32; none if there is no such tensor. Raises ModelError: it has another shape or type."""
        info = self.tensors.get(name)
        if info is None:
            return []
        if info.type.name != "F32" or info.shape != (count,):
            raise ModelError(f"{self.place(name)}: expected {count} numbers in F32, found {list(info.shape)}")
        found: list[float] = self.raw(info).view("<f4").tolist()
        return found

    def place(self, name: str) -> str:
        return f"{self.path}: {name}"

    def _found(self, key: str) -> str:
        if key in self._strings:
            return f"an array of {len(self._strings[key][0])} strings"
        value = self.values.get(key)
        if isinstance(value, np.ndarray):
            return f"an array of {len(value)} numbers"
        return "nothing" if value is None else repr(value)[:_MOST_SAID]

    def _read_header(self) -> None:
        if self._take(4, "the magic") != MAGIC:
            raise ModelError(f"{self.path}: not a GGUF file: it does not begin with {MAGIC.decode()}")
        version = self._number("<u4", "the version")
        if version not in VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            what = "a big-endian file" if swapped in VERSIONS else f"version {version}"
            raise ModelError(f"{self.path}: {what} is not read; versions 2 and 3, little-endian, are")
        num_tensors, num_keys = (self._number("<u8", f"the number of {what}") for what in ("tensors", "keys"))
        for count, least, what in ((num_keys, _LEAST_KEY, "keys"), (num_tensors, _LEAST_TENSOR, "tensors")):
            if count * least > len(self._bytes) - self._at:
                raise self._odd(f"{count} {what} do not fit a file of {len(self._bytes)} bytes")
        for index in range(num_keys):
            self._read_key(index)
        alignment = self.fields().integer("general.alignment", 32)
        if alignment & (alignment - 1):
            raise self.fields().odd("general.alignment", "a power of two")
        infos = [self._read_tensor(index) for index in range(num_tensors)]
        begin = -(-self._at // alignment) * alignment
        for name, kind, shape, offset in infos:
            self._place_tensor(name, kind, shape, begin, offset, alignment)

    def _read_key(self, index: int) -> None:
        key = self._string(f"key {index}")
        if key in self:
            raise self._odd(f"key {key[:_MOST_SAID]!r} is there twice")
        kind = self._number("<u4", key)
        if kind == _STRING:
            self.values[key] = self._string(key)
        elif kind == _ARRAY:
            self._read_array(key)
        elif kind in _SCALARS:
            value = self._number(_SCALARS[kind], key)
            if kind == _BOOL and value > 1:
                raise self._odd(f"{key[:_MOST_SAID]}: expected true or false, found {value}")
            self.values[key] = bool(value) if kind == _BOOL else value
        else:
            raise self._odd(f"{key[:_MOST_SAID]}: there is no type {kind} of values")

    def _read_array(self, key: str) -> None:
        kind, count = self._number("<u4", key), self._number("<u8", key)
        if kind == _STRING:
            self._strings[key] = self._walk_strings(key, count)
        elif kind in _SCALARS:
            dtype = np.dtype(_SCALARS[kind])
            content = self._take(count * dtype.itemsize, key)
            found = np.frombuffer(content, dtype)
            self.values[key] = found.astype(bool) if kind == _BOOL else found
        else:
            raise self._odd(f"{key[:_MOST_SAID]}: arrays of type {kind} are not read")

    def _walk_strings(self, key: str, count: int) -> tuple[list[int], int]:
        """Where each of the strings begins, and where the last one ends."""
        raw, at, end, unpack = self._bytes, self._at, len(self._bytes), struct.Struct("<Q").unpack_from
        if count * 8 > end - at:
            raise self._odd(f"{key[:_MOST_SAID]}: {count} strings do not fit a file of {end} bytes")
        starts = []
        for index in range(count):
            if at + 8 > end or (length := unpack(raw, at)[0]) > end - at - 8:
                self._at = at
                raise self._odd(
                    f"{key[:_MOST_SAID]}: string {index} of {count} ends after the end of the file ({end} bytes)"
                )
            starts.append(at + 8)
            at += 8 + length
        self._at = at
        return starts, at

    def _read_tensor(self, index: int) -> tuple[str, TensorType, tuple[int, ...], int]:
        name = self._string(f"the name of tensor {index}")
        said = f"tensor {name[:_MOST_SAID]!r}"
        count = self._number("<u4", said)
        if not 1 <= count <= _MOST_DIMENSIONS:
            raise self._odd(f"{said}: expected 1 to {_MOST_DIMENSIONS} dimensions, found {count}")
        shape = tuple(reversed([self._number("<u8", said) for _ in range(count)]))
        kind, offset = self._number("<u4", said), self._number("<u8", said)
        if kind not in TYPES:
            named = UNREAD_TYPES.get(kind, f"type {kind}")
            known = ", ".join(found.name for found in TYPES.values())
            raise self._odd(f"{said}: {named} is not read; these are: {known}")
        return name, TYPES[kind], shape, offset

    def _place_tensor(
        self, name: str, kind: TensorType, shape: tuple[int, ...], begin: int, offset: int, alignment: int
    ) -> None:
        said = f"{self.path}: tensor {name[:_MOST_SAID]!r} of shape {list(shape)}"
        if name in self.tensors:
            raise ModelError(f"{said} is there twice")
        if not min(shape):
            raise ModelError(f"{said} is empty")
        if shape[-1] % kind.block_size:
            raise ModelError(
                f"{said}: its rows are no multiple of the {kind.block_size} numbers of a block of {kind.name}"
            )
        if offset % alignment:
            raise ModelError(f"{said}: its offset {offset} is no multiple of the alignment, {alignment}")
        num_bytes = math.prod(shape[:-1]) * kind.row_bytes(shape[-1])
        start = begin + offset
        if start + num_bytes > len(self._bytes):
            raise ModelError(
                f"{said} ends at byte {start + num_bytes}, and the file has {len(self._bytes)}: it is cut off; "
                "download it again"
            )
        self.tensors[name] = TensorInfo(name, kind, shape, start, num_bytes)

    def _string(self, said: str) -> str:
        length = self._number("<u8", said)
        content = self._take(length, said)
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise self._odd(f"{said[:_MOST_SAID]}: is no UTF-8 ({error})") from None

    def _number(self, dtype: str, said: str) -> Any:
        kind = np.dtype(dtype)
        return np.frombuffer(self._take(kind.itemsize, said), kind)[0].item()

    def _take(self, count: int, said: str) -> bytes:
        if count > len(self._bytes) - self._at:
            raise self._odd(
                f"{said[:_MOST_SAID]}: {count} bytes end after the end of the file ({len(self._bytes)} bytes)"
            )
        found = self._bytes[self._at : self._at + count]
        self._at += count
        return found

    def _odd(self, what: str) -> ModelError:
        return ModelError(f"{self.path}: at byte {self._at}: {what}; download the file again")


def is_gguf(path: Path) -> bool:
    """Whether a path names a GGUF file, by its name."""
    return path.suffix.lower() == ".gguf"


def _map(path: Path) -> mmap.mmap:
    try:
        if not path.is_file():  # a pipe would be waited for
            raise ModelError(f"{path}: is no regular file")
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise ModelError(f"{path}: cannot be read ({error})") from None
