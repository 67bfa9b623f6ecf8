"""The operations of the tree, as they are called from Python: each is one call of one compiled function.

All but evicting, which is in `evict_kernels`. A node is handed out as its number plus its generation in the upper half;
when that is handed in again after some of the prefix has been evicted, the answer is `STALE`.
"""

from __future__ import annotations

from typing import Any

from .children_kernels import add_child
from .compiled import kernel
from .eviction import COST
from .extent_kernels import take_cells
from .memory import FULL, MAX_INT32, NO_CELLS, NO_ROOT, STALE, WRONG_LENGTH
from .memory_kernels import (
    blocks_of,
    copy,
    found_of,
    handle_of,
    head_at,
    nodes_of,
    opened,
    part,
    run_tokens,
    unpacked,
)
from .packed import packed_at
from .queue_kernels import count_hits, mark_use, push
from .walk_kernels import find_path, split, take_node, walk

PADDING_TOKEN = -1


def make_root(address: Any) -> Any:
    """A root for a new namespace: its number, or `FULL`."""
    head = head_at(address)
    if head.num_nodes + 2 > head.node_capacity:
        return FULL
    root = take_node(head)
    one = nodes_of(head)[root]
    one.root, one.parent, one.num_holds = root, 0, 1
    one.first_cell = one.num_blocks = one.end = 0
    return root


def find(address: Any, root: Any, packed: Any, now: Any) -> Any:
    """The longest cached prefix of whole blocks, and the donor behind it.

    Returns (number of tokens or `FULL`, node, donor's node, number of tokens in which the donor agrees, donor's block).
    Splits a run if the prefix ends inside it.
    """
    head = head_at(address)
    if head.num_nodes + 2 > head.node_capacity:
        return FULL, 0, 0, 0, 0
    tokens = unpacked(packed)
    node, offset, donor, num_agreeing = walk(head, root, tokens)
    if num_agreeing >= head.block_size:
        num_blocks = num_agreeing // head.block_size
        node = split(head, donor, num_blocks)
        offset += num_blocks * head.block_size
        num_agreeing -= num_blocks * head.block_size
    head.num_matches += 1
    head.num_asked_tokens += len(tokens)
    head.num_matched_tokens += offset
    if offset:
        count_hits(head, node, 1)
        mark_use(head, node, now)
    else:
        node = 0
    if num_agreeing == 0:
        return offset, handle_of(head, node), 0, 0, -1
    block = blocks_of(head)[nodes_of(head)[donor].first_cell]
    return offset, handle_of(head, node), handle_of(head, donor), num_agreeing, block


def look(address: Any, root: Any, packed: Any) -> Any:
    """The same without a trace: (number of tokens, end of the last whole run, number of tokens it ends at, donor's)."""
    head = head_at(address)
    tokens = unpacked(packed)
    node, offset, _, num_agreeing = walk(head, root, tokens)
    num_partial = num_agreeing % head.block_size
    return offset + num_agreeing - num_partial, node, offset, num_partial


def find_way(address: Any, root: Any, packed: Any) -> Any:
    """Where the tree goes on behind some tokens: (node, tokens of its run before that); (0, 0) if nowhere, or in
    several ways."""
    head = head_at(address)
    tokens = unpacked(packed)
    node, offset, child, num_agreeing = walk(head, root, tokens)
    if offset == len(tokens):
        child = nodes_of(head)[node].children
    elif offset + num_agreeing < len(tokens):
        child = 0
    return max(child, 0), num_agreeing


def insert(address: Any, root: Any, after: Any, packed: Any, blocks: Any, priority: Any, now: Any) -> Any:
    """Puts a prefix into the tree; see `RadixTree.insert`.

    Returns (number of new tokens or `FULL`, `NO_CELLS`, `STALE`, `WRONG_LENGTH`, `NO_ROOT`; node; packed ids of the
    duplicates).
    """
    head = head_at(address)
    nodes = nodes_of(head)
    block_size = head.block_size
    tokens = unpacked(packed)
    num_blocks = len(blocks)
    num_whole, num_tail = divmod(len(tokens), block_size)
    if num_blocks == num_whole:
        tokens = part(tokens, 0, num_blocks * block_size)
        num_tail = 0
    elif num_tail == 0 or num_blocks != num_whole + 1:
        return WRONG_LENGTH, 0, packed_at(0, 0)
    start = root
    if after:
        start = opened(head, after)
        if start == STALE:
            return STALE, 0, packed_at(0, 0)
    if not start and num_blocks:
        return NO_ROOT, 0, packed_at(0, 0)
    end = nodes[start].end + num_blocks
    if head.num_nodes + 3 > head.node_capacity or (head.policy == COST and end >= head.num_costs):
        return FULL, 0, packed_at(0, 0)
    node, offset, closest, num_agreeing = walk(head, start, tokens)
    num_known, num_rest = divmod(offset + num_agreeing, block_size)
    first, num_new = 0, num_blocks - num_known
    is_tail_there = num_tail and num_new == 1 and num_rest == num_tail
    if is_tail_there and _is_tail(head, closest, num_agreeing):
        node, num_known, num_new, is_tail_there = closest, num_blocks, 0, False
    else:
        if is_tail_there:
            num_new = 0  # some block that is there begins with the tail: it serves as well
        if num_new:
            first = take_cells(head, num_new)
            if not first:
                return NO_CELLS, 0, packed_at(0, 0)
        if num_agreeing >= block_size:
            node = split(head, closest, num_agreeing // block_size)
    num_duplicates = _find_duplicates(head, node, blocks, num_known)
    if is_tail_there:
        found_of(head)[num_duplicates] = blocks[num_known]
        num_duplicates += 1
    duplicates = packed_at(head.found, 4 * num_duplicates)
    head.num_duplicate_blocks += num_duplicates
    if not num_new:
        if nodes[node].end:
            nodes[node].priority = max(nodes[node].priority, min(priority, MAX_INT32))
            mark_use(head, node, now)
        return 0, handle_of(head, node) if nodes[node].end else 0, duplicates
    leaf = take_node(head)
    nodes[leaf].parent, nodes[leaf].root = node, nodes[node].root
    nodes[leaf].first_cell, nodes[leaf].num_blocks = first, num_new
    nodes[leaf].end = nodes[node].end + num_new
    nodes[leaf].priority = max(0, min(priority, MAX_INT32))
    for index in range(num_new):
        blocks_of(head)[first + index] = blocks[num_known + index]
    num_new_tokens = len(tokens) - num_known * block_size
    copy(tokens, num_known * block_size, run_tokens(head, leaf), 0, num_new_tokens)
    for index in range(num_new_tokens, num_new * block_size):
        run_tokens(head, leaf)[index] = PADDING_TOKEN
    head.num_cached_blocks += num_new
    add_child(head, node, leaf, closest, num_rest)
    mark_use(head, leaf, now)
    push(head, leaf)
    return num_new_tokens, handle_of(head, leaf), duplicates


@kernel
def _is_tail(head: Any, node: Any, num_tokens: Any) -> Any:
    """Whether a run is filled up with padding from its token number `num_tokens` on."""
    return run_tokens(head, node)[num_tokens] == PADDING_TOKEN


@kernel
def _find_duplicates(head: Any, node: Any, blocks: Any, num_known: Any) -> Any:
    """Leaves the given ids that are not those of the last blocks of a path in `found`; returns how many."""
    if num_known == 0:
        return 0
    found = found_of(head)
    start = find_path(head, node) - num_known
    num_different = 0
    for index in range(num_known):
        if found[start + index] != blocks[index]:
            found[num_different] = blocks[index]
            num_different += 1
    return num_different


def lease(address: Any, handle: Any) -> Any:
    """Protects the prefix that ends at a node; the number of the node, or `STALE`."""
    head = head_at(address)
    nodes = nodes_of(head)
    node = opened(head, handle)
    if node <= 0:
        return node
    nodes[node].num_leases += 1
    if nodes[node].num_leases == 1:
        above = node
        while not nodes[above].num_holds:
            nodes[above].num_holds = 1
            above = nodes[above].parent
        nodes[above].num_holds += 1
        head.num_leased_blocks += nodes[node].end - nodes[above].end
    return node


def release(address: Any, handle: Any) -> Any:
    """Undoes one lease; the number of the node, or `STALE` if there is none."""
    head = head_at(address)
    nodes = nodes_of(head)
    node = opened(head, handle)
    if node <= 0:
        return node
    if not nodes[node].num_leases:
        return STALE
    nodes[node].num_leases -= 1
    if not nodes[node].num_leases:
        above = node
        nodes[above].num_holds -= 1
        while not nodes[above].num_holds:
            above = nodes[above].parent
            nodes[above].num_holds -= 1
        head.num_leased_blocks -= nodes[node].end - nodes[above].end
        if not nodes[node].children and not nodes[node].num_holds:
            push(head, node)
    return node


def count_sole_blocks(address: Any, handle: Any) -> Any:
    """How many blocks only one lease on a node protects; 0 if it has several."""
    head = head_at(address)
    nodes = nodes_of(head)
    node = opened(head, handle)
    if node <= 0 or nodes[node].num_leases != 1:
        return 0
    above = node
    while nodes[above].num_holds == 1 and nodes[above].parent:
        above = nodes[above].parent
    return nodes[node].end - nodes[above].end


def find_cells(address: Any, handle: Any) -> Any:
    """Leaves the cells from the root to a node in `found`; returns how many, or `STALE`."""
    head = head_at(address)
    node = opened(head, handle)
    if node <= 0:
        return node
    num_cells = end = nodes_of(head)[node].end
    while end:
        one = nodes_of(head)[node]
        end -= one.num_blocks
        for index in range(one.num_blocks):
            found_of(head)[end + index] = one.first_cell + index
        node = one.parent
    return num_cells


def find_blocks(address: Any, handle: Any) -> Any:
    """(Number of the node or `STALE`, packed ids of the blocks from the root to its end)."""
    head = head_at(address)
    node = opened(head, handle)
    num_blocks = find_path(head, node) if node > 0 else 0
    return node, packed_at(head.found, 4 * num_blocks)


def touch(address: Any, handle: Any, num_hits: Any, now: Any) -> Any:
    """Counts a use of the prefix that ends at a node, and `num_hits` hits; a free leaf becomes a candidate."""
    head = head_at(address)
    node = opened(head, handle)
    if node > 0:
        count_hits(head, node, num_hits)
        mark_use(head, node, now)
        if not nodes_of(head)[node].children and not nodes_of(head)[node].num_holds:
            push(head, node)
    return node
