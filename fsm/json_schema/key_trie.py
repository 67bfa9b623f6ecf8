"""All texts except some, made without any product of automata: the keys of an object that its schema does not name.

A trie of the excluded texts, from which every other character leads into "any text"::

    excluded {"ab"}     root --a--> a --b--> ab (the text may not end here)
                        any other character, from any of them --> any text

`any_text_except` is a `Dfa`, for the algebra. `OtherStrings` are the same texts as JSON strings; almost every object
that allows additional properties has them, so they have to be quick: if the characters are printable ASCII, one
compiled loop lays out the table that automata run on, in some ten microseconds.
"""

from __future__ import annotations

import functools
from itertools import pairwise
from typing import Any

import numpy as np

from ..._core import fsm as core
from ...errors import ConstraintTooLarge
from ..any_json import any_string
from ..compile_time import NO_LIMIT, CompileTime
from ..in_order import in_order
from ..remembered import remembered
from ..text.alphabet import Alphabet, Ints, Spelling
from ..text.dfa import Dfa
from ..text.json_strings import JsonStrings
from ..text.language import Language
from ..text.text_table import TextTable, text_table
from .texts import is_writable

MAX_CELLS = 1 << 23  # entries of a table: beginnings of the excluded texts times their different characters


@remembered(128)
def any_text_except(excluded: frozenset[str], compile_time: CompileTime = NO_LIMIT) -> Dfa:
    """All texts but the excluded ones (those with lone surrogates are no texts anyway).

    Raises:
        ConstraintTooLarge: they need a table of more than `MAX_CELLS` entries, or the time is over.
    """
    texts = in_order(list(filter(is_writable, excluded)), compile_time)
    joined = "".join(texts)
    characters = "".join(sorted(set(joined)))
    alphabet = Alphabet.apart(characters)
    points = np.frombuffer(characters.encode("utf-32-le"), np.int32)
    symbols = np.searchsorted(points, np.frombuffer(joined.encode("utf-32-le"), np.int32))
    lens = np.fromiter(map(len, texts), np.int64, len(texts))
    most = MAX_CELLS // alphabet.num_classes
    if len(joined) >= most and _num_beginnings(texts) >= most:
        raise ConstraintTooLarge(
            f"{len(texts)} keys with {len(characters)} different characters are too many to distinguish from all others"
            "; name fewer, or allow no others (additionalProperties: false)"
        )
    compile_time.check_here()
    table, accepting, distance = core.trie_except(symbols, lens, alphabet.num_classes)
    return Dfa(alphabet, table, accepting, 1, distance)


def _num_beginnings(texts: list[str]) -> int:
    """How many different beginnings sorted texts have, but for the empty one."""
    count = len(texts[0])
    for before, text in pairwise(texts):
        alike = next((place for place, pair in enumerate(zip(before, text, strict=False)) if pair[0] != pair[1]), None)
        count += len(text) - (len(before) if alike is None else alike)
    return count


class OtherStrings(Language):
    """The JSON strings of all texts but some, whose table was there before its automaton."""

    __slots__ = ("_excluded", "_text_table")

    def __init__(self, excluded: frozenset[str], table: TextTable) -> None:
        self._excluded = excluded
        self._text_table = table

    @functools.cached_property
    def _strings(self) -> JsonStrings:
        """The same language with the same states, for callers that read them."""
        return JsonStrings(any_text_except(self._excluded))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._strings, name)  # its table and the like, made if they are read

    @property
    def spelling(self) -> Spelling:
        """How the characters are written."""
        return self._strings.spelling


@remembered(128)
def strings_but(excluded: frozenset[str], compile_time: CompileTime = NO_LIMIT) -> OtherStrings | JsonStrings:
    """The JSON strings of all texts but the excluded ones. Errors: as `any_text_except`."""
    texts = '"'.join((*in_order(list(excluded), compile_time), ""))
    if not (texts.isascii() and texts.isprintable()) or "\\" in texts or texts.count('"') > len(excluded):
        return JsonStrings(any_text_except(excluded, compile_time))
    compile_time.check_here()
    text, least = core.strings_except(texts.encode(), _base())
    table = TextTable(text, (), least, least, text.num_nodes, text.num_states)
    return OtherStrings(excluded, table)


@functools.cache
def _base() -> Ints:
    """What is the same for all of them."""
    table = text_table(any_string())
    _, _, template, _, _, _, byte_costs, is_wide, num_ascii, _ = table.arrays
    base: Ints = core.base_of_strings(template, byte_costs, is_wide, num_ascii)
    return base
