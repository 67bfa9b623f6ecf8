"""The radix tree against a dict of token tuples that always tells the truth."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from phloem.radix import BlockPool, Event, Node, Pin, PinBudgetExceeded, RadixTree, pack

Prefix = tuple[str, tuple[int, ...]]
NUM_BLOCKS = 48
MAX_PINNED_BLOCKS = 8
NAMESPACES = st.sampled_from(["", "salt"])


@dataclass
class Block:
    """What is true of one cached block: everything that went through it, not only what ended there."""

    id: int
    last_used: int = 0
    num_hits: int = 0
    priority: int = 0


@dataclass
class Truth:
    """Every cached prefix of whole blocks, with the block that it ends in. Slow and obvious."""

    block_size: int
    cached: dict[Prefix, Block] = field(default_factory=dict)
    evicted_at: dict[Prefix, float] = field(default_factory=dict)
    num_uses: int = 0

    def prefixes(self, namespace: str, tokens: list[int]) -> list[Prefix]:
        ends = range(self.block_size, len(tokens) + 1, self.block_size)
        return [(namespace, tuple(tokens[:end])) for end in ends]

    def matched(self, namespace: str, tokens: list[int]) -> list[Prefix]:
        found = []
        for prefix in self.prefixes(namespace, tokens):
            if prefix not in self.cached:
                break
            found.append(prefix)
        return found

    def partial(self, namespace: str, tokens: list[int]) -> dict[int, int]:
        """Blocks behind the matched prefix that agree in a token or more: id → number of agreeing tokens."""
        start = len(self.matched(namespace, tokens)) * self.block_size
        donors = {}
        for (space, known), block in self.cached.items():
            whole = known[:start] == tuple(tokens[:start]) and len(known) == start + self.block_size
            if space == namespace and whole:
                rest = zip(known[start:], tokens[start:], strict=False)
                num_agreeing = next((i for i, (a, b) in enumerate(rest) if a != b), None)
                if num_agreeing is None:
                    num_agreeing = min(len(known), len(tokens)) - start
                if num_agreeing:
                    donors[block.id] = num_agreeing
        return donors

    def use(self, path: list[Prefix], *, num_hits: int = 0, priority: int = 0) -> None:
        self.num_uses += 1
        for prefix in path:
            block = self.cached[prefix]
            block.last_used = self.num_uses
            block.num_hits += num_hits
            block.priority = max(block.priority, priority)

    def leaves(self) -> list[Prefix]:
        inner = {(space, known[: -self.block_size]) for space, known in self.cached}
        return [prefix for prefix in self.cached if prefix not in inner]


KEYS = {
    "lru": lambda block: block.last_used,
    "lfu": lambda block: (block.num_hits, block.last_used),
    "priority": lambda block: (block.priority, block.last_used),
}


class TreeMachine(RuleBasedStateMachine):
    block_size: int
    policy: str
    token_lists: st.SearchStrategy[list[int]]

    @initialize()
    def start(self) -> None:
        self.now = 0.0
        self.events: list[Event] = []
        self.tree = RadixTree(
            self.block_size,
            policy=self.policy,
            clock=lambda: self.now,
            max_pinned_blocks=MAX_PINNED_BLOCKS,
            on_event=self.events.append,
        )
        self.pool = BlockPool(NUM_BLOCKS, self.block_size)
        self.truth = Truth(self.block_size)
        self.leases: list[tuple[Node, list[Prefix]]] = []
        self.pins: list[tuple[Pin, list[Prefix]]] = []
        self.follower: dict[Prefix, int] = {}

    def draw_tokens(self, data: st.DataObject) -> list[int]:
        return data.draw(self.token_lists, label="tokens")

    def held(self) -> set[Prefix]:
        return {prefix for _, path in self.leases + self.pins for prefix in path}

    @rule(data=st.data(), namespace=NAMESPACES)
    def match(self, data: st.DataObject, namespace: str) -> None:
        tokens = self.draw_tokens(data)
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
        if data.draw(st.booleans(), label="lease"):
            self.tree.lease(match.node)
            self.leases.append((match.node, path))

    @rule(data=st.data(), namespace=NAMESPACES, priority=st.integers(0, 2))
    def insert(self, data: st.DataObject, namespace: str, priority: int) -> None:
        """The caller knows some of the prefix (or nothing), and brings blocks of its own for the rest."""
        tokens = self.draw_tokens(data)
        wanted = self.truth.prefixes(namespace, tokens)
        path = self.truth.matched(namespace, tokens)
        num_shared = data.draw(st.sampled_from([0, len(path) // 2, len(path)]), label="shared")
        if len(wanted) - num_shared > self.pool.num_free:
            return
        own = self.pool.allocate(len(wanted) - num_shared)
        row = [self.truth.cached[prefix].id for prefix in path[:num_shared]] + own
        inserted = self.tree.insert(pack(tokens), row, namespace, priority=priority)
        assert inserted.num_new_tokens == (len(wanted) - len(path)) * self.block_size
        assert inserted.duplicates == row[num_shared : len(path)]
        self.pool.free(inserted.duplicates)
        for prefix, block in zip(wanted[len(path) :], row[len(path) :], strict=True):
            self.truth.cached[prefix] = Block(block)
        self.truth.use(wanted, priority=priority)
        if data.draw(st.booleans(), label="lease"):
            self.tree.lease(inserted.node)
            self.leases.append((inserted.node, wanted))

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.leases:
            node, _ = self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1), label="which"))
            self.tree.release(node)

    @rule(num_blocks=st.integers(0, 24))
    def evict(self, num_blocks: int) -> None:
        num_free_to_go = len(self.truth.cached.keys() - self.held())
        freed = self.tree.evict(num_blocks)
        if num_free_to_go < num_blocks:
            self.pins = [(pin, path) for pin, path in self.pins if pin.expires_at > self.now]
        self.account_for(freed, num_free_to_go)
        evictable = num_free_to_go if num_free_to_go >= num_blocks else len(freed) + self.count_evictable()
        assert len(freed) >= min(num_blocks, evictable)
        assert len(freed) <= num_blocks + max(num_blocks, 16)

    def count_evictable(self) -> int:
        return len(self.truth.cached.keys() - self.held())

    def account_for(self, freed: list[int], num_before_pins: int) -> None:
        """Freed blocks are gone from the truth; none was held; the policy's order was kept."""
        owner = {block.id: prefix for prefix, block in self.truth.cached.items()}
        key = KEYS[self.policy]
        highest = None
        held = self.held()
        for index, block in enumerate(freed):
            prefix = owner.pop(block)
            assert prefix not in held, "a held block was evicted"
            gone = self.truth.cached.pop(prefix)
            self.truth.evicted_at[prefix] = self.now
            if index == num_before_pins:
                highest = None  # expired pins were given up here: their paths are as old as they are
            highest = key(gone) if highest is None else max(highest, key(gone))
        for space, known in self.truth.cached:
            above = known[: -self.block_size]
            assert not above or (space, above) in self.truth.cached, "a block was evicted from under others"
        if highest is not None:
            for leaf in self.truth.leaves():
                assert leaf in held or key(self.truth.cached[leaf]) >= highest, "a better leaf was spared"
        self.pool.free(freed)

    @rule(data=st.data(), namespace=NAMESPACES, ttl=st.integers(0, 10))
    def pin(self, data: st.DataObject, namespace: str, ttl: int) -> None:
        tokens = self.draw_tokens(data)
        path = self.truth.matched(namespace, tokens)
        pinned = {prefix for _, other in self.pins for prefix in other} | set(path)
        self.truth.use(path, num_hits=1)
        if path and len(pinned) > MAX_PINNED_BLOCKS:
            with pytest.raises(PinBudgetExceeded):
                self.tree.pin(pack(tokens), ttl, namespace)
            return
        pin = self.tree.pin(pack(tokens), ttl, namespace)
        assert pin.num_tokens == len(path) * self.block_size
        if path:
            self.pins.append((pin, path))

    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        if self.pins:
            pin, _ = self.pins.pop(data.draw(st.integers(0, len(self.pins) - 1), label="which"))
            assert self.tree.unpin(pin)
            assert not self.tree.unpin(pin)

    @rule(seconds=st.integers(1, 4))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def clear(self) -> None:
        self.pins = []
        self.account_for(self.tree.clear(), 0)
        assert not self.count_evictable()

    @rule(data=st.data(), namespace=NAMESPACES)
    def explain(self, data: st.DataObject, namespace: str) -> None:
        tokens = self.draw_tokens(data)
        num_cached = len(self.truth.matched(namespace, tokens)) * self.block_size
        most = max(self.truth.partial(namespace, tokens).values(), default=0)
        found = self.tree.explain(pack(tokens), namespace)
        assert (found.num_tokens, found.num_cached_tokens) == (len(tokens), num_cached)
        assert found.num_agreeing_tokens == num_cached + most
        next_prefix = namespace, tuple(tokens[: num_cached + self.block_size])
        elsewhere = len(self.truth.matched("" if namespace else "salt", tokens)) * self.block_size > num_cached
        if found.reason == "complete":
            assert num_cached == len(tokens)
        elif found.reason == "block_rounding":
            assert 0 < len(tokens) - num_cached < self.block_size
        elif found.reason == "evicted":
            assert found.evicted_at == self.truth.evicted_at[next_prefix]
        else:
            assert len(tokens) - num_cached >= self.block_size
            assert (found.reason == "other_namespace") == elsewhere

    @invariant()
    def the_counts_are_exact(self) -> None:
        held = self.held()
        tree = self.tree
        assert tree.num_cached_blocks == len(self.truth.cached)
        assert tree.num_leased_blocks == len(held)
        assert tree.num_evictable_blocks == len(self.truth.cached) - len(held)
        assert tree.num_pinned_blocks == len({prefix for _, path in self.pins for prefix in path})
        assert tree.statistics.num_namespaces == len({space for space, _ in self.truth.cached})

    @invariant()
    def every_block_is_somewhere_once(self) -> None:
        ids = Counter(block.id for block in self.truth.cached.values())
        assert not ids or max(ids.values()) == 1
        assert not any(self.pool.is_free(block) for block in ids)
        assert self.pool.num_free + len(ids) == NUM_BLOCKS

    @invariant()
    def who_follows_the_events_has_the_same_tree(self) -> None:
        for event in self.events:
            tokens = list(pack_to_list(event.tokens))
            path = self.truth.prefixes(event.namespace, tokens)[event.num_prefix_tokens // self.block_size :]
            for prefix, block in zip(path, event.blocks, strict=True):
                if event.kind == "inserted":
                    assert self.follower.setdefault(prefix, block) == block
                else:
                    assert self.follower.pop(prefix) == block
        self.events.clear()
        assert self.follower == {prefix: block.id for prefix, block in self.truth.cached.items()}

    @invariant()
    def the_audit_passes(self) -> None:
        self.tree.audit()
        self.pool.audit()


def pack_to_list(tokens: bytes) -> memoryview:
    return memoryview(tokens).cast("i")


def small_alphabet(max_tokens: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 1), max_size=max_tokens)


def similar_blocks(block_size: int) -> st.SearchStrategy[list[int]]:
    """Few different blocks, some alike but for their last tokens, and a tail."""
    block = st.tuples(st.integers(0, 1), st.integers(0, 1)).map(
        lambda pair: [pair[0]] * (block_size - 3) + [pair[1]] * 3
    )
    joined = st.lists(block, max_size=5).map(lambda blocks: [token for run in blocks for token in run])
    return st.tuples(joined, st.integers(0, block_size - 1)).map(lambda pair: pair[0] + [0] * pair[1])


@pytest.mark.parametrize(
    ("block_size", "policy", "token_lists"),
    [
        (1, "lru", small_alphabet(8)),
        (4, "lru", small_alphabet(22)),
        (16, "lru", similar_blocks(16)),
        (1, "lfu", small_alphabet(8)),
        (4, "priority", small_alphabet(22)),
    ],
    ids=["block 1, lru", "block 4, lru", "block 16, lru", "block 1, lfu", "block 4, priority"],
)
def test_tree_agrees_with_a_dict_of_token_tuples(
    block_size: int, policy: str, token_lists: st.SearchStrategy[list[int]]
) -> None:
    machine = type("Machine", (TreeMachine,), {"block_size": block_size, "policy": policy, "token_lists": token_lists})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
