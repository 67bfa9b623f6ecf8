"""What the cache knows of a prompt when its request is admitted; `cache_explanation` says it in the caller's words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...radix import Explanation

WhyShorter = Literal["block_rounding", "no_state", "no_window"]


@dataclass(frozen=True, slots=True)
class FoundPrefix:
    """Where the longest match of a prompt ends, and what ended it.

    Attributes:
        tree: what the tree says.
        why_shorter: why a request may go on from before the end of that, with this model.
        lost_state: the number of tokens after which the last state on the match was that has made room; 0: none has.
        was_dropped: what follows the match a request has said that had dropped keys (`kv_budget`).
    """

    tree: Explanation
    why_shorter: WhyShorter = "block_rounding"
    lost_state: int = 0
    was_dropped: bool = False
