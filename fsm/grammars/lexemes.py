"""Terminals as automata, and what they oblige the following text to.

An *obligation* is (terminal, state of its automaton where the match ended): the following text must not lead from
there to an accepting state. It moves with every character and is gone when the automaton is dead. Obligations that no
terminal that may follow could break, or carry along, are not made at all.

A name that is not a terminal stands for what is written elsewhere (`%json`) and asks for nothing.
All automata share one alphabet, so a terminal and any number of obligations run as one product automaton.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from ...errors import ConstraintTooLarge
from ..compile_time import CompileTime
from ..network.expression import NOTHING, Embed, Expression, Rule, alternation
from ..text.alphabet import Alphabet
from ..text.dfa import Dfa
from .terminals import Terminal, spelt

MAX_STATES = 20_000  # of the product of a terminal and its obligations
MAX_WORK = 400_000  # character steps asked of products of terminals and obligations, and of each of these
MAX_CELLS = 1 << 23  # states of all terminals, times the kinds of characters
Obligations = frozenset[tuple[str, int]]
NONE: Obligations = frozenset()


@dataclass(frozen=True, slots=True)
class _Combined:
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
        followers: Callable[[str], Collection[str]],
        foreign: Mapping[str, str],
        compile_time: CompileTime,
    ) -> None:
        self.terminals = terminals
        self._time = compile_time
        self._work = 0
        self._foreign = foreign
        places: set[str] = set()
        for terminal in compile_time.over(terminals.values(), name="grammar, its terminals"):
            for keyword in compile_time.over(terminal.keywords, name=f"grammar, terminal {terminal.name}"):
                places.update(keyword)
        alphabet, _ = Alphabet.from_sets([[(ord(c), ord(c)) for c in place] for place in sorted(places)])
        for name, terminal in terminals.items():
            self._time.check("", f"grammar, terminal {name}")
            if not terminal.keywords:
                alphabet = alphabet.refine(terminal.dfa.alphabet)[0]
        self.alphabet = alphabet
        self._classes_of = {place: tuple(dict.fromkeys(alphabet.classes_of(place))) for place in places}
        self._tables: dict[str, list[list[int]]] = {}
        self._accepting: dict[str, list[bool]] = {}
        self._starts: dict[str, int] = {}
        self._num_cells = 0
        for name, terminal in terminals.items():
            self._lay_out(name, terminal)
        self._products: dict[tuple[str, Obligations], _Combined] = {}
        self._expressions: dict[object, Expression] = {}
        self._covered: dict[tuple[tuple[str, int], tuple[str, int]], bool] = {}
        self._firsts: dict[str, list[int]] = {}
        self._after_first: dict[tuple[str, Obligations], tuple[Obligations | None, ...]] = {}
        self._harmless: dict[tuple[str, Obligations], bool] = {}
        self._left: dict[tuple[str, Obligations], frozenset[Obligations]] = {}
        self._made: frozenset[tuple[str, int]] = frozenset()
        made = set()
        for name in self._time.over(terminals, name="grammar, its terminals"):
            if terminals[name].keywords:
                continue
            after = followers(name)
            for state, ends in enumerate(self._accepting[name]):
                if ends and any(self._tables[name][state]):
                    self._time.check("", f"grammar, terminal {name}")
                    one = (name, state)
                    if not all(self.is_harmless(follower, frozenset((one,))) for follower in after):
                        made.add(one)
        self._made = frozenset(made)
        self._products.clear()
        self._harmless.clear()
        self._left.clear()
        self.has_obligations = bool(made)

    def _lay_out(self, name: str, terminal: Terminal) -> None:
        """The automaton of a terminal over the common alphabet; that of keywords is made when it is needed."""
        self._time.check("", f"grammar, terminal {name}")
        num_states = sum(map(len, terminal.keywords)) or terminal.dfa.num_states
        self._num_cells += num_states * self.alphabet.num_classes
        if self._num_cells > MAX_CELLS:
            raise ConstraintTooLarge(
                f"grammar, terminal {name}: the terminals tell {self.alphabet.num_classes} kinds of characters apart, "
                "which is too many for terminals so long; use fewer characters, or shorter terminals"
            )
        if not terminal.keywords:
            classes = [0, *terminal.dfa.alphabet.classes_of("".join(map(chr, self.alphabet.representatives[1:])))]
            self._tables[name] = terminal.dfa.table[:, classes].tolist()
            self._accepting[name] = terminal.dfa.accepting.tolist()
            self._starts[name] = terminal.dfa.start_state

    def _trie(self, name: str, keywords: tuple[tuple[str, ...], ...]) -> tuple[list[list[int]], list[bool]]:
        """Keywords as one automaton; a state is the keywords that are still possible, and how far they are read."""
        num_classes = self.alphabet.num_classes
        rows, accepting = [[0] * num_classes], [False]
        start = (0, tuple(range(len(keywords))))
        numbers = {start: 1}
        for depth, possible in self._time.over(queue := [start], name=f"grammar, terminal {name}"):  # grows
            after: dict[int, list[int]] = {}
            for index in possible:
                if depth < len(keywords[index]):
                    for class_id in self._classes_of[keywords[index][depth]]:
                        after.setdefault(class_id, []).append(index)
            row = [0] * num_classes
            for class_id, indices in after.items():
                key = (depth + 1, tuple(indices))
                if key not in numbers:
                    numbers[key] = len(numbers) + 1
                    queue.append(key)
                row[class_id] = numbers[key]
            rows.append(row)
            accepting.append(any([len(keywords[index]) == depth for index in possible]))
        return rows, accepting

    def is_harmless(self, name: str, before: Obligations) -> bool:
        """Whether the obligations change nothing for a terminal, nor outlive it."""
        if not before:
            return True
        if name in self.terminals:
            found = self._harmless.get((name, before))
            if found is None:
                moved = self._moved_at_first(name, before)
                found = all([one == NONE for one in moved]) or (None not in moved and self._same(name, before))
                self._harmless[name, before] = found
            return found
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
                found = self._left_by_terminal(name, before)
            else:
                found = frozenset((NONE,)) if self.is_harmless(name, before) else frozenset()
            self._left[name, before] = found
        return found

    def _left_by_terminal(self, name: str, before: Obligations) -> frozenset[Obligations]:
        if before:
            moved = self._moved_at_first(name, before)
            if all([one is None for one in moved]):
                return frozenset()
            if all([one == NONE for one in moved]):
                before = NONE
        if not before and self.terminals[name].keywords:
            return frozenset((NONE,))
        return frozenset(left for left in self._run(name, before).left if left is not None)

    def after_first(self, name: str, before: Obligations) -> tuple[Obligations | None, ...] | bool:
        """The obligations after each character that a terminal may begin with; of another name, if it is harmless."""
        return self._moved_at_first(name, before) if name in self.terminals else self.is_harmless(name, before)

    def _moved_at_first(self, name: str, before: Obligations) -> tuple[Obligations | None, ...]:
        """The obligations after each character that a terminal may begin with; None where one is broken."""
        found = self._after_first.get((name, before))
        if found is None:
            firsts = self._firsts.get(name)
            if firsts is None:
                firsts = self._firsts[name] = self._first_classes(name)
            found = self._after_first[name, before] = tuple([self._moved(before, class_id) for class_id in firsts])
        return found

    def _first_classes(self, name: str) -> list[int]:
        """The classes of the characters that a terminal may begin with."""
        keywords = self.terminals[name].keywords
        if keywords:
            return sorted({class_id for keyword in keywords for class_id in self._classes_of[keyword[0]]})
        row = self._tables[name][self._starts[name]]
        return [class_id for class_id, target in enumerate(row) if target]

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
            keywords = self._time.over(terminal.keywords, name=f"grammar, terminal {name}")
            return alternation(*map(spelt, keywords)) if terminal.keywords else Embed(terminal.dfa)
        run = self._run(name, before)
        accepting = [left is not None and (leaves is None or left in leaves) for left in run.left]
        dfa = Dfa.from_table(self.alphabet, np.array(run.table, np.int32), np.array(accepting, np.bool_), 1)
        return NOTHING if dfa.is_empty() else Embed(dfa.minimised())

    def _run(self, name: str, before: Obligations) -> _Combined:
        """The product of a terminal and obligations; states that cannot end are left out."""
        found = self._products.get((name, before))
        if found is not None:
            return found
        self._time.check("", f"grammar, terminal {name}")
        keywords = self.terminals[name].keywords
        if keywords and name not in self._tables:
            self._tables[name], self._accepting[name] = self._trie(name, keywords)
            self._starts[name] = 1
        table, accepting = self._tables[name], self._accepting[name]
        if keywords and not before:
            found = self._products[name, before] = _Combined(table, [NONE if ends else None for ends in accepting])
            return found
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
            after = self._needed(obligations | {mine}) if mine in self._made else obligations
            left.append(after if accepting[state] else None)
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
        if len(obligations) == 1:
            ((name, state),) = obligations
            target = self._tables[name][state][class_id]
            return None if self._accepting[name][target] else frozenset(((name, target),)) if target else NONE
        moved = []
        for name, state in obligations:
            target = self._tables[name][state][class_id]
            if target and self._accepting[name][target]:
                return None
            if target:
                moved.append((name, target))
        return self._needed(frozenset(moved))

    def _needed(self, obligations: Obligations) -> Obligations:
        """Without those that never decide: whatever they go on with breaks another one at once.

        After a keyword that may be longer and a name, no letter may follow as that would be a longer name, so it does
        not matter that it could be a longer keyword.
        """
        if len(obligations) < 2:
            return obligations
        found = set(obligations)
        for one in sorted(obligations):
            if any(other != one and self._covers(other, one) for other in found):
                found.remove(one)
        return frozenset(found)

    def _covers(self, other: tuple[str, int], one: tuple[str, int]) -> bool:
        known = self._covered.get((other, one))
        if known is None:
            row, accepting = self._tables[other[0]][other[1]], self._accepting[other[0]]
            known = all(accepting[row[c]] for c, target in enumerate(self._tables[one[0]][one[1]]) if target)
            self._covered[other, one] = known
        return known


def _live(rows: list[list[int]], left: list[Obligations | None]) -> _Combined:
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
    return _Combined([[target if target in live else 0 for target in row] for row in rows], left)
