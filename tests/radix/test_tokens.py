"""Packed tokens, and the longest common prefix of two sequences."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phloem.radix import RadixTree, Visit, foresee, pack, replay, unpack
from phloem.radix.tokens import common_prefix


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_unpack_undoes_pack(token_ids: list[int]) -> None:
    assert unpack(pack(token_ids)) == token_ids
    assert pack(array("i", token_ids)) == pack(token_ids)


def test_pack_is_little_endian() -> None:
    assert pack([1, 258]) == b"\x01\0\0\0\x02\x01\0\0"


def test_pack_refuses_what_does_not_fit() -> None:
    with pytest.raises(OverflowError):
        pack([2**31])


USES: dict[str, Callable[[RadixTree, bytes], object]] = {
    "match": lambda tree, packed: tree.match(packed, ""),
    "peek": lambda tree, packed: tree.peek(packed, ""),
    "continuation": lambda tree, packed: tree.continuation(packed, "", 3),
    "insert": lambda tree, packed: tree.insert(packed, [5], ""),
    "insert ids": lambda tree, packed: tree.insert(pack([1, 2]), packed, ""),
    "pins.add": lambda tree, packed: tree.pins.add(packed, 1.0, ""),
    "explain": lambda tree, packed: tree.explain(packed, ""),
    "_evicted_at": lambda tree, packed: tree._evicted_at(packed, ""),
    "common_prefix": lambda tree, packed: common_prefix(packed, pack([1, 2])),
    "common_prefix, other": lambda tree, packed: common_prefix(pack([1, 2]), packed),
    "unpack": lambda tree, packed: unpack(packed),
    "replay": lambda tree, packed: replay([Visit("", packed, 1)], num_blocks=4, block_size=2),
    "foresee": lambda tree, packed: foresee([Visit("", packed, 1)], num_blocks=4, block_size=2),
}


@pytest.mark.parametrize("use", USES)
@given(st.binary(min_size=1, max_size=20).filter(lambda packed: len(packed) % 4))
def test_bytes_that_are_no_whole_tokens_are_refused(use: str, packed: bytes) -> None:
    tree = RadixTree(2, max_pinned_blocks=4)
    with pytest.raises(ValueError, match="bytes"):
        USES[use](tree, packed)
    assert not tree.blocks()
    tree.audit()


@given(st.data(), st.integers(0, 5000))
def test_common_prefix_finds_the_first_difference(data: st.DataObject, length: int) -> None:
    shared = [token * 7 % 1000 for token in range(length)]
    rest = st.lists(st.integers(0, 300), max_size=5)
    key, tokens = shared + data.draw(rest), shared + data.draw(rest)
    differing = (i for i, (a, b) in enumerate(zip(key, tokens, strict=False)) if a != b)
    expected = next(differing, min(len(key), len(tokens)))
    assert common_prefix(pack(key), pack(tokens)) == 4 * expected
