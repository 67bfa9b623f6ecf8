"""The pool of block ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phloem.radix import BlockPool, OutOfBlocks


def test_allocate_is_all_or_nothing() -> None:
    pool = BlockPool(4, 16)
    pool.allocate(3)
    with pytest.raises(OutOfBlocks, match=r"2 KV blocks requested, 1 of 4 are free"):
        pool.allocate(2)
    assert pool.num_free == 1


def test_freeing_twice_is_refused() -> None:
    pool = BlockPool(4, 16)
    blocks = pool.allocate(2)
    pool.free(blocks)
    with pytest.raises(ValueError, match="is free already"):
        pool.free(blocks[:1])
    pool.audit()


@pytest.mark.parametrize("block", [-1, 4])
def test_freeing_a_foreign_block_is_refused(block: int) -> None:
    with pytest.raises(ValueError, match="not of this pool"):
        BlockPool(4, 16).free([block])


@pytest.mark.parametrize(("num_blocks", "block_size"), [(-1, 16), (4, 0)])
def test_an_impossible_pool_is_refused(num_blocks: int, block_size: int) -> None:
    with pytest.raises(ValueError, match="cannot exist"):
        BlockPool(num_blocks, block_size)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=40))
def test_pool_conserves_its_blocks(steps: list[tuple[bool, int]]) -> None:
    pool, held = BlockPool(16, 4), list[int]()
    for take, num_blocks in steps:
        if take and num_blocks <= pool.num_free:
            held += pool.allocate(num_blocks)
        elif not take:
            pool.free(held[:num_blocks])
            del held[:num_blocks]
        assert pool.num_free + len(held) == 16
        assert len(set(held)) == len(held)
        assert not any(pool.is_free(block) for block in held)
        pool.audit()
