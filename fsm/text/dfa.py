"""Dfa: a regular language of texts as a table over characters, and the algebra on it.

Two faces of one object. Inwards it is a table over *classes of characters*, so that lengths are counted in
characters, complements stay within valid Unicode, and products stay small. Outwards it is a `Language`: an
automaton over UTF-8 *bytes*.

Invariants: table state 0 is dead, class 0 (surrogates) is dead everywhere, and every other state can reach an
accepting one, so a byte that is not refused can always be completed.
It does not know patterns, JSON Schema or tokens. Nothing here is written to after it is built.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from itertools import compress, islice
from typing import Any, TypeVar

import numpy as np

from ..._core import fsm as core
from ..._core.fsm import Alive
from ...errors import ConstraintTooLarge
from ..remembered import remembered
from .alphabet import Alphabet, Bools, Ints, Spelling
from .language import Language

Node = TypeVar("Node", bound=Hashable)

MAX_STATES = 50_000
MAX_CELLS = 1 << 23  # of a product: states times classes of characters, some tenths of a second
MAX_LENGTH = 250_000  # of a bounded text, in characters

Span = tuple[int, "int | None"]
"""The least and the greatest length; None: there is none."""


class Dfa(Language):
    """A set of texts. Immutable; shared freely between threads and constraints.

    Args:
        alphabet: the classes of characters that the table distinguishes.
        table: int32[num_states, num_classes]; row 0 and column 0 are 0.
        accepting: bool[num_states]; False for state 0.
        start: the first state (0: the empty language).
        distance: int32[num_states], least number of characters to acceptance; computed if not given.

    Build one with `from_table`, the functions below or `regex.regex_to_dfa`; the constructor wants a trimmed table.
    """

    __slots__ = ("alphabet", "distance")

    def __init__(
        self, alphabet: Alphabet, table: Ints, accepting: Bools, start: int, distance: Ints | None = None
    ) -> None:
        self.alphabet = alphabet
        self.table = table
        self.accepting = accepting
        self.start_state = start
        self.distance = core.distances(table, accepting) if distance is None else distance

    # ---------------------------------------------------------------- building

    @classmethod
    def from_table(cls, alphabet: Alphabet, table: Ints, accepting: Bools, start: int) -> Dfa:
        """Takes any table with dead state 0, drops what cannot be reached or cannot end, joins like classes."""
        if accepting[0]:
            raise AssertionError("state 0 is dead")
        table = np.ascontiguousarray(table, np.int32)
        table, accepting, distance, start = core.trimmed(table, np.ascontiguousarray(accepting), start)
        if not start:
            return no_text()
        alphabet, table = _join_classes(alphabet, table)
        return cls(alphabet, table, accepting, int(start), distance)

    # ---------------------------------------------------------------- questions

    @property
    def num_states(self) -> int:
        """Number of table states, the dead one included."""
        return len(self.table)

    @property
    def spelling(self) -> Spelling:
        """How the characters are written: in UTF-8."""
        return self.alphabet.spelling

    def accepts(self, text: bytes | str) -> bool:
        """Whether the text (bytes: UTF-8, anything else is refused) belongs to the language."""
        if isinstance(text, bytes):
            try:
                text = text.decode()
            except UnicodeDecodeError:
                return False
        return bool(self.among((text,)))

    def among(self, texts: Sequence[str]) -> list[str]:
        """Those of the texts that belong to the language."""
        points = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.int32)
        lens = np.array([len(text) for text in texts], np.int64)
        alphabet = self.alphabet
        found = core.takes(
            alphabet.starts, alphabet.classes, self.table, self.accepting, self.start_state, points, lens
        )
        return list(compress(texts, found.tolist()))

    def is_empty(self) -> bool:
        """Whether no text at all belongs to the language."""
        return self.start_state == 0

    def is_disjoint_from(self, other: Dfa) -> bool:
        """Whether no text belongs to both: no automaton is made to find that out."""
        if self.is_empty() or other.is_empty():
            return True
        _, mine, theirs = self.alphabet.refine(other.alphabet)
        starts = self.start_state, other.start_state
        found = core.meet(self.table, self.accepting, other.table, other.accepting, mine, theirs, *starts, MAX_STATES)
        if found < 0:
            raise ConstraintTooLarge(f"to compare two patterns takes more than {MAX_STATES} states; simplify them")
        return not found

    # ---------------------------------------------------------------- algebra

    def intersect(self, other: Dfa) -> Dfa:
        """Texts that belong to both."""
        return self._product(other, Alive.BOTH, np.logical_and)

    def union(self, other: Dfa) -> Dfa:
        """Texts that belong to either."""
        return self._product(other, Alive.EITHER, np.logical_or)

    def difference(self, other: Dfa) -> Dfa:
        """Texts that belong to `self` and not to `other`."""
        return self._product(other, Alive.FIRST, lambda mine, theirs: mine & ~theirs)

    def _product(self, other: Dfa, alive: Alive, accept: Callable[[Bools, Bools], Any]) -> Dfa:
        alphabet, mine, theirs = self.alphabet.refine(other.alphabet)
        starts = self.start_state, other.start_state
        needed = {Alive.BOTH: all(starts), Alive.EITHER: any(starts), Alive.FIRST: starts[0]}[alive]
        if not needed:
            return no_text()
        most = min(MAX_STATES, MAX_CELLS // alphabet.num_classes)
        table, lefts, rights = core.product(self.table, other.table, mine, theirs, *starts, alive, most)
        if len(table) == 0:
            raise ConstraintTooLarge(f"a combination of patterns or lengths needs more than {most} states; simplify it")
        accepting = accept(self.accepting[lefts], other.accepting[rights])
        return self.from_table(alphabet, table, accepting, 1)

    def concatenate(self, other: Dfa) -> Dfa:
        """Texts of `self` followed by texts of `other`."""
        alphabet, mine, theirs = self.alphabet.refine(other.alphabet)
        left, right = self.table[:, mine].tolist(), other.table[:, theirs].tolist()
        first_right = frozenset((other.start_state,) if other.start_state else ())

        def entered(state: int, others: frozenset[int]) -> tuple[int, frozenset[int]]:
            return state, others | first_right if self.accepting[state] else others

        def step(node: tuple[int, frozenset[int]]) -> list[tuple[int, frozenset[int]]]:
            state, others = node
            return [
                entered(left[state][c], frozenset(right[o][c] for o in others) - {0})
                for c in range(alphabet.num_classes)
            ]

        def accept(node: tuple[int, frozenset[int]]) -> bool:
            return any(bool(other.accepting[o]) for o in node[1])

        return explore(alphabet, entered(self.start_state, frozenset()), (0, frozenset()), step, accept)

    def minimised(self) -> Dfa:
        """The same language with the fewest states."""
        blocks, members = core.alike_states(self.table, self.accepting)
        if len(members) == self.num_states:
            return self
        table = blocks[self.table[members]]
        alphabet, table = _join_classes(self.alphabet, table)
        start = int(blocks[self.start_state])
        return Dfa(alphabet, table, self.accepting[members], start, self.distance[members])


def explore(
    alphabet: Alphabet,
    start: Node,
    dead: Node,
    step: Callable[[Node], list[Node]],
    accept: Callable[[Node], bool],
    max_states: int = MAX_STATES,
) -> Dfa:
    """The Dfa whose states are hashable nodes found by `step(node) -> successor per class`."""
    numbers: dict[Node, int] = {dead: 0, start: 1}
    if start == dead:
        return no_text()
    nodes = [dead, start]
    rows = [[0] * alphabet.num_classes]
    for node in islice(nodes, 1, None):  # grows meanwhile
        row = []
        for target in step(node):
            number = numbers.get(target)
            if number is None:
                number = numbers[target] = len(nodes)
                nodes.append(target)
                if number > max_states:
                    raise ConstraintTooLarge(f"the pattern needs more than {max_states} states; simplify it")
            row.append(number)
        rows.append(row)
    accepting = np.array([False, *map(accept, nodes[1:])], np.bool_)
    table = np.array(rows, np.int32)
    table[:, 0] = 0
    return Dfa.from_table(alphabet, table, accepting, 1)


def _join_classes(alphabet: Alphabet, table: Ints) -> tuple[Alphabet, Ints]:
    """Joins the classes whose columns are equal."""
    numbers, joined = core.joined_classes(table)
    if joined.shape == table.shape:
        return alphabet, table
    return alphabet.coarsen(numbers, joined.shape[1]), joined


@functools.cache
def no_text() -> Dfa:
    """The empty language (one shared object)."""
    alphabet, _ = Alphabet.from_sets([])
    return Dfa(alphabet, np.zeros((1, 2), np.int32), np.zeros(1, np.bool_), 0)


@functools.cache
def any_text() -> Dfa:
    """Every valid UTF-8 text (one shared object)."""
    alphabet, _ = Alphabet.from_sets([])
    return Dfa(alphabet, np.array([[0, 0], [0, 1]], np.int32), np.array([False, True]), 1)


def of_length(minimum: int, maximum: int | None) -> Dfa:
    """Every text of `minimum` to `maximum` Unicode characters (code points). Shared by its bounds."""
    return no_text() if maximum is not None and maximum < minimum else of_lengths(((minimum, maximum),))


@remembered(256)
def of_lengths(spans: tuple[Span, ...]) -> Dfa:
    """The same of several spans, ascending and disjoint."""
    least, most = spans[-1]
    last = least if most is None else most
    if last > MAX_LENGTH:
        raise ConstraintTooLarge(f"a length of {last} characters passes the bound of {MAX_LENGTH}")
    alphabet, _ = Alphabet.from_sets([])
    table = np.zeros((last + 2, 2), np.int32)
    table[1:, 1] = [*range(2, last + 2), last + 1 if most is None else 0]
    accepting = np.zeros(last + 2, np.bool_)
    for minimum, maximum in spans:
        accepting[minimum + 1 : (last if maximum is None else maximum) + 2] = True
    return Dfa(alphabet, table, accepting, 1)
