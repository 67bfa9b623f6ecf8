"""Why a prompt was not cached further, for the caller that sent it.

The tree knows why its knowledge ends (`radix.explain`); here that becomes an answer about one request: its own
numbers, its own text, and never that of another namespace. What it gives away: whether the caller's namespace holds a
prefix, which `cached_tokens` tells as well, or held it lately. That another namespace has it is looked up for operators
only (`EngineConfig.explain_namespaces`), and even then that namespace is not named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ...radix import Explanation

CacheReason = Literal[
    "complete",
    "block_rounding",
    "evicted",
    "dropped",
    "other_namespace",
    "never_seen",
    "no_state",
    "no_window",
    "disabled",
]
# What may keep a request from tokens that are in the cache, or were, or are computed and not kept.
Loss = Literal["no_state", "no_window", "block_rounding", "evicted", "dropped", "other_namespace"]
SHOWN_TOKENS = 24  # looked at on each side of the divergence …
SHOWN_CHARS = 40  # characters of them that are shown


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


@dataclass(frozen=True, slots=True)
class CacheExplanation:
    """Where the longest match of a prompt ended when the request was admitted, and what most was lost to.

    Attributes:
        reason: what kept most tokens of the prompt from being reused.
            "complete": nothing: all of the prompt was there (but its last token, which is computed for its logits).
            "never_seen": no request has sent these tokens from there on, or longer ago than the record reaches.
            "evicted": they were here, and went `seconds_since_eviction` ago.
            "dropped": a request has said them whose `kv_budget` had dropped keys, and what it computes from then on is
            not kept.
            "other_namespace": they are here, but in a namespace that this request may not read (salt, key).
            "block_rounding": part of the next block agrees, but there was no room to copy it.
            "no_state": keys and values agree further, in the pool or in a tier below it, but recurrent layers need a
            state too, and none is kept after this; `state_at` is where the last one was that has made room.
            "no_window": keys and values agree further, in one or the other, but layers with a window need more of those
            before.
            "disabled": the engine runs without a prefix cache.
        num_cached_tokens: prompt tokens that were not computed.
        num_agreeing_tokens: how far the cache agreed with the prompt; at least `num_cached_tokens`.
        seconds_since_eviction: for "evicted".
        agreed_text: the last characters of the prompt that agreed.
        differing_text: the first that did not; "" if all agreed.
        state_at: for "no_state": after how many tokens the state was that would have served, and has made room for
            states that save more; None: none was kept there, or it went with its block.
        num_lost_tokens: how many tokens the reason kept from being reused, as far as is known; of those that were
            evicted, what requests that are still on record had put there. 0 where nothing is known to be lost.
    """

    reason: CacheReason
    num_cached_tokens: int
    num_agreeing_tokens: int
    seconds_since_eviction: float | None
    agreed_text: str
    differing_text: str
    state_at: int | None = None
    num_lost_tokens: int = 0

    @property
    def sentence(self) -> str:
        """The same in words."""
        if self.reason == "disabled":
            return "There is no prefix cache."
        if self.reason == "complete":
            return "All of the prompt was cached; its last token is always computed, for what comes next."
        some = self.num_cached_tokens
        if self.reason == "never_seen":
            never = "was never seen, or too long ago to know"
            return f"{_first(some)}; what follows {never}." if some else f"Nothing of it was cached: it {never}."
        lost = self.num_lost_tokens
        if self.reason in ("block_rounding", "no_state", "no_window"):  # these tokens are the next ones
            why = self._in_the_way
            if some:
                return f"{_first(some)}; keys and values of the next {_tokens(lost)} are too, but {why}."
            return f"Nothing of it could be reused: keys and values of its first {_tokens(lost)} are cached, but {why}."
        if some:
            return f"{_first(some)}; of what follows {_tokens(lost)} {self._what_became(lost)}."
        return f"Nothing of it was cached: {_tokens(lost)} of it {self._what_became(lost)}."

    @property
    def _in_the_way(self) -> str:
        """What kept a request from tokens that were there."""
        if self.reason == "block_rounding":
            return "there was no free block to copy them into"
        if self.reason == "no_window":
            return "those in layers with a window have made room for others"
        if self.state_at is not None:
            return f"the state of the recurrent layers at token {self.state_at:,} made room for others that save more"
        return "no state of the recurrent layers is kept after them"

    def _what_became(self, lost: int) -> str:
        """Of n tokens that were not there."""
        were, are = ("was", "is") if lost == 1 else ("were", "are")
        if self.reason == "evicted":
            return f"{were} cached once, and made room for others {self.seconds_since_eviction or 0.0:.1f} s ago"
        if self.reason == "dropped":
            return f"{were} computed once, but after a kv_budget had dropped keys, so that they were not kept"
        if self.reason == "other_namespace":
            return f"{are} cached for others (another salt, key or adapter) and not shared"
        raise ValueError(f"no words for the reason {self.reason!r}")


def _tokens(number: int) -> str:
    return "1 token" if number == 1 else f"{number} tokens"


def _first(number: int) -> str:
    return f"The first {_tokens(number)} {'was' if number == 1 else 'were'} cached"


def explain_to_caller(
    prefix: FoundPrefix | None,
    prompt: Sequence[int],
    num_cached_tokens: int,
    show: Callable[[Sequence[int]], str],
) -> CacheExplanation:
    """prefix: what the cache said of the tokens that might have been reused; None if there is none."""
    reason: CacheReason = "disabled"
    agreeing, num_lost = num_cached_tokens, 0
    seconds = state_at = None
    if prefix is not None:
        found = prefix.tree
        agreeing = max(agreeing, found.num_agreeing_tokens)
        losses = prefix.losses(num_cached_tokens)
        largest = max(losses, key=losses.__getitem__)
        if num_cached_tokens >= found.num_tokens:
            reason = "complete"
        elif losses[largest] <= 0:
            reason = "never_seen"
        else:
            reason, num_lost = largest, losses[largest]
        if reason == "evicted" and found.evicted_at is not None:
            seconds = round(max(0.0, found.asked_at - found.evicted_at), 3)
        if reason == "no_state" and prefix.lost_state > num_cached_tokens:
            state_at = prefix.lost_state
    agreed = show(prompt[max(0, agreeing - SHOWN_TOKENS) : agreeing])
    differing = "" if reason == "complete" else show(prompt[agreeing : agreeing + SHOWN_TOKENS])
    return CacheExplanation(
        reason, num_cached_tokens, agreeing, seconds, agreed[-SHOWN_CHARS:], differing[:SHOWN_CHARS], state_at, num_lost
    )
