"""The subset construction for graphs with assertions: a state is a set of *threads*.

A thread consists of its node and

    the kind of the character before (start, word, line break …): decides ^ $ \\b together with the next one
    its obligations: look-aheads still open, each as a state of a Dfa over the rest of the text
    the look-behinds: each a Dfa run over all text so far, shared by all threads

so that everything is decided on the way, in one pass from left to right. It is written in Python and follows thread
by thread, so its effort is bounded tightly (`MAX_THREAD_WORK`); `determinise` comes here only with what it must.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..._core import fsm as core
from ...errors import ConstraintTooLarge
from ..compile_time import CompileTime
from ..text.alphabet import Alphabet, Ints
from ..text.dfa import Dfa, any_text, explore
from ..text.unicode_sets import ASCII_WORD, Intervals
from .nfa import ANY_TEXT, ASSERT, LOOK, MATCH, SET, Nfa, build, universal_nodes
from .regex_tree import Assertion, Concat, Look, Node, nodes_of
from .subsets import MAX_STATES, plain_dfa

MAX_THREAD_WORK = 200_000  # threads looked at; about a second
MAX_OBLIGATIONS = 1_000_000  # steps of obligations; as long
MAX_LOOK_DEPTH = 20

# Kinds of the character before, and of the next one in the same order. A wide one belongs to a word in Unicode alone.
AT_START, AFTER_WORD, AFTER_WIDE, AFTER_BREAK, AFTER_OTHER = KINDS_BEFORE = range(5)
AT_END, WORD, WIDE, BREAK, OTHER = range(5)

Obligations = frozenset[tuple[int, int]]  # (number of a look-ahead automaton, its state)
Thread = tuple[int, Obligations]
Subset = tuple[int, tuple[int, ...], frozenset[Thread]]  # kind of the character before, look-behinds, threads
NO_OBLIGATIONS: Obligations = frozenset()
DEAD: Subset = (AT_START, (), frozenset())


class Threads:
    """Subset construction for any graph; the module's docstring says what a thread carries.

    A subset is kept before its empty moves are made, since assertions can only be decided once the next
    character is known. Look-ahead number `number` entered after a character of kind k runs the automaton
    `ahead_ids[number][k]`, which must accept the rest of the text.
    """

    def __init__(self, nfa: Nfa, compile_time: CompileTime, depth: int, before: int = AT_START) -> None:
        if depth > MAX_LOOK_DEPTH:
            raise ConstraintTooLarge(f"look-arounds are nested more than {MAX_LOOK_DEPTH} deep")
        self.nfa = nfa
        self.time = compile_time
        self.before = before
        self.universal_nodes = universal_nodes(nfa)
        self.work = 0
        self.num_obligations = 0
        machines: list[Dfa] = []
        self.ahead_ids: dict[int, list[int]] = {}
        self.behind_ids: dict[int, int] = {}
        for number, look in enumerate(nfa.looks):
            found = _look_automata(look, compile_time, depth)
            compile_time.check_here()
            first = len(machines)
            machines += found
            if look.is_ahead:
                self.ahead_ids[number] = [first + (kind if len(found) > 1 else 0) for kind in KINDS_BEFORE]
            else:
                self.behind_ids[number] = first
        words, wide, breaks = _kinds_asked_for(nfa)
        alphabet, members = Alphabet.from_sets([*nfa.sets, words, wide, breaks])
        classes = np.arange(alphabet.num_classes)
        maps: list[Ints] = []
        for machine in machines:
            compile_time.check_here()
            alphabet, mine, theirs = alphabet.refine(machine.alphabet)
            classes = classes[mine]
            maps = [known[mine] for known in maps] + [theirs]
        self.alphabet = alphabet
        self.tables: list[list[list[int]]] = []
        self.universal: list[frozenset[int]] = []
        for machine, classes_of_machine in zip(machines, maps, strict=True):
            compile_time.check_here()
            self.tables.append(machine.table[:, classes_of_machine].tolist())
            self.universal.append(_universal_states(machine))
        self.machines = machines
        sets = [set(m) for m in members]
        self.has_class = [[c in s for c in classes.tolist()] for s in sets[:-3]]
        kinds = dict.fromkeys(range(alphabet.num_classes), OTHER)
        for kind_of_set, classes_in in zip((BREAK, WIDE, WORD), reversed(sets), strict=False):
            kinds.update(dict.fromkeys(classes_in, kind_of_set))
        self.kind_of = [kinds[c] for c in classes.tolist()]
        self.behinds = sorted(self.behind_ids.values())

    def dfa(self) -> Dfa:
        """The automaton of all texts that match.

        Raises:
            ConstraintTooLarge: too many states, too much work or no time left.
        """
        behinds = tuple(self.machines[b].start_state for b in self.behinds)
        start: Subset = (self.before, behinds, frozenset({(0, NO_OBLIGATIONS)}))
        return explore(self.alphabet, start, DEAD, self.step, self.accepts, MAX_STATES)

    def step(self, subset: Subset) -> list[Subset]:
        """The subset after a character of each class; that of class 0, which no text has, is dead."""
        behinds = subset[1]
        moves = {kind: self.closure(subset, kind) for kind in set(self.kind_of[1:])}
        return [DEAD] + [
            self.read(class_id, moves[self.kind_of[class_id]], behinds)
            for class_id in range(1, self.alphabet.num_classes)
        ]

    def read(self, class_id: int, threads: list[Thread], behinds: tuple[int, ...]) -> Subset:
        """The subset after a character of the class, from threads at SET nodes (others cannot read)."""
        self.time.check_here()
        arg, next_node = self.nfa.arg, self.nfa.next_node
        moved: set[Thread] = set()
        for node, obligations in threads:
            if self.nfa.kind[node] == SET and self.has_class[arg[node]][class_id]:
                kept = self.oblige(obligations, class_id)
                if kept is not None:
                    thread = (next_node[node], kept)
                    if node in self.universal_nodes and not kept:
                        return AFTER_OTHER, behinds, frozenset({thread})
                    moved.add(thread)
        if not moved:
            return DEAD
        kind = self.kind_of[class_id]
        after = tuple(self.tables[b][state][class_id] for b, state in zip(self.behinds, behinds, strict=True))
        return (kind if self.nfa.assertions or self.ahead_ids else AFTER_OTHER), after, frozenset(moved)

    def oblige(self, obligations: Obligations, class_id: int) -> Obligations | None:
        """The obligations after one more character; None if one of them has become impossible."""
        if not obligations:
            return obligations
        self.num_obligations += len(obligations)
        kept: set[tuple[int, int]] = set()
        for ahead, state in obligations:
            target = self.tables[ahead][state][class_id]
            if target == 0:
                return None
            if target not in self.universal[ahead]:
                kept.add((ahead, target))
        return frozenset(kept)

    def closure(self, subset: Subset, following: int) -> list[Thread]:
        """The threads at SET and MATCH nodes, given the kind of the next character."""
        before, behinds, threads = subset
        nfa = self.nfa
        seen = set(threads)
        pending = list(threads)
        arrived: list[Thread] = []
        while pending:
            self.time.check_here()
            thread = pending.pop()
            node, obligations = thread
            kind = nfa.kind[node]
            if kind in (SET, MATCH):
                arrived.append(thread)
                continue
            if kind == ASSERT and not _holds(*nfa.assertions[nfa.arg[node]], before, following):
                continue
            if kind == LOOK:
                entered = self.look(nfa.arg[node], before, behinds, obligations)
                if entered is None:
                    continue
                obligations = entered
            for target in (nfa.next_node[node], nfa.other[node]):
                if target >= 0 and (target, obligations) not in seen:
                    seen.add((target, obligations))
                    pending.append((target, obligations))
        self.work += len(seen)
        if self.work > MAX_THREAD_WORK or self.num_obligations > MAX_OBLIGATIONS:
            raise ConstraintTooLarge("the pattern takes too long to determinise; simplify it")
        return arrived

    def look(self, number: int, before: int, behinds: tuple[int, ...], obligations: Obligations) -> Obligations | None:
        """The obligations of a thread that passes a look-around; None if it cannot pass."""
        if number in self.behind_ids:
            behind = self.behind_ids[number]
            state = behinds[self.behinds.index(behind)]
            return obligations if bool(self.machines[behind].accepting[state]) else None
        ahead = self.ahead_ids[number][before]
        state = self.machines[ahead].start_state
        if state == 0:
            return None
        return obligations if state in self.universal[ahead] else obligations | {(ahead, state)}

    def accepts(self, subset: Subset) -> bool:
        """Whether the text may end here: some thread is at the end, and owes nothing to what is ahead."""
        return any(
            self.nfa.kind[node] == MATCH
            and all(bool(self.machines[ahead].accepting[state]) for ahead, state in obligations)
            for node, obligations in self.closure(subset, AT_END)
        )


def _look_automata(look: Look, compile_time: CompileTime, depth: int) -> list[Dfa]:
    """Look-ahead: what the rest of the text must be, for each kind of character before (one for all if it is the
    same). Look-behind: what the text so far must be; what follows cannot be seen from there."""
    nfa = build(Concat((look.body, ANY_TEXT) if look.is_ahead else (ANY_TEXT, look.body)), compile_time)
    if not nfa.assertions and not nfa.looks:
        found = [plain_dfa(nfa, compile_time)]
    elif look.is_ahead and any("end" not in kind for kind, _ in _assertions(look.body)):
        found = [Threads(nfa, compile_time, depth + 1, kind).dfa() for kind in KINDS_BEFORE]
    else:
        found = [Threads(nfa, compile_time, depth + 1).dfa()]
    return [any_text().difference(machine) if look.is_negative else machine for machine in found]


def _assertions(tree: Node) -> Iterator[tuple[str, Intervals]]:
    """All assertions of a tree, those within its look-arounds as well."""
    return ((node.kind, node.intervals) for node in nodes_of(tree) if isinstance(node, Assertion))


def _kinds_asked_for(nfa: Nfa) -> tuple[Intervals, Intervals, Intervals]:
    """The ASCII characters of words, those of any script, and those that end a line; empty where not needed."""
    words: Intervals = ()
    wide: Intervals = ()
    breaks: Intervals = ()
    for kind, intervals in (*nfa.assertions, *(asked for look in nfa.looks for asked in _assertions(look.body))):
        if "line" in kind:
            breaks = intervals
        elif intervals == ASCII_WORD:
            words = intervals
        elif intervals:
            wide = intervals
    return words, wide, breaks


def _universal_states(machine: Dfa) -> frozenset[int]:
    """The states from which every text is accepted: those from which nothing leads to an end that is none."""
    refuses = ~machine.accepting | (machine.table[:, 1:] == 0).any(axis=1)
    return frozenset(np.flatnonzero(core.distances(machine.table, refuses)[1:] < 0) + 1)


def _holds(assertion: str, intervals: Intervals, before: int, following: int) -> bool:
    if assertion == "start":
        return before == AT_START
    if assertion == "end":
        return following == AT_END
    if assertion == "line_start":
        return before in (AT_START, AFTER_BREAK)
    if assertion == "line_end":
        return following in (AT_END, BREAK)
    words = (WORD,) if intervals == ASCII_WORD else (WORD, WIDE)
    return ((before in words) != (following in words)) == (assertion == "word_boundary")
