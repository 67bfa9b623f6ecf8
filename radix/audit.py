"""The truth about a radix tree, recomputed from its links alone."""

from __future__ import annotations

from itertools import pairwise

from .pins import PinBook
from .snapshot import NodeRecord, Snapshot
from .tokens import unpack


def audit_tree(tree: Snapshot, pins: PinBook) -> None:
    """Raise AssertionError, naming the place, if an invariant of the tree does not hold. O(tree)."""
    nodes = {node.id: node for node in tree.nodes}
    seen: set[int] = set()
    for namespace, (children, num_holds) in tree.roots.items():
        assert children, f"the root of {namespace!r} is empty and was not dropped"
        root = NodeRecord(0, 0, namespace, b"", [], children, 0, 0, num_holds, 0, 0.0, 0.0, False)
        stack = [root]
        while stack:
            node = stack.pop()
            below = _audit_children(nodes, node, tree.block_size)
            for child in below:
                assert child.id not in seen, f"{_name(child)} can be reached in two ways"
                seen.add(child.id)
            stack += below
    lost = nodes.keys() - seen
    assert not lost, f"{_name(nodes[min(lost)])} cannot be reached from a root" if lost else ""
    _audit_blocks(tree)
    _audit_candidates(tree, nodes)
    _audit_pins(nodes, pins)


def _name(node: NodeRecord) -> str:
    return f"node {node.id} {unpack(node.tokens[:16])} of {node.namespace!r}"


def _audit_children(nodes: dict[int, NodeRecord], node: NodeRecord, block_size: int) -> list[NodeRecord]:
    """Check a node against its children, and the counts that depend on them alone; returns the children."""
    name = _name(node)
    unknown = [child for child in node.children if child not in nodes]
    assert not unknown, f"{name}: its children {unknown} do not exist"
    children = [nodes[child] for child in node.children]
    first_blocks = [unpack(child.tokens[: 4 * block_size]) for child in children]
    ordered = all(before < after for before, after in pairwise(first_blocks))
    assert ordered, f"{name}: its children are not in the order of their first blocks"
    for child in children:
        assert child.parent == node.id, f"{_name(child)}: its parent is not {name}"
        assert child.namespace == node.namespace, f"{_name(child)}: in another namespace"
        assert child.blocks, f"{_name(child)}: empty run"
        num_tokens = len(child.blocks) * block_size
        assert len(child.tokens) == 4 * num_tokens, f"{_name(child)}: {len(child.blocks)} blocks for another run"
        assert child.end == node.end + len(child.blocks), f"{_name(child)}: ends at block {child.end}"
    assert node.num_leases >= 0, f"{name}: {node.num_leases} leases"
    num_holds = node.num_leases + sum(child.num_holds > 0 for child in children)
    assert node.num_holds == num_holds, f"{name}: {num_holds} holds, counted {node.num_holds}"
    return children


def _audit_blocks(tree: Snapshot) -> None:
    """Check that every block is in the tree once, and how many there are."""
    owners: dict[int, NodeRecord] = {}
    for node in tree.nodes:
        for block in node.blocks:
            other = owners.setdefault(block, node)
            assert other is node, f"block {block} is in {_name(node)} and {_name(other)}"
        assert len(set(node.blocks)) == len(node.blocks), f"{_name(node)} holds a block twice"
    num_leased = sum(len(node.blocks) for node in tree.nodes if node.num_holds)
    for name, number in (
        ("num_nodes", len(tree.nodes)),
        ("num_cached_blocks", len(owners)),
        ("num_leased_blocks", num_leased),
    ):
        assert tree.counts[name] == number, f"{name} is {number}, counted {tree.counts[name]}"


def _audit_candidates(tree: Snapshot, nodes: dict[int, NodeRecord]) -> None:
    """Check the order of the heap, and that every free leaf is in it once, under a key not above its present one."""
    queued: set[int] = set()
    for index, (rank, last_used, number) in enumerate(tree.candidates):
        above = tree.candidates[(index - 1) // 2][:2] if index else (rank, last_used)
        assert above <= (rank, last_used), f"the heap of candidates is out of order at {index}"
        assert number in nodes, f"the heap of candidates has node {number}, which is not in the tree"
        assert number not in queued, f"{_name(nodes[number])} is in the heap of candidates twice"
        queued.add(number)
        present = nodes[number].rank, nodes[number].last_used
        assert (rank, last_used) <= present, f"{_name(nodes[number])}: queued under a key above its present one"
    for node in tree.nodes:
        assert node.is_candidate == (node.id in queued), f"{_name(node)}: a candidate or not?"
        is_free_leaf = not node.children and not node.num_holds
        assert node.is_candidate or not is_free_leaf, f"{_name(node)}: a free leaf that is no candidate"


def _audit_pins(nodes: dict[int, NodeRecord], pins: PinBook) -> None:
    for pin in pins:
        assert pin.node in nodes, "a pin holds a node that is not in the tree"
        assert nodes[pin.node].num_leases, f"{_name(nodes[pin.node])}: pinned without a lease"
    num_blocks = pins.count_blocks()
    assert num_blocks == pins.num_blocks, f"{num_blocks} blocks pinned, counted {pins.num_blocks}"
    assert pins.num_blocks <= pins.max_blocks, "more blocks pinned than the budget allows"
