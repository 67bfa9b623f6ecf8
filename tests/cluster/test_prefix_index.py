"""The index against sets of (block, medium), replica by replica."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.cluster.prefix_index import PrefixIndex

MEDIA = ["GPU", "CPU_PINNED", "DISK"]


class Sets:
    """The oracle."""

    def __init__(self) -> None:
        self.held: dict[str, set[tuple[int, str]]] = {}

    def depth(self, replica: str, chain: list[int]) -> int:
        blocks = {block for block, _ in self.held[replica]}
        return next((depth for depth, block in enumerate(chain) if block not in blocks), len(chain))


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**40), st.integers(1, 70), st.integers(1, 6))
def test_equals_sets_whatever_happens(seed: int, num_replicas: int, num_families: int) -> None:
    rng = Random(seed)
    chains = [[family * 1000 + depth for depth in range(rng.randint(1, 9))] for family in range(num_families)]
    chains += [[*chain[: rng.randint(0, len(chain))], rng.randrange(9000, 9010)] for chain in chains]
    index, sets = PrefixIndex(), Sets()
    for _ in range(60):
        replica, medium = f"r{rng.randrange(num_replicas)}", rng.choice(MEDIA)
        blocks = rng.choice(chains)
        blocks = blocks[rng.randrange(len(blocks)) :] if rng.random() < 0.3 else blocks
        what = rng.random()
        if what < 0.55:
            index.store(replica, medium, blocks)
            sets.held.setdefault(replica, set()).update((block, medium) for block in blocks)
        elif what < 0.8:
            index.remove(replica, medium, blocks)
            sets.held.get(replica, set()).difference_update((block, medium) for block in blocks)
        elif what < 0.85:
            index.clear(replica)
            sets.held.get(replica, set()).clear()
        elif what < 0.9:
            index.forget(replica)
            sets.held.pop(replica, None)
        assert set(index.numbers) == set(sets.held)
        assert len(set(index.numbers.values())) == len(index.numbers)
        asked = [name for name in sets.held if rng.random() < 0.8]
        mask = sum(1 << index.numbers[name] for name in asked)
        for chain in (rng.choice(chains), []):
            found = index.matches(chain, mask)
            assert [depth for depth, _ in found] == sorted({depth for depth, _ in found}, reverse=True)
            by_name = {name: depth for depth, equal in found for name in asked if equal >> index.numbers[name] & 1}
            assert by_name == {name: sets.depth(name, chain) for name in asked}
            assert sum(equal.bit_count() for _, equal in found) == len(asked)
        for name, held in sets.held.items():
            assert index.num_blocks(name) == len({block for block, _ in held})
    for name in list(index.numbers):
        index.forget(name)
    assert not index._masks and not index._media


def test_numbers_are_given_again_and_are_not_taken_for_those_before() -> None:
    index = PrefixIndex()
    for name in ("a", "b"):
        index.store(name, "GPU", [1, 2])
    index.forget("a")
    assert index.add("c") == 0 and index.add("c") == 0
    assert index.matches([1, 2], 0b11) == [(2, 0b10), (0, 0b01)]


@pytest.mark.parametrize("act", ["remove", "clear", "forget"])
def test_a_replica_that_is_not_known_is_passed_over(act: str) -> None:
    index = PrefixIndex()
    index.store("a", "GPU", [1])
    arguments = ("b", "GPU", [1]) if act == "remove" else ("b",)
    getattr(index, act)(*arguments)
    assert index.matches([1], 1) == [(1, 1)] and index.matches([1], 0) == []
