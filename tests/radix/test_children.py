"""The child with the longest common prefix, against a search of all children."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from phloem.radix import RadixTree, pack

BLOCK_SIZE = 4
TOKENS = st.one_of(st.integers(0, 3), st.sampled_from([2**31 - 1, 2**30, 2**30 + 1, 65536]))
FIRST_BLOCKS = st.lists(st.lists(TOKENS, min_size=BLOCK_SIZE, max_size=BLOCK_SIZE).map(tuple), unique=True, max_size=60)
PROBES = st.lists(st.lists(TOKENS, max_size=BLOCK_SIZE), max_size=8)


def num_agreeing_tokens(block: tuple[int, ...], probe: list[int]) -> int:
    pairs = enumerate(zip(block, probe, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(block), len(probe)))


@given(FIRST_BLOCKS, st.integers(0, 60), PROBES)
def test_no_child_is_closer_than_the_one_found(
    first_blocks: list[tuple[int, ...]], num_evicted: int, probes: list[list[int]]
) -> None:
    tree = RadixTree(BLOCK_SIZE)
    for number, block in enumerate(first_blocks):
        tree.insert(pack(block), [number], "")
    gone = {number for _ in range(num_evicted) for number in tree.evict(1)}
    assert gone == set(range(min(num_evicted, len(first_blocks)))), "a leaf of one block goes alone, the oldest first"
    left = {number: block for number, block in enumerate(first_blocks) if number not in gone}
    for probe in [*probes, *map(list, left.values())]:
        agreeing = {number: num_agreeing_tokens(block, probe) for number, block in left.items()}
        most = max(agreeing.values(), default=0)
        match = tree.match(pack(probe), "")
        if most == BLOCK_SIZE:
            assert agreeing[match.blocks[0]] == BLOCK_SIZE
        else:
            assert (match.num_tokens, match.num_partial_tokens) == (0, most)
            assert match.partial_block == -1 if not most else agreeing[match.partial_block] == most
    tree.audit()
