"""What an engine has done, how full it is and what it keeps, read off its parts.

Knows no callers. Cost: O(requests under way), and for the drawn tree O(nodes).
"""

from __future__ import annotations

from ...fsm import Compiler
from ...radix import Visit
from ..cache.cache_report import CacheReport
from ..cache.prefix_cache import PrefixCache
from ..config import EngineConfig
from ..events.facts import EventStatistics
from ..execute.model_runner import ModelRunner
from ..offload.lower_tiers import TierStatistics
from ..sample.sampler import Sampler
from ..schedule.scheduler import Scheduler
from ..tokenizer.tokenizer import Tokenizer
from .chats import Chats
from .statistics import EngineStatistics, KeptBytes, Totals
from .stepper import Stepper
from .tree_state import TreeState, change_mark, tree_state


class Monitor:
    """Reads only, but for `reset`."""

    def __init__(
        self,
        scheduler: Scheduler,
        stepper: Stepper,
        runner: ModelRunner,
        sampler: Sampler,
        prefix_cache: PrefixCache,
        totals: Totals,
        *,
        config: EngineConfig,
        chats: Chats,
        compiler: Compiler,
        tokenizer: Tokenizer,
    ) -> None:
        self._scheduler = scheduler
        self._stepper = stepper
        self._runner = runner
        self._sampler = sampler
        self._prefix_cache = prefix_cache
        self._totals = totals
        self._config = config
        self._chats = chats
        self._compiler = compiler
        self._tokenizer = tokenizer
        self._counted_before: EngineStatistics | None = None

    def statistics(self) -> EngineStatistics:
        """State and counters now. Safe on any thread."""
        counted = self._count()
        return counted if self._counted_before is None else counted.since(self._counted_before)

    def reset(self) -> None:
        """All counters begin at zero, and no traffic has been seen: as if nothing had been asked before."""
        if self._prefix_cache.tiers is not None:
            self._prefix_cache.tiers.settle()
        self._counted_before = self._count()
        self._prefix_cache.traffic.clear()

    def _count(self) -> EngineStatistics:
        """With counters since the engine was made."""
        pool, tree = self._prefix_cache.pool, self._prefix_cache.tree
        num_finished, tokens = self._totals.read()
        num_waiting_tokens, running_adapters, waiting_adapters = self._totals.waiting()
        tiers = self._prefix_cache.tiers
        lower = TierStatistics() if tiers is None else tiers.statistics()
        events = EventStatistics() if self._prefix_cache.events is None else self._prefix_cache.events.statistics()
        return EngineStatistics(
            num_running=len(self._scheduler.running),
            num_waiting=self._scheduler.num_waiting,
            num_blocks=pool.num_blocks,
            block_size=self._config.block_size,
            num_free_blocks=pool.num_free,
            num_cached_blocks=tree.num_cached_blocks,
            num_evictable_blocks=tree.num_evictable_blocks,
            num_pinned_blocks=tree.pins.num_blocks,
            num_steps=self._stepper.num_steps,
            num_ahead=self._stepper.num_ahead,
            num_forwards=self._runner.num_forwards,
            num_computed_tokens=self._runner.num_computed_tokens,
            num_preemptions=self._scheduler.num_preemptions,
            num_pins_given_up=self._scheduler.num_pins_given_up,
            num_finished=num_finished,
            num_recoveries=self._stepper.num_recoveries,
            num_failed=self._stepper.num_failed,
            **tokens,
            num_stored_blocks=lower.num_stored,
            num_loaded_blocks=lower.num_loaded,
            num_unstored_blocks=lower.num_dropped,
            num_tier_faults=lower.num_faults,
            num_evicted_blocks=self._prefix_cache.supply.num_evicted_blocks,
            num_event_batches=events.num_batches,
            num_dropped_event_batches=events.num_dropped,
            tier_bytes=lower.num_bytes,
            num_waiting_tokens=num_waiting_tokens,
            running_adapters=running_adapters,
            waiting_adapters=waiting_adapters,
            drafted_by=dict(self._stepper.draft_counts.drafted),
            jumped_by=dict(self._stepper.draft_counts.right),
            max_running_requests=self._scheduler.max_running_requests,
            draft_model_rests=self._stepper.draft_model_rests,
        )

    def kept_bytes(self) -> KeptBytes:
        """What is remembered besides KV. Safe on any thread."""
        return KeptBytes(
            replies=self._chats.num_bytes,
            traffic=self._prefix_cache.traffic.num_bytes,
            constraints=self._compiler.num_cached_bytes,
            sampling_tables=self._sampler.num_table_bytes,
            prompt_scores=self._prefix_cache.supply.scores.num_bytes,
        )

    def cache_state(self, *, shows_tree: bool = True) -> tuple[CacheReport, list[Visit]]:
        """The cache at this moment, and the recent traffic that `what_if` is about."""
        statistics, tree = self.statistics(), self._prefix_cache.tree
        visits = self._prefix_cache.traffic.visits()
        windows = self._prefix_cache.slots.windows
        report = CacheReport(
            block_size=self._config.block_size,
            eviction_policy=self._config.eviction_policy,
            num_blocks=statistics.num_blocks,
            num_free_blocks=statistics.num_free_blocks,
            num_evictable_blocks=statistics.num_evictable_blocks,
            num_leased_blocks=tree.num_leased_blocks,
            num_pinned_blocks=statistics.num_pinned_blocks,
            num_held_blocks=statistics.num_held_blocks,
            prompt_tokens=statistics.prompt_tokens,
            cached_tokens=statistics.cached_tokens,
            num_evicted_blocks=statistics.num_evicted_blocks,
            num_recorded_requests=len(visits),
            recorded_hit_rate=self._prefix_cache.traffic.hit_rate,
            tree=tree.draw(label=self._label) if shows_tree else None,
            loaded_tokens=statistics.loaded_tokens,
            num_stored_blocks=statistics.num_stored_blocks,
            tier_bytes=statistics.tier_bytes,
            num_slots=0 if windows is None else windows.slots.num_slots,
            num_used_slots=0 if windows is None else windows.slots.num_used,
            num_held_slots=0 if windows is None else windows.slots.num_held,
        )
        return report, visits

    def tree_state(self, most: int) -> TreeState:
        """The tree with at most `most` nodes, and the unfinished requests. For the step thread."""
        return tree_state(self._scheduler, self._prefix_cache.tree, most)

    def change_mark(self) -> tuple[int, ...]:
        """Differs from an earlier one if `tree_state` may be another one now, ages aside. Safe on any thread."""
        num_ended, _ = self._totals.read()
        return change_mark(self._scheduler, self._prefix_cache.tree, self._stepper.num_steps, num_ended)

    def _label(self, token_ids: list[int]) -> str:
        """The beginning of a run, as the drawn tree shows it."""
        return repr(self._tokenizer.show([token_id for token_id in token_ids if token_id >= 0]))
