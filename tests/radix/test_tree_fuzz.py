"""The radix tree against a dict of token tuples that always tells the truth."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from phloem.radix import (
    NOTHING,
    BlockPool,
    Event,
    Node,
    Pin,
    PinBudgetExceeded,
    RadixTree,
    common_prefix,
    pack,
    unpack,
)

Prefix = tuple[str, tuple[int, ...]]
NUM_BLOCKS = 48
MAX_PINNED_BLOCKS = 8
NAMESPACES = ["", "salt"]


@dataclass
class Block:
    """What is true of one cached block: everything that went through it, not only what ended there."""

    id: int
    last_used: int = 0
    num_hits: int = 0
    priority: int = 0
    era: float = 0.0
    end: int = 0


@dataclass
class Truth:
    """Every cached prefix of whole blocks, with the block that it ends in. Slow and obvious."""

    block_size: int
    cached: dict[Prefix, Block] = field(default_factory=dict)
    evicted_at: dict[Prefix, float] = field(default_factory=dict)
    num_uses: int = 0
    era: float = 0.0

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
            block.era = self.era
            block.priority = max(block.priority, priority)

    def leaves(self) -> list[Prefix]:
        inner = {(space, known[: -self.block_size]) for space, known in self.cached}
        return [prefix for prefix in self.cached if prefix not in inner]


KEYS = {
    "lru": lambda block: block.last_used,
    "lfu": lambda block: (block.num_hits, block.last_used),
    "priority": lambda block: (block.priority, block.last_used),
    "cost": lambda block: (block.era + (block.num_hits + 1) * block_cost(block.end), block.last_used),
}


def block_cost(end: int) -> float:
    return 1 + end / 8


class Trial:
    """A tree, a pool and the truth, going through the same operations; `check` compares them."""

    def __init__(self, block_size: int, policy: str) -> None:
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
            on_event=self.events.append,
        )
        self.pool = BlockPool(NUM_BLOCKS, block_size)
        self.truth = Truth(block_size)
        self.leases: list[tuple[Node, list[Prefix]]] = []
        self.pins: list[tuple[Pin, list[Prefix]]] = []
        self.follower: dict[Prefix, int] = {}

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
        if lease:
            self.tree.lease(match.node)
            self.leases.append((match.node, path))

    def insert(self, tokens: list[int], namespace: str, share: float, priority: int, lease: bool, tail: bool) -> None:
        """The caller knows a share of the cached prefix, and brings blocks of its own for the rest.

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
        """Freed blocks are gone from the truth; none was held; the policy's order was kept."""
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
                highest = None  # expired pins were given up here, and what they held is as old as it is
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
                self.tree.pin(pack(tokens), ttl, namespace)
            return
        pin = self.tree.pin(pack(tokens), ttl, namespace)
        assert pin.num_tokens == len(path) * self.block_size
        if path:
            self.pins.append((pin, path))

    def unpin(self, which: int) -> None:
        if self.pins:
            pin, _ = self.pins.pop(which % len(self.pins))
            assert self.tree.unpin(pin)
            assert not self.tree.unpin(pin)

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
        """When blocks went that agree with `tokens` behind `num_cached` as far as both go, for more than `most`."""
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
        """Counts are exact, every block is somewhere once, and who follows the events has the same tree."""
        held = self.held()
        tree, cached = self.tree, self.truth.cached
        assert tree.num_cached_blocks == len(cached)
        assert tree.num_leased_blocks == len(held)
        assert tree.num_evictable_blocks == len(cached) - len(held)
        assert tree.num_pinned_blocks == len({prefix for _, path in self.pins for prefix in path})
        assert tree.statistics.num_namespaces == len({space for space, _ in cached})
        ids = {block.id for block in cached.values()}
        assert len(ids) == len(cached)
        assert not any(self.pool.is_free(block) for block in ids)
        assert self.pool.num_free + len(ids) == NUM_BLOCKS
        self.follow_events()
        tree.audit()
        self.pool.audit()

    def follow_events(self) -> None:
        for event in self.events:
            path = self.truth.prefixes(event.namespace, unpack(event.tokens))
            run = path[event.num_prefix_tokens // self.block_size :]
            for prefix, block in zip(run, event.blocks, strict=True):
                if event.kind == "inserted":
                    assert self.follower.setdefault(prefix, block) == block
                else:
                    assert self.follower.pop(prefix) == block
        self.events.clear()
        assert self.follower == {prefix: block.id for prefix, block in self.truth.cached.items()}


def _length(lease: tuple[Node, list[Prefix]]) -> int:
    return len(lease[1])


def draw_tokens(random: Random, block_size: int) -> list[int]:
    """Few different blocks, some alike but for their last tokens, and a tail that fills none."""
    tokens: list[int] = []
    for _ in range(random.randrange(7)):
        alike = random.randrange(block_size + 1) if random.random() < 0.5 else block_size
        tokens += [random.randrange(2)] * alike + [random.randrange(2)] * (block_size - alike)
    return tokens + [random.randrange(2)] * random.choice([0, 0, random.randrange(block_size)])


def walk_randomly(trial: Trial, random: Random, num_steps: int) -> None:
    operations = ["match"] * 4 + ["insert"] * 6 + ["release"] * 3 + ["evict"] * 4 + ["explain", "pin", "unpin"]
    recent: list[list[int]] = [[]]
    for _ in range(num_steps):
        operation = random.choice(operations)
        start = random.choice(recent)
        tokens = start[: random.randrange(len(start) + 1)] + draw_tokens(random, trial.block_size)
        recent = [*recent[-8:], tokens[: 12 * trial.block_size]]
        namespace = random.choice(NAMESPACES)
        if operation == "match":
            trial.match(tokens, namespace, random.random() < 0.3)
        elif operation == "insert":
            share = random.choice([0, 0.5, 1, 1])
            trial.insert(
                tokens, namespace, share, random.randrange(3), random.random() < 0.2, tail=random.random() < 0.4
            )
        elif operation == "evict":
            trial.evict(random.choice([0, 1, 1, 1, 2, 4, 9, 30]))
        elif operation == "pin":
            trial.pin(tokens, namespace, random.randrange(10))
        elif operation == "explain":
            trial.explain(tokens, namespace)
        else:
            getattr(trial, operation)(random.randrange(1000))
        trial.now += random.choice([0, 0, 0.5])
        if random.random() < 0.003:
            trial.clear()
        trial.check()


@pytest.mark.parametrize("policy", sorted(KEYS))
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_tree_agrees_with_the_truth_on_long_random_walks(block_size: int, policy: str) -> None:
    for seed in range(4):
        walk_randomly(Trial(block_size, policy), Random(seed), 700)


SHORT_TOKENS = st.lists(st.integers(0, 1), max_size=12)


@given(
    st.lists(SHORT_TOKENS, min_size=1, max_size=8),
    SHORT_TOKENS,
    SHORT_TOKENS,
    st.lists(st.integers(1, 6), max_size=4),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(sorted(KEYS)),
)
def test_what_is_needed_goes_only_after_all_that_is_not(
    inserts: list[list[int]],
    needed: list[int],
    leased: list[int],
    evictions: list[int],
    block_size: int,
    policy: str,
) -> None:
    tree, truth = RadixTree(block_size, policy=policy, block_cost=block_cost), Truth(block_size)
    for tokens in inserts:
        path = truth.prefixes("", tokens)
        row = [truth.cached.setdefault(prefix, Block(len(truth.cached))).id for prefix in path]
        tree.insert(pack(tokens), row, "")
    tree.lease(tree.match(pack(leased), "").node)
    evictable = {truth.cached[prefix].id for prefix in truth.cached.keys() - set(truth.matched("", leased))}
    needed_blocks = {truth.cached[prefix].id for prefix in truth.matched("", needed)} & evictable
    for num_blocks in evictions:
        freed = tree.evict(num_blocks, spare=lambda _, path: common_prefix(path, pack(needed), 0) >> 2)
        assert len(freed) >= min(num_blocks, len(evictable))
        assert set(freed) <= evictable
        evictable -= set(freed)
        assert not needed_blocks & set(freed) or evictable <= needed_blocks
        tree.audit()


class TreeMachine(RuleBasedStateMachine):
    """The same operations, chosen and shrunk by hypothesis: finds the shortest way to a fault."""

    tokens = st.lists(st.integers(0, 1), max_size=12)
    namespaces = st.sampled_from(NAMESPACES)
    indices = st.integers(0, 9)

    @initialize(block_size=st.sampled_from([1, 2, 4]), policy=st.sampled_from(sorted(KEYS)))
    def start(self, block_size: int, policy: str) -> None:
        self.trial = Trial(block_size, policy)

    @rule(tokens=tokens, namespace=namespaces, lease=st.booleans())
    def match(self, tokens: list[int], namespace: str, lease: bool) -> None:
        self.trial.match(tokens, namespace, lease)

    @rule(
        tokens=tokens,
        namespace=namespaces,
        share=st.sampled_from([0, 0.5, 1]),
        lease=st.booleans(),
        tail=st.booleans(),
    )
    def insert(self, tokens: list[int], namespace: str, share: float, lease: bool, tail: bool) -> None:
        self.trial.insert(tokens, namespace, share, len(tokens) % 3, lease, tail)

    @rule(which=indices)
    def release(self, which: int) -> None:
        self.trial.release(which)

    @rule(num_blocks=st.integers(0, 4))
    def evict(self, num_blocks: int) -> None:
        self.trial.evict(num_blocks)

    @rule(tokens=tokens, namespace=namespaces, ttl=st.integers(0, 3))
    def pin(self, tokens: list[int], namespace: str, ttl: int) -> None:
        self.trial.pin(tokens, namespace, ttl)

    @rule(which=indices)
    def unpin(self, which: int) -> None:
        self.trial.unpin(which)

    @rule()
    def wait(self) -> None:
        self.trial.now += 1

    @rule(tokens=tokens, namespace=namespaces)
    def explain(self, tokens: list[int], namespace: str) -> None:
        self.trial.explain(tokens, namespace)

    @invariant()
    def tree_and_truth_agree(self) -> None:
        if hasattr(self, "trial"):
            self.trial.check()


TreeMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_tree_agrees_with_the_truth = TreeMachine.TestCase
