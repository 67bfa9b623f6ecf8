"""Continuations: the tokens that follow a prefix in the tree."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.radix import RadixTree, pack, unpack

TEXTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=14), min_size=1, max_size=8)


@settings(max_examples=300, deadline=None)
@given(st.data(), TEXTS, st.sampled_from([1, 4]))
def test_it_is_how_a_text_went_on_and_all_of_it_where_only_one_did(
    data: st.DataObject, texts: list[list[int]], block_size: int
) -> None:
    tree, ids = RadixTree(block_size), itertools.count()
    for text in texts:
        tree.insert(pack(text), [next(ids) for _ in range(-(-len(text) // block_size))], "a")
    known = data.draw(st.sampled_from(texts))
    asked = known[: data.draw(st.integers(0, len(known)))] + data.draw(st.lists(st.integers(0, 2), max_size=2))
    count = data.draw(st.integers(0, 20))
    before = tree.statistics
    found = unpack(tree.continuation(pack(asked), "a", count))
    assert tree.statistics == before
    endings = [text[len(asked) :] for text in texts if text[: len(asked)] == asked]
    assert len(found) <= count
    assert not found or any(ending[: len(found)] == found for ending in endings)
    longest = max(endings, key=len, default=[])
    if all(longest[: len(ending)] == ending for ending in endings) and len({len(e) for e in endings}) == 1:
        assert found == longest[:count]
    assert tree.continuation(pack(asked), "b", count) == b""
