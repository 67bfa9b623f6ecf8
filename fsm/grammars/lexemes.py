"""Terminals as automata, and what they oblige the following text to.

An *obligation* is (terminal, state of its automaton where the match ended): the following text must not lead from
there to an accepting state. It moves with every character and is gone when the automaton is dead. Obligations that no
terminal that may follow could break, or carry along, are not made at all.

A name that is not a terminal stands for what is written elsewhere (`%json`) and asks for nothing.
All automata share one alphabet, so a terminal and any number of obligations run as one product automaton.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...errors import ConstraintTooLarge
from ..compile_time import NO_LIMIT, CompileTime
from ..network.expression import NOTHING, Alternation, ByteSet, Embed, Expression, Literal, Rule, Sequence
from ..regex.determinise import determinise
from ..regex.regex_tree import CharSet, Concat, Node, Plain
from ..text.alphabet import Alphabet
from ..text.dfa import Dfa

MAX_STATES = 20_000  # of the product of a terminal and its obligations
MAX_WORK = 4_000_000  # character steps asked of products of terminals and obligations, and of each of these
MAX_CELLS = 1 << 23  # states of all terminals, times the kinds of characters
MAX_SPELLINGS = 8  # characters that may stand at one place of a terminal that is spelt out
Obligations = frozenset[tuple[str, int]]
NONE: Obligations = frozenset()


@dataclass(frozen=True, eq=False)
class Terminal:
    """A terminal and its texts.

    Attributes:
        node: as a regular expression.
        is_lazy: takes the shortest match instead of the longest, and obliges to nothing.
        time: in which whatever is asked of it is found out.
    """

    name: str
    node: Node
    is_lazy: bool = False
    time: CompileTime = NO_LIMIT

    @functools.cached_property
    def places(self) -> tuple[str, ...]:
        """The few characters that may stand at each place, where the terminal is spelt out so: keywords; else none."""
        found: list[str] = []
        for part in self.node.parts if isinstance(self.node, Concat) else (self.node,):
            if isinstance(part, Plain):
                found += part.text
            elif isinstance(part, CharSet) and sum(last + 1 - first for first, last in part.intervals) <= MAX_SPELLINGS:
                found.append("".join(chr(p) for first, last in part.intervals for p in range(first, last + 1)))
            else:
                return ()
        return tuple(found) if all(found) else ()

    @functools.cached_property
    def matches(self) -> Dfa:
        """All that the pattern matches."""
        try:
            return determinise(self.node, compile_time=self.time).minimised()
        except ConstraintTooLarge as error:
            raise ConstraintTooLarge(f"grammar, terminal {self.name}: {error}", param="grammar") from error

    @functools.cached_property
    def dfa(self) -> Dfa:
        """Its texts; not the empty one, which no terminal can be."""
        found = self.matches
        if found.accepts(""):
            found = found.difference(Dfa.length(0, 0)).minimised()
        if not self.is_lazy:
            return found
        table = np.where(found.accepting[:, None], 0, found.table).astype(np.int32)
        return Dfa.from_table(found.alphabet, table, found.accepting, found.start_state)

    def may_go_on_with(self, characters: str) -> bool:
        """Whether a match may become longer by one of these characters."""
        if self.places:
            return False
        return bool(self._after_match[self.dfa.alphabet.classes_of(characters)].any())

    def may_go_on_as(self, other: Terminal) -> bool:
        """Whether a match may become longer by a character that a text of the other terminal may begin with."""
        self.time.check("", f"grammar, terminal {self.name}")
        if other.places or self.places:
            return bool(other.places) and self.may_go_on_with(other.places[0])
        _, mine, theirs = self.dfa.alphabet.refine(other.dfa.alphabet)
        return bool((self._after_match[mine] & (other.dfa.table[other.dfa.start_state] != 0)[theirs]).any())

    def repeats_itself(self) -> bool:
        """Whether two texts in a row are always a text of this terminal."""
        table, accepting = self.dfa.table.tolist(), self.dfa.accepting.tolist()
        pairs = {(state, self.dfa.start_state) for state, ends in enumerate(accepting) if ends}
        for one, other in self.time.over(
            queue := list(pairs), name=f"grammar, terminal {self.name}"
        ):  # grows: from `one` on at least what there is from `other` on
            if accepting[other] and not accepting[one]:
                return False
            for pair in zip(table[one], table[other], strict=True):
                if pair[1] and pair not in pairs:
                    pairs.add(pair)
                    queue.append(pair)
        return True

    @functools.cached_property
    def _after_match(self) -> npt.NDArray[np.bool_]:
        """For every class of characters whether one may stand after a match within a longer one."""
        return np.asarray(self.dfa.table[self.dfa.accepting].any(axis=0))


@dataclass(frozen=True, slots=True)
class _Product:
    """The product of a terminal and obligations: table[state][class], with state 0 dead and 1 first, and the
    obligations left by a match that ends in a state (None: none ends there)."""

    table: list[list[int]]
    left: list[Obligations | None]


class Lexemes:
    """The terminals of one grammar.

    Args:
        terminals: by name.
        followers: for a terminal, the names of those that may stand directly after it.
        foreign: for names that are no terminals, the characters that their texts may begin with.

    Attributes:
        has_obligations: whether any of them could ever be broken.
    """

    def __init__(
        self,
        terminals: Mapping[str, Terminal],
        followers: Mapping[str, Collection[str]],
        foreign: Mapping[str, str],
        compile_time: CompileTime,
    ) -> None:
        self.terminals = terminals
        self._time = compile_time
        self._work = 0
        self._foreign = foreign
        places = {place for terminal in terminals.values() for place in terminal.places}
        alphabet, _ = Alphabet.from_sets([[(ord(c), ord(c)) for c in place] for place in sorted(places)])
        for name, terminal in terminals.items():
            self._time.check("", f"grammar, terminal {name}")
            if not terminal.places:
                alphabet = alphabet.refine(terminal.dfa.alphabet)[0]
        self.alphabet = alphabet
        self._classes_of = {place: alphabet.classes_of(place) for place in places}
        self._tables: dict[str, list[list[int]]] = {}
        self._accepting: dict[str, list[bool]] = {}
        self._starts: dict[str, int] = {}
        self._num_cells = 0
        for name, terminal in terminals.items():
            self._lay_out(name, terminal)
        self._products: dict[tuple[str, Obligations], _Product] = {}
        self._expressions: dict[object, Expression] = {}
        self._left: dict[tuple[str, Obligations], frozenset[Obligations]] = {}
        self._made: frozenset[tuple[str, int]] = frozenset()
        made = set()
        for name in self._time.over(terminals, name="grammar, its terminals"):
            for state, ends in enumerate(self._accepting[name]):
                if ends and any(self._tables[name][state]):
                    self._time.check("", f"grammar, terminal {name}")
                    one = (name, state)
                    if not all(self._is_harmless(follower, one) for follower in followers.get(name, ())):
                        made.add(one)
        self._made = frozenset(made)
        self._products.clear()
        self.has_obligations = bool(made)

    def _lay_out(self, name: str, terminal: Terminal) -> None:
        """The automaton of a terminal over the common alphabet."""
        self._time.check("", f"grammar, terminal {name}")
        num_states = len(terminal.places) or terminal.dfa.num_states
        self._num_cells += num_states * self.alphabet.num_classes
        if self._num_cells > MAX_CELLS:
            raise ConstraintTooLarge(
                f"grammar, terminal {name}: the terminals tell {self.alphabet.num_classes} kinds of characters apart, "
                "which is too many for terminals so long; use fewer characters, or shorter terminals"
            )
        if not terminal.places:
            classes = [0, *terminal.dfa.alphabet.classes_of("".join(map(chr, self.alphabet.representatives[1:])))]
            self._tables[name] = terminal.dfa.table[:, classes].tolist()
            self._accepting[name] = terminal.dfa.accepting.tolist()
            self._starts[name] = terminal.dfa.start_state
            return
        rows = [[0] * self.alphabet.num_classes for _ in range(len(terminal.places) + 2)]
        for index, place in enumerate(terminal.places):
            for class_id in self._classes_of[place]:
                rows[index + 1][class_id] = index + 2
        self._tables[name], self._starts[name] = rows, 1
        self._accepting[name] = [False] * (len(rows) - 1) + [True]

    def _is_harmless(self, name: str, one: tuple[str, int]) -> bool:
        if name not in self.terminals:
            return self.is_harmless(name, frozenset((one,)))
        dead, first = self._tables[one[0]][one[1]], self._tables[name][self._starts[name]]
        if not any(mine and theirs for mine, theirs in zip(first, dead, strict=True)):
            return True
        return self.is_harmless(name, frozenset((one,)))

    def is_harmless(self, name: str, before: Obligations) -> bool:
        """Whether the obligations change nothing for a terminal, nor outlive it."""
        if not before or name in self.terminals:
            return not before or self._same(name, before)
        starts = self.alphabet.classes_of(self._foreign[name])
        return not any(self._tables[terminal][state][start] for terminal, state in before for start in starts)

    def _same(self, name: str, before: Obligations) -> bool:
        free, bound = self._run(name, NONE), self._run(name, before)
        pairs = {(1, 1)}
        for here, there in self._time.over(queue := [(1, 1)], name=f"grammar, terminal {name}"):  # grows
            if free.left[here] != bound.left[there]:
                return False
            for target, other in zip(free.table[here], bound.table[there], strict=True):
                if (target == 0) != (other == 0):
                    return False
                if target and (target, other) not in pairs:
                    pairs.add((target, other))
                    queue.append((target, other))
        return True

    def left_by(self, name: str, before: Obligations) -> frozenset[Obligations]:
        """The obligations that a terminal can leave, given those before it."""
        found = self._left.get((name, before))
        if found is None:
            if name in self.terminals:
                found = frozenset(left for left in self._run(name, before).left if left is not None)
            else:
                found = frozenset((NONE,)) if self.is_harmless(name, before) else frozenset()
            self._left[name, before] = found
        return found

    def expression(self, name: str, before: Obligations, leaves: frozenset[Obligations] | None) -> Expression:
        """The texts of a terminal that break no obligation and leave one of `leaves` (None: anything)."""
        key = name, before, leaves
        found = self._expressions.get(key)
        if found is None:
            found = self._expressions[key] = self._make(name, before, leaves)
        return found

    def _make(self, name: str, before: Obligations, leaves: frozenset[Obligations] | None) -> Expression:
        self._time.check("", f"grammar, terminal {name}")
        if name not in self.terminals:
            return Rule(name) if self.is_harmless(name, before) else NOTHING
        terminal = self.terminals[name]
        if leaves is None and self.is_harmless(name, before):
            return _spelt(terminal.places) if terminal.places else Embed(terminal.dfa)
        run = self._run(name, before)
        accepting = [left is not None and (leaves is None or left in leaves) for left in run.left]
        dfa = Dfa.from_table(self.alphabet, np.array(run.table, np.int32), np.array(accepting, np.bool_), 1)
        return NOTHING if dfa.is_empty() else Embed(dfa.minimised())

    def _run(self, name: str, before: Obligations) -> _Product:
        """The product of a terminal and obligations; states that cannot end are left out."""
        found = self._products.get((name, before))
        if found is not None:
            return found
        table, accepting = self._tables[name], self._accepting[name]
        self._time.check("", f"grammar, terminal {name}")
        start = (self._starts[name], before)
        numbers = {start: 1}
        nodes = [start]
        rows = [[0] * self.alphabet.num_classes]
        left: list[Obligations | None] = [None]
        for state, obligations in self._time.over(nodes, name=f"grammar, terminal {name}"):  # grows
            row = []
            for class_id, target in enumerate(table[state]):
                moved = self._moved(obligations, class_id) if target else None
                if moved is None:
                    row.append(0)
                    continue
                number = numbers.setdefault((target, moved), len(nodes) + 1)
                if number > len(nodes):
                    if number > MAX_STATES:
                        raise ConstraintTooLarge(f"grammar: the terminal {name} is too large next to its neighbours")
                    nodes.append((target, moved))
                row.append(number)
            rows.append(row)
            self._work += len(row) * (1 + len(obligations))
            mine = (name, state)
            left.append((obligations | {mine} if mine in self._made else obligations) if accepting[state] else None)
        if self._work > MAX_WORK:
            raise ConstraintTooLarge(
                f"grammar: terminals such as {name} could run into one another in too many ways; put a character "
                "between them that belongs to neither"
            )
        self._products[name, before] = _live(rows, left)
        return self._products[name, before]

    def _moved(self, obligations: Obligations, class_id: int) -> Obligations | None:
        """The obligations after a character; None if it breaks one."""
        if not obligations:
            return obligations
        moved = []
        for name, state in obligations:
            target = self._tables[name][state][class_id]
            if target and self._accepting[name][target]:
                return None
            if target:
                moved.append((name, target))
        return frozenset(moved)


def _spelt(places: tuple[str, ...]) -> Expression:
    """Characters one after the other, in parts that are equal where keywords begin alike."""
    if all(len(place) == 1 for place in places):
        return Literal("".join(places).encode())
    return Sequence(tuple(map(_one_of, places)))


@functools.lru_cache(1024)
def _one_of(characters: str) -> Expression:
    """One of a few characters."""
    if len(characters) == 1:
        return Literal(characters.encode())
    ascii_only = ByteSet(sum({1 << ord(character) for character in characters if character.isascii()}))
    others = [Literal(character.encode()) for character in characters if not character.isascii()]
    options = [ascii_only, *others] if ascii_only.mask else others
    return options[0] if len(options) == 1 else Alternation(tuple(options))


def _live(rows: list[list[int]], left: list[Obligations | None]) -> _Product:
    """Without the states from which no match can end: they become 0."""
    sources: list[list[int]] = [[] for _ in rows]
    for state, row in enumerate(rows):
        for target in set(row) - {0}:
            sources[target].append(state)
    live = {state for state, one in enumerate(left) if one is not None}
    for state in (queue := list(live)):  # grows
        for source in sources[state]:
            if source not in live:
                live.add(source)
                queue.append(source)
    return _Product([[target if target in live else 0 for target in row] for row in rows], left)
