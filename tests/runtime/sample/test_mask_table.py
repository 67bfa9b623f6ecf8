"""The table of mask rows holds what was asked for, in its bounds, and copies nothing twice without need."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from phloem.runtime.sample.mask_table import FIRST_SLOTS, MaskTable

NUM_WORDS = 3
CPU = torch.device("cpu")


def shared_row(content: int, num_words: int = NUM_WORDS) -> npt.NDArray[np.int32]:
    row = np.full(num_words, content, np.int32)
    row.setflags(write=False)
    return row


def own_row(content: int) -> npt.NDArray[np.int32]:
    return np.full(NUM_WORDS, content, np.int32)


ROWS = [shared_row(content) for content in range(40)]
STEPS = st.lists(st.lists(st.integers(-5, len(ROWS) - 1), min_size=1, max_size=14), max_size=30)


@pytest.mark.parametrize("max_slots", [1, 5, 16])
@given(steps=STEPS)
def test_every_slot_of_a_step_holds_its_row(max_slots: int, steps: list[list[int]]) -> None:
    table = MaskTable(NUM_WORDS, CPU, max_slots * NUM_WORDS * 4)
    largest = max_slots
    for wanted in steps:
        table.begin_step()
        rows = [ROWS[content] if content >= 0 else own_row(content) for content in wanted]
        slots = [table.slot(row) for row in rows]
        assert [table.slot(row) for row in rows if not row.flags.writeable] == [
            slot for slot, row in zip(slots, rows, strict=True) if not row.flags.writeable
        ]
        held = table.tensor()[slots]
        assert held.tolist() == [row.tolist() for row in rows]
        largest = max(largest, len(set(wanted) | {content for content in wanted if content < 0}) + len(wanted))
        assert table.num_slots <= 2 * largest


def test_a_row_is_copied_once_while_it_is_used() -> None:
    table = MaskTable(NUM_WORDS, CPU, 8 * NUM_WORDS * 4)
    often = shared_row(7)
    for step in range(200):
        table.begin_step()
        slots = [table.slot(often), table.slot(shared_row(step)), table.slot(often)]
        assert table.tensor()[slots[0]].tolist() == [7] * NUM_WORDS
    assert table.num_copied == 201
    assert table.num_slots == 8


def test_rows_of_one_step_only_take_no_lasting_place() -> None:
    table = MaskTable(NUM_WORDS, CPU)
    for step in range(3 * FIRST_SLOTS):
        table.begin_step()
        slots = [table.slot(own_row(step)), table.slot(own_row(-step))]
        assert table.tensor()[slots].tolist() == [[step] * NUM_WORDS, [-step] * NUM_WORDS]
    assert table.num_slots == FIRST_SLOTS


def test_rows_may_be_shorter_or_longer_than_the_table() -> None:
    table = MaskTable(NUM_WORDS, CPU)
    table.begin_step()
    slots = [table.slot(shared_row(5, 2)), table.slot(shared_row(6, 4))]
    assert table.tensor()[slots].tolist() == [[5, 5, 0], [6, 6, 6]]


def test_a_slot_that_was_lent_to_a_step_that_failed_holds_the_next_row() -> None:
    """Its row was never copied, and only one may be: on a device equal places are written in any order."""
    table = MaskTable(NUM_WORDS, CPU, 8 * NUM_WORDS * 4)
    table.begin_step()
    lost = table.slot(own_row(1))
    table.begin_step()
    slots = [table.slot(own_row(content)) for content in range(2, 2 + FIRST_SLOTS)]
    assert lost in slots
    held = table.tensor()[slots]
    assert held[:, 0].tolist() == list(range(2, 2 + FIRST_SLOTS))
    assert table.num_copied == FIRST_SLOTS
