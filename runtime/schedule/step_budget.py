"""How many tokens a step may compute, and how many of prompts, so that requests which decode do not wait long.

::

    max_batch_tokens     ├───────────────────────────────────────┤   nothing decodes: prompts may take all of it
    target_step_seconds  ├ decode ┼ prompts ┤                        else they take what the target leaves, or as long
                                                                     as decoding takes, if that is more

So a step takes at most as long as the target or twice as long as one that only decodes, whichever is more, as far as
the costs that were measured hold (`prefill_cost`); and where decoding alone takes longer than the target, prompts still
get half of the time. A step computes at least one block of the oldest unfinished prompt. Prompts are computed oldest
first: after one that was not computed to its end, no other gets a token in the same step. Chunks never change what is
said.

Knows the extends of one step, and measures no time itself.
"""

from __future__ import annotations

import math

from ..execute.batch import Extend
from ..execute.prefill_cost import PrefillCost
from ..request import Request


class StepBudget:
    """What is left of a step that is being planned.

    Args:
        max_tokens: of the step.
        cost: of prompts.
        target_seconds: of the step, if a request decodes in it; inf if none does.
        block_size: the least number of tokens of a prompt in a step.
    """

    def __init__(self, max_tokens: int, cost: PrefillCost, target_seconds: float, block_size: int) -> None:
        self._num_tokens = max_tokens
        self._cost = cost
        self._seconds = max(target_seconds - cost.decode_seconds, cost.decode_seconds)
        self._least = block_size

    @property
    def is_open(self) -> bool:
        """Whether a prompt may be computed in what is left; `room` says how much of it, if any."""
        return self._num_tokens > 0 and self._seconds > 0.0

    def room(self, request: Request, start: int) -> int:
        """How many tokens of a request may be computed from position `start` on.

        Side effect: if a prompt finds no room, there is none for any other prompt.
        """
        wanted = min(self._num_tokens, request.num_tokens - start)
        if wanted <= 1 or math.isinf(self._seconds):
            return self._num_tokens
        num_tokens = max(self._cost.num_tokens(start, self._seconds, wanted), self._least)
        if num_tokens == 0:
            self._seconds = 0.0
        return self._num_tokens if num_tokens >= wanted else num_tokens  # with room for a draft

    def take(self, extend: Extend) -> None:
        """Counts what has been planned. After a prompt that is not computed to its end there is no time for another."""
        self._num_tokens -= extend.end - extend.start
        end = extend.start + extend.num_tokens
        if end < extend.request.num_tokens and not math.isinf(self._seconds):
            self._seconds = 0.0
            self._least = 0
        elif extend.num_tokens > 1:
            self._seconds -= self._cost.seconds(extend.start, end)
            self._least = 0
