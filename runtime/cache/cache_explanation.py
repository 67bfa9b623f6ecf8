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

from .found_prefix import FoundPrefix

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
SHOWN_TOKENS = 24  # looked at on each side of the divergence …
SHOWN_CHARS = 40  # characters of them that are shown


@dataclass(frozen=True, slots=True)
class CacheExplanation:
    """Where the longest match of a prompt ended when the request was admitted, and why there.

    Attributes:
        reason: "complete": all of the prompt was there (but its last token, which is computed for its logits).
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
    """

    reason: CacheReason
    num_cached_tokens: int
    num_agreeing_tokens: int
    seconds_since_eviction: float | None
    agreed_text: str
    differing_text: str
    state_at: int | None = None

    @property
    def sentence(self) -> str:
        """The same in words."""
        if self.reason == "disabled":
            return "There is no prefix cache."
        if self.reason == "complete":
            return "All of the prompt was cached; its last token is always computed, for what comes next."
        if self.num_cached_tokens == 0 and self.reason in ("never_seen", "evicted", "dropped", "other_namespace"):
            return f"Nothing of it was cached: {self._nothing}."
        more = self.num_agreeing_tokens - self.num_cached_tokens
        state = "no state of the recurrent layers is kept after them"
        if self.state_at is not None:
            state = f"the state of the recurrent layers at token {self.state_at:,} made room for others that save more"
        follows = {
            "never_seen": "what follows was never seen, or too long ago to know",
            "evicted": f"what follows was too, but made room for others {self.seconds_since_eviction or 0.0:.1f} s ago",
            "dropped": "what follows was computed too, but its keys were dropped by a kv_budget",
            "other_namespace": "what follows is cached for others (another salt, key or adapter) and not shared",
            "block_rounding": f"what follows is for {more} tokens, but there was no room to copy their block",
            "no_state": f"what follows is for {more} tokens, but {state}",
            "no_window": f"what follows is for {more} tokens, but keys of the window before them have made room",
        }
        tokens = "token was" if self.num_cached_tokens == 1 else "tokens were"
        return f"The first {self.num_cached_tokens} {tokens} cached; {follows[self.reason]}."

    @property
    def _nothing(self) -> str:
        if self.reason == "evicted":
            return f"it was once, and made room for others {self.seconds_since_eviction or 0.0:.1f} s ago"
        if self.reason == "dropped":
            return "it was computed once, but its keys were dropped by a kv_budget"
        if self.reason == "other_namespace":
            return "others (another salt, key or adapter) have it, and it is not shared"
        return "it was never seen, or too long ago to know"


def explain_to_caller(
    prefix: FoundPrefix | None,
    prompt: Sequence[int],
    num_cached_tokens: int,
    show: Callable[[Sequence[int]], str],
) -> CacheExplanation:
    """prefix: what the cache said of the tokens that might have been reused; None if there is none."""
    reason: CacheReason = "disabled"
    agreeing = num_cached_tokens
    seconds = state_at = None
    if prefix is not None:
        found = prefix.tree
        agreeing = max(agreeing, found.num_agreeing_tokens)
        if num_cached_tokens >= found.num_tokens:
            reason = "complete"
        elif found.num_agreeing_tokens > num_cached_tokens:
            reason = prefix.why_shorter
            if reason == "no_state" and prefix.lost_state > num_cached_tokens:
                state_at = prefix.lost_state
        elif found.reason == "evicted" and found.evicted_at is not None:
            reason = "evicted"
            seconds = round(max(0.0, found.asked_at - found.evicted_at), 3)
        elif prefix.was_dropped:
            reason = "dropped"
        elif found.reason == "other_namespace":
            reason = "other_namespace"
        else:
            reason = "never_seen"
    agreed = show(prompt[max(0, agreeing - SHOWN_TOKENS) : agreeing])
    differing = "" if reason == "complete" else show(prompt[agreeing : agreeing + SHOWN_TOKENS])
    return CacheExplanation(
        reason, num_cached_tokens, agreeing, seconds, agreed[-SHOWN_CHARS:], differing[:SHOWN_CHARS], state_at
    )
