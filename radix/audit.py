"""The truth about a radix tree, recomputed from its links alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .eviction import COST, LFU, PRIORITY
from .memory import HEAP_FAN, LINE_MASK
from .operations import Int32s
from .pins import PinBook
from .results import Statistics
from .view import View


def audit_tree(view: View, pins: PinBook, counted: Statistics) -> None:
    """Raise AssertionError, naming the place, if an invariant of the tree does not hold. O(tree)."""
    nodes = _audit_nodes(view)
    _audit_blocks(view, nodes, counted)
    _audit_queue(view, nodes)
    _audit_unused(view, nodes)
    num_nodes = len(nodes) - len(view.roots)
    assert counted.num_nodes == num_nodes, f"num_nodes is {num_nodes}, counted {counted.num_nodes}"
    for pin in pins:
        node = view.open(pin.node)
        assert node in nodes, "a pin holds a node that is not in the tree"
        assert view.field(node, "num_leases") > 0, f"{_name(view, node)}: pinned without a lease"
    pinned = pins.count_blocks()
    assert pinned == pins.num_blocks, f"{pinned} blocks pinned, counted {pins.num_blocks}"
    assert pins.num_blocks <= pins.max_blocks, "more blocks pinned than the budget allows"


def _name(view: View, node: int) -> str:
    """For messages. Safe on a corrupt tree."""
    namespace = view.namespaces.get(view.field(node, "root"), "?")
    first = view.memory.tokens[view.field(node, "first_cell")][:4].tolist()
    return f"node {node} {first} of {namespace!r}"


def _audit_nodes(view: View) -> set[int]:
    """Check the links of every node that can be reached from a root; returns the nodes."""
    seen: set[int] = set()
    assert {root: name for name, root in view.roots.items()} == view.namespaces, "roots and namespaces differ"
    for namespace, root in view.roots.items():
        assert view.field(root, "root") == root, f"the root of {namespace!r} is none"
        assert not view.field(root, "parent") and not view.field(root, "end"), f"the root of {namespace!r} has a run"
        assert view.field(root, "children"), f"the root of {namespace!r} is empty and was not dropped"
        stack = [root]
        while stack:
            node = stack.pop()
            assert node not in seen, f"{_name(view, node)} can be reached in two ways"
            seen.add(node)
            _audit_links(view, node)
            stack += _audit_forks(view, node)
    return seen


def _audit_links(view: View, node: int) -> None:
    """Check a node against its children, and the counts that depend on them alone."""
    name = _name(view, node)
    assert view.field(node, "num_leases") >= 0, f"{name}: {view.field(node, 'num_leases')} leases"
    num_holds = (view.field(node, "num_leases") > 0) + (view.field(node, "parent") == 0)
    for child in view.children(node):
        assert view.field(child, "parent") == node, f"{_name(view, child)}: its parent is not {name}"
        assert view.field(child, "root") == view.field(node, "root"), f"{_name(view, child)}: in another namespace"
        assert view.field(child, "num_blocks") > 0, f"{_name(view, child)}: empty run"
        end = view.field(node, "end") + view.field(child, "num_blocks")
        assert view.field(child, "end") == end, f"{_name(view, child)}: ends at block {view.field(child, 'end')}"
        is_past = view.memory.nodes["last_used"][child] <= view.memory.head["last_use"]
        assert is_past, f"{_name(view, child)}: used in the future"
        num_holds += view.field(child, "num_holds") > 0
    counted = view.field(node, "num_holds")
    assert counted == num_holds, f"{name}: {num_holds} holds, counted {counted}"


def _audit_forks(view: View, node: int) -> list[int]:
    """Check that each child of a node is found by the bits of its first block; returns the children."""
    found, stack = [], [(view.field(node, "children"), list[tuple[int, int]]())]
    while stack:
        reference, way = stack.pop()
        if reference < 0:
            fork = view.memory.forks[-reference]
            bit = int(fork["bit"])
            assert not way or way[-1][0] < bit, f"{_name(view, node)}: fork {-reference} looks back"
            stack += [(int(fork["zero"]), [*way, (bit, 0)]), (int(fork["one"]), [*way, (bit, 1)])]
        elif reference:
            found.append(reference)
            block = view.memory.tokens[view.field(reference, "first_cell")]
            for bit, side in way:
                is_there = int(block[bit >> 5]) >> (bit & 31) & 1 == side
                assert is_there, f"{_name(view, reference)}: filed under another first block"
    return found


def _audit_blocks(view: View, nodes: set[int], counted: Statistics) -> None:
    """Check that every cell and every block is in the tree once, and how many there are."""
    cells: dict[int, int] = {}
    blocks: dict[int, int] = {}
    num_leased = 0
    for node in nodes:
        for cell in view.run_cells(node):
            other = cells.setdefault(cell, node)
            assert other == node, f"cell {cell} is in {_name(view, node)} and {_name(view, other)}"
            block = int(view.memory.blocks[cell])
            other = blocks.setdefault(block, node)
            assert other == node, f"block {block} is in {_name(view, node)} and {_name(view, other)}"
        num_leased += view.field(node, "num_blocks") if view.field(node, "num_holds") else 0
    num_blocks = sum(view.field(node, "num_blocks") for node in nodes)
    assert len(blocks) == num_blocks, "a node holds a block twice"
    for name, number in (("num_cached_blocks", num_blocks), ("num_leased_blocks", num_leased)):
        assert getattr(counted, name) == number, f"{name} is {number}, counted {getattr(counted, name)}"
    _audit_partition("cells", cells, _audit_extents(view), int(view.memory.head["fresh_cell"]))


def _audit_extents(view: View) -> list[int]:
    """Check that the free extents are filed by their length, tagged, and apart from each other; returns their cells."""
    memory, extents = view.memory, view.memory.extents
    cells: list[int] = []
    tags = np.zeros_like(memory.tags)
    filed: list[int] = []
    for number, first in enumerate(memory.bin_extents.tolist()):
        word = int(memory.bin_words[number >> 6])
        assert (first != 0) == bool(word >> (number & 63) & 1), f"bin {number}: empty or not?"
        before = 0
        for extent in _chain(extents["after"], first):
            assert extents["before"][extent] == before, f"extent {extent}: not behind {before} in bin {number}"
            before = extent
            start, length = int(extents["first"][extent]), int(extents["length"][extent])
            shift = max(length.bit_length() - 4, 0)
            assert number == 8 * shift + (length >> shift), f"extent {extent}: {length} cells in bin {number}"
            tags[start] = tags[start + length - 1] = extent
            cells += range(start, start + length)
            filed.append(extent)
    assert (tags == memory.tags).all(), "the tags are not those of the free extents"
    assert not ((tags[:-1] != 0) & (tags[1:] != 0) & (tags[:-1] != tags[1:])).any(), "two free extents touch"
    unused = _chain(extents["after"], int(memory.head["free_extent"]))
    _audit_partition("extents", filed, unused, int(memory.head["fresh_extent"]))
    return cells


def _audit_queue(view: View, nodes: set[int]) -> None:
    """Check the order of heap and line, and that every free leaf is in one, under a key not above its present one."""
    head = view.memory.head
    line = [view.memory.line[index & LINE_MASK] for index in range(head["line_start"], head["line_end"])]
    heap = list(view.memory.heap[: head["heap_length"]])
    for name, entries, fan in (("heap", heap, HEAP_FAN), ("line", line, 1)):
        keys = [(float(entry["rank"]), float(entry["last_used"])) for entry in entries]
        for index in range(1, len(keys)):
            assert keys[(index - 1) // fan] <= keys[index], f"the {name} of candidates is out of order at {index}"
    entries = heap + line
    keys = [(float(entry["rank"]), float(entry["last_used"])) for entry in entries]
    queued = [int(entry["node"]) for entry in entries]
    distinct = set(queued)
    assert len(distinct) == len(queued), "a node is in the eviction queue twice"
    strangers = distinct - nodes
    assert not strangers, f"the eviction queue knows {len(strangers)} nodes that are not in the tree"
    for node, key in zip(queued, keys, strict=True):
        present = _rank(view, node), float(view.memory.nodes["last_used"][node])
        assert key <= present, f"{_name(view, node)}: queued under {key}, above its key {present}"
    for node in nodes:
        is_queued = node in distinct
        assert view.field(node, "is_queued") == is_queued, f"{_name(view, node)}: queued or not?"
        is_free_leaf = not view.field(node, "children") and not view.field(node, "num_holds")
        assert is_queued or not is_free_leaf, f"{_name(view, node)}: a free leaf that the eviction queue does not know"


def _rank(view: View, node: int) -> float:
    """What `queue_kernels.rank_of` says, written once more."""
    policy, fields = int(view.memory.head["policy"]), view.memory.nodes[node]
    if policy == COST:
        return float(fields["era"] + (fields["num_hits"] + 1) * view.memory.costs[fields["end"]])
    return float(fields["num_hits"] if policy == LFU else fields["priority"] if policy == PRIORITY else 0)


def _audit_unused(view: View, nodes: set[int]) -> None:
    """Check that nodes and forks are in use or to be used again, and none of them both or neither."""
    memory, head = view.memory, view.memory.head
    unused = _chain(memory.nodes["parent"], int(head["free_node"]))
    _audit_partition("nodes", nodes, unused, int(head["fresh_node"]))
    forks: list[int] = []
    for node in nodes:
        stack = [view.field(node, "children")]
        while stack:
            reference = stack.pop()
            if reference < 0:
                forks.append(-reference)
                stack += [int(memory.forks["zero"][-reference]), int(memory.forks["one"][-reference])]
    unused = _chain(memory.forks["zero"], int(head["free_fork"]))
    _audit_partition("forks", forks, unused, int(head["fresh_fork"]))


def _chain(links: Int32s, first: int) -> list[int]:
    """What is chained, from the first on; cut off where it runs into itself."""
    chain: list[int] = []
    while first and len(chain) <= len(links):
        chain.append(first)
        first = int(links[first])
    return chain


def _audit_partition(name: str, used: Iterable[int], unused: Iterable[int], fresh: int) -> None:
    assert sorted([*used, *unused]) == list(range(1, fresh)), f"{name}: some are lost, or are used and unused"
