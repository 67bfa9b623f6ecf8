"""Facts about the radix tree; the fuzz tests hold the general law."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable

import pytest

from phloem.radix import POLICIES, Event, PinBudgetExceeded, RadixTree, common_prefix, pack


class Clock:
    """A clock that stands until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def make_tree(*runs: tuple[list[int], list[int]], block_size: int = 1, **options: object) -> RadixTree:
    """A tree with these (tokens, blocks) inserted in this order."""
    tree = RadixTree(block_size, **options)  # type: ignore[arg-type]  # options of the constructor under test
    for tokens, blocks in runs:
        tree.insert(pack(tokens), blocks, "")
    return tree


def test_match_finds_whole_blocks_only() -> None:
    tree = make_tree((list(range(8)), [10, 11]), block_size=4)
    match = tree.match(pack([*range(7), 99]), "")
    assert (match.num_tokens, match.blocks) == (4, [10])


def test_match_tells_the_donor_of_the_partial_block() -> None:
    tree = make_tree((list(range(8)), [10, 11]), block_size=4)
    match = tree.match(pack([*range(7), 99]), "")
    assert (match.partial_block, match.num_partial_tokens) == (11, 3)


def test_donor_is_the_closest_of_many_children() -> None:
    runs = [([1, 2, 3, child], [child]) for child in range(1000)]
    tree = make_tree(*runs, ([7, 7, 7, 7], [1000]), ([1, 2, 9, 9], [1001]), block_size=4)
    match = tree.match(pack([1, 2, 9, 5]), "")
    assert (match.partial_block, match.num_partial_tokens) == (1001, 3)


def test_blocks_of_one_token_have_no_donor() -> None:
    match = make_tree(([1, 2], [5, 6])).match(pack([1, 3]), "")
    assert (match.num_tokens, match.partial_block, match.num_partial_tokens) == (1, -1, 0)


def test_another_namespace_does_not_exist() -> None:
    tree = make_tree(([1, 2], [5, 6]))
    assert tree.match(pack([1, 2]), "other").num_tokens == 0
    assert tree.statistics.num_namespaces == 1


def test_an_emptied_namespace_is_dropped() -> None:
    tree = make_tree(([1, 2], [5, 6]))
    tree.evict(2)
    assert tree.statistics.num_namespaces == 0
    tree.audit()


def test_insert_returns_the_callers_duplicates() -> None:
    tree = make_tree(([1, 2, 3], [5, 6, 7]))
    inserted = tree.insert(pack([1, 2, 3, 4]), [5, 8, 9, 10], "")
    assert (inserted.duplicates, inserted.num_new_tokens) == ([8, 9], 1)
    assert tree.match(pack([1, 2, 3, 4]), "").blocks == [5, 6, 7, 10]


def test_insert_takes_lists_arrays_and_packed_bytes() -> None:
    for blocks in ([7, 8], array("i", [7, 8]), array("i", [7, 8]).tobytes()):
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


def test_a_tail_is_a_donor_and_never_a_whole_block() -> None:
    tree = RadixTree(4)
    assert tree.insert(pack([1, 2, 3, 4, 5, 6]), [7, 8], "").num_new_tokens == 6
    match = tree.match(pack([1, 2, 3, 4, 5, 6, 7, 8, 9]), "")
    assert (match.num_tokens, match.partial_block, match.num_partial_tokens) == (4, 8, 2)
    assert tree.is_tail(match.partial_node)
    tree.audit()


def test_a_tail_is_refused_where_some_block_begins_like_it() -> None:
    tree = RadixTree(4)
    tree.insert(pack([1, 2, 3, 4, 5, 6, 7, 8]), [7, 8], "")
    inserted = tree.insert(pack([1, 2, 3, 4, 5, 6]), [7, 9], "")
    assert (inserted.num_new_tokens, inserted.duplicates) == (0, [9])


def test_a_tail_goes_before_what_is_above_it() -> None:
    tree = RadixTree(4)
    tree.insert(pack([1, 2, 3, 4, 5, 6]), [7, 8], "")
    tree.match(pack([1, 2, 3, 4]), "")
    assert [tree.evict(1), tree.evict(1)] == [[8], [7]]


def test_a_touched_tail_outlives_others() -> None:
    tree = RadixTree(4)
    tree.insert(pack([1, 2, 3, 4, 5]), [7, 8], "")
    tree.insert(pack([1, 2, 3, 4, 6]), [7, 9], "")
    donor = tree.match(pack([1, 2, 3, 4, 5, 5]), "").partial_node
    tree.touch(donor)
    assert tree.evict(1) == [9]


def test_insert_of_less_than_a_block_changes_nothing() -> None:
    tree = RadixTree(4)
    assert tree.insert(pack([1, 2, 3]), [], "").num_new_tokens == 0
    assert (tree.num_cached_blocks, tree.statistics.num_namespaces) == (0, 0)
    tree.audit()


def test_evict_keeps_a_leased_prefix() -> None:
    tree = make_tree(([1, 2, 3], [5, 6, 7]))
    match = tree.match(pack([1, 2]), "")
    tree.lease(match.node)
    assert (tree.num_leased_blocks, tree.num_evictable_blocks) == (2, 1)
    assert tree.evict(3) == [7]
    tree.release(match.node)
    assert sorted(tree.evict(3)) == [5, 6]


def test_a_split_keeps_the_lease_on_the_lower_part() -> None:
    tree = make_tree(([1, 2, 3], [5, 6, 7]))
    match = tree.match(pack([1, 2, 3]), "")
    tree.lease(match.node)
    tree.insert(pack([1, 9]), [5, 8], "")
    assert match.blocks == [5, 6, 7]
    assert tree.evict(4) == [8]
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


def test_evict_takes_the_least_recently_used_leaf_first() -> None:
    tree = make_tree(([1], [1]), ([2], [2]), ([3], [3]))
    tree.match(pack([1]), "")
    assert [tree.evict(1), tree.evict(1), tree.evict(1)] == [[2], [3], [1]]


def test_a_partly_matched_prefix_counts_as_used() -> None:
    tree = make_tree(([1, 1, 1], [1, 2, 3]), ([2], [4]))
    tree.match(pack([1, 1, 9]), "")
    assert tree.evict(1) == [3]
    assert tree.evict(1) == [4]


def test_a_parent_is_as_recent_as_its_evicted_children() -> None:
    tree = make_tree(([1], [1]), ([2], [2]))
    other = tree.match(pack([2]), "").node
    tree.lease(other)
    tree.insert(pack([1, 1]), [1, 3], "")
    assert tree.evict(1) == [3]
    tree.release(other)
    assert tree.evict(1) == [2]


def test_use_is_ordered_although_the_clock_stands() -> None:
    tree = make_tree(([1], [1]), ([2], [2]), ([3], [3]), clock=Clock())
    tree.match(pack([2]), "")
    assert tree.evict(3) == [1, 3, 2]


def test_a_long_leaf_is_shortened_from_its_end() -> None:
    tree = make_tree((list(range(100)), list(range(100))))
    assert tree.evict(3) == [97, 98, 99]
    assert tree.match(pack(range(100)), "").num_tokens == 97
    tree.audit()


def test_a_short_leaf_goes_whole() -> None:
    tree = make_tree((list(range(17)), list(range(17))))
    assert tree.evict(1) == list(range(17))


def test_evict_nothing() -> None:
    tree = make_tree(([1], [5]))
    assert tree.evict(0) == []
    assert RadixTree(1).evict(5) == []


def test_lfu_keeps_what_was_hit_often() -> None:
    tree = make_tree(([1], [1]), ([2], [2]), ([3], [3]), policy="lfu")
    for token in (1, 1, 3, 2, 3):
        tree.match(pack([token]), "")
    assert tree.evict(1) == [2]


def test_cost_keeps_what_was_hit_often_but_not_for_ever() -> None:
    tree = make_tree(([1], [1]), ([2], [2]), policy="cost")
    tree.match(pack([1]), "")
    tree.insert(pack([3]), [3], "")
    assert [tree.evict(1), tree.evict(1)] == [[2], [3]]
    for block in range(4, 9):  # each eviction ends an era: what comes later is worth more from the start
        tree.insert(pack([block]), [block], "")
        tree.evict(1)
    assert tree.match(pack([1]), "").num_tokens == 0


def test_cost_prefers_what_is_dear_to_compute() -> None:
    tree = RadixTree(1, policy="cost", block_cost=float)
    tree.insert(pack([1, 1, 1]), [1, 2, 3], "")
    tree.insert(pack([2]), [4], "")
    assert tree.evict(1) == [4]


def needing(*token_ids: int) -> Callable[[str, bytes], int]:
    """Says of a prefix how many of its tokens a request for these tokens will need."""
    return lambda _, path: common_prefix(path, pack(token_ids), 0) >> 2


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_soon_needed_goes_last(policy: str) -> None:
    tree = make_tree(([1, 1], [1, 2]), ([2], [3]), ([3], [4]), policy=policy)
    tree.match(pack([2]), "")
    tree.match(pack([3]), "")
    assert tree.evict(1, spare=needing(1, 1, 5)) == [3]
    assert tree.evict(3, spare=needing(1, 1, 5)) == [4, 1, 2]
    assert tree.num_cached_blocks == 0
    tree.audit()


def test_of_a_leaf_the_blocks_that_are_soon_needed_stay() -> None:
    tree = make_tree(([1, 1, 1, 2, 2, 2], [5, 6, 7]), ([3, 3], [8]), block_size=2)
    assert tree.evict(1, spare=needing(1, 1, 1, 9)) == [6, 7]
    assert tree.match(pack([1, 1, 1, 2]), "").blocks == [5]
    assert tree.evict(2, spare=needing(1, 1, 1, 9)) == [8, 5]


def test_a_long_leaf_is_shortened_no_further_than_what_is_soon_needed() -> None:
    tree = make_tree((list(range(1, 101)), list(range(100))), ([1, 2, 200], [0, 1, 100]))
    assert tree.evict(1, spare=needing(*range(1, 51))) == [99]
    assert sorted(tree.evict(45, spare=needing(*range(1, 51)))) == list(range(50, 99))
    assert tree.match(pack(range(1, 101)), "").num_tokens == 50
    tree.audit()


def test_a_spared_leaf_is_still_a_candidate() -> None:
    tree = make_tree(([1], [1]), ([2], [2]))
    tree.evict(1, spare=needing(1))
    tree.audit()
    assert tree.evict(1) == [1]


def test_priority_keeps_what_was_asked_for_with_the_highest() -> None:
    tree = RadixTree(1, policy="priority")
    for token, priority in ((1, 2), (2, 0), (3, 1)):
        tree.insert(pack([token]), [token], "", priority=priority)
    assert tree.evict(3) == [2, 3, 1]


@pytest.mark.parametrize(("block_size", "policy"), [(0, "lru"), (16, "belady")])
def test_an_impossible_tree_is_refused(block_size: int, policy: str) -> None:
    with pytest.raises(ValueError, match=r"block_size|policy"):
        RadixTree(block_size, policy=policy)


def test_a_pin_outlives_eviction_until_its_time_is_over() -> None:
    clock = Clock()
    tree = make_tree(([1, 2], [5, 6]), ([3], [7]), clock=clock, max_pinned_blocks=2)
    pin = tree.pin(pack([1, 2]), 10.0, "")
    assert (pin.num_tokens, tree.num_pinned_blocks) == (2, 2)
    assert tree.evict(3) == [7]
    clock.now = 10.0
    assert tree.num_pinned_blocks == 2, "an expired pin goes under pressure only"
    assert sorted(tree.evict(1)) == [5, 6]
    assert not tree.unpin(pin)


def test_an_expired_pin_is_spared_while_there_is_other_room() -> None:
    clock = Clock()
    tree = make_tree(([1], [5]), ([3], [7]), clock=clock, max_pinned_blocks=1)
    tree.pin(pack([1]), 0.0, "")
    assert tree.evict(1) == [7]


def test_pins_share_blocks_within_the_budget() -> None:
    tree = make_tree(([1, 2, 3], [5, 6, 7]), ([1, 2, 4], [5, 6, 8]), max_pinned_blocks=4)
    tree.pin(pack([1, 2, 3]), math.inf, "")
    tree.pin(pack([1, 2, 4]), math.inf, "")
    assert tree.num_pinned_blocks == 4
    tree.insert(pack([9]), [9], "")
    with pytest.raises(PinBudgetExceeded, match="5 blocks, the budget is 4"):
        tree.pin(pack([9]), 1.0, "")
    assert tree.evict(10) == [9]


def test_unpin_makes_evictable() -> None:
    tree = make_tree(([1], [5]), max_pinned_blocks=1)
    pin = tree.pin(pack([1]), math.inf, "")
    assert tree.unpin(pin)
    assert tree.evict(1) == [5]


def test_clear_leaves_what_is_leased() -> None:
    tree = make_tree(([1], [5]), ([2], [6]), ([3], [7]), max_pinned_blocks=1)
    tree.lease(tree.match(pack([2]), "").node)
    tree.pin(pack([3]), math.inf, "")
    assert sorted(tree.clear()) == [5, 7]
    assert tree.num_cached_blocks == tree.num_leased_blocks == 1


def test_peek_changes_and_counts_nothing() -> None:
    tree = make_tree((list(range(8)), [1, 2]), (list(range(20, 24)), [3]), block_size=4)
    before = tree.statistics
    assert tree.peek(pack([0, 1, 2, 3, 4, 5, 99]), "") == 6
    assert tree.statistics == before
    assert tree.evict(1) == [1, 2], "not refreshed, not split"


def test_explain_says_never_seen() -> None:
    found = make_tree(([1, 2], [5, 6])).explain(pack([1, 9]), "")
    assert (found.num_cached_tokens, found.reason) == (1, "never_seen")


def test_explain_says_evicted_and_when() -> None:
    clock = Clock()
    tree = make_tree(([1], [4]), ([1, 2, 3], [4, 5, 6]), clock=clock)
    clock.now = 7.0
    tree.evict(2)
    found = tree.explain(pack([1, 2, 3]), "")
    assert (found.num_cached_tokens, found.reason, found.evicted_at) == (1, "evicted", 7.0)


def test_explain_finds_the_tail_that_went() -> None:
    tree = make_tree((list(range(6)), [10, 11]), (list(range(4)), [10]), block_size=4)
    tree.evict(1)
    assert tree.explain(pack(range(10)), "").reason == "evicted"
    assert tree.explain(pack([0, 1, 2, 3, 4, 9, 9, 9]), "").reason == "never_seen"
    assert tree.explain(pack(range(5)), "").reason == "evicted"


def test_explain_looks_elsewhere_only_if_it_may() -> None:
    found = make_tree(([1, 2], [4, 5])).explain(pack([1, 2]), "tenant", elsewhere_too=False)
    assert (found.reason, found.other_namespace) == ("never_seen", None)


def test_explain_remembers_a_namespace_that_was_dropped() -> None:
    tree = make_tree(([1], [4]))
    tree.evict(1)
    assert tree.explain(pack([1]), "").reason == "evicted"


def test_explain_forgets_the_oldest_evictions() -> None:
    tree = make_tree(([1], [4]), ([2], [5]), max_ghosts=1)
    tree.evict(1)
    tree.evict(1)
    assert [tree.explain(pack([token]), "").reason for token in (1, 2)] == ["never_seen", "evicted"]


def test_explain_names_the_other_namespace() -> None:
    found = make_tree(([1, 2], [4, 5])).explain(pack([1, 2]), "tenant")
    assert (found.num_cached_tokens, found.reason, found.other_namespace) == (0, "other_namespace", "")


def test_explain_says_block_rounding() -> None:
    tree = make_tree((list(range(8)), [1, 2]), block_size=4)
    found = tree.explain(pack(range(7)), "")
    assert (found.num_cached_tokens, found.num_agreeing_tokens, found.reason) == (4, 7, "block_rounding")


def test_events_tell_what_came_and_went() -> None:
    events: list[Event] = []
    tree = make_tree(([1, 2], [5, 6]), ([1, 3], [5, 7]), on_event=events.append)
    tree.evict(1)
    assert [(e.kind, e.tokens, e.num_prefix_tokens, e.blocks) for e in events] == [
        ("inserted", pack([1, 2]), 0, [5, 6]),
        ("inserted", pack([1, 3]), 1, [7]),
        ("evicted", pack([1, 2]), 1, [6]),
    ]


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


def test_a_shortcut_to_a_shortened_leaf_is_forgotten() -> None:
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
            "namespace ''",
            "└─ 1 block · 61 s  [1]",
            "   ├─ 1 block · 61 s  [2]",
            "   └─ 1 block · 61 s · 1 lease  [3]",
        ]
    )
    assert "├─ 1 block · 61 s  <2>" in tree.draw(label=lambda token_ids: f"<{token_ids[0]}>")
