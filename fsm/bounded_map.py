"""BoundedMap: a dictionary of what is found again when it is needed, and does not grow beyond a number of entries.

When it is full, a new entry takes the place of all: what is in use comes back soon, and what is not is gone, at no cost
for the entries that are read. Threads may read and keep at once; then it may have as many entries more.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedMap(dict[Key, Value]):
    """At most `max_kept` entries, one at least. Put in with `keep` alone."""

    __slots__ = ("_max_kept",)

    def __init__(self, max_kept: int) -> None:
        super().__init__()
        self._max_kept = max_kept

    def keep(self, key: Key, value: Value) -> Value:
        """Puts an entry in; returns its value."""
        if len(self) >= self._max_kept:
            self.clear()
        self[key] = value
        return value
