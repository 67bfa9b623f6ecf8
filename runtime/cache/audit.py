"""Whether every block of the pool has one owner: free, in the tree, or one request. For tests and after faults.

Knows block ids and who holds them; it knows no tokens. Cost: O(blocks).
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from ...radix import BlockPool, RadixTree
from ..kv_compress.budget import next_compaction
from ..request import Request


def audit_blocks(pool: BlockPool, tree: RadixTree, requests: Iterable[Request], kept: Container[Request]) -> None:
    """Raises AssertionError if a block is lost, held twice, or held and free, or a request holds what it should not.

    kept: those that were compacted and whose KV waits outside of the pool.
    """
    own: list[int] = []
    for request in requests:
        held = request.lease.num_tokens // pool.block_size if request.lease else 0
        own += request.blocks[held:]
        capacity = len(request.blocks) * pool.block_size
        num_kept = 0 if request in kept else request.num_computed_tokens - request.num_dropped_tokens
        assert 0 <= num_kept <= capacity, f"request {request.request_id}: KV beyond its blocks"
        assert not (request.num_dropped_tokens and held), f"request {request.request_id}: dropped and leased"
        compacted_at = next_compaction(request)
        is_early = compacted_at is None or request.num_computed_tokens < compacted_at
        assert is_early, f"request {request.request_id}: its KV should have been compacted"
    assert len(own) == len(set(own)), "a block is held by two requests"
    total = pool.num_free + tree.num_cached_blocks + len(own)
    assert total == pool.num_blocks, (
        f"{pool.num_free} free + {tree.num_cached_blocks} in tree + {len(own)} held != {pool.num_blocks} blocks"
    )
