"""Requests that were preempted and wait to go on: the oldest first, and before all that were not admitted yet.

Knows requests by ticket and by the tokens that they had; it knows no cache and no blocks.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator

from ...radix import common_prefix, pack
from ..request import Request


class PreemptedLine:
    """The requests that have been preempted, or found no room next to the one they were forked from."""

    __slots__ = ("_ordered", "_tokens")

    def __init__(self) -> None:
        self._ordered: list[Request] = []  # by ticket
        self._tokens: dict[int, bytes] = {}  # packed, by ticket: they do not change while a request waits

    def __len__(self) -> int:
        return len(self._ordered)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._ordered)

    @property
    def first(self) -> Request:
        """The oldest; there must be one."""
        return self._ordered[0]

    def add(self, request: Request) -> None:
        """Puts a request where its ticket belongs."""
        insort(self._ordered, request, key=lambda other: other.ticket)
        self._tokens[request.ticket] = pack(request.token_ids)

    def remove(self, request: Request) -> None:
        """Takes a request out: it goes on, or has ended."""
        self._ordered.remove(request)
        del self._tokens[request.ticket]

    def count_needed(self, namespace: str, tokens: bytes) -> int:
        """With how many of these packed tokens a request that waits here begins, at most. O(requests)."""
        same = (self._tokens[one.ticket] for one in self._ordered if one.namespace == namespace)
        return max((common_prefix(tokens, other) >> 2 for other in same), default=0)
