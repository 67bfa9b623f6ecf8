"""Which request to admit next: the preempted, then the first in line that need not wait for a prefix on its way.

While one request computes a prefix, later ones in the line that need the same had better wait: then they hit::

    line      [A q1] runs, computes A   [A q2] [A q3] wait for it   [B q1] is next, on a detour (see `detours`)

Knows requests by their tokens; it admits none and knows no blocks. Cost: O(running requests) comparisons for each that
is passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...radix import pack
from ..cache.prefix_cache import PrefixCache
from ..request import Request
from .preempted_line import PreemptedLine
from .waiting_line import Key, Waiting, WaitingLine

MUCH = 0.5  # of its prompt: for so much, or for a block, a request waits while another computes the same


@dataclass(frozen=True, slots=True)
class Candidate:
    """The request to admit next.

    Attributes:
        resume_at: where in the line to go on after that; None: it was preempted, and is in no line.
        passed: those before it, which wait for a prefix that is being computed or read.
    """

    request: Request
    resume_at: Key | None
    passed: list[Waiting]


def next_candidate(
    waiting: WaitingLine,
    preempted: PreemptedLine,
    running: Iterable[Request],
    prefix_cache: PrefixCache,
    is_coming: Callable[[Request], bool],
) -> Candidate | None:
    """None if none waits, or all wait for what is on its way. The line goes on with the first of those that must wait.

    is_coming: whether some of what a request needs is being read from a tier below the pool.
    """
    if preempted:
        return None if is_coming(preempted.first) else Candidate(preempted.first, None, [])
    prefilling = []
    if prefix_cache.enabled:
        prefilling = [
            (other, pack(other.token_ids))
            for other in running
            if other.num_uncomputed_tokens > 1 and not other.num_dropped_tokens
        ]
    passed: list[Waiting] = []
    for entry in waiting.in_order():
        is_computed = any(_waits_for(entry, other, tokens, prefix_cache.block_size) for other, tokens in prefilling)
        if not is_computed and not is_coming(entry.request):
            return Candidate(entry.request, (passed or [entry])[0].key, passed)
        passed.append(entry)
    return None


def _waits_for(entry: Waiting, other: Request, tokens: bytes, block_size: int) -> bool:
    """Whether `other`, which has these packed tokens, is about to compute what a waiting request needs too: enough of
    it to wait for.
    """
    if entry.request.namespace != other.namespace:
        return False
    most = entry.request.num_tokens - 1
    end = other.num_computed_tokens + min(block_size, int(MUCH * most) + 1)
    return end <= min(most, other.num_tokens) and entry.tokens.startswith(tokens[: 4 * end])
