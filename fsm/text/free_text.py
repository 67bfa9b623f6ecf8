"""Free text up to a mark: text automata for "anything in which none of these strings occurs" and "… up to the first".

Aho and Corasick's automaton over characters. A text that reaches the end of a mark has ended, or is dead; so where
a mark occurs first is certain, also where marks overlap with what comes before them::

    marks <a>, <ab>      text  x < < a >      free until the last character, which completes <a>

A mark is never empty. Automata are shared by their marks, so the rows of a vocabulary inside free text are made once
for all constraints that use them. It knows characters only. Memory: a row of classes for every character of a mark.
"""

from __future__ import annotations

import numpy as np

from ...errors import ConstraintTooLarge
from ..remembered import remembered
from .alphabet import Alphabet
from .dfa import Dfa

MAX_WORK = 2_000_000  # marks times characters in all of them
MAX_CHARACTERS = 250_000  # of all marks
MAX_CELLS = 1 << 24  # of a table: characters of all marks times different ones


@remembered(64)
def free_text(marks: tuple[str, ...]) -> Dfa:
    """Every text in which no mark occurs; a mark that has only begun may stand at the end."""
    return _automaton(marks, None)


@remembered(256)
def text_until(marks: tuple[str, ...], ends: frozenset[str]) -> Dfa:
    """Every text with no complete mark before its last character, where exactly the marks `ends` become complete."""
    return _automaton(marks, ends)


def first_marks(marks: tuple[str, ...]) -> list[frozenset[str]]:
    """The sets of marks that can become complete at the same character, as `text_until` wants them.

    Raises:
        ConstraintTooLarge: there are too many marks: each takes an automaton over all of them.
    """
    if len(marks) * sum(map(len, marks)) > MAX_WORK:
        raise ConstraintTooLarge(
            f"{len(marks)} marks in free text are too many to distinguish; let one mark stand for several that begin "
            "with it"
        )
    together = dict.fromkeys(frozenset(mark for mark in marks if longest.endswith(mark)) for longest in marks)
    return [ends for ends in together if not text_until(marks, ends).is_empty()]


def _automaton(marks: tuple[str, ...], ends: frozenset[str] | None) -> Dfa:
    characters = sorted(set("".join(marks)))
    num_states = sum(map(len, marks)) + 2
    if num_states > MAX_CHARACTERS or num_states * (len(characters) + 2) > MAX_CELLS:
        raise ConstraintTooLarge(
            f"the {len(marks)} marks in free text have too many characters, {num_states - 2} in all and "
            f"{len(characters)} different ones; use fewer or shorter marks"
        )
    alphabet, members = Alphabet.from_sets([[(ord(c), ord(c))] for c in characters])
    class_of = {character: classes[0] for character, classes in zip(characters, members, strict=True)}
    edges: list[dict[str, int]] = [{}]  # the trie of the marks; node n is state n + 1
    completed: list[frozenset[str]] = [frozenset()]
    for mark in marks:
        node = 0
        for character in mark:
            if character not in edges[node]:
                edges[node][character] = len(edges)
                edges.append({})
                completed.append(frozenset())
            node = edges[node][character]
        completed[node] |= {mark}
    end = len(edges) + 1
    table = np.zeros((end + 1, alphabet.num_classes), np.int32)
    table[1, 1:] = 1
    fallback = [0] * len(edges)
    queue = [0]
    for node in queue:  # grows; a node comes after the shorter one it falls back to
        if node:
            table[node + 1] = table[fallback[node] + 1]
        for character, child in edges[node].items():
            if node:
                fallback[child] = int(table[fallback[node] + 1, class_of[character]]) - 1
                completed[child] |= completed[fallback[child]]
            queue.append(child)
        for character, child in edges[node].items():
            table[node + 1, class_of[character]] = child + 1
    ended = [node + 1 for node in range(len(edges)) if completed[node]]
    instead = np.arange(end + 1, dtype=np.int32)
    instead[ended] = [end if completed[state - 1] == ends else 0 for state in ended]
    table = instead[table]
    table[ended] = 0
    accepting = np.zeros(end + 1, np.bool_)
    if ends is None:
        accepting[1:end] = True
    else:
        accepting[end] = True
    return Dfa.from_table(alphabet, table, accepting, 1).minimised()
