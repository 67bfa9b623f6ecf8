"""Which requests can be admitted without running out of blocks later: a forecast of the blocks that all will need.

A request grows by a token a step until it ends, and then gives back what no other holds. How long it will be is
often not known, only `max_tokens`; so the forecast learns, from the requests that have finished, which share of it is
really used. It begins with the belief that budgets are used up (as far as they are not meant as "no limit"), which
every request that ends outweighs a little more. With those lengths the future of the pool is a sum: sort by remaining
tokens, walk from one end to the next, and see how many blocks those still running hold at that moment.

::

    blocks │        ╱│                      demand rises while requests grow,
           │    ╱│╱  │   ╱│                 falls where one ends;
           │ ╱╱  │   │╱╱  │                 admitted if the peak stays
           └─────┴───┴────┴──► steps        within what is free or can be evicted

The idea of admitting by the forecast peak is that of LightLLM's past-future scheduler (arXiv 2507.10150). A forecast
may be wrong: then a request is preempted, and the forecast gets more cautious until requests end without that again.

Knows lengths and block counts; it knows no tree and no tokens. Cost: O(running requests) per admission.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

WINDOW = 256  # finished requests that the forecast remembers
BELIEF = 4  # finished requests that the belief it began with weighs as much as
LIKELY_MOST = 1024  # a budget beyond this is believed to mean "no limit"
CAUTION_STEP = 0.25  # how much more of the rest is reckoned with after a preemption …
CAUTION_DECAY = 0.98  # … and what is left of that after a request that ended


class OutputForecast:
    """How many tokens a request will still generate, learned from those that have finished.

    Attributes:
        caution: 0 to 1: which part of the difference between the forecast and the worst case is added to it.
    """

    def __init__(self) -> None:
        self.caution = 0.0
        self._recent: deque[float] = deque()
        self._ordered: list[float] = []
        self._sums: list[float] | None = None

    def observe(self, num_tokens: int, max_tokens: int) -> None:
        """A request ended after `num_tokens` of at most `max_tokens`, which is above 0."""
        share = num_tokens / max_tokens
        insort(self._ordered, share)
        self._recent.append(share)
        if len(self._recent) > WINDOW:
            self._ordered.pop(bisect_right(self._ordered, self._recent.popleft()) - 1)
        self._sums = None
        self.caution *= CAUTION_DECAY

    def was_wrong(self) -> None:
        """A request had to be preempted."""
        self.caution = min(1.0, self.caution + CAUTION_STEP)

    def remaining(self, num_tokens: int, max_tokens: int) -> int:
        """Tokens still expected after `num_tokens`; at most what is left of `max_tokens`.

        The mean of those that came further than this one and of `BELIEF` more that used their budget, or `LIKELY_MOST`
        tokens of it; half of the rest for a request that has passed that.
        """
        left = max_tokens - num_tokens
        if left <= 0:
            return 0
        if self._sums is None:
            self._sums = [0.0, *accumulate(self._ordered)]
        share = num_tokens / max_tokens
        shorter = bisect_right(self._ordered, share)
        longer = len(self._ordered) - shorter
        believed = max(min(1.0, LIKELY_MOST / max_tokens), (1.0 + share) / 2)
        mean = (self._sums[-1] - self._sums[shorter] + BELIEF * believed) / (longer + BELIEF)
        expected = max(1.0, mean * max_tokens - num_tokens)
        return min(left, round(expected + self.caution * (left - expected)))


@dataclass(frozen=True, slots=True, order=True)
class Outlook:
    """What one request will do to the pool.

    Attributes:
        remaining: tokens that it will still generate.
        missing: known tokens for which it has no block yet, less room that is left in its last block: may be
            negative.
        returned: blocks that it holds now and no other request does: free or evictable when it ends.
        grows: False: what is missing is all that it will ever need.
        own: blocks that it will have in the end and does not share now; of one that has dropped no keys.
    """

    remaining: int
    missing: int
    returned: int
    grows: bool = True
    own: int = 0


def peak_demand(outlooks: Iterable[Outlook], block_size: int) -> int:
    """Blocks that will be needed beyond those held now, at the worst moment, if all grow by a token a step.

    Between two ends demand only rises, so the worst moment is just before one. The last token of a request is never
    computed, so it needs no room.
    """
    ordered = sorted(outlooks)
    blocks = [divmod(outlook.missing + block_size - 1, block_size) for outlook in ordered]
    num_by_fill = [0] * block_size  # of those alive, by how far their last block is filled, from its first token on
    for outlook, (_, fill) in zip(ordered, blocks, strict=True):
        num_by_fill[fill] += outlook.grows
    growing = sum(outlook.grows for outlook in ordered)
    missing = sum(whole for whole, _ in blocks)
    returned = peak = 0
    for outlook, (whole, fill) in zip(ordered, blocks, strict=True):
        grown, rest = divmod(max(outlook.remaining - 1, 0), block_size)
        peak = max(peak, missing + growing * grown + sum(num_by_fill[block_size - rest :]) - returned)
        growing -= outlook.grows
        missing -= whole
        num_by_fill[fill] -= outlook.grows
        returned += outlook.returned
    return peak
