"""The radix tree against the oracle, on random sequences of operations."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from phloem.radix import POLICIES, RadixTree, common_prefix, pack

from .trial import NAMESPACES, Trial
from .truth import KEYS, Block, Truth, block_cost


def draw_tokens(random: Random, block_size: int) -> list[int]:
    """A few distinct blocks, some with a common prefix, and a tail."""
    tokens: list[int] = []
    for _ in range(random.randrange(7)):
        alike = random.randrange(block_size + 1) if random.random() < 0.5 else block_size
        tokens += [random.randrange(2)] * alike + [random.randrange(2)] * (block_size - alike)
    return tokens + [random.randrange(2)] * random.choice([0, 0, random.randrange(block_size)])


def walk_randomly(trial: Trial, random: Random, num_steps: int) -> None:
    operations = (
        ["match"] * 4 + ["insert"] * 6 + ["release"] * 3 + ["evict"] * 4 + ["explain", "pin", "unpin", "recall"]
    )
    recent: list[list[int]] = [[]]
    for _ in range(num_steps):
        operation = random.choice(operations)
        start = random.choice(recent)
        tokens = start[: random.randrange(len(start) + 1)] + draw_tokens(random, trial.block_size)
        recent = [*recent[-8:], tokens[: random.choice([12, 12, 40]) * trial.block_size]]
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


def test_the_truth_knows_every_policy() -> None:
    assert KEYS.keys() == set(POLICIES)


@pytest.mark.parametrize("policy", sorted(KEYS))
@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_tree_agrees_with_the_truth_on_long_random_walks(block_size: int, policy: str) -> None:
    for seed in range(4):
        walk_randomly(Trial(block_size, policy, has_follower=seed % 2 == 1), Random(seed), 400)


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
        freed = tree.evict(num_blocks, spare=lambda _, path: common_prefix(path, pack(needed)) >> 2)
        assert len(freed) >= min(num_blocks, len(evictable))
        assert set(freed) <= evictable
        evictable -= set(freed)
        assert not needed_blocks & set(freed) or evictable <= needed_blocks
        tree.audit()


class TreeMachine(RuleBasedStateMachine):
    """The same operations, chosen and shrunk by hypothesis: finds the shortest sequence that fails."""

    tokens = st.lists(st.integers(0, 1), max_size=12)
    namespaces = st.sampled_from(NAMESPACES)
    indices = st.integers(0, 9)

    @initialize(block_size=st.sampled_from([1, 2, 4]), policy=st.sampled_from(sorted(KEYS)), has_follower=st.booleans())
    def start(self, block_size: int, policy: str, has_follower: bool) -> None:
        self.trial = Trial(block_size, policy, has_follower=has_follower)

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

    @rule(which=indices)
    def recall(self, which: int) -> None:
        self.trial.recall(which)

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
