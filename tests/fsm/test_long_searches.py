"""A search for the least number of tokens comes up for others at even distances, however long it is."""

from __future__ import annotations

import pytest

from phloem.fsm import Compiler
from phloem.fsm.automaton.room import FIRST_BREATH, Room
from phloem.fsm.memory import ALLOWANCE, OUT_OF_WORK

from .vocabularies import BYTES, small_vocabulary


@pytest.mark.parametrize("vocabulary", [BYTES, small_vocabulary([b"ab", b"aB", b"abab"])])
def test_a_search_that_goes_on_takes_no_longer_breaths(vocabulary: object, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: list[int] = []
    make = Room.make

    def noted(room: Room, need: int, **more: bool) -> None:
        make(room, need, **more)
        if need == OUT_OF_WORK:
            allowed.append(int(room.memory[ALLOWANCE]))

    constraint = Compiler(vocabulary).regex("(?i)" + "ab" * 40_000)  # type: ignore[arg-type]
    monkeypatch.setattr(Room, "make", noted)
    assert constraint.min_tokens() <= 80_000
    assert len(allowed) >= 2 and max(allowed) <= 2 * FIRST_BREATH
