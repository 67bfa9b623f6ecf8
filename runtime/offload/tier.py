"""The interface of every tier below the pool: blocks of KV by their keys, some at a time.

Nothing that goes wrong in a tier fails a request: what cannot be read is a miss, what cannot be written is dropped, and
a tier counts and logs its own faults. It is made with a `Changed`, which it calls, on any thread, with the digests that
it has from now on, as far as it knows, or has lost. A new kind of tier is a module with a class made
from this one, and a line in the table of `stores`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from .block_key import BlockKey

Row = npt.NDArray[np.uint8]
# called with digests, and whether a tier has them now or has lost them, in order
Changed = Callable[[Sequence[tuple[bytes, bool]]], None]


def ignore_changes(changes: Sequence[tuple[bytes, bool]]) -> None:
    """For tiers whose changes are not followed."""


class Tier(Protocol):
    """Blocks of one size, each a row of uint8 `[block_bytes]`.

    Attributes:
        name: in statistics, reports and metrics, and for what reading costs; no two tiers of an engine have the same.
        writes_through: it is given blocks when they are computed; others are given what the pool evicts.
        num_bytes: what it holds, as far as this process knows.
        num_faults: how often reading or writing has failed, or a block was not what its key says.
    """

    name: str
    writes_through: bool
    num_faults: int = 0

    @property
    def num_bytes(self) -> int: ...

    def may_have(self, key: BlockKey) -> bool:
        """False: it has no such block. For the step's thread, so one call of the system at the most."""

    def wants(self, key: BlockKey) -> bool:
        """Whether a block is worth copying for it: it can write, and does not know that it has the block. At once."""
        return not self.may_have(key)

    def count(self, keys: Sequence[BlockKey]) -> int:
        """How many of these blocks it has, up to the first that is missing. May wait for a disk or a network."""
        return next((number for number, key in enumerate(keys) if not self.may_have(key)), len(keys))

    def read_blocks(self, keys: Sequence[BlockKey], rows: Row) -> int:
        """Reads blocks into `rows`, uint8 `[len(keys), block_bytes]`, until one is missing or not what it should be.

        Returns how many rows are good; those after them may be spoilt.
        """

    def put_blocks(self, keys: Sequence[BlockKey], rows: Row) -> int:
        """Keeps copies of blocks, a row each; returns how many it did not have and has now. One thread at a time."""

    def touch(self, keys: Sequence[BlockKey]) -> None:
        """These blocks, in the order of their prefix, have been used: its beginning is to be the last to go."""

    def begin(self) -> None:
        """Whatever takes time before it can be written to. Called once, by the thread that writes."""
        return

    def clear(self) -> None:
        """Forgets what this process alone has put there; what others can read stays."""
        return

    def close(self) -> None:
        """Ends its connections. Nothing is asked of it afterwards."""
        return


class KnownDigests:
    """What a tier is known to have of what others may add and remove. Each change is reported, in the order in which
    they happen. Thread-safe.

    Args:
        most: digests that are remembered; beyond them all are forgotten, and found again. None: any number.
    """

    def __init__(self, changed: Changed, most: int | None = None) -> None:
        self._changed = changed
        self._most = most
        self._lock = threading.Lock()
        self._digests: set[bytes] = set()

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._digests

    def __len__(self) -> int:
        return len(self._digests)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._digests)

    def learn(self, digests: Iterable[bytes]) -> None:
        """The tier has these."""
        with self._lock:
            new = [digest for digest in digests if digest not in self._digests]
            if self._most is not None and len(self._digests) + len(new) > self._most:
                self._changed([(digest, False) for digest in self._digests])
                self._digests.clear()
            if new:
                self._digests.update(new)
                self._changed([(digest, True) for digest in new])

    def unlearn(self, digests: Iterable[bytes]) -> None:
        """The tier has lost these."""
        with self._lock:
            lost = [digest for digest in digests if digest in self._digests]
            if lost:
                self._digests.difference_update(lost)
                self._changed([(digest, False) for digest in lost])

    def replace(self, digests: set[bytes]) -> None:
        """The tier has these, and no others."""
        with self._lock:
            before, self._digests = self._digests, digests
            changes = [(digest, False) for digest in before - digests] + [(digest, True) for digest in digests - before]
            if changes:
                self._changed(changes)
