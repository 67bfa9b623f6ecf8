"""A tree as plain Python objects, for drawing it and for auditing its invariants (tests, faults). O(tree)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from .pins import PinBook
from .tokens import unpack

SHOWN = 8  # tokens of a run in a drawing …
SHOWN_BEFORE = 4  # and at most n of them before it differs from its neighbours


@dataclass(slots=True)
class NodeRecord:
    """The fields of a node; see `core/tree.h`.

    Attributes:
        id: 0 for the root of a namespace.
        parent: id of its parent.
        tokens: packed.
        children: their ids, in the order of their first blocks.
        rank: its present rank in the eviction policy.
        is_candidate: whether it is marked as being in the eviction heap.
    """

    id: int
    parent: int
    namespace: str
    tokens: bytes
    blocks: list[int]
    children: list[int]
    end: int
    num_leases: int
    num_holds: int
    priority: int
    last_used: float
    rank: float
    is_candidate: bool

    def __str__(self) -> str:
        return f"node {self.id} {unpack(self.tokens[:16])} of {self.namespace!r}"


@dataclass(slots=True)
class Snapshot:
    """A tree at one moment.

    Attributes:
        nodes: the roots of all namespaces first, then the others in any order.
        candidates: the eviction heap of (rank, last use, node), the next to be evicted on top.
        counts: those that the tree keeps; see `Statistics`.
    """

    block_size: int
    nodes: list[NodeRecord]
    candidates: list[tuple[float, float, int]]
    counts: dict[str, int]

    # ---------------------------------------------------------------- for people

    def draw(self, now: float, label: Callable[[list[int]], str] | None = None, max_lines: int = 200) -> str:
        """One line per node: number of blocks, time since its last use, leases, first tokens of its run; of one that
        begins as its neighbour does, tokens from a little before the difference on.

        ::

            default namespace
            ├─ 125 blocks · 3 s · 2 leases  [1, 734, 2091, …]
            │  ├─ 9 blocks · 41 s  [88, 12, …]
            │  └─ 4 blocks · 3 s · 1 lease  [88, 19, …]

        Args:
            label: formats the first tokens of a run; by default they are shown as ids.
            max_lines: most nodes shown; a last line says how many more there are.
        """
        by_id = {node.id: node for node in self.nodes}
        nothing: list[bytes] = []
        stack = [(node, nothing, "", "", "") for node in reversed(self.nodes) if not node.id]
        lines: list[str] = []
        left_out = 0
        while stack:
            node, neighbours, margin, branch, below = stack.pop()
            if len(lines) < max_lines:
                lines.append(margin + branch + _describe(node, neighbours, now, label))
            else:
                left_out += 1
            runs = [by_id[child].tokens for child in node.children]
            for place, child in reversed(list(enumerate(node.children))):
                is_last = place == len(runs) - 1
                beside = runs[max(0, place - 1) : place] + runs[place + 1 : place + 2]
                links = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
                stack.append((by_id[child], beside, margin + below, *links))
        return "\n".join([*lines, *([f"… and {left_out} more nodes"] if left_out else [])])

    # ---------------------------------------------------------------- for tests

    def audit(self, pins: PinBook) -> None:
        """Recompute all counts from the links alone; an AssertionError names the first place that is wrong."""
        nodes = {node.id: node for node in self.nodes if node.id}
        parents: dict[int, NodeRecord] = {}
        owners: dict[int, NodeRecord] = {}
        for node in self.nodes:
            assert node.id or node.children, f"the root of {node.namespace!r} is empty and was not dropped"
            for number in node.children:
                assert number in nodes, f"{node}: its child {number} does not exist"
                assert number not in parents, f"{nodes[number]} is the child of two"
                parents[number] = node
                _audit_child(nodes[number], node, self.block_size)
            first_blocks = [unpack(nodes[number].tokens[: 4 * self.block_size]) for number in node.children]
            assert all(a < b for a, b in pairwise(first_blocks)), f"{node}: its children are not in order"
            num_holds = node.num_leases + sum(nodes[number].num_holds > 0 for number in node.children)
            assert node.num_holds == num_holds, f"{node}: {num_holds} holds, counted {node.num_holds}"
            for block in node.blocks:
                assert block not in owners, f"block {block} is in {node} and {owners[block]}"
                owners[block] = node
        assert parents.keys() == nodes.keys(), f"nodes without a parent: {nodes.keys() - parents.keys()}"
        num_leased = sum(len(node.blocks) for node in self.nodes if node.num_holds)
        counted = {"num_nodes": len(nodes), "num_cached_blocks": len(owners), "num_leased_blocks": num_leased}
        for name, number in counted.items():
            assert self.counts[name] == number, f"{name} is {number}, counted {self.counts[name]}"
        self._audit_candidates(nodes)
        for pin in pins:
            assert nodes[pin.node].num_leases, f"{nodes[pin.node]}: pinned without a lease"
        num_pinned = pins.count_blocks()
        assert num_pinned == pins.num_blocks, f"{num_pinned} blocks pinned, counted {pins.num_blocks}"
        assert num_pinned <= pins.max_blocks, "more blocks pinned than the budget allows"

    def _audit_candidates(self, nodes: dict[int, NodeRecord]) -> None:
        """The heap is in order, and every evictable leaf is in it once, with a key that is at most its present key."""
        queued: set[int] = set()
        for index, (rank, last_used, number) in enumerate(self.candidates):
            above = self.candidates[(index - 1) // 2][:2] if index else (rank, last_used)
            assert above <= (rank, last_used), f"the heap of candidates is out of order at {index}"
            assert number in nodes and number not in queued, f"the heap has node {number} twice, or it is evicted"
            queued.add(number)
            present = nodes[number].rank, nodes[number].last_used
            assert (rank, last_used) <= present, f"{nodes[number]}: queued under a key above its present one"
        for node in nodes.values():
            assert node.is_candidate == (node.id in queued), f"{node}: a candidate or not?"
            assert node.is_candidate or node.children or node.num_holds, f"{node}: a free leaf that is no candidate"


def _audit_child(child: NodeRecord, node: NodeRecord, block_size: int) -> None:
    assert child.parent == node.id, f"{child}: its parent is not {node}"
    assert child.namespace == node.namespace, f"{child}: in another namespace"
    assert child.blocks, f"{child}: empty run"
    assert len(child.tokens) == 4 * block_size * len(child.blocks), (
        f"{child}: {len(child.blocks)} blocks for another run"
    )
    assert child.end == node.end + len(child.blocks), f"{child}: ends at block {child.end}"  # so there are no cycles
    assert child.num_leases >= 0, f"{child}: {child.num_leases} leases"


def _describe(node: NodeRecord, neighbours: list[bytes], now: float, label: Callable[[list[int]], str] | None) -> str:
    if not node.id:
        return f"namespace {node.namespace!r}" if node.namespace else "default namespace"
    age = now - node.last_used
    parts = [
        _count(len(node.blocks), "block"),
        f"{age:.0f} s" if age < 120 else f"{age / 60:.0f} min" if age < 7200 else f"{age / 3600:.0f} h",
    ]
    if node.num_leases:
        parts.append(_count(node.num_leases, "lease"))
    if node.priority:
        parts.append(f"priority {node.priority}")
    shared = max((_num_shared(node.tokens, other) for other in neighbours), default=0)
    start = max(0, shared - SHOWN_BEFORE)
    token_ids = unpack(node.tokens[4 * start : 4 * (start + SHOWN)])
    before = "…" if start else ""
    after = "…" if len(node.tokens) > 4 * (start + SHOWN) else ""
    if label:
        return f"{' · '.join(parts)}  {before}{label(token_ids)}{after}"
    numbers = [text for text in (before, *map(str, token_ids), after) if text]
    return f"{' · '.join(parts)}  [{', '.join(numbers)}]"


def _num_shared(tokens: bytes, other: bytes) -> int:
    pairs = zip(unpack(tokens), unpack(other), strict=False)
    return next((place for place, (one, another) in enumerate(pairs) if one != another), len(tokens) // 4)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
