"""Explanations of misses."""

from __future__ import annotations

from phloem.radix import pack

from .small_trees import Clock, make_tree


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
