"""What is read from tiers for a request, by itself: up to which block, with which parts, and what a tier may lose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.runtime.offload.block_key import BlockKey, extend_keys, part_keys
from phloem.runtime.offload.device_copy import DeviceCopy
from phloem.runtime.offload.load_cost import LoadCost
from phloem.runtime.offload.parts import PartRules, PoolPrefix
from phloem.runtime.offload.shelf import Load, Shelf
from phloem.runtime.offload.tier import Row, Tier

BLOCK_BYTES, BLOCK_SIZE = 8, 4
PREFIX = extend_keys(b"root", True, bytes(range(6 * 4)), 4)


class Held:
    """A tier that has these keys, and has lost some of them when they are read."""

    name, writes_through, num_faults = "held", True, 0

    def __init__(self, keys: set[bytes], lost: set[bytes]) -> None:
        self.keys, self.lost = keys, lost

    def may_have(self, key: BlockKey) -> bool:
        return key.digest in self.keys

    def count(self, keys: Sequence[BlockKey]) -> int:
        return next((at for at, key in enumerate(keys) if key.digest not in self.keys), len(keys))

    def read_blocks(self, keys: Sequence[BlockKey], rows: Row) -> int:
        for at, key in enumerate(keys):
            if key.digest not in self.keys - self.lost:
                return at
            rows[at] = np.frombuffer(key.digest[:BLOCK_BYTES], np.uint8)
        return len(keys)

    def touch(self, keys: Sequence[BlockKey]) -> None:
        pass


class Always:
    def pays(self, found: dict[str, int], start: int, end: int) -> bool:
        return True

    def observe_load(self, tier: str, number: int, seconds: float) -> None:
        pass


def content(keys: Sequence[BlockKey]) -> list[list[int]]:
    return [list(key.digest[:BLOCK_BYTES]) for key in keys]


@given(st.integers(1, 100), st.integers(1, 30))
def test_a_part_has_as_many_rows_as_hold_it(num_bytes: int, block_bytes: int) -> None:
    number = PartRules(num_bytes, lambda _: range(0)).num_rows(block_bytes)
    assert (number - 1) * block_bytes < num_bytes <= number * block_bytes


@settings(max_examples=150)
@given(st.data(), st.integers(0, 2), st.integers(1, 2))
def test_a_load_ends_where_a_request_can_go_on(data: st.DataObject, num_needed: int, num_rows: int) -> None:
    """num_needed: parts of this many blocks before the end are needed; 0: there are no parts."""
    first = data.draw(st.integers(0, 4))
    start = data.draw(st.integers(0, first)) if num_needed else first
    end = data.draw(st.integers(first, len(PREFIX)))
    some = st.sets(st.integers(0, len(PREFIX) - 1))
    there, below = data.draw(some), data.draw(some)
    has_part = {*range(len(PREFIX))} - data.draw(st.sets(st.integers(0, len(PREFIX) - 1), max_size=3))
    there = {index for index in there if index < first}
    below = {index for index in below if index < first} - there
    rules = PartRules(BLOCK_BYTES * num_rows, lambda number: range(max(0, number - num_needed), number))
    rows_of = {index: part_keys(key, num_rows) for index, key in enumerate(PREFIX)}
    keys = {key.digest for key in PREFIX[first:end]} | {key.digest for index in has_part for key in rows_of[index]}
    lost = {rows_of[index][-1].digest for index in has_part if data.draw(st.integers(0, 3)) == 0}
    load = Load("", PoolPrefix(b"", first * 4, 0, there, below), list(PREFIX), first, start, 0.0)
    Shelf(
        cast("list[Tier]", [Held(keys, lost)]),
        DeviceCopy(torch.device("cpu")),
        cast("LoadCost", Always()),
        BLOCK_SIZE,
        BLOCK_BYTES,
        rules if num_needed else None,
    ).read(load)
    last, needed = end, set[int]()
    while num_needed and last > start:
        needed = set(rules.needed(last)) - there
        if all(index in has_part and (index >= first or index in below) for index in needed):
            break
        last, needed = last - 1, set()
    assert load.num_unusable == (end * BLOCK_SIZE if last < end else 0)
    if last <= start:
        assert load.rows is None and not load.parts
        return
    assert load.num_blocks == max(0, last - first)
    assert load.rows is None or load.rows.tolist() == content(PREFIX[first:last])
    is_whole = not any(key.digest in lost for index in needed for key in rows_of[index])
    expected = {index: content(rows_of[index]) for index in needed} if is_whole else {}
    assert {index: rows.tolist() for index, rows in load.parts.items()} == expected
