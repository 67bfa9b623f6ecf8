"""Tree and pool joined into leases: which blocks a request may read, and which it may write.

Knows requests (their token ranges and blocks) and the radix tree; it knows no model. KV is copied in four cases only: a
partly matching block on admission (copy-on-write), what a fork does not share, what a request with a `kv_budget` keeps,
and what tiers bring. A duplicate block is exchanged for the tree's own by its id.
It notifies `followers` (tiers below the pool, KV events) of blocks that enter and leave the tree, and takes in what
tiers bring.

Invariant, checked by `audit`: every block of the pool is free, in the tree, or in exactly one request's own range
`[lease.num_tokens, …)`; nothing is in two of them. Of a request that has dropped tokens nothing enters the tree any
more, and only its forks copy from it: what is computed after dropped keys is not the KV of those tokens.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial

from torch import Tensor

from ...radix import NOTHING, BlockCost, BlockPool, RadixTree, equal_cost, pack
from ..execute.draft_kv import DraftKV
from ..execute.kv_cache import KVCache
from ..request import Lease, Request
from .audit import audit_blocks
from .block_supply import BlockSupply
from .explainer import Explainer
from .followers import Followers
from .kept_keys import KeptKeys
from .prefix_view import PrefixView, match_limit
from .prompt_scores import keep_scores, recall_scores
from .resuming import Donor, find_donor, lease_to_state, lease_to_window, take_lease
from .slot_books import SlotBooks
from .traffic_record import TrafficRecord


class PrefixCache:
    """Leases blocks to requests and takes their KV back into the tree.

    With `enabled=False` nothing is ever shared and `release` frees at once: the same code path, no tree.

    Attributes:
        supply: the blocks of the pool, with all that goes where they go.
        slots: what groups of layers need besides the keys of all tokens.
        view: what is here of a request's tokens. explainer: why a request finds no more here than it does.
        traffic: what was asked of the cache lately.
    """

    def __init__(
        self,
        *,
        num_blocks: int,
        block_size: int,
        kv_cache: KVCache,
        enabled: bool = True,
        eviction_policy: str = "lru",
        block_cost: BlockCost = equal_cost,
        explain_namespaces: bool = False,
        max_pinned_blocks: int = 0,
        followers: Followers | None = None,
        slots: SlotBooks,
        draft_kv: DraftKV | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            slots: what groups of layers need besides the keys of all tokens.
            draft_kv: KV of a draft model in the same blocks, which goes where theirs goes.
        """
        self.slots = slots
        self._states = slots.states
        self._windows = slots.windows
        self.block_size = block_size
        self.enabled = enabled
        self.followers = followers
        self.tiers = None if followers is None else followers.tiers
        self.events = None if followers is None else followers.events
        self.supply = BlockSupply(
            BlockPool(num_blocks, block_size),
            make_tree=partial(
                RadixTree,
                block_size,
                policy=eviction_policy,
                block_cost=block_cost,
                max_pinned_blocks=max_pinned_blocks,
                clock=clock,
            ),
            kv_cache=kv_cache,
            followers=followers,
            slots=slots,
            draft_kv=draft_kv,
            parts=None if followers is None else slots.lower_parts(followers),
        )
        self.pool = self.supply.pool
        self.view = PrefixView(self.supply, has_tree=enabled)
        self._kept = KeptKeys(kv_cache, slots)
        self.traffic = TrafficRecord()
        self.explainer = Explainer(
            self.supply,
            slots,
            self.traffic,
            self._kept.dropped,
            None if self.tiers is None else self.tiers.loads,
            looks_elsewhere=explain_namespaces,
        )

    @property
    def tree(self) -> RadixTree:
        """The one of now: after a fault a tree that is not sound is given up for an empty one."""
        return self.supply.tree

    def lease(self, request: Request, running: Iterable[Request] = ()) -> Donor | None:
        """Gives a request the longest cached prefix of whole blocks, and evicts nothing.

        At least one token (more where prompt log-probabilities are wanted) stays uncomputed, since logits come
        from computing. If the next block agrees in part, its donor is returned, for `copy`: of the tree, or of one of
        the `running` requests, whose last block is not in the tree yet. With states a donor is the block within which
        the state is, of the tree only; `copy` must follow, as the request holds the state after the donor's tokens.
        """
        assert not request.blocks and request.lease is None
        request.num_computed_tokens = 0
        if not self.enabled:
            return None
        recall_scores(self.supply.scores, self.tree, request)
        limit = match_limit(request)
        match = self.tree.match(pack(request.token_ids[:limit]), request.namespace)
        if self._states is not None:
            return lease_to_state(self.tree, request, match, self._states)
        find = partial(find_donor, self.tree, request, running, limit, self._windows)
        if self._windows is not None:
            return lease_to_window(self.tree, request, match, self._windows, find)
        take_lease(self.tree, request, match)
        return find(match)

    def copy(self, request: Request, donor: Donor) -> None:
        """Copies what a donor has after the leased blocks, if there is room: so hits are exact to the token."""
        if self.reserve(request, request.num_computed_tokens + 1):
            # The donor may just have been evicted to make room: its KV is untouched until the next forward.
            self.supply.copy(donor.block, request.blocks[-1], donor.num_tokens, slot=donor.slot)
            request.num_computed_tokens += donor.num_tokens
        elif self._states is not None:  # the state is that after the donor's tokens
            self.release(request, keep=False)

    def reserve(self, request: Request, num_tokens: int) -> bool:
        """Makes room for the KV of tokens `[0, num_tokens)`, evicting if it must.

        Returns False, and changes nothing the request holds, if the blocks cannot be had.
        """
        missing = -(-(num_tokens - request.num_dropped_tokens) // self.block_size) - len(request.blocks)
        if missing > 0:
            if self._windows is not None and not self._windows.has_room(request, len(request.blocks) + missing):
                return False
            blocks = self.supply.allocate(missing)
            if blocks is None:
                return False
            request.blocks.extend(blocks)
            if self._windows is not None:
                self._windows.hold(request)
        self._kept.copy_in(request)
        return True

    def fork(self, parent: Request, child: Request) -> bool:
        """Gives `child` what `parent` has computed: a lease on its whole blocks, a copy of what follows them.

        Computes nothing. Returns False, and leaves the child with nothing, if there is no block for the copy.
        """
        assert not child.blocks and child.lease is None
        child.num_dropped_tokens = parent.num_dropped_tokens
        child.received = None if parent.received is None else parent.received.fork()
        self._kept.fork(parent, child)
        self.commit(parent)
        if parent.lease is not None:
            self.tree.lease(parent.lease.node)
            child.lease = parent.lease
        shared = child.lease.num_tokens // self.block_size if child.lease else 0
        child.blocks = parent.blocks[:shared]
        child.num_computed_tokens = parent.num_computed_tokens
        if self._windows is not None:
            self._windows.hold(child)
        if not self.reserve(child, parent.num_computed_tokens):
            self.release(child, keep=False)
            return False
        for source, target in zip(parent.blocks[shared:], child.blocks[shared:], strict=False):
            self.supply.copy(source, target, self.block_size, slot=self.supply.slot_of(source))
        if self._states is not None:
            self._states.fork(parent, child)
        return True

    def compact(self, request: Request, places: Tensor, change: Callable[[list[Tensor]], None] | None = None) -> None:
        """Keeps the KV of some places, in blocks of the request's own; what it held goes into the tree, or is free.

        What is kept waits outside of the pool until there are blocks for it, which the next `reserve` finds at the
        latest: so no more is ever needed at once than the prompt, or the budget, whichever is larger.

        places: as `KVCache.gather` has them, rising. change: what is done to the copy, in place; None: nothing.
        """
        kept = self._kept.copy_out(request, places)
        if change is not None:
            change(kept.full)
        num_computed_tokens, received = request.num_computed_tokens, request.received
        self.release(request)
        self._kept.keep(request, kept)
        request.received = None if received is None else received.keep(places)
        request.num_dropped_tokens = request.usage.dropped_tokens = num_computed_tokens - places.shape[-1]
        request.num_computed_tokens = num_computed_tokens
        self.reserve(request, num_computed_tokens)

    def shrink(self, request: Request, num_tokens: int) -> None:
        """Frees the request's own blocks after token `num_tokens` (a rejected draft's)."""
        keep = -(-(num_tokens - request.num_dropped_tokens) // self.block_size)
        if keep < len(request.blocks):
            if self._windows is not None:
                self._windows.cut(request, keep)
            self.supply.free(request.blocks[keep:])
            del request.blocks[keep:]

    def commit(self, request: Request) -> None:
        """Puts the request's whole computed blocks into the tree and moves its lease to their end."""
        num_blocks = request.num_computed_tokens // self.block_size
        duplicates = self._hand_over(request, num_blocks, num_blocks * self.block_size)
        if duplicates:
            tokens = pack(request.token_ids[: num_blocks * self.block_size])
            kept = self.tree.match(tokens, request.namespace).blocks
            self.supply.merge(request.blocks, kept, num_blocks * self.block_size)
            self.supply.merge_slots(request.blocks, request.lease)
            request.blocks[:num_blocks] = array("i", kept)
            self.supply.free(duplicates)
        self.supply.parts_entered()

    def release(self, request: Request, *, keep: bool = True) -> None:
        """Takes everything back: computed KV goes into the tree (`keep`), the rest is freed, the lease ends.

        A last block that is not full goes in as a tail, so a request that continues the text hits every token of it.
        """
        if keep:
            if self.enabled and request.num_dropped_tokens and not request.is_probe:
                self._kept.dropped.add(request)
            duplicates = self._hand_over(request, self._num_blocks(request), request.num_computed_tokens)
            if self._states is not None and request.lease is not None:
                self._states.keep_last(request)
            if self._windows is not None:
                is_cached = request.lease is not None and request.lease.num_tokens == request.num_computed_tokens
                self._windows.end(request, keep=is_cached)
            if duplicates and (request.prompt_logprobs or self._states is not None):
                match = self.tree.match(pack(request.token_ids[: request.num_computed_tokens]), request.namespace)
                kept = [*match.blocks, match.partial_block]
                self.supply.merge(request.blocks, kept, request.num_computed_tokens)
            if duplicates:
                self.supply.merge_slots(request.blocks, request.lease)
            self.supply.parts_entered()
            self.supply.free(duplicates)
        if self._states is not None:
            self._states.end(request)
        if self._windows is not None:
            self._windows.end(request, keep=False)
        held = -(-request.lease.num_tokens // self.block_size) if request.lease else 0
        self.supply.free(request.blocks[held:])
        if request.lease is not None:
            self.tree.release(request.lease.node)
        _hold_nothing(request)
        self._kept.forget(request)

    def reclaim(self, requests: Collection[Request]) -> int:
        """After a fault: takes back all that `requests`, or anything else, may hold, and all that was left half done.

        What the requests have computed goes into the tree as far as that can be done. Then no lease is left except
        those of pins, and a block that is not in the tree is free. A tree that is not sound is given up, with its pins;
        returns how many pins that were. O(pool).
        """
        for request in requests:
            with suppress(Exception):
                self._hand_over(request, self._num_blocks(request), request.num_computed_tokens)
            _hold_nothing(request)
        self._kept.clear()
        num_lost_pins = self.supply.reclaim()
        if self.tiers is not None:
            self.tiers.loads.give_up(requests)
        return num_lost_pins

    def _num_blocks(self, request: Request) -> int:
        """Of what is computed, the last one counted though it may not be full."""
        return -(-request.num_computed_tokens // self.block_size)

    def _hand_over(self, request: Request, num_blocks: int, num_tokens: int) -> list[int]:
        """Gives the tree the first blocks, which hold `num_tokens`, and leases them; the ids it had no use for.

        Nothing of a probe goes in.
        """
        lease = request.lease
        start = lease.num_tokens if lease else 0
        if not self.enabled or request.is_probe or num_tokens <= start or request.num_dropped_tokens:
            return []
        tokens = pack(request.token_ids[start:num_tokens])
        blocks = request.blocks[start // self.block_size : num_blocks]
        if self.followers is not None:  # first: after a fault in between `reclaim` takes back what it said too much
            before = request.blocks[start // self.block_size - 1] if start else None
            self.followers.entered(blocks, tokens, request.namespace, before)
        inserted = self.tree.insert(tokens, blocks, request.namespace, after=lease.node if lease else NOTHING)
        self.tree.lease(inserted.node)
        if lease is not None:
            self.tree.release(lease.node)
        request.lease = Lease(inserted.node, num_tokens)
        return inserted.duplicates

    def end_step(self) -> None:
        """Notifies the followers, in one batch, of what has entered and left since the last call."""
        if self.followers is not None:
            self.followers.end_step()

    def close(self) -> None:
        """Ends the threads of what follows the tree."""
        if self.followers is not None:
            self.followers.close()

    def audit(self, requests: Iterable[Request]) -> None:
        """Raises AssertionError if a block is lost, held twice, or held and free."""
        self.tree.audit()
        requests = list(requests)
        audit_blocks(self.pool, self.tree, requests, self._kept)
        blocks = {*self.tree.blocks(), *(block for one in requests for block in one.blocks)}
        if self._states is not None:
            self._states.audit(requests, blocks)
        if self._windows is not None:
            self._windows.audit(requests, blocks)

    def keep_scores(self, request: Request, start: int) -> None:
        """Keeps the log-probabilities of the prompt tokens that have been computed from position `start` on."""
        if self.enabled:
            keep_scores(self.supply.scores, request, start)


def _hold_nothing(request: Request) -> None:
    request.lease = None
    request.blocks = array("i")
    request.num_computed_tokens = request.num_dropped_tokens = request.num_taken_back = 0
    request.received = None
