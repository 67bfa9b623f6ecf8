"""What functions remember for the whole process: the same as without, and bounded in bytes."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phloem.errors import ConstraintTooLarge
from phloem.fsm import Compiler
from phloem.fsm.remembered import MAX_BYTES, OBJECT_BYTES, remembered, weight_of
from phloem.fsm.text.dfa import Dfa

from .vocabularies import BYTES


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(1, 6), st.integers(0, 8000))
def test_results_are_those_of_the_function_and_weigh_no_more_than_allowed(
    asked: list[int], max_results: int, max_bytes: int
) -> None:
    made: list[int] = []

    @remembered(max_results, max_bytes)
    def texts(length: int) -> bytes:
        made.append(length)
        return bytes(300 * length)

    for length in asked:
        num_made, num_kept = len(made), texts.cache_info().currsize
        assert texts(length) == bytes(300 * length)
        num_now = texts.cache_info().currsize
        assert num_now <= max_results
        if len(made) == num_made:
            assert num_now == num_kept > 0  # a hit forgets nothing
        kept = made[-num_now:]
        if num_now > 1:
            assert sum(300 * length for length in kept) <= max_bytes


def test_everything_is_remembered_while_it_is_light() -> None:
    made: list[int] = []

    @remembered(100)
    def twice(number: int) -> int:
        made.append(number)
        return 2 * number

    assert [twice(number) for number in (*range(90), *range(90))] == 2 * [*range(0, 180, 2)]
    assert made == [*range(90)]


def test_an_error_is_not_remembered_and_forgets_nothing() -> None:
    @remembered(9)
    def checked(number: int) -> int:
        if number < 0:
            raise ConstraintTooLarge("below 0")
        return number

    checked(1)
    for _ in range(3):
        with pytest.raises(ConstraintTooLarge, match="below 0"):
            checked(-1)
    assert checked.cache_info().currsize == 1


class Holder:
    """Parts in a slot and in a dictionary, and one that may be absent."""

    __slots__ = ("__dict__", "__weakref__", "absent", "part")

    def __init__(self, part: object) -> None:
        self.part, self.other = part, np.zeros(1000, np.int32)


def test_arrays_and_texts_weigh_what_they_hold_wherever_they_lie() -> None:
    array = np.zeros(5000, np.uint8)
    assert weight_of(array) == 5000 + OBJECT_BYTES
    assert weight_of([array, (array, {"key": array})]) == 5003 + 5 * OBJECT_BYTES  # once
    assert 8070 < weight_of(Holder(Holder("x" * 70))) < 8100 + 9 * OBJECT_BYTES
    assert weight_of([None, int, len]) == OBJECT_BYTES


def test_cycles_and_depth_are_weighed() -> None:
    cyclic: list[Any] = ["y" * 50]
    cyclic.append(cyclic)
    assert weight_of(cyclic) == 50 + 2 * OBJECT_BYTES
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert weight_of(deep) == 100_001 * OBJECT_BYTES


def bytes_of_automata() -> int:
    """Of all that are alive. Not by `isinstance`: torch has objects that warn when they are asked for their class."""
    gc.collect()
    found = [one for one in gc.get_objects() if type(one) is Dfa]
    return sum(one.table.nbytes + one.accepting.nbytes + one.distance.nbytes for one in found)


def test_a_compiler_that_is_gone_gives_its_memory_back() -> None:
    """A hundred automata of 200 KB each."""
    before = bytes_of_automata()
    compiler = Compiler(BYTES)
    for number in range(100):
        compiler.json_schema({"type": "string", "pattern": f"^(a|b)*a(a|b){{12}}c{{{number}}}$"})
    del compiler
    assert bytes_of_automata() - before <= 2 * MAX_BYTES
