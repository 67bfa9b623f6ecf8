"""Tails: last blocks that are not full are cached, and found only as donors."""

from __future__ import annotations

from phloem.radix import RadixTree, pack


def test_a_tail_is_a_donor_and_never_a_whole_block() -> None:
    tree = RadixTree(4)
    assert tree.insert(pack([1, 2, 3, 4, 5, 6]), [7, 8], "").num_new_tokens == 6
    match = tree.match(pack([1, 2, 3, 4, 5, 6, 7, 8, 9]), "")
    assert (match.num_tokens, match.partial_block, match.num_partial_tokens) == (4, 8, 2)
    assert tree.is_tail(match.partial_node)
    tree.audit()


def test_a_touched_tail_outlives_others() -> None:
    tree = RadixTree(4)
    tree.insert(pack([1, 2, 3, 4, 5]), [7, 8], "")
    tree.insert(pack([1, 2, 3, 4, 6]), [7, 9], "")
    donor = tree.match(pack([1, 2, 3, 4, 5, 5]), "").partial_node
    tree.touch(donor)
    assert tree.evict(1) == [9]


def test_a_tail_that_is_there_is_no_duplicate_of_itself() -> None:
    for before in (0, 4):  # in a run of its own, and at the end of a longer one
        tree = RadixTree(4)
        tokens = pack([*range(3, 3 + before), 1, 1])
        blocks = list(range(before // 4 + 1))
        first = tree.insert(tokens, blocks, "")
        tree.insert(pack([*range(3, 3 + before), 1, 1, 5, 5]), [*blocks[:-1], 7], "")
        again = tree.insert(tokens, blocks, "")
        assert (again.node, again.num_new_tokens, again.duplicates) == (first.node, 0, [])
        assert tree.insert(tokens, [*blocks[:-1], 8], "").duplicates == [8]
        tree.audit()
