"""A typed line that is wider than the terminal is broken between words, as it is shown.

prompt_toolkit breaks such a line after any character. Here spaces are put in, for the eye alone, before a word that the
rest of a row has no room for; the text itself and the places of the cursor in it stay. A word that is wider than a row
is broken as before. Knows no session.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import fragment_list_to_text
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.layout.utils import explode_text_fragments
from prompt_toolkit.utils import get_cwidth


class WordWrap(Processor):
    """margin: columns before each row of the text."""

    def __init__(self, margin: Callable[[], int]) -> None:
        self._margin = margin

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """Spaces put in where a word begins a new row."""
        fragments = explode_text_fragments(transformation_input.fragments)
        columns = transformation_input.width - self._margin()
        pads = dict(paddings(fragment_list_to_text(fragments), columns)) if columns > 0 else {}
        if not pads:
            return Transformation(fragments)
        starts, ends = sorted(pads), list[int]()
        shown: StyleAndTextTuples = []
        for place, fragment in enumerate(fragments):
            if place in pads:
                shown += [("", " ")] * pads[place]
                ends.append(len(shown))
            shown.append(fragment)
        return Transformation(shown, _to_display(starts, ends), _to_source(starts, ends))


def paddings(text: str, columns: int) -> Iterator[tuple[int, int]]:
    """Where words go to the next row, and how many columns of the row before stay empty.

    Args:
        text: one line.
        columns: of a row, at least one.
    """
    column = place = 0
    for is_space, group in groupby(text, str.isspace):
        word = list(group)
        width = sum(map(get_cwidth, word))
        follows = 0 if is_space or place + len(word) == len(text) else 1  # a row begins with no space
        if not is_space and column and column + width + follows > columns >= width:
            yield place, columns - column
            column = 0
        for char in word:
            columns_of_char = get_cwidth(char)
            column = columns_of_char if column + columns_of_char > columns else column + columns_of_char
        place += len(word)


def _to_display(starts: Sequence[int], ends: Sequence[int]) -> Callable[[int], int]:
    def to_display(place: int) -> int:
        index = bisect_right(starts, place) - 1
        return place if index < 0 else ends[index] + place - starts[index]

    return to_display


def _to_source(starts: Sequence[int], ends: Sequence[int]) -> Callable[[int], int]:
    def to_source(place: int) -> int:
        index = bisect_right(ends, place) - 1
        source = place if index < 0 else starts[index] + place - ends[index]
        return source if index + 1 == len(starts) else min(source, starts[index + 1])

    return to_source
