"""What computing prompts takes, measured while the engine runs: seconds per floating-point operation.

A step takes about ::

    decode + operations x seconds_per_operation      decode: what a step takes that only decodes

where the operations are those of the chunks of prompts in it (`recompute_cost`: they grow with what is before a chunk).
Both factors are averages that forget. A step that takes long may have waited for something else, and one with few
tokens takes long for each of them; a short one is as fast as it looks. So what is new counts less if it is slower, and
a step with few tokens cannot make a prompt look slower at all.

Knows no requests. Read by several threads, a number at a time; written by the one that steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..moving_average import moved

SLOWER, FASTER = 0.2, 0.7  # of an average that forgets, with each measurement
LONGEST = 2.0  # times what was expected: what a longer measurement is taken for
FEWEST_TOKENS = 32  # of prompts in a step that can make them look slower
LEAST_SHARE = 0.1  # minimum share of a mixed step's time that is attributed to prefill

Extent = tuple[int, int]  # tokens [start, end) of a request


class PrefillCost:
    """Running averages.

    Args:
        block_cost: floating-point operations of the block that ends at a token; must not fall with the position.

    Attributes:
        seconds_per_operation: of computing prompts; None: not measured yet.
        decode_seconds: of a step that only decodes; 0: not measured yet.
    """

    def __init__(self, block_cost: Callable[[int], float], block_size: int) -> None:
        self._block_cost = block_cost
        self._block_size = block_size
        self.seconds_per_operation: float | None = None
        self.decode_seconds = 0.0

    def observe_step(self, prompts: Sequence[Extent], num_decoding: int, seconds: float) -> None:
        """Records that a step which computed these chunks and decoded `num_decoding` requests took `seconds`."""
        if seconds <= 0.0:
            return
        if not prompts:
            self.decode_seconds = _measured(self.decode_seconds or None, seconds)
            return
        if num_decoding:
            seconds = max(seconds - self.decode_seconds, LEAST_SHARE * seconds)
        measured = seconds / max(sum(self.operations(*extent) for extent in prompts), 1.0)
        old = self.seconds_per_operation
        is_telling = sum(end - start for start, end in prompts) >= FEWEST_TOKENS
        if old is None or measured < old or is_telling:
            self.seconds_per_operation = _measured(old, measured)

    def operations(self, start: int, end: int) -> float:
        """Floating-point operations of tokens `[start, end)` of a prompt."""
        return (end - start) / self._block_size * self._block_cost(max(1, (start + end) // 2))

    def seconds(self, start: int, end: int) -> float:
        """What computing tokens `[start, end)` of a prompt takes; 0 if nothing is known."""
        return self.operations(start, end) * (self.seconds_per_operation or 0.0)

    def num_tokens(self, start: int, seconds: float, most: int) -> int:
        """How many tokens of a prompt from `start` on can be computed in `seconds`, at most; whole blocks.

        `most` if nothing is known.
        """
        if self.seconds(start, start + most) <= seconds:
            return most
        fits, too_many = 0, -(-most // self._block_size)  # blocks
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            if self.seconds(start, start + middle * self._block_size) <= seconds:
                fits = middle
            else:
                too_many = middle
        return fits * self._block_size


def _measured(old: float | None, new: float) -> float:
    """The average with one measurement more."""
    is_slower = old is not None and new > old
    return moved(old, new if old is None else min(new, LONGEST * old), SLOWER if is_slower else FASTER)
