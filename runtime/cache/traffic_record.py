"""What was asked of the cache lately, for the question what another cache would have done with it.

A bounded line of token sequences (packed int32), oldest first: what each request asked for, what it left in the tree,
and how much of what it asked for was cached. Knows no tree. Cost: a copy of the token ids per finished request.
"""

from __future__ import annotations

from collections import deque

from ...radix import Visit, common_prefix, pack
from ..kv_compress.budget import first_compaction
from ..request import Request

MAX_VISITS = 2000
MAX_BYTES = 8 << 20


class TrafficRecord:
    """The last requests that were admitted and have ended: at most `max_visits`, of `max_bytes` of tokens together."""

    def __init__(self, max_visits: int = MAX_VISITS, max_bytes: int = MAX_BYTES) -> None:
        self._max_visits = max_visits
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._visits: deque[tuple[Visit, int, int]] = deque()  # its cached tokens, and how many went into the tree

    @property
    def num_bytes(self) -> int:
        """Memory of the token sequences; at most `max_bytes`."""
        return self._num_bytes

    def __len__(self) -> int:
        return len(self._visits)

    def add(self, request: Request) -> None:
        """Puts down a request that ended. Of its last token, if it was generated, no KV was computed."""
        token_ids = request.token_ids[:-1] if request.num_output_tokens else request.token_ids
        visit = Visit(request.namespace, pack(token_ids), request.num_prompt_tokens)
        compacted_at = first_compaction(request)  # of the tokens from there on it has kept nothing in the tree
        num_entered = len(token_ids) if compacted_at is None else min(compacted_at, len(token_ids))
        self._visits.append((visit, request.usage.cached_tokens, num_entered))
        self._num_bytes += len(visit.tokens)
        while len(self._visits) > self._max_visits or self._num_bytes > self._max_bytes:
            self._num_bytes -= len(self._visits.popleft()[0].tokens)

    def clear(self) -> None:
        """Forgets everything."""
        self._visits.clear()
        self._num_bytes = 0

    def visits(self) -> list[Visit]:
        """A copy, oldest first."""
        return [visit for visit, *_ in self._visits]

    def num_agreeing(self, tokens: bytes, namespace: str) -> int:
        """How many of these packed tokens one of the requests has put into the tree. O(requests on record)."""
        return max(
            (
                min(num_entered, common_prefix(visit.tokens, tokens) // 4)
                for visit, _, num_entered in self._visits
                if visit.namespace == namespace
            ),
            default=0,
        )

    @property
    def hit_rate(self) -> float:
        """Share of the prompts' tokens that came from the cache."""
        num_asked = sum(visit.num_asked_tokens for visit, *_ in self._visits)
        return sum(num_cached for _, num_cached, _ in self._visits) / num_asked if num_asked else 0.0
