"""The memory of a tree as kernels see it: arrays without bounds, behind the addresses in its head."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numba.core import cgutils, types
from numba.extending import intrinsic

from .compiled import kernel
from .memory import BINS, ENTRY, EXTENT, FORK, GHOST, HEAD, NODE, NUMBER_BITS, STALE

_ENDLESS = 1 << 40


def _pointer(typing_context: Any, address: Any) -> Any:
    """The address (int64) as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


pointer: Any = intrinsic(_pointer)


@kernel
def head_at(address: Any) -> Any:
    return carray(pointer(address), (1,), HEAD)[0]


@kernel
def nodes_of(head: Any) -> Any:
    return carray(pointer(head.nodes), (_ENDLESS,), NODE)


@kernel
def blocks_of(head: Any) -> Any:
    return carray(pointer(head.blocks), (_ENDLESS,), np.int32)


@kernel
def block_tokens(head: Any, cell: Any) -> Any:
    """int32[block_size]: the tokens of one cell. (A loop over it runs on vectors, one with offsets does not.)"""
    block_size = head.block_size
    return carray(pointer(head.tokens + 4 * cell * block_size), (block_size,), np.int32)


@kernel
def run_tokens(head: Any, node: Any) -> Any:
    """int32[num_blocks * block_size]: the tokens of a run."""
    one, block_size = nodes_of(head)[node], head.block_size
    return carray(pointer(head.tokens + 4 * one.first_cell * block_size), (one.num_blocks * block_size,), np.int32)


@kernel
def tags_of(head: Any) -> Any:
    return carray(pointer(head.tags), (_ENDLESS,), np.int32)


@kernel
def extents_of(head: Any) -> Any:
    return carray(pointer(head.extents), (_ENDLESS,), EXTENT)


@kernel
def bins_of(head: Any) -> Any:
    return carray(pointer(head.bins), (1,), BINS)[0]


@kernel
def forks_of(head: Any) -> Any:
    return carray(pointer(head.forks), (_ENDLESS,), FORK)


@kernel
def queue_of(head: Any) -> Any:
    return carray(pointer(head.queue), (_ENDLESS,), ENTRY)


@kernel
def ghosts_of(head: Any) -> Any:
    return carray(pointer(head.ghosts), (_ENDLESS,), GHOST)


@kernel
def ghost_tokens(head: Any, ghost: Any) -> Any:
    """int32[block_size]: the first block of what a ghost is of."""
    block_size = head.block_size
    return carray(pointer(head.ghost_tokens + 4 * ghost * block_size), (block_size,), np.int32)


@kernel
def costs_of(head: Any) -> Any:
    """float64, by the number of blocks that a prefix has."""
    return carray(pointer(head.costs), (_ENDLESS,), np.float64)


@kernel
def found_of(head: Any) -> Any:
    return carray(pointer(head.found), (_ENDLESS,), np.int32)


@kernel
def unpacked(packed: Any) -> Any:
    """The int32 that a bytes object is made of."""
    return carray(pointer(packed.address), (packed.length >> 2,), np.int32)


@kernel
def handle_of(head: Any, node: Any) -> Any:
    """How a node is handed out."""
    return nodes_of(head)[node].generation << 32 | node


@kernel
def opened(head: Any, handle: Any) -> Any:
    """The number of a node that is handed in, or `STALE`."""
    node = handle & NUMBER_BITS
    return node if nodes_of(head)[node].generation == handle >> 32 else STALE
