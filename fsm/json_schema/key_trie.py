"""All texts except some, as one automaton, made without any product of automata.

A trie of the excluded texts, from which every other character leads into "any text"::

    excluded {"ab"}     root --a--> a --b--> ab (the text may not end here)
                        any other character, from any of them --> any text

This is the key language of almost every object that allows additional properties, so it has to be quick: some ten
microseconds, if the characters are ASCII.
"""

from __future__ import annotations

import functools

import numpy as np

from ..alphabet import Alphabet
from ..dfa import Dfa
from ..text_trie_kernels import trie_except
from .texts import is_writable


@functools.lru_cache(maxsize=128)
def any_text_except(excluded: frozenset[str]) -> Dfa:
    """All texts but the excluded ones (those with lone surrogates are no texts anyway)."""
    texts = sorted(filter(is_writable, excluded))
    joined = "".join(texts)
    characters = "".join(sorted(set(joined)))
    alphabet = _apart(characters)
    points = np.frombuffer(characters.encode("utf-32-le"), np.int32)
    symbols = np.searchsorted(points, np.frombuffer(joined.encode("utf-32-le"), np.int32))
    lens = np.fromiter(map(len, texts), np.int64, len(texts))
    table, accepting, distance = trie_except(symbols, lens, alphabet.num_classes)
    return Dfa(alphabet, table, accepting, 1, distance)


@functools.lru_cache(maxsize=128)
def _apart(characters: str) -> Alphabet:
    """Kept, since objects of one schema often use the same characters."""
    return Alphabet.apart(characters)
