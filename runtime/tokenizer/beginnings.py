"""Beginnings: whether a text is the beginning of one of some texts, without all of these beginnings in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable


class Beginnings:
    """The proper prefixes of some texts, which `in` looks for.

    Attributes:
        longest: characters of the longest.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._ordered = sorted(texts)
        self.longest = max(map(len, self._ordered), default=1) - 1

    def __contains__(self, text: str) -> bool:
        at = bisect_right(self._ordered, text)  # what goes on after it stands right after it
        return at < len(self._ordered) and self._ordered[at].startswith(text)
