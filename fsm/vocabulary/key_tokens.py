"""KeyTokens: the tokens of a vocabulary that write the key of a JSON object, or a part of it.

A token that writes a key which its object has already must not be allowed. The tokens that may write a key are found
once per vocabulary, by the key. What comes before a token is not known here, so all that might be a key in some text
counts as one; whether it is, is decided elsewhere (`written`). It knows tokens only, no automaton.

    "id":        begins before the key `id` and ends after it
    1,"id":2     so does this one, once a value has ended
    ,"id         ends inside a key: `id` and more

Only tokens with a quote are looked at: some milliseconds for 131,000 tokens, most of which have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ..text.alphabet import Ints

# a key begins where the token does, or after a comma; overlapping readings are found, too
_WHOLE_KEY = re.compile(rb'(?=(?:\A|,)\s*"((?:[^"\\]|\\.)*)")', re.DOTALL)
_BEGUN_KEY = re.compile(rb'(?=(?:\A|,)\s*"((?:[^"\\]|\\.)*\\?)\Z)', re.DOTALL)
_TWO_KEYS = re.compile(rb'"\s*:.*,\s*"(?:[^"\\]|\\.)*"', re.DOTALL)
_BEFORE_KEY = re.compile(rb"(?:,\s*|\A\s+)\Z")
# a comma after a value: what lies between it and the quote before it is no part of a string
_COMMA = re.compile(rb'(?:.*")?[\s0-9truefalsnE\[\]{}:.+-]*,\s*(?:["\[{0-9tfn-]|\Z)', re.DOTALL)
_TWO_ITEMS = re.compile(rb'"\s*,\s*"(?:[^"\\]|\\.)*"', re.DOTALL)


class KeyTokens:
    """See the module's docstring.

    Args:
        tokens: the bytes of each id.
        data, offsets: all tokens one after the other, and where each begins (`Vocabulary`).

    Attributes:
        whole: by the text of a key as it is written between its quotes, the tokens that may write all of it.
        begun: by the beginning of such a text, the tokens that may end right after it.
        twice: tokens in which two keys of one object, or two strings of one list, may end.
        items: those, and tokens in which an item of any kind may end and the next one be owed or begin.
        before: tokens after which a key may begin.
        structure: uint8 by token: 2 if it has a quote or a backslash, else 1 if it has a brace or a bracket, else 0.
    """

    __slots__ = ("before", "begun", "items", "structure", "twice", "whole")

    def __init__(self, tokens: Sequence[bytes], data: npt.NDArray[np.uint8], offsets: Ints) -> None:
        self.whole: dict[bytes, list[int]] = {}
        self.begun: dict[bytes, list[int]] = {}
        self.twice: list[int] = []
        self.items: list[int] = []
        self.before: list[int] = []
        for token_id in _tokens_with(b'"', data, offsets):
            token = tokens[token_id]
            for found in _WHOLE_KEY.finditer(token):
                self.whole.setdefault(found[1], []).append(token_id)
            for found in _BEGUN_KEY.finditer(token):
                self.begun.setdefault(found[1], []).append(token_id)
            if _TWO_KEYS.search(token) or _TWO_ITEMS.search(token):
                self.twice.append(token_id)
        for token_id in _tokens_with(b",", data, offsets):
            if _COMMA.match(tokens[token_id]):
                self.items.append(token_id)
        for token_id in _tokens_with(b", \n\t", data, offsets):
            if _BEFORE_KEY.search(tokens[token_id]):
                self.before.append(token_id)
        self.structure = np.zeros(len(tokens), np.uint8)
        self.structure[list(_tokens_with(b"{}[]", data, offsets))] = 1
        self.structure[list(_tokens_with(b'"\\', data, offsets))] = 2

    @property
    def num_bytes(self) -> int:
        """Memory, roughly."""
        num_ids = sum(map(len, self.whole.values())) + sum(map(len, self.begun.values()))
        return 200 * (len(self.whole) + len(self.begun)) + 8 * num_ids + len(self.structure)


def _tokens_with(wanted: bytes, data: npt.NDArray[np.uint8], offsets: Ints) -> Iterator[int]:
    """The tokens in which one of some bytes occurs, in order."""
    is_wanted = np.zeros(256, np.bool_)
    is_wanted[list(wanted)] = True
    positions = np.flatnonzero(is_wanted[data[: int(offsets[-1])]])
    yield from np.unique(np.searchsorted(offsets, positions, side="right") - 1).tolist()
