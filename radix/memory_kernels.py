"""The memory of a tree as kernels see it: arrays without bounds, behind the addresses in its head."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import types as typed_types
from numba.core.typing import npydecl as typed_npydecl
from numba.extending import intrinsic
from numba.np import arrayobj as typed_arrayobj

from .compiled import kernel
from .memory import BINS, ENTRY, EXTENT, FORK, GHOST, HEAD, NODE, NUMBER_BITS, STALE

types: Any = typed_types  # these are without types, or with some of them only
npydecl: Any = typed_npydecl
arrayobj: Any = typed_arrayobj

_ENDLESS = 1 << 40


def _items_at(typing_context: Any, address: Any, length: Any, dtype: Any) -> Any:
    """An array of so many items from an address on; what `carray` gives, and compiled in no time."""
    array_type = types.Array(npydecl.parse_dtype(dtype), 1, "C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _array(context, builder, array_type, arguments[0], arguments[1])

    return array_type(types.int64, types.int64, dtype), generate


def _part(typing_context: Any, array: Any, start: Any, length: Any) -> Any:
    """`array[start : start + length]` of a contiguous array that is long enough."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given = context.make_array(array)(context, builder, arguments[0])
        address = builder.ptrtoint(builder.gep(given.data, [arguments[1]]), context.get_value_type(types.int64))
        return _array(context, builder, array, address, arguments[2])

    return array(array, types.int64, types.int64), generate


def _array(context: Any, builder: Any, array_type: Any, address: Any, length: Any) -> Any:
    item = context.get_data_type(array_type.dtype)
    size = context.get_constant(types.intp, context.get_abi_sizeof(item))
    array = context.make_array(array_type)(context, builder)
    pointer = builder.inttoptr(address, item.as_pointer())
    arrayobj.populate_array(array, data=pointer, shape=[length], strides=[size], itemsize=size, meminfo=None)
    return array._getvalue()


items_at: Any = intrinsic(_items_at)
part: Any = intrinsic(_part)


@kernel
def head_at(address: Any) -> Any:
    return items_at(address, 1, HEAD)[0]


@kernel
def nodes_of(head: Any) -> Any:
    return items_at(head.nodes, _ENDLESS, NODE)


@kernel
def blocks_of(head: Any) -> Any:
    return items_at(head.blocks, _ENDLESS, np.int32)


@kernel
def block_tokens(head: Any, cell: Any) -> Any:
    """int32[block_size]: the tokens of one cell. (A loop over it runs on vectors, one with offsets does not.)"""
    block_size = head.block_size
    return items_at(head.tokens + 4 * cell * block_size, block_size, np.int32)


@kernel
def run_tokens(head: Any, node: Any) -> Any:
    """int32[num_blocks * block_size]: the tokens of a run."""
    one, block_size = nodes_of(head)[node], head.block_size
    return items_at(head.tokens + 4 * one.first_cell * block_size, one.num_blocks * block_size, np.int32)


@kernel
def tags_of(head: Any) -> Any:
    return items_at(head.tags, _ENDLESS, np.int32)


@kernel
def extents_of(head: Any) -> Any:
    return items_at(head.extents, _ENDLESS, EXTENT)


@kernel
def bins_of(head: Any) -> Any:
    return items_at(head.bins, 1, BINS)[0]


@kernel
def forks_of(head: Any) -> Any:
    return items_at(head.forks, _ENDLESS, FORK)


@kernel
def queue_of(head: Any) -> Any:
    return items_at(head.queue, _ENDLESS, ENTRY)


@kernel
def ghosts_of(head: Any) -> Any:
    return items_at(head.ghosts, _ENDLESS, GHOST)


@kernel
def ghost_tokens(head: Any, ghost: Any) -> Any:
    """int32[block_size]: the first block of what a ghost is of."""
    block_size = head.block_size
    return items_at(head.ghost_tokens + 4 * ghost * block_size, block_size, np.int32)


@kernel
def costs_of(head: Any) -> Any:
    """float64, by the number of blocks that a prefix has."""
    return items_at(head.costs, _ENDLESS, np.float64)


@kernel
def found_of(head: Any) -> Any:
    return items_at(head.found, _ENDLESS, np.int32)


@kernel
def unpacked(packed: Any) -> Any:
    """The int32 that a bytes object is made of."""
    return items_at(packed.address, packed.length >> 2, np.int32)


@kernel
def handle_of(head: Any, node: Any) -> Any:
    """How a node is handed out."""
    return nodes_of(head)[node].generation << 32 | node


@kernel
def opened(head: Any, handle: Any) -> Any:
    """The number of a node that is handed in, or `STALE`."""
    node = handle & NUMBER_BITS
    return node if nodes_of(head)[node].generation == handle >> 32 else STALE
