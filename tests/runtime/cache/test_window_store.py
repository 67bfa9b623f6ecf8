"""Slots of windows by themselves."""

from __future__ import annotations

from array import array

from phloem.runtime.cache.window_store import NONE, WindowStore

from ..schedule.test_waiting_line import request


def test_an_end_behind_a_window_of_one_token_has_no_slot_to_keep() -> None:
    store = WindowStore(3, 8, 1, 1, keeps=True, max_batch_tokens=4)
    first, second = request(0, [5]), request(1, [6, 7])
    first.blocks = array("i", [0])
    store.resume(first, NONE, 0, 0)
    first.num_computed_tokens = 1
    store.move_on(first)
    second.blocks = array("i", [1, 2])
    store.resume(second, NONE, 0, 0)  # takes the slot of block 0, which no window needs
    store.end(first, keep=True)
    first.blocks = array("i")
    store.audit([first, second], {0, 1, 2})
