"""Texts of requests that had dropped keys (`kv_budget`): a prompt that repeats one is told why no more is cached.

What such a request computes after it has first dropped keys does not go into the tree, for each of its tokens has seen
fewer keys than the tokens before it. Of the latest of these requests the tokens are kept here.

Knows tokens; it knows no blocks. Cost: a copy of the tokens for each request that dropped keys, at most `MOST_BYTES`.
"""

from __future__ import annotations

from collections import OrderedDict

from ...radix import common_prefix, pack
from ..kv_compress.budget import first_compaction
from ..request import Request

MOST_BYTES = 1 << 20


class DroppedTexts:
    """The latest, each in its namespace, of at most `most_bytes` of tokens together."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        # by id and index of the request: namespace, tokens, how many of these it had computed when keys were dropped
        self._texts: OrderedDict[tuple[str, int], tuple[str, bytes, int]] = OrderedDict()
        self._num_bytes = 0

    def add(self, request: Request) -> None:
        """Takes note of what a request that has dropped keys has computed so far."""
        key, tokens = (request.request_id, request.index), pack(request.token_ids[: request.num_computed_tokens])
        _, before, _ = self._texts.pop(key, ("", b"", 0))
        self._texts[key] = request.namespace, tokens, first_compaction(request) or 0
        self._num_bytes += len(tokens) - len(before)
        while self._num_bytes > self._most_bytes:
            _, (_, oldest, _) = self._texts.popitem(last=False)
            self._num_bytes -= len(oldest)

    def num_lost(self, tokens: bytes, namespace: str, num_tokens: int) -> int:
        """How many of these packed tokens after the first `num_tokens` one of the requests has computed after it had
        dropped keys, so that they were not kept. O(bytes)."""
        lost = (
            common_prefix(text, tokens) // 4 - max(num_tokens, first)
            for own, text, first in self._texts.values()
            if own == namespace
        )
        return max(0, max(lost, default=0))
