"""Where a request resumes: what it copies from counts as used, and nothing is lost that was found before."""

from __future__ import annotations

from phloem.radix import RadixTree, pack
from phloem.runtime.cache.resuming import find_donor, take_lease

from ..schedule.test_waiting_line import request


def tree_with_tails(block_size: int = 4) -> RadixTree:
    """Two texts with the same first block, which end in tails: 1, 2, 3, 4, 5 and 1, 2, 3, 4, 6."""
    tree = RadixTree(block_size)
    tree.insert(pack([1, 2, 3, 4, 5]), [7, 8], "")
    tree.insert(pack([1, 2, 3, 4, 6]), [7, 9], "")
    return tree


def test_a_tail_that_is_copied_from_counts_as_used() -> None:
    tree = tree_with_tails()
    asked = request(0, [1, 2, 3, 4, 5, 5])
    match = tree.match(pack(asked.token_ids), "")
    take_lease(tree, asked, match)
    donor = find_donor(tree, asked, [], 5, None, match)
    assert donor is not None and (donor.block, donor.num_tokens) == (8, 1)
    assert tree.evict(1) == [9]


def test_a_running_request_gives_more_only_if_it_agrees_further() -> None:
    tree = tree_with_tails()
    asked = request(0, [1, 2, 3, 4, 5, 6, 7])
    match = tree.match(pack(asked.token_ids), "")
    take_lease(tree, asked, match)
    for tokens, block, num_tokens in (([1, 2, 3, 4, 5, 6, 9], 20, 2), ([1, 2, 3, 4, 9, 9, 9], 8, 1)):
        other = request(1, tokens)
        other.blocks, other.num_computed_tokens = type(asked.blocks)("i", [7, 20]), 7
        donor = find_donor(tree, asked, [other], 6, None, match)
        assert donor is not None and (donor.block, donor.num_tokens) == (block, num_tokens)
