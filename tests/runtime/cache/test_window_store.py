"""Slots of windows by themselves: which blocks give theirs up, and in which order."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import count

import pytest

from phloem.runtime.cache.slot import NO_SLOT
from phloem.runtime.cache.window_slots import WindowSlots
from phloem.runtime.cache.window_store import WindowStore
from phloem.runtime.request import Request

from ..schedule.test_waiting_line import request

TICKETS = count()


def store_of(num_slots: int, window: int, block_size: int = 2) -> WindowStore:
    return WindowStore(WindowSlots(num_slots + 1, 64), block_size, window, keeps=True, max_batch_tokens=4)


def begin(store: WindowStore, blocks: Sequence[int], resumed_after: int = 0, *, is_probe: bool = False) -> Request:
    """A request with these blocks, of which it found the first tokens."""
    found = request(next(TICKETS), [*range(2 * len(blocks) + 1)], is_probe=is_probe)
    found.blocks, found.num_computed_tokens = array("i", blocks), resumed_after
    store.resume(found, blocks[(resumed_after - 1) // 2] if resumed_after else NO_SLOT, resumed_after, resumed_after)
    return found


def go_on(store: WindowStore, found: Request, num_tokens: int) -> None:
    found.num_computed_tokens = num_tokens
    store.move_on(found)


def end(store: WindowStore, found: Request) -> None:
    store.end(found, keep=True)
    found.blocks = array("i")


def have_slots(store: WindowStore, blocks: Sequence[int]) -> list[int]:
    return [block for block in blocks if store.slots.slot_of[block] != NO_SLOT]


def test_of_a_window_that_is_kept_the_last_block_goes_first() -> None:
    store = store_of(4, 8)
    first = begin(store, [0, 1, 2, 3])
    go_on(store, first, 8)
    end(store, first)
    begin(store, [4])
    assert have_slots(store, range(5)) == [0, 1, 2, 4]


def test_a_chat_keeps_one_window() -> None:
    """What was kept at the end of the last turn goes first once the next turn has gone on from there."""
    store = store_of(8, 4)
    other, turn = begin(store, [4, 5]), begin(store, [0, 1])
    for one in (other, turn):
        go_on(store, one, 4)
        end(store, one)
    following = begin(store, [0, 1, 2, 3], 4)
    go_on(store, following, 8)
    begin(store, [6, 7, 8, 9])
    assert have_slots(store, range(10)) == [2, 3, 4, 5, 6, 7, 8, 9]


def test_a_probe_keeps_no_window() -> None:
    store = store_of(4, 4)
    for blocks, is_probe in (([0, 1], False), ([2, 3], True)):
        one = begin(store, blocks, is_probe=is_probe)
        go_on(store, one, 4)
        end(store, one)
    begin(store, [4, 5])
    assert have_slots(store, range(6)) == [0, 1, 4, 5]


def test_an_end_that_the_tree_has_under_another_id_is_that_of_the_other() -> None:
    store = store_of(8, 4)
    first = begin(store, [0, 1])
    go_on(store, first, 4)
    end(store, first)
    store.slots.merge(1, 9)
    other = begin(store, [4, 5])
    go_on(store, other, 4)
    end(store, other)
    following = begin(store, [0, 9, 2, 3], 4)
    go_on(store, following, 8)
    begin(store, [6, 7, 8, 10])
    assert have_slots(store, range(11)) == [2, 3, 4, 5, 6, 7, 8, 10]


def test_a_window_that_moves_to_a_block_of_the_tree_is_new_there() -> None:
    store = store_of(8, 4)
    notes = store.slots.notes
    notes.watch(lambda block: None)
    first = begin(store, [0, 1])
    go_on(store, first, 4)
    end(store, first)
    assert notes.take_kept() == [0, 1]
    store.slots.merge(1, 9)
    assert notes.take_kept() == [9]


def test_blocks_that_are_shared_are_counted_besides_those_of_each() -> None:
    store = store_of(40, 4)
    most = next(number for number in count() if not store.fits([1] * number))
    for _ in range(2):
        begin(store, [0, 1])
    assert next(number for number in count() if not store.fits([1] * number)) == most - 2


@pytest.mark.parametrize("window", [1, 2, 5])
def test_an_end_behind_a_window_has_no_slot_to_keep(window: int) -> None:
    store = store_of(2, window, 1)
    first, second = request(0, [5]), request(1, [6, 7])
    first.blocks = array("i", [0])
    store.resume(first, NO_SLOT, 0, 0)
    go_on(store, first, 1)
    second.blocks = array("i", [1, 2] if window == 1 else [1])
    store.resume(second, NO_SLOT, 0, 0)  # with a window of one token it takes the slot of block 0
    end(store, first)
    store.audit([first, second], {0, 1, 2})
