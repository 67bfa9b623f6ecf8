"""Rows of bits, hashed and compared, against the same written out word by word."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from phloem._core import fsm as core

SIZES = [0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100, 1025]


def hashed(row: npt.NDArray[np.int32]) -> int:
    """NH over the two halves of a row."""
    words: list[int] = row.view(np.uint32).tolist()
    half, total = len(words) // 2, len(words)
    for index in range(half):
        one = (words[index] + index * 0x9E3779B1) % 2**32
        other = (words[half + index] + index * 0x85EBCA77 + 1) % 2**32
        total += one * other
    if len(words) % 2:
        total += words[-1] * 0x9E3779B97F4A7C15
    total %= 2**64
    return (total ^ total >> 32) % 2**62


@pytest.mark.parametrize("size", SIZES)
def test_a_row_is_hashed_and_compared(size: int) -> None:
    row = np.random.default_rng(size).integers(-(2**31), 2**31, size).astype(np.int32)
    assert core.hash_row(row) == hashed(row)
    assert core.is_same_row(row, row.copy())
    for index in range(size):
        other = row.copy()
        other[index] ^= 1 << index % 31
        assert not core.is_same_row(row, other)
