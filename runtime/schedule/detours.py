"""Detours: requests admitted ahead of the walk's place in the line, whose prefixes are to stay until it gets there.

While one request computes a prefix those that need it wait, and seats that are free meanwhile go to others further on
in the line: *detours*. Their neighbours, which need the same prefix, come only when the walk gets there::

    sorted     [A q1]  [A q2]  [A q3]  [B q1]  [B q2]  [B q3]
                 runs    wait for A      detour   come after the A's: until then B's prefix is to stay

In a pool that holds many prompts it stays by itself. In a small one a detour is worth its while only if there is room
for B's prefix as well as for those that wait for A, one after the other; else B would be computed twice. What it has
left may not be taken by others until then.

Knows requests, and asks which wait and what is cached; it decides nothing. Cost: O(log n) per detour that is not over.
"""

from __future__ import annotations

from collections.abc import Callable

from ..cache.prefix_cache import PrefixCache
from ..request import Phase, Request

MANY = 64  # detours that may be remembered without a look at which of them are over


class Detours:
    """Requests that were admitted ahead of the walk, as long as a request waits for what they have computed.

    Args:
        count_needed: with how many of these packed tokens, in this namespace, a waiting request begins, at most.
    """

    def __init__(self, prefix_cache: PrefixCache, count_needed: Callable[[str, bytes], int]) -> None:
        self._prefix_cache = prefix_cache
        self._count_needed = count_needed
        self._tokens: dict[Request, bytes] = {}
        self._most_blocks = 0

    def __contains__(self, request: Request) -> bool:
        return request in self._tokens

    def add(self, request: Request, tokens: bytes) -> None:
        """A request with these packed tokens has been admitted ahead of the walk."""
        if len(self._tokens) >= MANY:
            self._count_idle_blocks()
        self._tokens[request] = tokens
        self._most_blocks += self._num_blocks(len(tokens) >> 2)

    def fit(self, num_blocks: int) -> bool:
        """Whether `num_blocks` can hold what detours have left in the tree and a request waits for.

        Blocks that several detours share, or that running requests hold too, count more than once.
        """
        return num_blocks >= self._most_blocks or num_blocks >= self._count_idle_blocks()

    def _count_idle_blocks(self) -> int:
        """And forgets the detours that are over."""
        num_idle = self._most_blocks = 0
        for request, tokens in list(self._tokens.items()):
            if request.phase is not Phase.RUNNING:
                needed = tokens[: 4 * self._count_needed(request.namespace, tokens)]
                num_left = self._num_blocks(self._prefix_cache.tree.peek(needed, request.namespace))
                num_idle += num_left
                if not num_left:
                    del self._tokens[request]
                    continue
            self._most_blocks += self._num_blocks(len(tokens) >> 2)
        return num_idle

    def _num_blocks(self, num_tokens: int) -> int:
        return -(-num_tokens // self._prefix_cache.block_size)
