"""Literals: a finite set of texts as its smallest automaton.

Knows no patterns and no JSON. Cost: the number of characters times the number of different ones.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import numpy as np

from ..._core import fsm as core
from ...errors import ConstraintTooLarge
from .alphabet import SURROGATES, Alphabet
from .dfa import Dfa, no_text

MAX_CELLS = 1 << 24  # entries of the table
MAX_CHARACTERS = 1 << 20  # of all texts
_SURROGATE = re.compile("[\ud800-\udfff]")


def fits_a_table(texts: Collection[str]) -> bool:
    """Whether the texts certainly fit into a `literal_dfa`."""
    return (sum(map(len, texts)) + 2) * (len(set().union(*texts)) + 2) <= MAX_CELLS


def literal_dfa(texts: Iterable[str]) -> Dfa:
    """Exactly these texts; those with lone surrogates cannot be written and are left out.

    Raises:
        ConstraintTooLarge: they need a table of more than 2**24 entries, or have more than 2**20 characters.
    """
    ordered = sorted(set(texts))
    used = np.array(sorted(map(ord, set().union(*ordered))), np.int64)
    if ((used >= SURROGATES[0]) & (used <= SURROGATES[1])).any():
        return literal_dfa(text for text in ordered if _SURROGATE.search(text) is None)
    if not ordered:
        return no_text()
    if sum(map(len, ordered)) > MAX_CHARACTERS:
        raise ConstraintTooLarge(f"{len(ordered)} texts have more than {MAX_CHARACTERS} characters in all; use fewer")
    points = np.frombuffer("".join(ordered).encode("utf-32-le"), np.uint32).astype(np.int64)
    offsets = np.zeros(len(ordered) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, ordered), np.int64, len(ordered)), out=offsets[1:])
    symbols = (np.searchsorted(used, points) + 1).astype(np.int32)
    table, accepting, start = core.minimal_acyclic(symbols, offsets, len(used) + 2, MAX_CELLS)
    if len(table) == 0:
        raise ConstraintTooLarge(f"{len(ordered)} texts with {len(used)} different characters are too many for a table")
    return Dfa.from_table(Alphabet.apart("".join(map(chr, used))), table, accepting, start)
