"""The audit detects corruption: each test breaks one invariant in a copy of a tree and expects an AssertionError."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest

from phloem.radix import RadixTree, pack
from phloem.radix.snapshot import NodeRecord, Snapshot


@pytest.fixture
def tree() -> RadixTree:
    """Two namespaces, splits, a lease, a pin, and several candidates."""
    tree = RadixTree(2, max_pinned_blocks=8)
    for first in (7, 8, 9):
        tree.insert(pack([first] * 4), [first, first + 3], "other")
        tree.match(pack([first] * 2), "other")
    tree.insert(pack([1, 1, 2, 2, 3, 3]), [0, 1, 2], "")
    tree.insert(pack([1, 1, 2, 2, 4, 4]), [0, 1, 3], "")
    tree.insert(pack([1, 1, 5, 5]), [0, 4], "")
    tree.insert(pack([1, 1, 6, 6]), [6, 5], "other")
    tree.evict(2)
    tree.lease(tree.match(pack([1, 1, 2, 2, 3, 3]), "").node)
    tree.pins.add(pack([1, 1, 5, 5]), math.inf, "")
    return tree


def end_of(copy: Snapshot, *token_ids: int) -> NodeRecord:
    """The node of the namespace "" whose path spells these tokens."""
    nodes, path = {node.id: node for node in copy.nodes}, pack(token_ids)
    for node in copy.nodes:
        tokens, above = node.tokens, node.parent
        while above:
            tokens, above = nodes[above].tokens + tokens, nodes[above].parent
        if node.namespace == "" and tokens == path:
            return node
    raise KeyError(token_ids)


def root_of(copy: Snapshot, namespace: str) -> NodeRecord:
    return next(node for node in copy.nodes if not node.id and node.namespace == namespace)


def test_a_sound_tree_passes(tree: RadixTree) -> None:
    copy = tree._snapshot()
    assert len(copy.candidates) > 2, "no order to corrupt"
    assert len(end_of(copy, 1, 1).children) > 1, "no order to corrupt"
    tree.audit()


def lose_a_block(copy: Snapshot) -> None:
    end_of(copy, 1, 1, 2, 2, 4, 4).blocks.clear()


def hold_a_block_twice(copy: Snapshot) -> None:
    end_of(copy, 1, 1, 2, 2, 4, 4).blocks[:] = end_of(copy, 1, 1, 5, 5).blocks


def hold_a_block_twice_in_one_node(copy: Snapshot) -> None:
    node = end_of(copy, 1, 1, 2, 2, 4, 4)
    node.blocks, node.tokens, node.end = node.blocks * 2, node.tokens * 2, node.end + 1


def forget_the_parent(copy: Snapshot) -> None:
    end_of(copy, 1, 1, 5, 5).parent = 0


def end_elsewhere(copy: Snapshot) -> None:
    end_of(copy, 1, 1, 5, 5).end += 1


def lose_a_token(copy: Snapshot) -> None:
    node = end_of(copy, 1, 1, 5, 5)
    node.tokens = node.tokens[:-4]


def file_under_another_block(copy: Snapshot) -> None:
    end_of(copy, 1, 1, 5, 5).tokens = pack([0, 0])


def two_children_with_the_same_first_block(copy: Snapshot) -> None:
    end_of(copy, 1, 1, 5, 5).tokens = end_of(copy, 1, 1, 2, 2).tokens


def swap_two_children(copy: Snapshot) -> None:
    end_of(copy, 1, 1).children.reverse()


def have_a_child_that_is_gone(copy: Snapshot) -> None:
    end_of(copy, 1, 1, 5, 5).children.append(10**6)


def lose_a_child(copy: Snapshot) -> None:
    end_of(copy, 1, 1).children.pop()


def forget_a_hold(copy: Snapshot) -> None:
    end_of(copy, 1, 1).num_holds -= 1


def forget_a_lease(copy: Snapshot) -> None:
    end_of(copy, 1, 1, 2, 2, 3, 3).num_leases -= 1


def release_a_lease_that_is_none(copy: Snapshot) -> None:
    node = end_of(copy, 1, 1, 2, 2, 4, 4)
    node.num_leases = node.num_holds = -1


def release_a_pin(copy: Snapshot) -> None:
    end_of(copy, 1, 1, 5, 5).num_leases -= 1
    end_of(copy, 1, 1, 5, 5).num_holds -= 1
    end_of(copy, 1, 1).num_holds -= 1
    copy.counts["num_leased_blocks"] -= 1
    copy.candidates.append((0.0, end_of(copy, 1, 1, 5, 5).last_used, end_of(copy, 1, 1, 5, 5).id))
    end_of(copy, 1, 1, 5, 5).is_candidate = True


def miscount_leases(copy: Snapshot) -> None:
    copy.counts["num_leased_blocks"] += 1


def miscount_blocks(copy: Snapshot) -> None:
    copy.counts["num_cached_blocks"] -= 1


def miscount_nodes(copy: Snapshot) -> None:
    copy.counts["num_nodes"] += 1


def forget_a_candidate(copy: Snapshot) -> None:
    del copy.candidates[-1]


def forget_a_candidate_altogether(copy: Snapshot) -> None:
    leaf = end_of(copy, 1, 1, 2, 2, 4, 4)
    copy.candidates = sorted(one for one in copy.candidates if one[2] != leaf.id)
    leaf.is_candidate = False


def heap_out_of_order(copy: Snapshot) -> None:
    copy.candidates.insert(0, copy.candidates.pop())


def queue_a_node_twice(copy: Snapshot) -> None:
    copy.candidates.append(copy.candidates[-1])


def queue_a_node_that_is_gone(copy: Snapshot) -> None:
    copy.candidates.append((math.inf, math.inf, 10**6))


def deny_that_a_node_is_queued(copy: Snapshot) -> None:
    end_of(copy, 1, 1, 2, 2, 4, 4).is_candidate = False


def turn_back_a_use(copy: Snapshot) -> None:
    end_of(copy, 1, 1, 2, 2, 4, 4).last_used = -1.0


def lower_a_rank(copy: Snapshot) -> None:
    end_of(copy, 1, 1, 2, 2, 4, 4).rank = -1.0


def move_to_another_namespace(copy: Snapshot) -> None:
    end_of(copy, 1, 1, 5, 5).namespace = "other"


def rename_a_root(copy: Snapshot) -> None:
    root_of(copy, "").namespace = "another"


def keep_an_empty_root(copy: Snapshot) -> None:
    copy.nodes.insert(0, dataclasses.replace(root_of(copy, ""), namespace="empty", children=[], num_holds=0))


def make_a_circle(copy: Snapshot) -> None:
    end_of(copy, 1, 1, 2, 2).children = [end_of(copy, 1, 1).id]
    end_of(copy, 1, 1).parent = end_of(copy, 1, 1, 2, 2).id


# all functions above that change a copy, and take nothing else
CORRUPTIONS = [
    one for one in list(globals().values()) if list(getattr(one, "__annotations__", ())) == ["copy", "return"]
]


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda corrupt: corrupt.__name__)
def test_audit_sees(corrupt: Callable[[Snapshot], None], tree: RadixTree) -> None:
    copy = tree._snapshot()
    corrupt(copy)
    with pytest.raises(AssertionError):
        copy.audit(tree.pins)


def test_audit_sees_pins_that_are_miscounted(tree: RadixTree) -> None:
    tree.pins.num_blocks += 1
    with pytest.raises(AssertionError, match="2 blocks pinned, counted 3"):
        tree.audit()
