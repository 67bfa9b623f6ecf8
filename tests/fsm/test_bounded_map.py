"""A bounded map holds what was kept last, and never more than its bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from phloem.fsm.bounded_map import BoundedMap


@given(st.integers(1, 5), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=40))
def test_what_is_there_is_what_was_kept_last(max_kept: int, entries: list[tuple[int, int]]) -> None:
    found: BoundedMap[int, int] = BoundedMap(max_kept)
    last: dict[int, int] = {}
    for key, value in entries:
        assert found.keep(key, value) == value
        last[key] = value
        assert found[key] == value and len(found) <= max_kept
        assert found.items() <= last.items()
