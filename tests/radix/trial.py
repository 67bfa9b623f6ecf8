"""A tree and the oracle under the same operations."""

from __future__ import annotations

import pytest

from phloem.radix import NOTHING, BlockPool, Event, Match, Node, Pin, PinBudgetExceeded, RadixTree, pack, unpack

from .truth import KEYS, Block, Prefix, Truth, block_cost

NUM_BLOCKS = 48
MAX_PINNED_BLOCKS = 8
NAMESPACES = ["", "salt"]


class Trial:
    """A tree, a pool and the oracle under the same operations; `check` compares them."""

    def __init__(self, block_size: int, policy: str, *, has_follower: bool) -> None:
        self.block_size = block_size
        self.policy = policy
        self.now = 0.0
        self.events: list[Event] = []
        self.tree = RadixTree(
            block_size,
            policy=policy,
            block_cost=block_cost,
            clock=lambda: self.now,
            max_pinned_blocks=MAX_PINNED_BLOCKS,
            on_event=self.events.append if has_follower else None,
        )
        self.pool = BlockPool(NUM_BLOCKS, block_size)
        self.truth = Truth(block_size)
        self.leases: list[tuple[Node, list[Prefix]]] = []
        self.pins: list[tuple[Pin, list[Prefix]]] = []
        self.follower: dict[Prefix, int] | None = {} if has_follower else None
        self.seen: list[tuple[Match, dict[Prefix, Block]]] = []

    def held(self) -> set[Prefix]:
        return {prefix for _, path in self.leases + self.pins for prefix in path}

    def count_evictable(self) -> int:
        return len(self.truth.cached.keys() - self.held())

    def match(self, tokens: list[int], namespace: str, lease: bool) -> None:
        path = self.truth.matched(namespace, tokens)
        donors = self.truth.partial(namespace, tokens)
        most = max(donors.values(), default=0)
        assert self.tree.peek(pack(tokens), namespace) == len(path) * self.block_size + most
        match = self.tree.match(pack(tokens), namespace)
        self.truth.use(path, num_hits=1)
        assert match.num_tokens == len(path) * self.block_size
        assert match.blocks == [self.truth.cached[prefix].id for prefix in path]
        assert match.num_partial_tokens == most
        assert donors[match.partial_block] == most if donors else match.partial_block == -1
        if path:
            self.seen = [*self.seen[-20:], (match, {prefix: self.truth.cached[prefix] for prefix in path})]
        if lease:
            self.tree.lease(match.node)
            self.leases.append((match.node, path))

    def recall(self, which: int) -> None:
        """An old match is unchanged, or it is refused."""
        if self.seen:
            match, path = self.seen[which % len(self.seen)]
            if all(self.truth.cached.get(prefix) is block for prefix, block in path.items()):
                assert match.blocks == [block.id for block in path.values()]
            else:
                for use in (self.tree.packed_blocks, self.tree.lease, self.tree.release):
                    with pytest.raises(ValueError):
                        use(match.node)

    def insert(self, tokens: list[int], namespace: str, share: float, priority: int, lease: bool, tail: bool) -> None:
        """The caller knows a part of the cached prefix, and has blocks of its own for the rest.

        What it has leased already it names (`after`); with `tail` it also brings what does not fill a block.
        """
        num_padding = -len(tokens) % self.block_size if tail else 0
        wanted = self.truth.prefixes(namespace, tokens + [-1] * num_padding)
        path = self.truth.matched(namespace, tokens + [-1] * num_padding)
        after = max((lease for lease in self.leases if lease[1] == wanted[: len(lease[1])]), key=_length, default=None)
        num_known = len(after[1]) if after else 0
        num_shared = max(int(share * len(path)), num_known)
        if len(wanted) - num_shared > self.pool.num_free:
            return
        own = self.pool.allocate(len(wanted) - num_shared)
        row = [self.truth.cached[prefix].id for prefix in path[:num_shared]] + own
        duplicates = row[num_shared : len(path)]
        if num_padding and len(path) == len(wanted) - 1:
            donors = self.truth.partial(namespace, tokens)
            if max(donors.values(), default=0) == self.block_size - num_padding:
                duplicates.append(row[-1])
                wanted.pop()
        num_new = (len(wanted) - len(path)) * self.block_size
        if wanted and wanted[-1][1][-1] == -1 and len(wanted) > len(path):
            num_new -= num_padding
        inserted = self.tree.insert(
            pack(tokens[num_known * self.block_size :]),
            row[num_known:],
            namespace,
            priority=priority,
            after=after[0] if after else NOTHING,
        )
        assert inserted.num_new_tokens == num_new
        assert inserted.duplicates == duplicates
        self.pool.free(inserted.duplicates)
        for prefix, block in zip(wanted[len(path) :], row[len(path) : len(wanted)], strict=True):
            self.truth.cached[prefix] = Block(block, end=len(prefix[1]))
        self.truth.use(wanted, priority=priority)
        if lease:
            self.tree.lease(inserted.node)
            self.leases.append((inserted.node, wanted))

    def release(self, which: int) -> None:
        if self.leases:
            node, _ = self.leases.pop(which % len(self.leases))
            sole, before = self.tree.num_sole_blocks(node), self.tree.num_evictable_blocks
            self.tree.release(node)
            assert self.tree.num_evictable_blocks == before + sole

    def evict(self, num_blocks: int) -> None:
        num_before_pins = self.count_evictable()
        freed = self.tree.evict(num_blocks)
        if num_before_pins < num_blocks:
            self.pins = [(pin, path) for pin, path in self.pins if pin.expires_at > self.now]
        self.account_for(freed, num_before_pins)
        assert len(freed) >= num_blocks or not self.count_evictable()
        assert len(freed) <= num_blocks + max(num_blocks, 16)

    def account_for(self, freed: list[int], num_before_pins: int) -> None:
        """Evicted blocks are removed from the oracle; none was leased; the policy's order was kept."""
        owner = {block.id: prefix for prefix, block in self.truth.cached.items()}
        key = KEYS[self.policy]
        highest = None
        held = self.held()
        leaves = self.truth.leaves()  # later ones may have a lower key, since they end earlier
        for index, block in enumerate(freed):
            prefix = owner.pop(block)
            assert prefix not in held, "a held block was evicted"
            gone = self.truth.cached.pop(prefix)
            self.truth.evicted_at[prefix] = self.now
            if self.policy == "cost":
                self.truth.era = max(self.truth.era, key(gone)[0])
            if index == num_before_pins:
                highest = None  # expired pins ended here, and their prefixes may be older
            highest = key(gone) if highest is None else max(highest, key(gone))
        for space, known in self.truth.cached:
            above = known[: -self.block_size]
            assert not above or (space, above) in self.truth.cached, "a block was evicted from under others"
        if highest is not None:
            for leaf in self.truth.cached.keys() & leaves:
                assert leaf in held or key(self.truth.cached[leaf]) >= highest, "a better leaf was spared"
        self.pool.free(freed)

    def pin(self, tokens: list[int], namespace: str, ttl: float) -> None:
        path = self.truth.matched(namespace, tokens)
        pinned = {prefix for _, other in self.pins for prefix in other} | set(path)
        self.truth.use(path, num_hits=1)
        if path and len(pinned) > MAX_PINNED_BLOCKS:
            with pytest.raises(PinBudgetExceeded):
                self.tree.pins.add(pack(tokens), ttl, namespace)
            return
        pin = self.tree.pins.add(pack(tokens), ttl, namespace)
        assert pin.num_tokens == len(path) * self.block_size
        if path:
            self.pins.append((pin, path))

    def unpin(self, which: int) -> None:
        if self.pins:
            pin, _ = self.pins.pop(which % len(self.pins))
            assert self.tree.pins.end(pin)
            assert not self.tree.pins.end(pin)

    def clear(self) -> None:
        self.pins = []
        freed = self.tree.clear()
        self.account_for(freed, len(freed))
        assert not self.count_evictable()

    def explain(self, tokens: list[int], namespace: str) -> None:
        num_cached = len(self.truth.matched(namespace, tokens)) * self.block_size
        most = max(self.truth.partial(namespace, tokens).values(), default=0)
        found = self.tree.explain(pack(tokens), namespace)
        assert (found.num_tokens, found.num_cached_tokens) == (len(tokens), num_cached)
        assert found.num_agreeing_tokens == num_cached + most
        elsewhere = any(
            len(self.truth.matched(other, tokens)) * self.block_size > num_cached
            for other in NAMESPACES
            if other != namespace
        )
        if found.reason == "complete":
            assert num_cached == len(tokens)
        elif found.reason == "block_rounding":
            assert 0 < len(tokens) - num_cached < self.block_size
        elif found.reason == "evicted":
            assert found.evicted_at in self.evictions(namespace, tokens, num_cached, most)
        else:
            assert len(tokens) - num_cached >= self.block_size
            assert (found.reason == "other_namespace") == elsewhere

    def evictions(self, namespace: str, tokens: list[int], num_cached: int, most: int) -> set[float]:
        """When blocks were evicted that agree with `tokens` after `num_cached` for more than `most` tokens."""
        asked = tokens[num_cached : num_cached + self.block_size]
        times = set()
        for (space, prefix), when in self.truth.evicted_at.items():
            gone = [token for token in prefix[num_cached:] if token >= 0]
            shared = min(len(gone), len(asked))
            same = space == namespace and prefix[:num_cached] == tuple(tokens[:num_cached])
            if (
                same
                and len(prefix) == num_cached + self.block_size
                and shared > most
                and gone[:shared] == asked[:shared]
            ):
                times.add(when)
        return times

    def check(self) -> None:
        """Counts are exact, every block is in one place, and a copy kept by the events is the same tree."""
        held = self.held()
        tree, cached = self.tree, self.truth.cached
        assert tree.num_cached_blocks == len(cached)
        assert tree.num_leased_blocks == len(held)
        assert tree.num_evictable_blocks == len(cached) - len(held)
        assert tree.pins.num_blocks == len({prefix for _, path in self.pins for prefix in path})
        assert tree.statistics.num_namespaces == len({space for space, _ in cached})
        ids = {block.id for block in cached.values()}
        assert len(ids) == len(cached)
        assert not any(self.pool.is_free(block) for block in ids)
        assert self.pool.num_free + len(ids) == NUM_BLOCKS
        if self.follower is not None:
            self.follow_events(self.follower)
        tree.audit()
        self.pool.audit()

    def follow_events(self, follower: dict[Prefix, int]) -> None:
        for event in self.events:
            path = self.truth.prefixes(event.namespace, unpack(event.tokens))
            run = path[event.num_prefix_tokens // self.block_size :]
            for prefix, block in zip(run, event.blocks, strict=True):
                if event.kind == "inserted":
                    assert follower.setdefault(prefix, block) == block
                else:
                    assert follower.pop(prefix) == block
        self.events.clear()
        assert follower == {prefix: block.id for prefix, block in self.truth.cached.items()}


def _length(lease: tuple[Node, list[Prefix]]) -> int:
    return len(lease[1])
