"""What the cache knows of a prompt when its request is admitted; `cache_explanation` says it in the caller's words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...radix import Explanation

# What may keep a request from tokens that are in the cache, or were, or are computed and not kept.
Loss = Literal["no_state", "no_window", "block_rounding", "evicted", "dropped", "other_namespace"]


@dataclass(frozen=True, slots=True)
class FoundPrefix:
    """Where the longest match of a prompt ends, and what is lost of it, in tokens by cause.

    Attributes:
        tree: what the tree says.
        num_resumable_tokens: after how many tokens a request can go on; with keys alone that is where they agree.
        needs: what it would need to go on later.
        lost_state: the number of tokens after which the last state on the match was that has made room; 0: none has.
        num_evicted_tokens: after the match, that were in the cache once: as far as requests on record have put them
            there, or else the rest of a block.
        num_dropped_tokens: after the match, that a request has computed which had dropped keys (`kv_budget`).
    """

    tree: Explanation
    num_resumable_tokens: int
    needs: Literal["no_state", "no_window"] | None = None
    lost_state: int = 0
    num_evicted_tokens: int = 0
    num_dropped_tokens: int = 0

    def losses(self, num_cached_tokens: int) -> dict[Loss, int]:
        """Tokens by cause, of a request that had this many from the cache."""
        found = self.tree
        resumable = self.num_resumable_tokens
        losses: dict[Loss, int] = {"block_rounding": resumable - num_cached_tokens}
        if self.needs is not None:
            losses[self.needs] = found.num_agreeing_tokens - max(resumable, num_cached_tokens)
        beyond = max(0, num_cached_tokens - found.num_agreeing_tokens)  # copied from a request that runs
        losses["evicted"] = self.num_evicted_tokens - beyond
        losses["dropped"] = self.num_dropped_tokens - beyond
        losses["other_namespace"] = found.num_tokens_elsewhere - found.num_agreeing_tokens - beyond
        return losses
