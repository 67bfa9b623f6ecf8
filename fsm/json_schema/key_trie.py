"""All keys except some, as one automaton, made without any product of automata.

A trie of the excluded keys, in which every character that leaves it leads to "any text", and which accepts
everywhere but where a key would be complete::

    excluded {"ab"}     root --a--> a --b--> ab (not accepting)
                             any other character, from any of them --> any text

This is the key language of almost every object that allows additional properties, so it has to be quick: some
microseconds per character, and keys of plain ASCII all share one alphabet.
"""

from __future__ import annotations

import functools

import numpy as np

from ..alphabet import Alphabet
from ..dfa import Dfa, JsonStrings

_ASCII = frozenset(map(chr, range(0x20, 0x7F)))


@functools.lru_cache(maxsize=1024)
def any_key_except(excluded: frozenset[str]) -> JsonStrings:
    """JSON literals of all strings but the excluded ones."""
    characters = frozenset("".join(excluded))
    alphabet, class_of = _apart(_ASCII if characters <= _ASCII else characters)
    children: list[dict[int, int]] = [{}]
    ends: list[int] = []
    for key in sorted(excluded):
        node = 0
        for character in key:
            class_id = class_of[character]
            child = children[node].get(class_id)
            if child is None:
                child = children[node][class_id] = len(children)
                children.append({})
            node = child
        ends.append(node)
    num_states = len(children) + 2  # 0 is dead, 1 is any text, the trie follows
    table = np.ones((num_states, alphabet.num_classes), np.int32)
    table[0] = 0
    table[:, 0] = 0
    for node, below in enumerate(children, 2):
        for class_id, child in below.items():
            table[node, class_id] = child + 2
    accepting = np.ones(num_states, np.bool_)
    accepting[0] = False
    distance = np.zeros(num_states, np.int32)
    distance[0] = -1
    for node in ends:
        accepting[node + 2] = False
        distance[node + 2] = 1
    return Dfa(alphabet, table, accepting, 2, distance).json_string()


@functools.lru_cache(maxsize=64)
def _apart(characters: frozenset[str]) -> tuple[Alphabet, dict[str, int]]:
    """An alphabet with every given character in a class of its own, and these classes."""
    ordered = sorted(characters)
    alphabet, members = Alphabet.from_sets([[(ord(c), ord(c))] for c in ordered])
    return alphabet, {c: classes[0] for c, classes in zip(ordered, members, strict=True)}
