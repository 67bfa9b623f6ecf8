"""Single properties of the radix tree; the fuzz tests check it as a whole."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import numpy as np
import pytest

from phloem.radix import NOTHING, RadixTree, pack

from .small_trees import Clock, make_tree


def test_donor_is_the_closest_of_many_children() -> None:
    runs = [([1, 2, 3, child], [child]) for child in range(1000)]
    tree = make_tree(*runs, ([7, 7, 7, 7], [1000]), ([1, 2, 9, 9], [1001]), block_size=4)
    match = tree.match(pack([1, 2, 9, 5]), "")
    assert (match.partial_block, match.num_partial_tokens) == (1001, 3)


def test_insert_takes_lists_arrays_and_packed_bytes() -> None:
    ids = array("i", [7, 8])
    every_other = np.array([7, 0, 8, 0], np.int32)[::2]
    for blocks in ([7, 8], ids, ids.tobytes(), np.array([7, 8], np.int32), every_other):
        tree = RadixTree(2)
        tree.insert(pack([1, 2, 3, 4]), blocks, "")
        assert tree.match(pack([1, 2, 3, 4]), "").blocks == [7, 8]


@pytest.mark.parametrize("blocks", [[], [1], [1, 2, 3, 4]])
def test_insert_refuses_a_row_of_the_wrong_length_and_changes_nothing(blocks: list[int]) -> None:
    tree = RadixTree(4)
    with pytest.raises(ValueError, match=rf"{len(blocks)} block ids for 9 tokens, which are 2 whole blocks of 4 and a"):
        tree.insert(pack([1] * 9), blocks, "")
    with pytest.raises(ValueError, match=r"3 block ids for 8 tokens, which are 2 whole blocks of 4$"):
        tree.insert(pack([1] * 8), [1, 2, 3], "")
    assert tree.statistics.num_namespaces == 0
    tree.audit()


def test_a_lease_is_counted() -> None:
    tree = make_tree(([1], [5]))
    node = tree.match(pack([1]), "").node
    tree.lease(node)
    tree.lease(node)
    tree.release(node)
    assert tree.evict(1) == []
    tree.release(node)
    with pytest.raises(ValueError, match="released more often than leased"):
        tree.release(node)


def test_an_evicted_prefix_cannot_be_leased_or_read() -> None:
    tree = make_tree(([1], [5]))
    match = tree.match(pack([1]), "")
    tree.evict(1)
    with pytest.raises(ValueError, match="evicted"):
        tree.lease(match.node)
    with pytest.raises(ValueError, match="evicted"):
        _ = match.blocks
    with pytest.raises(ValueError, match="evicted"):
        tree.insert(pack([2]), [6], "", match.node)


@pytest.mark.parametrize("spare", [None, lambda namespace, tokens: 20])
def test_a_prefix_without_its_end_is_not_taken_for_the_whole(
    spare: Callable[[str, bytes], int] | None,
) -> None:
    tree = make_tree((list(range(40)), list(range(40))))
    match = tree.match(pack(range(40)), "")
    assert tree.evict(1, spare) == [39]
    with pytest.raises(ValueError, match="has been evicted"):
        _ = match.blocks
    with pytest.raises(ValueError, match="evicted prefix"):
        tree.insert(pack([40]), [40], "", after=match.node)
    assert tree.match(pack(range(40)), "").blocks == list(range(39))
    tree.audit()


def test_nothing_can_always_be_leased() -> None:
    tree = make_tree(([1], [5]))
    node = tree.match(pack([2]), "").node
    assert node == NOTHING
    for _ in range(2):
        tree.lease(node)
    assert (tree.num_leased_blocks, tree.num_sole_blocks(node)) == (0, 0)
    tree.release(node)
    assert tree.evict(1) == [5]


@pytest.mark.parametrize(("block_size", "policy"), [(0, "lru"), (16, "belady")])
def test_an_impossible_tree_is_refused(block_size: int, policy: str) -> None:
    with pytest.raises(ValueError, match=r"block_size|policy"):
        RadixTree(block_size, policy=policy)


def test_peek_changes_and_counts_nothing() -> None:
    tree = make_tree((list(range(8)), [1, 2]), (list(range(20, 24)), [3]), block_size=4)
    before = tree.statistics
    assert tree.peek(pack([0, 1, 2, 3, 4, 5, 99]), "") == 6
    assert tree.statistics == before
    assert tree.evict(1) == [1, 2], "not refreshed, not split"


def test_statistics_count() -> None:
    tree = make_tree(([1, 2], [5, 6]), ([1, 3], [8, 7]))
    tree.match(pack([1, 2, 4, 4]), "")
    tree.evict(1)
    statistics = tree.statistics
    assert statistics.hit_rate == 0.5
    assert (statistics.num_inserted_blocks, statistics.num_duplicate_blocks) == (3, 1)
    assert (statistics.num_evicted_blocks, statistics.num_splits, statistics.num_nodes) == (1, 1, 2)


def test_chains_of_ten_thousand_nodes_are_no_problem() -> None:
    depth = 10_000
    tree = RadixTree(1)
    tokens, blocks = pack([7] * depth), array("i", range(depth)).tobytes()
    for end in range(4, 4 * depth + 4, 4):
        tree.insert(tokens[:end], blocks[:end], "")
    assert tree.statistics.num_nodes == depth
    match = tree.match(tokens, "")
    assert match.blocks == list(range(depth))
    tree.lease(match.node)
    assert tree.num_leased_blocks == depth
    tree.audit()
    assert tree.draw(max_lines=3).endswith(f"… and {depth - 2} more nodes")
    assert tree.explain(tokens + pack([1]), "").num_cached_tokens == depth
    tree.release(match.node)
    assert len(tree.clear()) == depth
    tree.audit()


def test_a_leaf_at_the_end_of_a_chain_is_shortened() -> None:
    tree = RadixTree(1)
    for end in [*range(1, 16), 115]:
        tree.insert(pack(range(end)), range(end), "")
    for _ in range(2):
        assert tree.match(pack(range(115)), "").num_tokens == 115
    assert tree.evict(3) == [112, 113, 114]
    assert tree.match(pack(range(115)), "").blocks == list(range(112))
    tree.audit()


def test_draw_shows_sizes_ages_and_leases() -> None:
    clock = Clock()
    tree = make_tree(([1, 2], [5, 6]), ([1, 3], [5, 7]), clock=clock)
    tree.lease(tree.match(pack([1, 3]), "").node)
    clock.now = 61.0
    assert tree.draw() == "\n".join(
        [
            "default namespace",
            "└─ 1 block · 61 s  [1]",
            "   ├─ 1 block · 61 s  [2]",
            "   └─ 1 block · 61 s · 1 lease  [3]",
        ]
    )
    assert "├─ 1 block · 61 s  <2>" in tree.draw(label=lambda token_ids: f"<{token_ids[0]}>")


def test_siblings_are_drawn_from_a_little_before_they_differ() -> None:
    tree = RadixTree(16)
    for block, last in enumerate((15, 16, 17)):
        tree.insert(pack([*range(14), last, 99]), [block], "")
    assert "├─ 1 block · 0 s  [10, 11, 12, 13, 15, 99]".replace("[", "[…, ") in tree.draw().replace("61 s", "0 s")
    drawn = [line.split("  ")[-1] for line in tree.draw().splitlines()[1:]]
    assert len(set(drawn)) == 3


def test_a_namespace_may_be_any_text() -> None:
    tree = RadixTree(1)
    for block, namespace in enumerate(("", "a\0b", "a", "é" * 40, "\ud800", "\ud800\udc00", "\U00010000")):
        assert tree.match(pack([1]), namespace).num_tokens == 0
        tree.insert(pack([1]), [block], namespace)
        assert tree.match(pack([1]), namespace).blocks == [block]
        assert tree.explain(pack([1]), "none").other_namespace is not None
    namespaces: list[str] = []
    tree.evict(7, spare=lambda namespace, tokens: namespaces.append(namespace) or 0)
    assert sorted(namespaces) == sorted(("", "a\0b", "a", "é" * 40, "\ud800", "\ud800\udc00", "\U00010000"))


class Refusal(Exception):
    pass


def test_a_callback_may_raise_and_the_tree_stays_sound() -> None:
    tree = make_tree(([1, 2], [5, 6]), ([1, 3], [5, 7]), ([4], [8]))
    needs = iter([1, 1, None])

    def spare(namespace: str, tokens: bytes) -> int:
        need = next(needs)
        if need is None:
            raise Refusal
        return need

    with pytest.raises(Refusal):
        tree.evict(4, spare)
    tree.audit()
    assert tree.num_cached_blocks == 2
    assert sorted(tree.evict(4)) == [5, 8]


def test_cutting_a_long_leaf_again_and_again_leaves_what_is_before() -> None:
    tree = make_tree((list(range(1000)), list(range(1000))), ([1, 0], [1000, 1001]), block_size=1)
    for end in range(1000, 500, -1):
        assert tree.match(pack(range(1000)), "").num_tokens == end
        tree.match(pack([1, 0]), "")
        assert tree.evict(1) == [end - 1]
    tree.audit()
    assert tree.match(pack(range(1000)), "").blocks == list(range(500))
