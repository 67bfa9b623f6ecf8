"""Texts whose keys a `kv_budget` has dropped, so that a prompt that repeats one can be told why nothing was cached.

What such a request computes after it has first dropped keys does not go into the tree, for each of its tokens has seen
fewer keys than the tokens before it. Of the latest of these requests the tokens are kept here.

Knows tokens; it knows no blocks. Cost: a copy of the tokens for each request that dropped keys, at most `MOST_BYTES`.
"""

from __future__ import annotations

from collections import OrderedDict

from ..request import Request

MOST_BYTES = 1 << 20


class DroppedTexts:
    """The latest, each in its namespace."""

    def __init__(self) -> None:
        self._texts: OrderedDict[tuple[str, int], tuple[str, bytes]] = OrderedDict()  # by id and index of the request
        self._num_bytes = 0

    def add(self, request: Request) -> None:
        """Takes note of what a request that has dropped keys has said so far."""
        key, tokens = (request.request_id, request.index), request.token_ids.tobytes()
        _, before = self._texts.pop(key, ("", b""))
        self._texts[key] = request.namespace, tokens
        self._num_bytes += len(tokens) - len(before)
        while self._num_bytes > MOST_BYTES:
            _, (_, oldest) = self._texts.popitem(last=False)
            self._num_bytes -= len(oldest)

    def agrees(self, tokens: bytes, namespace: str, num_tokens: int) -> bool:
        """Whether one of them agrees with int32 tokens in more than the first `num_tokens`."""
        end = 4 * (num_tokens + 1)
        beginning = tokens[:end]
        texts = (text for own, text in self._texts.values() if own == namespace)
        return len(beginning) == end and any(text.startswith(beginning) for text in texts)
