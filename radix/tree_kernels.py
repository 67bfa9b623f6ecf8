"""The operations of the tree, as they are called from Python: each is one call of one compiled function.

A node is handed out as its number plus its generation in the upper half; when it is handed in again after it has been
evicted, the answer is `STALE`. Answers that are lists are left in `found`.
"""

from __future__ import annotations

from typing import Any

from .children_kernels import add_child, remove_child
from .compiled import kernel
from .eviction import COST
from .memory import FULL, NO_ROOT, NUMBER_BITS, STALE, WRONG_LENGTH
from .memory_kernels import (
    block_tokens,
    cells_of,
    found_of,
    ghost_tokens,
    ghosts_of,
    head_at,
    nodes_of,
    unpacked,
)
from .packed import packed_at
from .queue_kernels import mark_use, push, rank_of, take
from .walk_kernels import find_path, give_back_node, split, take_node, walk

# A leaf that is longer than what is wanted is still evicted whole, up to so many blocks more, or this share (as a power
# of two) of the cache: the next eviction would take the rest anyway.
MAX_SURPLUS_BLOCKS = 16
MAX_SURPLUS_SHIFT = 6
PADDING_TOKEN = -1


@kernel
def _handle(head: Any, node: Any) -> Any:
    return nodes_of(head)[node].generation << 32 | node


@kernel
def _opened(head: Any, handle: Any) -> Any:
    """The number of a node, or `STALE`."""
    node = handle & NUMBER_BITS
    return node if nodes_of(head)[node].generation == handle >> 32 else STALE


def make_root(address: Any) -> Any:
    """A root for a new namespace: its number, or `FULL`."""
    head = head_at(address)
    if head.num_nodes + 2 > head.node_capacity:
        return FULL
    root = take_node(head)
    one = nodes_of(head)[root]
    one.root, one.parent, one.num_holds = root, 0, 1
    one.first_cell = one.num_blocks = one.end = 0
    head.num_roots += 1
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
        nodes_of(head)[node].num_hits += 1
        mark_use(head, node, now)
    else:
        node = 0
    if num_agreeing == 0:
        return offset, _handle(head, node), 0, 0, -1
    block = cells_of(head)[nodes_of(head)[donor].first_cell].block
    return offset, _handle(head, node), _handle(head, donor), num_agreeing, block


def look(address: Any, root: Any, packed: Any) -> Any:
    """The same without a trace: (number of tokens, end of the last whole run, number of tokens it ends at, donor's)."""
    head = head_at(address)
    tokens = unpacked(packed)
    node, offset, _, num_agreeing = walk(head, root, tokens)
    num_partial = num_agreeing % head.block_size
    return offset + num_agreeing - num_partial, node, offset, num_partial


def insert(address: Any, root: Any, after: Any, packed: Any, blocks: Any, priority: Any, now: Any) -> Any:
    """Puts a prefix into the tree; see `RadixTree.insert`.

    Returns (number of new tokens or `FULL`, `STALE`, `WRONG_LENGTH`, `NO_ROOT`; node; packed ids of the duplicates).
    """
    head = head_at(address)
    nodes = nodes_of(head)
    block_size = head.block_size
    tokens = unpacked(packed)
    num_blocks = len(blocks)
    num_whole, num_tail = divmod(len(tokens), block_size)
    if num_blocks == num_whole:
        tokens = tokens[: num_blocks * block_size]
        num_tail = 0
    elif num_tail == 0 or num_blocks != num_whole + 1:
        return WRONG_LENGTH, 0, packed_at(0, 0)
    start = root
    if after:
        start = _opened(head, after)
        if start == STALE:
            return STALE, 0, packed_at(0, 0)
    if not start and num_blocks:
        return NO_ROOT, 0, packed_at(0, 0)
    end = nodes[start].end + num_blocks
    is_full = head.num_nodes + 3 > head.node_capacity
    is_full = is_full or head.num_cached_blocks + 1 + num_blocks > head.cell_capacity
    if is_full or (head.policy == COST and end >= head.num_costs):
        return FULL, 0, packed_at(0, 0)
    node, offset, closest, num_agreeing = walk(head, start, tokens)
    if num_agreeing >= block_size:
        num_known = num_agreeing // block_size
        node = split(head, closest, num_known)
        offset += num_known * block_size
        num_agreeing -= num_known * block_size
    num_known = offset // block_size
    num_duplicates = _find_duplicates(head, node, blocks, num_known)
    if num_tail and num_known == num_blocks - 1 and num_agreeing == num_tail:
        # some block that is there begins with the tail: it serves as well
        found_of(head)[num_duplicates] = blocks[num_known]
        num_duplicates += 1
        num_blocks -= 1
    duplicates = packed_at(head.found, 4 * num_duplicates)
    head.num_duplicate_blocks += num_duplicates
    if num_known == num_blocks:
        if nodes[node].end:
            nodes[node].priority = max(nodes[node].priority, priority)
            mark_use(head, node, now)
        return 0, _handle(head, node) if nodes[node].end else 0, duplicates
    leaf = take_node(head)
    nodes[leaf].parent, nodes[leaf].root = node, nodes[node].root
    nodes[leaf].num_blocks, nodes[leaf].end = num_blocks - num_known, nodes[node].end + num_blocks - num_known
    nodes[leaf].priority = max(0, priority)
    _fill(head, leaf, tokens, offset, blocks, num_known)
    add_child(head, node, leaf, closest, num_agreeing)
    mark_use(head, leaf, now)
    push(head, leaf)
    return len(tokens) - offset, _handle(head, leaf), duplicates


@kernel
def _find_duplicates(head: Any, node: Any, blocks: Any, num_known: Any) -> Any:
    """Leaves the given ids that are not those of the last blocks of a path in `found`; returns how many."""
    if num_known == 0:
        return 0
    cells, found = cells_of(head), found_of(head)
    start = find_path(head, node) - num_known
    num_different = 0
    for index in range(num_known):
        if cells[found[start + index]].block != blocks[index]:
            found[num_different] = blocks[index]
            num_different += 1
    return num_different


@kernel
def _fill(head: Any, leaf: Any, tokens: Any, offset: Any, blocks: Any, start: Any) -> None:
    """Gives a new leaf the cells of its run: the tokens from `offset` on, and the blocks from `start` on."""
    nodes, cells = nodes_of(head), cells_of(head)
    before = 0
    for number in range(start, len(blocks)):
        cell = head.free_cell
        if cell:
            head.free_cell = cells[cell].next
        else:
            cell = head.fresh_cell
            head.fresh_cell += 1
        if before:
            cells[before].next = cell
        else:
            nodes[leaf].first_cell = cell
        before = cell
        cells[cell].block = blocks[number]
        block, given = block_tokens(head, cell), tokens[offset : offset + head.block_size]
        for index in range(len(given)):
            block[index] = given[index]
        for index in range(len(given), head.block_size):
            block[index] = PADDING_TOKEN
        offset += head.block_size
    head.num_cached_blocks += len(blocks) - start


def lease(address: Any, handle: Any) -> Any:
    """Protects the prefix that ends at a node; the number of the node, or `STALE`."""
    head = head_at(address)
    nodes = nodes_of(head)
    node = _opened(head, handle)
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
    node = _opened(head, handle)
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
    node = _opened(head, handle)
    if node <= 0 or nodes[node].num_leases != 1:
        return 0
    above = node
    while nodes[above].num_holds == 1 and nodes[above].parent:
        above = nodes[above].parent
    return nodes[node].end - nodes[above].end


def find_cells(address: Any, handle: Any) -> Any:
    """Leaves the cells from the root to a node in `found`; returns how many, or `STALE`."""
    head = head_at(address)
    node = _opened(head, handle)
    return node if node <= 0 else find_path(head, node)


def find_blocks(address: Any, handle: Any) -> Any:
    """(Number of the node or `STALE`, packed ids of the blocks from the root to its end)."""
    head = head_at(address)
    cells, found = cells_of(head), found_of(head)
    node = _opened(head, handle)
    num_blocks = find_path(head, node) if node > 0 else 0
    for index in range(num_blocks):
        found[index] = cells[found[index]].block
    return node, packed_at(head.found, 4 * num_blocks)


def touch(address: Any, handle: Any, num_hits: Any, now: Any) -> Any:
    """Counts a use of the prefix that ends at a node, and `num_hits` hits; pushes it if it is an unheld leaf."""
    head = head_at(address)
    one = nodes_of(head)[handle & NUMBER_BITS]
    node = _opened(head, handle)
    if node > 0:
        one.num_hits += num_hits
        mark_use(head, node, now)
        if not one.children and not one.num_holds:
            push(head, node)
    return node


def evict(address: Any, num_wanted: Any, now: Any) -> Any:
    """Takes at least so many blocks of the leaves that go first out of the tree, while there are leaves.

    Returns (their packed ids, whether a root has lost its last child).
    """
    head = head_at(address)
    num_freed = 0
    while num_freed < num_wanted:
        leaf = take(head)
        if not leaf:
            break
        num_freed += _cut(head, leaf, 0, num_wanted - num_freed, num_freed, now)
    return packed_at(head.found, 4 * num_freed), head.emptied_root


def take_leaf(address: Any) -> Any:
    """Takes the leaf that goes first out of the queue: a node, or 0."""
    head = head_at(address)
    return _handle(head, take(head))


def cut_leaf(address: Any, handle: Any, num_kept: Any, num_wanted: Any, now: Any) -> Any:
    """`_cut` of a leaf that `take_leaf` gave; the packed ids."""
    head = head_at(address)
    return packed_at(head.found, 4 * _cut(head, handle & NUMBER_BITS, num_kept, num_wanted, 0, now))


@kernel
def _cut(head: Any, leaf: Any, num_kept: Any, num_wanted: Any, place: Any, now: Any) -> Any:
    """Evicts from the end of a leaf: all but the first `num_kept` blocks, or just what is wanted if that is far less.

    Leaves the ids in `found` from `place` on, and returns how many. What could still go stays a candidate.
    """
    nodes, cells, found = nodes_of(head), cells_of(head), found_of(head)
    num_cut = num_free = nodes[leaf].num_blocks - num_kept
    surplus = max(MAX_SURPLUS_BLOCKS, head.num_cached_blocks >> MAX_SURPLUS_SHIFT)
    if num_free > 2 * num_wanted and num_free - num_wanted > surplus:
        num_cut = num_wanted
    if head.policy == COST:
        head.era = max(head.era, rank_of(head, leaf))
    before, first = 0, nodes[leaf].first_cell
    for _ in range(nodes[leaf].num_blocks - num_cut):
        before, first = first, cells[first].next
    _remember(head, leaf if before else nodes[leaf].parent, first, now)
    if before:
        nodes[leaf].num_blocks -= num_cut
        nodes[leaf].end -= num_cut
        if num_cut < num_free:
            push(head, leaf)
    else:
        _remove(head, leaf)
    last = first
    found[place] = cells[first].block
    for index in range(place + 1, place + num_cut):
        last = cells[last].next
        found[index] = cells[last].block
    cells[last].next = head.free_cell
    head.free_cell = first
    head.num_cached_blocks -= num_cut
    head.num_evicted_blocks += num_cut
    return num_cut


@kernel
def _remove(head: Any, leaf: Any) -> None:
    """Unlinks a leaf and hands its usage up; its parent may become a candidate, or a root to be dropped."""
    nodes = nodes_of(head)
    parent = nodes[leaf].parent
    remove_child(head, parent, leaf)
    if not nodes[parent].end:
        if not nodes[parent].children:
            nodes[parent].parent = head.emptied_root
            head.emptied_root = parent
    else:
        nodes[parent].num_hits += nodes[leaf].num_hits
        nodes[parent].last_used = max(nodes[parent].last_used, nodes[leaf].last_used)
        nodes[parent].era = max(nodes[parent].era, nodes[leaf].era)
        nodes[parent].priority = max(nodes[parent].priority, nodes[leaf].priority)
        if not nodes[parent].children and not nodes[parent].num_holds:
            push(head, parent)
    give_back_node(head, leaf)


@kernel
def _remember(head: Any, place: Any, cell: Any, now: Any) -> None:
    """Writes down what was evicted below (or from the end of) a node."""
    if head.max_ghosts:
        ghost = head.num_ghosts % head.max_ghosts
        head.num_ghosts += 1
        ghosts_of(head)[ghost].place = _handle(head, place)
        ghosts_of(head)[ghost].when = now
        kept, block = ghost_tokens(head, ghost), block_tokens(head, cell)
        for index in range(head.block_size):
            kept[index] = block[index]


def drop_root(address: Any) -> Any:
    """Puts a root that has lost its last child out of use, and returns its handle; 0 if there is none."""
    head = head_at(address)
    root = head.emptied_root
    if not root:
        return 0
    head.emptied_root = nodes_of(head)[root].parent
    handle = _handle(head, root)
    give_back_node(head, root)
    head.num_roots -= 1
    return handle
