"""Tokens as bytes, and the first difference between two runs."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phloem.radix import pack, unpack
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


@given(st.data(), st.integers(0, 5000))
def test_common_prefix_finds_the_first_difference(data: st.DataObject, length: int) -> None:
    shared = [token * 7 % 1000 for token in range(length)]
    rest = st.lists(st.integers(0, 300), max_size=5)
    key, tokens = shared + data.draw(rest), shared + data.draw(rest)
    differing = (i for i, (a, b) in enumerate(zip(key, tokens, strict=False)) if a != b)
    expected = next(differing, min(len(key), len(tokens)))
    assert common_prefix(pack(key), pack(tokens)) == 4 * expected
