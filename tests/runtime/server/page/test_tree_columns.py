"""The columns of a tree against its nodes as Python objects, for random trees."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from phloem.radix import COLUMN_NAMES, Node, PinBudgetExceeded, RadixTree, pack
from phloem.radix.snapshot import NodeRecord
from phloem.radix.tokens import unpack

MOST = 2**31 - 1


class Ticks:
    """A clock that never says the same twice."""

    now = 100.0

    def __call__(self) -> float:
        self.now += 0.25
        return self.now


def grown(rng: random.Random, policy: str) -> tuple[RadixTree, list[Node]]:
    """A tree after random operations, and its leases."""
    tree = RadixTree(4, policy=policy, clock=Ticks(), max_pinned_blocks=30, block_cost=float)
    leases: list[Node] = []
    for number in range(rng.randrange(5, 60)):
        tokens = pack([rng.randrange(2) for _ in range(rng.randrange(1, 40))])
        space = rng.choice(["", "a", "b"])
        what = rng.randrange(6)
        if what < 3:
            blocks = range(100 * number, 100 * number + -(-len(tokens) // 16))
            tree.insert(tokens, blocks, space, priority=rng.randrange(3))
        elif what == 3 and (match := tree.match(tokens, space)).num_tokens:
            tree.lease(match.node)
            leases.append(match.node)
        elif what == 4:
            try:
                tree.pins.add(tokens, 1000.0, space)
            except PinBudgetExceeded:
                continue
        elif leases and rng.random() < 0.5:
            tree.release(leases.pop())
        else:
            tree.evict(rng.randrange(3))
    return tree, leases


def expected(tree: RadixTree, leases: list[Node]) -> dict[int, dict[str, Any]]:
    """What the columns say of each node, from the nodes as Python objects and the leases that were taken."""
    nodes = {node.id: node for node in tree._snapshot().nodes if node.id}
    free = [node for node in nodes.values() if not node.children and not node.num_holds]
    order = [node.id for node in sorted(free, key=lambda node: (node.rank, node.last_used, node.id))]
    pinned = [pin.node for pin in tree.pins]

    def below(node: NodeRecord) -> list[NodeRecord]:
        return [node, *(other for child in node.children for other in below(nodes[child]))]

    return {
        node.id: {
            "parent": node.parent or -1,
            "num_tokens": sum(token >= 0 for token in unpack(node.tokens)),
            "num_blocks": len(node.blocks),
            "last_used": max(other.last_used for other in below(node)),
            "namespace": node.namespace,
            "leases": sum(lease in {other.id for other in below(node)} for lease in leases),
            "pinned": sum(pin in {other.id for other in below(node)} for pin in pinned),
            "rank": order.index(node.id) if node.id in order else -1,
        }
        for node in nodes.values()
    }


def rows(tree: RadixTree, most: int = MOST) -> list[dict[str, Any]]:
    found = tree.columns(most)
    table = np.frombuffer(found.packed, "<i4").reshape(len(COLUMN_NAMES), found.num_nodes)
    shown = [dict(zip(COLUMN_NAMES, row, strict=True)) for row in table.T.tolist()]
    return [{**row, "namespace": found.namespaces[row["namespace"]]} for row in shown]


@pytest.mark.parametrize("policy", ["lru", "lfu", "priority", "cost"])
def test_columns_say_what_the_nodes_say(policy: str) -> None:
    rng = random.Random(policy)
    for _ in range(60):
        tree, leases = grown(rng, policy)
        wanted = expected(tree, leases)
        assert all(set(row) - {"last_used"} | {"id", "age_ms", "hits"} == set(COLUMN_NAMES) for row in wanted.values())
        shown = rows(tree)
        now = tree._clock()
        assert {row["id"] for row in shown} == wanted.keys() and len(shown) == len(wanted)
        seen = {-1}
        for row in shown:
            assert row["parent"] in seen, "a parent comes first"
            seen.add(row["id"])
            known = wanted[row["id"]]
            assert abs(row["age_ms"] - 1000 * (now - 0.25 - known.pop("last_used"))) <= 1
            assert {name: row[name] for name in known} == known
        if wanted and any(row["rank"] == 0 for row in shown):
            [first] = [row for row in shown if row["rank"] == 0]
            tree.evict(1)
            left = {row["id"]: row["num_blocks"] for row in rows(tree)}
            assert left.get(first["id"], 0) < first["num_blocks"], "the first in order goes first"


def test_hits_are_those_of_a_prefix() -> None:
    tree = RadixTree(2)
    tree.insert(pack([1, 2, 3, 4]), [0, 1], "")
    for _ in range(3):
        tree.match(pack([1, 2, 3, 4]), "")
    tree.match(pack([1, 2]), "")
    assert [(row["num_tokens"], row["hits"]) for row in rows(tree)] == [(2, 4), (2, 3)]


def test_the_largest_are_kept_with_all_that_is_above_them() -> None:
    rng = random.Random(5)
    for _ in range(30):
        tree, _ = grown(rng, "lru")
        every = {row["id"]: row for row in rows(tree)}
        sizes = {number: 4 * row["num_blocks"] for number, row in every.items()}
        for number in sorted(every, key=lambda number: -_depth(every, number)):
            if every[number]["parent"] > 0:
                sizes[every[number]["parent"]] += sizes[number]
        most = rng.randrange(len(every) + 2)
        shown = rows(tree, most)
        kept = {row["id"] for row in shown}
        assert len(shown) == min(most, len(every)) and tree.columns(most).num_left_out == len(every) - len(shown)
        assert all(row["parent"] in kept | {-1} for row in shown)
        assert all(row == every[row["id"]] | {"age_ms": row["age_ms"]} for row in shown)
        lost = every.keys() - kept
        assert not lost or not kept or max(sizes[one] for one in lost) <= min(sizes[one] for one in kept)


def _depth(every: dict[int, dict[str, Any]], number: int) -> int:
    return 0 if every[number]["parent"] < 0 else 1 + _depth(every, every[number]["parent"])
