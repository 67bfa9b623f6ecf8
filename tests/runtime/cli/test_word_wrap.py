"""Typed lines are broken between words: against a terminal's own breaking, character by character."""

from __future__ import annotations

import re
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.formatted_text.utils import fragment_list_to_text
from prompt_toolkit.layout.processors import TransformationInput
from prompt_toolkit.utils import get_cwidth

from phloem.runtime.cli.chat.word_wrap import WordWrap

LINES = st.text(st.sampled_from("ab 漢é"), max_size=60)


def _transform(text: str, width: int, margin: int) -> Any:
    nothing = cast(Any, None)
    fragments = [("bold", text[:7]), ("", text[7:])]
    given = TransformationInput(nothing, nothing, 0, lambda place: place, fragments, width, 5)  # type: ignore[arg-type]
    return WordWrap(lambda: margin).apply_transformation(given)


def _rows(text: str, columns: int) -> list[int]:
    """The row of each character where a terminal breaks lines after any of them."""
    rows, row, used = [], 0, 0
    for char in text:
        width = get_cwidth(char)
        row, used = (row + 1, width) if used + width > columns else (row, used + width)
        rows.append(row)
    return rows


@given(LINES, st.integers(2, 24), st.integers(0, 4))
def test_no_word_that_fits_a_row_is_broken_and_no_place_is_lost(text: str, columns: int, margin: int) -> None:
    found = _transform(text, columns + margin, margin)
    shown = fragment_list_to_text(found.fragments)
    places = [found.source_to_display(place) for place in range(len(text) + 1)]
    assert "".join(shown[place] for place in places[:-1]) == text and places == sorted(set(places))
    assert [found.display_to_source(place) for place in places] == list(range(len(text) + 1))
    assert all(0 <= found.display_to_source(place) <= len(text) for place in range(len(shown)))
    rows = _rows(shown, columns)
    for word in re.finditer("[^ ]+ ?", text):  # with the space after it, which begins no row if there is room
        width = get_cwidth(word[0])
        shown_with = places[word.start() : word.end() if width <= columns else word.end() - 1]
        if width <= columns or (word[0][-1] == " " and width == columns + 1):
            assert len({rows[place] for place in shown_with}) == 1
    padded = [place for place in range(len(shown)) if place not in places[:-1]]
    assert all(shown[place] == " " for place in padded)


def test_a_terminal_that_is_narrower_than_the_margin_is_left_alone() -> None:
    assert fragment_list_to_text(_transform("a word", 3, 3).fragments) == "a word"
