"""Unfinished: computations that were begun and wait until more work is allowed (`Automaton.allow`)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

MAX_KEPT = 64

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Unfinished(Generic[Key, Value]):
    """The latest of them, by what they compute. To go on with one, take it out; one that was dropped begins again."""

    __slots__ = ("_kept", "_max_kept")

    def __init__(self, max_kept: int = MAX_KEPT) -> None:
        self._kept: dict[Key, Value] = {}
        self._max_kept = max_kept

    def put(self, key: Key, value: Value) -> None:
        """Keeps a computation; the oldest is dropped if there are too many."""
        while len(self._kept) >= self._max_kept:
            self._kept.pop(next(iter(list(self._kept)), key), None)
        self._kept[key] = value

    def take(self, key: Key) -> Value | None:
        """Removes and returns a computation; None if it has to begin."""
        return self._kept.pop(key, None) if self._kept else None

    def values(self) -> list[Value]:
        """All of it."""
        return list(self._kept.values())

    def clear(self) -> None:
        """Drops all."""
        self._kept.clear()

    def __contains__(self, key: Key) -> bool:
        return key in self._kept
