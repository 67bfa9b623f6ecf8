"""All keys except some, as one automaton over JSON string literals, made without any product of automata.

The automaton of any string is copied once per character of the excluded keys: a trie, whose rows are the row of
"inside any string" with the way on along the trie, and without the closing quote where a key would be complete::

    excluded {"ab"}     " --> root --a--> a --b--> ab (no quote here)
                             any other character, from any of them --> inside any string

This is the key language of almost every object that allows additional properties, so it has to be quick: some
microseconds per character, and all share one alphabet.
"""

from __future__ import annotations

import functools

import numpy as np

from ..alphabet import Alphabet, Ints
from ..any_json import string_text
from ..dfa import Dfa

_PLAIN = frozenset(map(chr, range(0x20, 0x7F))) - {'"', "\\"}


@functools.lru_cache(maxsize=1024)
def any_key_except(excluded: frozenset[str]) -> Dfa | None:
    """JSON literals of all strings but the excluded ones; None if one of these is not plain ASCII."""
    if not all(_PLAIN.issuperset(key) for key in excluded):
        return None
    alphabet, class_of, base, inside = _any_string()
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
    num_nodes = len(children)
    first = 2  # of the trie; row 1 is the opening quote, the automaton of any string comes last
    shift = first + num_nodes - 1
    shifted = np.where(base > 0, base + shift, 0).astype(np.int32)
    table = np.empty((1 + shift + len(base) - 1, alphabet.num_classes), np.int32)
    table[:2] = 0
    table[1, class_of['"']] = first
    table[first : first + num_nodes] = shifted[inside]
    table[first + num_nodes :] = shifted[1:]
    for node, below in enumerate(children):
        if below:
            row = table[first + node]
            for class_id, child in below.items():
                row[class_id] = first + child
    table[[first + node for node in ends], class_of['"']] = 0
    any_string = string_text()
    distance = np.empty(len(table), np.int32)
    distance[0] = -1
    distance[first : first + num_nodes] = 1
    distance[[first + node for node in ends]] = 2
    distance[1] = distance[first] + 1
    distance[first + num_nodes :] = any_string.distance[1:]
    accepting = np.zeros(len(table), np.bool_)
    accepting[first + num_nodes :] = any_string.accepting[1:]
    return Dfa(alphabet, table, accepting, 1, distance)


@functools.cache
def _any_string() -> tuple[Alphabet, dict[str, int], Ints, int]:
    """The alphabet with every plain character apart, its classes, the table of any string, the state inside it."""
    characters = [chr(point) for point in range(0x20, 0x7F)]
    apart, members = Alphabet.from_sets([[(ord(c), ord(c))] for c in characters])
    dfa = string_text()
    alphabet, mine, theirs = dfa.alphabet.refine(apart)
    number = {int(theirs[class_id]): class_id for class_id in range(alphabet.num_classes)}
    class_of = {c: number[classes[0]] for c, classes in zip(characters, members, strict=True)}
    table: Ints = dfa.table[:, mine]
    return alphabet, class_of, table, int(table[dfa.start_state, class_of['"']])
