"""What an engine has done and how full it is: plain numbers, and the sums behind them."""

from __future__ import annotations

from dataclasses import dataclass, field

from .request import Usage


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """State of queue and pool now, and counters since start; token counts cover finished requests.

    `num_ahead` of the `num_steps` had their forward queued before the step before was read. `loaded_tokens` of the
    `cached_tokens` were read from a tier below the pool. What became of blocks there: copied to it, read back, not
    copied since too many waited; failures; what host memory and the folder on disk hold (`TierStatistics`).
    """

    num_running: int
    num_waiting: int
    num_blocks: int
    num_free_blocks: int
    num_cached_blocks: int
    num_evictable_blocks: int
    num_pinned_blocks: int
    num_steps: int
    num_ahead: int
    num_forwards: int
    num_computed_tokens: int
    num_preemptions: int
    num_pins_given_up: int
    num_finished: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    drafted_tokens: int
    jumped_tokens: int
    loaded_tokens: int = 0
    num_stored_blocks: int = 0
    num_loaded_blocks: int = 0
    num_unstored_blocks: int = 0
    num_tier_faults: int = 0
    host_bytes: int = 0
    disk_bytes: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that came from the cache."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def num_held_blocks(self) -> int:
        """Blocks that running requests own, outside the tree."""
        return self.num_blocks - self.num_free_blocks - self.num_cached_blocks


@dataclass(frozen=True, slots=True)
class KeptBytes:
    """What an engine remembers between requests besides KV, in bytes. Each has a bound at which the oldest goes.

    Attributes:
        replies: token ids of replies, for chats (`EngineConfig.reply_memory_bytes`).
        renderings: texts of chats as the template wrote them (16 MiB).
        traffic: token ids of recent requests, for the what-if of `cache_report` (8 MiB, 2,000 requests).
        constraints: compiled constraints and their mask rows (the compiler's bounds).
        sampling_tables: mask rows on the device (64 MiB), and a row for each running request that edits its logits.
        prompt_scores: log-probabilities of cached prompts (4 bytes per token of the pool), alternatives (16 MiB).
    """

    replies: int
    renderings: int
    traffic: int
    constraints: int
    sampling_tables: int
    prompt_scores: int

    @property
    def total(self) -> int:
        remembered = self.replies + self.renderings + self.traffic + self.constraints
        return remembered + self.sampling_tables + self.prompt_scores


@dataclass(slots=True)
class Totals:
    """Usage summed over finished requests."""

    num_finished: int = 0
    usage: Usage = field(default_factory=Usage)

    def add(self, usage: Usage) -> None:
        self.num_finished += 1
        self.usage.prompt_tokens += usage.prompt_tokens
        self.usage.cached_tokens += usage.cached_tokens
        self.usage.loaded_tokens += usage.loaded_tokens
        self.usage.completion_tokens += usage.completion_tokens
        self.usage.drafted_tokens += usage.drafted_tokens
        self.usage.jumped_tokens += usage.jumped_tokens
