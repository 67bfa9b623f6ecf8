"""The truth about a radix tree, recomputed from its links alone."""

from __future__ import annotations

from collections.abc import Mapping

from .eviction import EvictionQueue
from .node import Node, unpack_blocks
from .pins import PinBook


def audit_tree(
    roots: Mapping[str, Node],
    queue: EvictionQueue,
    pins: PinBook,
    *,
    block_size: int,
    last_use: float,
    num_nodes: int,
    num_cached_blocks: int,
    num_leased_blocks: int,
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
            nodes.add(node)
            stack += node.children.values()
            _audit_links(node, block_size)
            if node is root:
                continue
            for block in unpack_blocks(node.blocks):
                other = seen_blocks.setdefault(block, node)
                assert other is node, f"block {block} is in {node.name} and {other.name}"
            num_blocks += node.num_blocks
            assert node.last_used <= last_use, f"{node.name}: used in the future"
            assert node.is_queued == (node in queued), f"{node.name}: is_queued is {node.is_queued}"
            if node.num_holds:
                num_leased += node.num_blocks
            elif not node.children:
                assert node.is_queued, f"{node.name}: a free leaf that the eviction queue does not know"
    strangers = queued - nodes
    assert not strangers, f"the eviction queue knows {len(strangers)} nodes that are not in the tree"
    assert len(seen_blocks) == num_cached_blocks, f"{len(seen_blocks)} blocks in tree, counted {num_cached_blocks}"
    assert num_leased == num_leased_blocks, f"{num_leased} blocks leased, counted {num_leased_blocks}"
    for pin in pins:
        assert pin.node in nodes, "a pin holds a node that is not in the tree"
        assert pin.node.num_leases > 0, f"{pin.node.name}: pinned without a lease"
    assert pins.num_blocks == pins.count_blocks(), f"{pins.count_blocks()} blocks pinned, counted {pins.num_blocks}"
    assert pins.num_blocks <= pins.max_blocks, "more blocks pinned than the budget allows"


def _audit_links(node: Node, block_size: int) -> None:
    """Check a node against its children, and the counts that depend on them alone."""
    place = node.name
    assert len(node.tokens) == len(node.blocks) * block_size, f"{place}: run and blocks differ in length"
    assert len(node.tokens) % (4 * block_size) == 0, f"{place}: run is not of whole blocks"
    assert node.num_leases >= 0, f"{place}: {node.num_leases} leases"
    if node.siblings is not None:
        assert sorted(node.siblings) == sorted(node.children), f"{place}: index of children is out of date"
    if node.skip is not None:
        run, end = node.skip
        assert end.skipped_by is node, f"{place}: its skip is not known at its end"
        assert node.path_tokens() + run == end.path_tokens(), f"{place}: its skip leads astray"
    if node.skipped_by is not None:
        assert node.skipped_by.skip is not None, f"{place}: skipped by a node without a skip"
        assert node.skipped_by.skip[1] is node, f"{place}: skipped by a node that skips elsewhere"
    num_holds = int(node.num_leases > 0)
    for key, child in node.children.items():
        assert child.parent is node, f"{child.name}: its parent is another node than {place}"
        assert child.tokens, f"{child.name}: empty run"
        assert key == child.tokens[: 4 * block_size], f"{child.name}: filed under another first block"
        assert key == child.key, f"{child.name}: its key is not its first block"
        assert child.namespace == node.namespace, f"{child.name}: namespace differs from its parent's"
        num_holds += child.num_holds > 0
    assert node.num_holds == num_holds, f"{place}: {num_holds} holds, counted {node.num_holds}"
