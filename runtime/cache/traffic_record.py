"""What was asked of the cache lately, for the question what another cache would have done with it.

A bounded line of token sequences (packed int32), oldest first: what each request asked for, what it left in the tree,
and how much of what it asked for was cached. Knows no tree. Cost: a copy of the token ids per finished request.
"""

from __future__ import annotations

from collections import deque

from ...radix import Visit, pack
from ..request import Request

MAX_VISITS = 2000
MAX_BYTES = 8 << 20


class TrafficRecord:
    """The last requests that were admitted and have ended: at most `max_visits`, of `max_bytes` of tokens together."""

    def __init__(self, max_visits: int = MAX_VISITS, max_bytes: int = MAX_BYTES) -> None:
        self._max_visits = max_visits
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._visits: deque[tuple[Visit, int]] = deque()  # and its cached tokens

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
        self._visits.append((visit, request.usage.cached_tokens))
        self._num_bytes += len(visit.tokens)
        while len(self._visits) > self._max_visits or self._num_bytes > self._max_bytes:
            self._num_bytes -= len(self._visits.popleft()[0].tokens)

    def clear(self) -> None:
        """Forgets everything."""
        self._visits.clear()
        self._num_bytes = 0

    def visits(self) -> list[Visit]:
        """A copy, oldest first."""
        return [visit for visit, _ in self._visits]

    @property
    def hit_rate(self) -> float:
        """Share of the prompts' tokens that came from the cache."""
        num_asked = sum(visit.num_asked_tokens for visit, _ in self._visits)
        return sum(num_cached for _, num_cached in self._visits) / num_asked if num_asked else 0.0
