"""The audit must see corruption: each test breaks one invariant from outside and expects to be told."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from phloem.radix import Node, RadixTree, pack
from phloem.radix import walk as walk_module


def make_tree() -> RadixTree:
    """Two namespaces, a split, a lease, a pin, a skip and an ordered index of children."""
    tree = RadixTree(2, max_pinned_blocks=8)
    tree.insert(pack([1, 1, 2, 2, 3, 3]), [0, 1, 2], "")
    tree.insert(pack([1, 1, 2, 2, 4, 4]), [0, 1, 3], "")
    tree.insert(pack([1, 1, 5, 5]), [0, 4], "")
    tree.insert(pack([1, 1, 6, 6]), [6, 5], "other")
    tree.lease(tree.match(pack([1, 1, 2, 2, 3, 3]), "").node)
    tree.pin(pack([1, 1, 5, 5]), math.inf, "")
    _ = tree.match(pack([1, 1, 5, 9]), "").num_partial_tokens
    return tree


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch) -> RadixTree:
    monkeypatch.setattr(walk_module, "SKIP_EDGES", 2)
    monkeypatch.setattr(walk_module, "MAX_CHILDREN_TO_SCAN", 1)
    return make_tree()


def end_of(tree: RadixTree, *token_ids: int) -> Node:
    return tree.match(pack(token_ids), "").node


def above(node: Node) -> Node:
    assert node.parent is not None
    return node.parent


def root_of(tree: RadixTree) -> Node:
    return above(end_of(tree, 1, 1))


def test_a_sound_tree_passes(tree: RadixTree) -> None:
    assert root_of(tree).skip is not None
    assert end_of(tree, 1, 1).siblings is not None
    tree.audit()


def lose_a_block(tree: RadixTree) -> None:
    node = end_of(tree, 1, 1, 2, 2, 4, 4)
    node.blocks = node.blocks[:-4]


def hold_a_block_twice(tree: RadixTree) -> None:
    end_of(tree, 1, 1, 2, 2, 4, 4).blocks = end_of(tree, 1, 1, 5, 5).blocks


def forget_the_parent(tree: RadixTree) -> None:
    node = end_of(tree, 1, 1, 5, 5)
    node.parent = root_of(tree)


def file_under_another_key(tree: RadixTree) -> None:
    children = end_of(tree, 1, 1, 2, 2).children
    children[pack([9, 9])] = children.pop(pack([4, 4]))


def change_the_key(tree: RadixTree) -> None:
    end_of(tree, 1, 1, 5, 5).key = pack([9, 9])


def forget_a_hold(tree: RadixTree) -> None:
    end_of(tree, 1, 1).num_holds -= 1


def forget_a_lease(tree: RadixTree) -> None:
    end_of(tree, 1, 1, 2, 2, 3, 3).num_leases -= 1


def miscount_leases(tree: RadixTree) -> None:
    tree._num_leased += 1


def miscount_blocks(tree: RadixTree) -> None:
    tree._evictor.num_cached_blocks -= 1


def miscount_nodes(tree: RadixTree) -> None:
    tree._num_nodes += 1


def forget_a_candidate(tree: RadixTree) -> None:
    leaf = tree._queue.take()
    assert leaf is not None


def queue_out_of_order(tree: RadixTree) -> None:
    tree._queue._line.rotate(1)


def use_in_the_future(tree: RadixTree) -> None:
    end_of(tree, 1, 1, 5, 5).last_used = math.inf


def turn_back_a_use(tree: RadixTree) -> None:
    end_of(tree, 1, 1, 2, 2, 4, 4).last_used = -1.0


def move_to_another_namespace(tree: RadixTree) -> None:
    end_of(tree, 1, 1, 5, 5).namespace = "other"


def rename_a_root(tree: RadixTree) -> None:
    root_of(tree).namespace = "other"


def keep_an_empty_root(tree: RadixTree) -> None:
    tree._roots["empty"] = Node("empty", None, b"", b"", b"")


def lead_a_skip_astray(tree: RadixTree) -> None:
    root = root_of(tree)
    assert root.skip is not None
    root.skip = pack([8, 8, 8, 8]), *root.skip[1:]


def give_a_skip_other_blocks(tree: RadixTree) -> None:
    root = root_of(tree)
    assert root.skip is not None
    root.skip = root.skip[0], root.skip[1][::-1], root.skip[2]


def forget_who_skips(tree: RadixTree) -> None:
    root = root_of(tree)
    assert root.skip is not None
    root.skip[2].skipped_by = None


def leave_a_child_out_of_the_index(tree: RadixTree) -> None:
    siblings = end_of(tree, 1, 1).siblings
    assert siblings is not None
    siblings.remove(pack([5, 5]))


def miscount_pins(tree: RadixTree) -> None:
    tree._pins.num_blocks += 1


def make_a_circle(tree: RadixTree) -> None:
    node = end_of(tree, 1, 1, 2, 2)
    circle = end_of(tree, 1, 1)
    node.children[circle.key] = circle
    circle.parent = node


@pytest.mark.parametrize(
    "corrupt",
    [
        lose_a_block,
        hold_a_block_twice,
        forget_the_parent,
        file_under_another_key,
        change_the_key,
        forget_a_hold,
        forget_a_lease,
        miscount_leases,
        miscount_blocks,
        miscount_nodes,
        forget_a_candidate,
        queue_out_of_order,
        use_in_the_future,
        turn_back_a_use,
        move_to_another_namespace,
        rename_a_root,
        keep_an_empty_root,
        lead_a_skip_astray,
        give_a_skip_other_blocks,
        forget_who_skips,
        leave_a_child_out_of_the_index,
        miscount_pins,
        make_a_circle,
    ],
    ids=lambda corrupt: corrupt.__name__,
)
def test_audit_sees(corrupt: Callable[[RadixTree], None], tree: RadixTree) -> None:
    corrupt(tree)
    with pytest.raises(AssertionError):
        tree.audit()
