"""ItemTokens: the tokens of a vocabulary in which items of JSON lists may end.

Where a token begins nobody knows what was before it, so whatever might end an item in some text counts. Found out once
per vocabulary, in some ten milliseconds for 131,000 tokens. It knows tokens only, no automaton.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ..text.alphabet import Bools, Ints

_IN_STRING = re.compile(rb'"[^,\]]*[,\]]', re.DOTALL)
_OPENING = re.compile(rb"\[[^,\]]*[,\]]", re.DOTALL)
_ENDS, _PUNCTUATION, _BLANKS = b",]", b"{}[],:", b" \t\n\r"
_STRUCTURAL = b'{}[],"\\'


class ItemTokens:
    """See the module's docstring. A row is int32[num_words].

    Args:
        tokens: the bytes of each id.
        data, offsets: all tokens one after the other, and where each begins.
        is_plain: by token; row_of: of token ids; both as in `Vocabulary`.

    Attributes:
        ending: rows of the tokens that may end an item: of a list that they open, outside of strings, inside one.
        blank: the row of the tokens that begin with white space; structure: of these and those that begin with
            punctuation.
        special: the row of the tokens that are not of plain characters (`Vocabulary.is_plain`).
        is_structural: by token, whether it has a bracket, a comma, a quote or a backslash.
    """

    __slots__ = ("blank", "ending", "is_structural", "special", "structure")

    def __init__(
        self,
        tokens: Sequence[bytes],
        data: npt.NDArray[np.uint8],
        offsets: Ints,
        is_plain: bytes,
        row_of: Callable[[npt.NDArray[np.intp]], Ints],
    ) -> None:
        data = data[: int(offsets[-1])]

        def row(is_one: Bools) -> Ints:
            return row_of(np.flatnonzero(is_one))

        def having(wanted: bytes) -> Bools:
            found = np.zeros(len(tokens), np.bool_)
            found[np.searchsorted(offsets, np.flatnonzero(_is_among(wanted)[data]), side="right") - 1] = True
            return found

        def matching(candidates: Bools, pattern: re.Pattern[bytes]) -> Bools:
            found = np.zeros(len(tokens), np.bool_)
            found[[i for i in np.flatnonzero(candidates).tolist() if pattern.search(tokens[i])]] = True
            return found

        def beginning(wanted: bytes) -> Bools:
            found = np.diff(offsets) > 0
            found[found] = _is_among(wanted)[data[offsets[:-1][found]]]
            return found

        ends = having(_ENDS)
        opening, in_string = matching(ends & having(b"["), _OPENING), matching(ends & having(b'"'), _IN_STRING)
        self.ending = (row(opening), row(ends), row(in_string))
        self.is_structural: list[bool] = having(_STRUCTURAL).tolist()
        self.special = row(np.frombuffer(is_plain, np.uint8) == 0)
        self.blank = row(beginning(_BLANKS))
        self.structure = row(beginning(_PUNCTUATION + _BLANKS))


def _is_among(wanted: bytes) -> Bools:
    found = np.zeros(256, np.bool_)
    found[list(wanted)] = True
    return found
