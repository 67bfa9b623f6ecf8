"""What rank 0 says to the others: a kind, a few values and arrays, in one piece.

::

    u32 header bytes │ u64 array bytes │ header, JSON: kind, values, [name, type, shape] of each array │ arrays

A step is one such message: some hundred bytes of header, and 4 or 8 bytes for each number that the kernels' plan takes.
Knows sockets and numpy. Nothing is pickled.
"""

from __future__ import annotations

import json
import select
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

HEAD = struct.Struct("<IQ")
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Message:
    """kind: what to do; values: whatever JSON holds."""

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)

    def packed(self) -> bytes:
        """One piece of bytes."""
        arrays = [(name, np.ascontiguousarray(array)) for name, array in self.arrays.items()]
        said = [self.kind, self.values, [[name, array.dtype.str, array.shape] for name, array in arrays]]
        header = json.dumps(said, separators=(",", ":")).encode()
        bodies = [array.tobytes() for _, array in arrays]
        return b"".join([HEAD.pack(len(header), sum(map(len, bodies))), header, *bodies])


class Channel:
    """One end of a connection between two processes.

    Attributes:
        num_messages, num_bytes: sent so far.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.num_messages = self.num_bytes = 0

    def send(self, packed: bytes, timeout: float | None = None) -> None:
        """Raises OSError: the other end is gone, or has taken nothing for `timeout` seconds (TimeoutError)."""
        self._connection.settimeout(timeout)
        self._connection.sendall(packed)
        self.num_messages += 1
        self.num_bytes += len(packed)

    def has_message(self, timeout: float) -> bool:
        """Whether one begins, or the end of the connection comes, within `timeout` seconds."""
        return bool(select.select([self._connection], [], [], timeout)[0])

    def receive(self, timeout: float | None = None) -> Message:
        """The next message.

        Raises:
            EOFError: the other end is gone.
            TimeoutError: nothing has come for `timeout` seconds.
        """
        self._connection.settimeout(timeout)
        header_bytes, array_bytes = HEAD.unpack(self._read(HEAD.size))
        kind, values, forms = json.loads(self._read(header_bytes))
        body, arrays, begin = self._read(array_bytes), {}, 0
        for name, kind_of_number, shape in forms:
            dtype = np.dtype(kind_of_number)
            arrays[name] = np.frombuffer(body, dtype, prod(shape), begin).reshape(shape)
            begin += arrays[name].nbytes
        return Message(kind, values, arrays)

    def close(self) -> None:
        self._connection.close()

    def _read(self, num_bytes: int) -> bytearray:
        """Writable memory, as tensors want theirs."""
        found = bytearray(num_bytes)
        view, begin = memoryview(found), 0
        while begin < num_bytes:
            try:
                count = self._connection.recv_into(view[begin:])
            except ConnectionError:
                count = 0
            if not count:
                raise EOFError("the other process is gone")
            begin += count
        return found
