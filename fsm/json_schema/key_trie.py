"""All texts except some, as one automaton, made without any product of automata.

A trie of the excluded texts, from which every other character leads into "any text"::

    excluded {"ab"}     root --a--> a --b--> ab (the text may not end here)
                        any other character, from any of them --> any text

This is the key language of almost every object that allows additional properties, so it has to be quick: some
microseconds per character; all excluded texts in ASCII share one alphabet and hence its spelling.
"""

from __future__ import annotations

import functools

import numpy as np

from ..alphabet import Alphabet
from ..dfa import Dfa
from .texts import is_writable


@functools.lru_cache(maxsize=1024)
def any_text_except(excluded: frozenset[str]) -> Dfa:
    """All texts but the excluded ones (those with lone surrogates are no texts anyway)."""
    texts = sorted(filter(is_writable, excluded))
    characters = frozenset("".join(texts))
    if max(characters, default="a") < "\x80":
        alphabet, class_of = _ascii()
    else:
        alphabet, class_of = _apart(characters)
    children: list[dict[int, int]] = [{}, {}]
    ends: list[int] = []
    for text in texts:
        node = 1
        for character in text:
            class_id = class_of[character]
            child = children[node].get(class_id)
            if child is None:
                child = children[node][class_id] = len(children)
                children.append({})
            node = child
        ends.append(node)
    anything = len(children)
    table = np.full((anything + 1, alphabet.num_classes), anything, np.int32)
    table[0] = table[:, 0] = 0
    for node, below in enumerate(children):
        row = table[node]
        for class_id, child in below.items():
            row[class_id] = child
    accepting = np.ones(anything + 1, np.bool_)
    accepting[0] = False
    accepting[ends] = False
    distance = np.where(accepting, 0, 1).astype(np.int32)
    distance[0] = -1
    return Dfa(alphabet, table, accepting, 1, distance)


@functools.cache
def _ascii() -> tuple[Alphabet, dict[str, int]]:
    return _apart(frozenset(map(chr, range(0x80))))


def _apart(characters: frozenset[str]) -> tuple[Alphabet, dict[str, int]]:
    """An alphabet in which each of the characters has a class of its own; surrogates have class 0."""
    ordered = sorted(characters)
    alphabet, members = Alphabet.from_sets([[(ord(c), ord(c))] for c in ordered])
    return alphabet, {c: classes[0] for c, classes in zip(ordered, members, strict=True)}
