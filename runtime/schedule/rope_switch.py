"""Sequences that outgrow the frequencies that their keys were turned by (LongRoPE, arXiv 2402.13753).

::

    tokens    0 ............ original context ............ longest
    short     ███████████████│                                       rows [0, switches_at) of the rotary tables
    long      ███████████████│███████████████████████                rows from there on, all positions anew

As in transformers a step takes the frequencies of the sequence's length then, for all its positions: so a request that
has come to one token more than `switches_at` computes its keys again. What it has computed so far stays in the cache
for short ones. Long ones have a namespace of their own (`lengthened`), so that no key is ever a hit for the other kind.
Knows requests; it knows no tables and no blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..models.adapter import lengthened
from ..request import Request


class RopeSwitch:
    """Which frequencies a request begins with. switches_at: as in `Request`."""

    def __init__(self, switches_at: int | None) -> None:
        self._switches_at = switches_at

    def begin(self, request: Request) -> None:
        """Gives a new request the frequencies of its length."""
        request.switches_at = self._switches_at
        lengthen(request)

    def namespace(self, token_ids: Sequence[int], namespace: str) -> str:
        """That of a request with these tokens, whose namespace as the factory writes it is this."""
        is_long = self._switches_at is not None and len(token_ids) > self._switches_at
        return lengthened(namespace) if is_long else namespace


def outgrows(request: Request) -> bool:
    """Whether it has more tokens than its frequencies are for."""
    return request.switches_at is not None and request.num_tokens > request.switches_at


def lengthen(request: Request) -> None:
    """Gives a request that holds no keys the frequencies of long sequences, if it is one."""
    if request.switches_at is not None and request.num_tokens > request.switches_at:
        request.first_row, request.switches_at = request.switches_at, None
        request.namespace = lengthened(request.namespace)


def inherit(request: Request, parent: Request) -> None:
    """Gives a copy of a request what its keys are turned by."""
    request.first_row, request.switches_at, request.namespace = parent.first_row, parent.switches_at, parent.namespace
