"""The pool's blocks as a supply: free ones first, then those that the tree evicts; and what goes where a block goes.

Log-probabilities, the KV of a draft model and of layers with a window, states of recurrent layers and what followers
know are kept by block id: they are copied, merged and forgotten here, together with the block.

Knows blocks and the tree; it knows no request. Cost: O(blocks) per call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from ...radix import BlockPool, RadixTree, unpack
from ..execute.draft_kv import DraftKV
from ..execute.kv_cache import KVCache
from ..request import Lease
from .followers import Followers
from .lower_parts import LowerParts
from .prompt_scores import PromptScores
from .slot import NO_SLOT
from .slot_books import SlotBooks

logger = logging.getLogger("phloem")


class BlockSupply:
    """Blocks of a pool, some of them in a tree that gives up what no request holds.

    Args:
        make_tree: a tree without blocks; called again when a tree is not sound after a fault.

    Attributes:
        scores: log-probabilities of prompts.
        parts: what goes to the tiers with blocks, and comes back; None: nothing.
    """

    def __init__(
        self,
        pool: BlockPool,
        *,
        make_tree: Callable[[], RadixTree],
        kv_cache: KVCache,
        followers: Followers | None,
        slots: SlotBooks,
        draft_kv: DraftKV | None,
        parts: LowerParts | None,
    ) -> None:
        self.pool = pool
        self.tree = make_tree()
        self.scores = PromptScores(pool.num_blocks, pool.block_size)
        self._make_tree = make_tree
        self._num_evicted_before = 0  # by trees that were given up
        self._kv_cache = kv_cache
        self._followers = followers
        self._states = slots.states
        self._windows = slots.windows
        self._window_kv = slots.window_kv
        self._draft_kv = draft_kv
        self.parts = parts
        self._count_needed: Callable[[str, bytes], int] | None = None

    def spare_what(self, count_needed: Callable[[str, bytes], int]) -> None:
        """From now on evictions spare the first `count_needed(namespace, packed tokens)` tokens of a prefix."""
        self._count_needed = count_needed

    @property
    def num_available_blocks(self) -> int:
        """Blocks that are free or could be evicted now."""
        return self.pool.num_free + self.tree.num_evictable_blocks

    @property
    def num_evicted_blocks(self) -> int:
        """Blocks evicted so far, by trees that were given up after a fault too."""
        return self._num_evicted_before + self.tree.statistics.num_evicted_blocks

    def allocate(self, num_blocks: int) -> list[int] | None:
        """Takes n blocks, evicting if it must; None if they cannot be had."""
        short = num_blocks - self.pool.num_free
        if short > 0:
            if short > self.tree.num_evictable_blocks:
                return None
            evicted = self.tree.evict(short, spare=self._count_needed)
            if self._followers is not None:
                self._followers.leaving(evicted)
            if self.parts is not None:
                self.parts.evicted(evicted)
            self.free(evicted)
        blocks = self.pool.allocate(num_blocks)
        self.scores.forget(blocks)
        if self._draft_kv is not None:
            self._draft_kv.forget(blocks)
        if self._followers is not None:
            self._followers.forget(blocks)
        return blocks

    def free(self, blocks: Sequence[int]) -> None:
        """Gives back blocks that are neither in the tree nor any request's."""
        self.pool.free(blocks)
        if self._states is not None:
            self._states.slots.forget(blocks)
        if self._windows is not None:
            self._windows.slots.forget(blocks)
        if self.parts is not None:
            self.parts.forget(blocks)

    def parts_entered(self) -> None:
        """What was kept of blocks that are in the tree now may go to tiers."""
        if self.parts is not None:
            self.parts.entered()

    def slot_of(self, block: int) -> int:
        """Where layers with a window have a block; -1: nowhere."""
        return NO_SLOT if self._windows is None else int(self._windows.slots.slot_of[block])

    def copy(self, source: int, target: int, num_tokens: int, *, slot: int = NO_SLOT) -> None:
        """Copies the first tokens of a block, with all that is known of them.

        slot: where layers with a window have the source, if `target` has a slot too.
        """
        self._kv_cache.copy_block(source, target)
        if self._window_kv is not None and self.slot_of(target) != NO_SLOT:
            self._window_kv.copy_block(slot, self.slot_of(target))
        self.scores.copy(source, target, num_tokens)
        if self._draft_kv is not None:
            self._draft_kv.copy(source, target, num_tokens)

    def merge(self, blocks: Sequence[int], kept: Sequence[int], num_tokens: int) -> None:
        """The tree holds the `num_tokens` tokens of `blocks` in `kept` (-1: not at all), which learn what is known."""
        for index, (source, target) in enumerate(zip(blocks, kept, strict=False)):
            if source != target and target >= 0:
                if self._states is not None:
                    self._states.slots.merge(source, target)
                self.scores.merge(source, target, min(self.pool.block_size, num_tokens - index * self.pool.block_size))

    def merge_slots(self, blocks: Sequence[int], lease: Lease | None) -> None:
        """The blocks of a lease, which are filled as `blocks` are, take the slots that those have and they do not."""
        if self._windows is not None and lease is not None:
            for source, target in zip(blocks, unpack(self.tree.packed_blocks(lease.node)), strict=False):
                self._windows.slots.merge(source, target)

    def adopt(self, namespace: str, tokens: bytes, first: int, rows: Tensor | None, parts: Mapping[int, Tensor]) -> int:
        """Puts KV into the tree that was read from a tier; returns how many blocks. Evicts for it if it must.

        Args:
            tokens: packed, whole blocks from the root on.
            first: index of the block that the first of `rows` is. If the tree has lost what is before it: nothing.
            rows: None: the tree had all blocks. parts: by the index of their block, what else was read.
        """
        assert self._followers is not None
        block_size = self.pool.block_size
        match = self.tree.match(tokens, namespace)
        start = match.num_tokens // block_size
        if start < first:
            return 0
        above = match.blocks
        self.tree.lease(match.node)
        wanted = len(tokens) // (4 * block_size) - start
        blocks = self.allocate(min(wanted, self.num_available_blocks)) or []
        if rows is not None:
            self._kv_cache.write_blocks(blocks, rows[start - first : start - first + len(blocks)])
        if self._draft_kv is not None:
            self._draft_kv.lose(blocks)
        rest = tokens[4 * match.num_tokens : 4 * (match.num_tokens + len(blocks) * block_size)]
        self._followers.entered(blocks, rest, namespace, above[-1] if above else None, is_loaded=True)
        if blocks:
            self.tree.insert(rest, blocks, namespace, after=match.node)
        if self.parts is not None:
            self.parts.adopt([*above, *blocks], parts)
        self.tree.release(match.node)
        return len(blocks)

    def flush(self, *, pinned: bool) -> int:
        """Evicts everything that no request holds, `pinned` or not; returns the number of blocks freed."""
        freed = self.tree.clear() if pinned else self.tree.evict(self.tree.num_cached_blocks)
        self.free(freed)
        if self._followers is not None:
            self._followers.flushed(freed)
        return len(freed)

    def reclaim(self) -> int:
        """After a fault: no lease is left except those of pins, and a block that is not in the tree is free.

        A tree that is not sound is given up, with its pins; returns how many pins that were. O(pool).
        """
        num_lost_pins = 0
        try:
            self.tree.end_leases()
            self.tree.audit()
        except Exception:
            logger.exception("the prefix cache was left in disorder, and begins anew")
            self._num_evicted_before = self.num_evicted_blocks
            num_lost_pins = len(self.tree.pins)
            self.tree = self._make_tree()
        kept = self.tree.blocks()
        if self._followers is not None:
            self._followers.remain(kept)
        self.pool.free_all_but(kept)
        if self._states is not None:
            self._states.reclaim(kept)
        if self._windows is not None:
            self._windows.reclaim(kept)
        return num_lost_pins
