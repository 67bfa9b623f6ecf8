"""The truth about a radix tree, recomputed from its links alone."""

from __future__ import annotations

from collections.abc import Mapping

from .eviction import EvictionQueue
from .node import Node, unpack_blocks
from .pins import PinBook
from .results import Statistics


def audit_tree(
    roots: Mapping[str, Node],
    queue: EvictionQueue,
    pins: PinBook,
    counted: Statistics,
    block_size: int,
) -> None:
    """Raise AssertionError, naming the place, if an invariant of the tree does not hold. O(tree)."""
    queued = queue.audit()
    seen_blocks: dict[int, Node] = {}
    num_leased = num_blocks = 0
    nodes: set[Node] = set()
    for namespace, root in roots.items():
        assert root.namespace == namespace, f"root of {namespace!r} says it is of {root.namespace!r}"
        assert root.parent is None and not root.tokens and not root.blocks, f"root of {namespace!r} has a run"
        assert root.children, f"root of {namespace!r} is empty and was not dropped"
        stack = [root]
        while stack:
            node = stack.pop()
            assert node not in nodes, f"{node.name} can be reached in two ways"
            nodes.add(node)
            stack += (node.children or {}).values()
            _audit_links(node, block_size)
            if node is root:
                continue
            for block in unpack_blocks(node.blocks):
                other = seen_blocks.setdefault(block, node)
                assert other is node, f"block {block} is in {node.name} and {other.name}"
            num_blocks += node.num_blocks
            assert node.last_used <= queue.last_use, f"{node.name}: used in the future"
            assert (node.queued_under is not None) == (node in queued), f"{node.name}: queued or not?"
            if node.num_holds:
                num_leased += node.num_blocks
            elif not node.children:
                assert node in queued, f"{node.name}: a free leaf that the eviction queue does not know"
    strangers = queued - nodes
    assert not strangers, f"the eviction queue knows {len(strangers)} nodes that are not in the tree"
    assert len(seen_blocks) == num_blocks, "a node holds a block twice"
    for name, number in (
        ("num_cached_blocks", num_blocks),
        ("num_leased_blocks", num_leased),
        ("num_nodes", len(nodes) - len(roots)),
    ):
        assert getattr(counted, name) == number, f"{name} is {number}, counted {getattr(counted, name)}"
    for pin in pins:
        assert pin.node in nodes, "a pin holds a node that is not in the tree"
        assert pin.node.num_leases > 0, f"{pin.node.name}: pinned without a lease"
    pinned = pins.count_blocks()
    assert pinned == pins.num_blocks, f"{pinned} blocks pinned, counted {pins.num_blocks}"
    assert pins.num_blocks <= pins.max_blocks, "more blocks pinned than the budget allows"


def _audit_links(node: Node, block_size: int) -> None:
    """Check a node against its children, and the counts that depend on them alone."""
    assert len(node.tokens) == len(node.blocks) * block_size, f"{node.name}: run and blocks differ in length"
    assert len(node.tokens) % (4 * block_size) == 0, f"{node.name}: run is not of whole blocks"
    above = 0 if node.parent is None else node.parent.end
    assert node.end == above + len(node.tokens) // 4, f"{node.name}: ends at token {node.end}"
    assert node.num_leases >= 0, f"{node.name}: {node.num_leases} leases"
    num_holds = (node.num_leases > 0) + (node.parent is None)
    for key, child in (node.children or {}).items():
        assert child.parent is node, f"{child.name}: its parent is another node than {node.name}"
        assert child.tokens, f"{child.name}: empty run"
        assert key == child.tokens[: 4 * block_size], f"{child.name}: filed under another first block"
        assert key == child.key, f"{child.name}: its key is not its first block"
        assert child.namespace == node.namespace, f"{child.name}: namespace differs from its parent's"
        num_holds += child.num_holds > 0
    assert node.num_holds == num_holds, f"{node.name}: {num_holds} holds, counted {node.num_holds}"
    if node.siblings is not None:
        assert sorted(node.siblings) == sorted(node.children or {}), f"{node.name}: index of children is out of date"
    if node.skip is not None:
        tokens, blocks, end = node.skip
        assert end.skipped_by is node, f"{node.name}: its skip is not known at its end"
        below = []
        while end is not node and end.parent is not None:
            below.append(end)
            end = end.parent
        below.reverse()
        assert end is node, f"{node.name}: its skip ends elsewhere"
        assert b"".join(one.tokens for one in below) == tokens, f"{node.name}: its skip has other tokens"
        assert b"".join(one.blocks for one in below) == blocks, f"{node.name}: its skip has other blocks"
    if node.skipped_by is not None:
        skip = node.skipped_by.skip
        assert skip is not None and skip[2] is node, f"{node.name}: skipped by a node that does not skip here"
