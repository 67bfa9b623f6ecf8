"""Nfa: a pattern's tree as a graph, and the subset construction that makes a `Dfa` of it.

Thompson's construction, with one trick: a fragment occupies a contiguous range of nodes and leaves it only through
its last node, so that repeating it n times is copying the range with an offset.

Two subset constructions. A pattern without assertions inside is a set of positions, kept as the bits of one
integer. A pattern with assertions is a set of *threads*; what a thread must know besides its node is

    the kind of the character before (start, word, line break, other): decides ^ $ \\b together with the next one
    its obligations: look-aheads still open, each as a state of a Dfa over the rest of the text
    the look-behinds: each a Dfa run over all text so far, shared by all threads

so that everything is decided on the way, in one pass from left to right.
Sizes are bounded (`MAX_NODES`, `MAX_STATES`); beyond them ConstraintTooLarge is raised, promptly.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..errors import ConstraintTooLarge
from .alphabet import MAX_CODE_POINT, Alphabet, Interval, Ints
from .dfa import Dfa, explore
from .nfa_kernels import TOO_MANY_STATES, TOO_MUCH_WORK, subset_construction
from .regex_tree import Assertion, CharSet, Concat, Either, Look, Node, Plain, Times
from .unicode_sets import Intervals

MAX_NODES = 60_000
MAX_STATES = 20_000
MAX_WORK = 20_000_000  # positions looked at while the subsets are built; a fraction of a second
MAX_THREAD_WORK = 300_000  # the same where assertions are followed thread by thread
MAX_LOOK_DEPTH = 20

ANY: tuple[Interval, ...] = ((0, MAX_CODE_POINT),)
ANY_SET = CharSet(ANY)
ANY_TEXT = Times(ANY_SET, 0, None)

SET, SPLIT, ASSERT, LOOK, MATCH = range(5)
AT_START, AFTER_WORD, AFTER_BREAK, AFTER_OTHER = range(4)
AT_END, WORD, BREAK, OTHER = range(4)  # kinds of the next character, in the same order


@dataclass(slots=True)
class Nfa:
    """Nodes as parallel lists; node 0 is the start, the last node is MATCH.

    kind[i] SET: read a character of sets[arg[i]], go to next_node[i].  SPLIT: go to next_node[i] and, if it is
    not -1, to other[i].  ASSERT, LOOK: go to next_node[i] if assertion or look number arg[i] holds here.
    """

    kind: list[int] = field(default_factory=list)
    arg: list[int] = field(default_factory=list)
    next_node: list[int] = field(default_factory=list)
    other: list[int] = field(default_factory=list)
    sets: list[Intervals] = field(default_factory=list)
    assertions: list[tuple[str, Intervals]] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)

    def add(self, kind: int, arg: int, next_node: int, other: int = -1) -> int:
        if len(self.kind) >= MAX_NODES:
            raise ConstraintTooLarge(
                f"the pattern unfolds to more than {MAX_NODES} positions; use smaller repetition counts"
            )
        self.kind.append(kind)
        self.arg.append(arg)
        self.next_node.append(next_node)
        self.other.append(other)
        return len(self.kind) - 1

    def copy(self, begin: int, end: int) -> int:
        """Appends a copy of the nodes begin .. end - 1 and returns its first node."""
        shift = len(self.kind) - begin
        if len(self.kind) + end - begin > MAX_NODES:
            self.add_too_many()
        self.kind += self.kind[begin:end]
        self.arg += self.arg[begin:end]
        self.next_node += [node + shift if node >= 0 else -1 for node in self.next_node[begin:end]]
        self.other += [node + shift if node >= 0 else -1 for node in self.other[begin:end]]
        return begin + shift

    def add_too_many(self) -> None:
        raise ConstraintTooLarge(
            f"the pattern unfolds to more than {MAX_NODES} positions; use smaller repetition counts"
        )


def build(tree: Node) -> Nfa:
    """The graph of a tree. Iterative: the stack holds (tree node, progress, first graph node)."""
    nfa = Nfa()
    set_ids: dict[Intervals, int] = {}
    ends: list[list[int]] = []  # for each open Either: the last nodes of the finished options, the last split
    stack: list[tuple[Node, int, int]] = [(tree, 0, 0)]
    while stack:
        node, progress, begin = stack.pop()
        if isinstance(node, CharSet):
            number = set_ids.setdefault(node.intervals, len(nfa.sets))
            if number == len(nfa.sets):
                nfa.sets.append(node.intervals)
            nfa.add(SET, number, len(nfa.kind) + 1)
        elif isinstance(node, Plain):
            for character in node.text:
                intervals = ((ord(character), ord(character)),)
                number = set_ids.setdefault(intervals, len(nfa.sets))
                if number == len(nfa.sets):
                    nfa.sets.append(intervals)
                nfa.add(SET, number, len(nfa.kind) + 1)
        elif isinstance(node, Assertion):
            nfa.assertions.append((node.kind, node.intervals))
            nfa.add(ASSERT, len(nfa.assertions) - 1, len(nfa.kind) + 1)
        elif isinstance(node, Look):
            nfa.looks.append(node)
            nfa.add(LOOK, len(nfa.looks) - 1, len(nfa.kind) + 1)
        elif isinstance(node, Concat):
            if progress < len(node.parts):
                stack.append((node, progress + 1, begin))
                stack.append((node.parts[progress], 0, len(nfa.kind)))
        elif isinstance(node, Either):
            _build_option(nfa, node, progress, begin, ends, stack)
        elif progress == 0:
            _begin_times(nfa, node, stack)
        else:
            _end_times(nfa, node, begin)
    nfa.add(MATCH, 0, -1)
    return nfa


def _build_option(
    nfa: Nfa, node: Either, progress: int, begin: int, ends: list[list[int]], stack: list[tuple[Node, int, int]]
) -> None:
    """split -> option, jump to the end; split -> option, jump ...; every option stands behind its split."""
    if progress == 0:
        ends.append([])
    else:
        ends[-1].append(nfa.add(SPLIT, 0, -1))
    if progress:
        nfa.other[begin] = len(nfa.kind) if progress < len(node.options) else -1
    if progress < len(node.options):
        split = nfa.add(SPLIT, 0, len(nfa.kind) + 1)
        stack.append((node, progress + 1, split))
        stack.append((node.options[progress], 0, len(nfa.kind)))
    else:
        for jump in ends.pop():
            nfa.next_node[jump] = len(nfa.kind)


def _begin_times(nfa: Nfa, node: Times, stack: list[tuple[Node, int, int]]) -> None:
    if node.maximum == 0:
        return
    begin = len(nfa.kind)
    if node.minimum == 0:
        nfa.add(SPLIT, 0, len(nfa.kind) + 1)  # its other way out is set when the end is known
    stack.append((node, 1, begin))
    stack.append((node.item, 0, len(nfa.kind)))


def _end_times(nfa: Nfa, node: Times, begin: int) -> None:
    """The first copy of the item is there; adds the others and the ways round and out."""
    skips = [begin] if node.minimum == 0 else []
    item = begin + len(skips)
    item_end = len(nfa.kind)
    last = item
    if item_end > item:
        for _ in range(max(node.minimum - 1, 0)):
            last = nfa.copy(item, item_end)
        for _ in range(0 if node.maximum is None else node.maximum - max(node.minimum, 1)):
            skips.append(nfa.add(SPLIT, 0, len(nfa.kind) + 1))
            last = nfa.copy(item, item_end)
    if node.maximum is None:
        nfa.add(SPLIT, 0, last, len(nfa.kind) + 1)
    for skip in skips:
        nfa.other[skip] = len(nfa.kind)


def universal_nodes(nfa: Nfa) -> frozenset[int]:
    """The SET nodes of a trailing "any text": once there, every continuation is accepted."""
    found = set()
    for node in range(len(nfa.kind) - 2):
        loop = node + 1
        if (
            nfa.kind[node] == SET
            and nfa.sets[nfa.arg[node]] == ANY
            and nfa.kind[loop] == SPLIT
            and nfa.next_node[loop] == node
        ):
            after = nfa.other[loop]
            while after >= 0 and nfa.kind[after] == SPLIT and nfa.other[after] < 0:
                after = nfa.next_node[after]
            if after >= 0 and nfa.kind[after] == MATCH:
                found.add(node)
    return frozenset(found)


def determinise(tree: Node, max_work: int = MAX_WORK) -> Dfa:
    """The language of a tree as a Dfa: the whole text must match.

    `max_work` bounds the effort for a tree without assertions, in positions looked at (some nanoseconds each).
    """
    nfa = build(tree)
    if nfa.assertions or nfa.looks:
        return _Threads(nfa, 0).dfa()
    return _plain_dfa(nfa, max_work)


# -------------------------------------------------------------------------------- plain patterns


def _plain_dfa(nfa: Nfa, max_work: int) -> Dfa:
    """The Dfa of a graph of SET, SPLIT and MATCH nodes."""
    alphabet, members = Alphabet.from_sets(nfa.sets)
    has_class = np.zeros((len(nfa.sets), alphabet.num_classes), np.bool_)
    for number, classes in enumerate(members):
        has_class[number, classes] = True
    universal = np.zeros(len(nfa.kind), np.bool_)
    universal[list(universal_nodes(nfa))] = True
    kind, arg, next_node, other = (np.array(x, np.int32) for x in (nfa.kind, nfa.arg, nfa.next_node, nfa.other))
    table, accepting, status = subset_construction(
        kind, arg, next_node, other, universal, has_class, MAX_STATES, max_work
    )
    if status == TOO_MANY_STATES:
        raise ConstraintTooLarge(f"the pattern needs more than {MAX_STATES} states; simplify it")
    if status == TOO_MUCH_WORK:
        raise ConstraintTooLarge("the pattern takes too long to determinise; simplify it")
    return Dfa.from_table(alphabet, table, accepting, min(1, len(table) - 1))


# -------------------------------------------------------------------------------- patterns with assertions

Obligations = frozenset[tuple[int, int]]  # (number of a look-ahead automaton, its state)
Thread = tuple[int, Obligations]
Subset = tuple[int, tuple[int, ...], frozenset[Thread]]  # kind of the character before, look-behinds, threads
NO_OBLIGATIONS: Obligations = frozenset()
DEAD: Subset = (AT_START, (), frozenset())


class _Threads:
    """Subset construction for any graph; the module's docstring says what a thread carries.

    A subset is kept before its empty moves are made, since assertions can only be decided once the next
    character is known. Look-ahead number `number` entered after a character of kind k runs the automaton
    `ahead_ids[number][k]`, which must accept the rest of the text.
    """

    def __init__(self, nfa: Nfa, depth: int, before: int = AT_START) -> None:
        if depth > MAX_LOOK_DEPTH:
            raise ConstraintTooLarge(f"look-arounds are nested more than {MAX_LOOK_DEPTH} deep")
        self.nfa = nfa
        self.before = before
        self.universal_nodes = universal_nodes(nfa)
        self.work = 0
        machines: list[Dfa] = []
        self.ahead_ids: dict[int, list[int]] = {}
        self.behind_ids: dict[int, int] = {}
        for number, look in enumerate(nfa.looks):
            found = _look_automata(look, depth)
            first = len(machines)
            machines += found
            if look.is_ahead:
                self.ahead_ids[number] = [first + (kind if len(found) > 1 else 0) for kind in range(4)]
            else:
                self.behind_ids[number] = first
        words: Intervals = ()
        breaks: Intervals = ()
        for kind, intervals in nfa.assertions:
            words = intervals if "word" in kind else words
            breaks = intervals if "line" in kind else breaks
        alphabet, members = Alphabet.from_sets([*nfa.sets, words, breaks])
        classes = np.arange(alphabet.num_classes)
        maps: list[Ints] = []
        for machine in machines:
            alphabet, mine, theirs = alphabet.refine(machine.alphabet)
            classes = classes[mine]
            maps = [known[mine] for known in maps] + [theirs]
        self.alphabet = alphabet
        self.tables = [machine.table[:, m].tolist() for machine, m in zip(machines, maps, strict=True)]
        self.machines = machines
        self.universal = [_universal_states(machine) for machine in machines]
        sets = [set(m) for m in members]
        self.has_class = [[c in s for c in classes.tolist()] for s in sets[:-2]]
        self.kind_of = [WORD if c in sets[-2] else BREAK if c in sets[-1] else OTHER for c in classes.tolist()]
        self.behinds = sorted(self.behind_ids.values())

    def dfa(self) -> Dfa:
        behinds = tuple(self.machines[b].start_state for b in self.behinds)
        start: Subset = (self.before, behinds, frozenset({(0, NO_OBLIGATIONS)}))
        return explore(self.alphabet, start, DEAD, self.step, self.accepts, MAX_STATES)

    def step(self, subset: Subset) -> list[Subset]:
        behinds = subset[1]
        moves = {kind: self.closure(subset, kind) for kind in set(self.kind_of[1:])}
        return [DEAD] + [
            self.read(class_id, moves[self.kind_of[class_id]], behinds)
            for class_id in range(1, self.alphabet.num_classes)
        ]

    def read(self, class_id: int, threads: list[Thread], behinds: tuple[int, ...]) -> Subset:
        """The subset after a character of the class, from threads at SET nodes (others cannot read)."""
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
            thread = pending.pop()
            node, obligations = thread
            kind = nfa.kind[node]
            if kind in (SET, MATCH):
                arrived.append(thread)
                continue
            if kind == ASSERT and not _holds(nfa.assertions[nfa.arg[node]][0], before, following):
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
        if self.work > MAX_THREAD_WORK:
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
        return any(
            self.nfa.kind[node] == MATCH
            and all(bool(self.machines[ahead].accepting[state]) for ahead, state in obligations)
            for node, obligations in self.closure(subset, AT_END)
        )


def _look_automata(look: Look, depth: int) -> list[Dfa]:
    """Ahead: what the rest of the text must be, for each kind of character before (one for all if it is the
    same). Behind: what the text so far must be; what follows cannot be seen from there."""
    if look.is_ahead:
        nfa = build(Concat((look.body, ANY_TEXT)))
        plain = not nfa.assertions and not nfa.looks
        kinds = [AT_START] if plain else [AT_START, AFTER_WORD, AFTER_BREAK, AFTER_OTHER]
        found = [_plain_dfa(nfa, MAX_WORK) if plain else _Threads(nfa, depth + 1, kind).dfa() for kind in kinds]
    else:
        nfa = build(Concat((ANY_TEXT, look.body)))
        if nfa.assertions or nfa.looks:
            raise ConstraintTooLarge("an assertion inside a look-behind is not supported; move it outside")
        found = [_plain_dfa(nfa, MAX_WORK)]
    return [machine.complement_utf8() if look.is_negative else machine for machine in found]


def _universal_states(machine: Dfa) -> frozenset[int]:
    """The states from which every text is accepted."""
    candidates = {state for state in range(1, machine.num_states) if machine.accepting[state]}
    table = machine.table[:, 1:].tolist()
    while True:
        kept = {state for state in candidates if all(target in candidates for target in table[state])}
        if kept == candidates:
            return frozenset(kept)
        candidates = kept


def _holds(assertion: str, before: int, following: int) -> bool:
    if assertion == "start":
        return before == AT_START
    if assertion == "end":
        return following == AT_END
    if assertion == "line_start":
        return before in (AT_START, AFTER_BREAK)
    if assertion == "line_end":
        return following in (AT_END, BREAK)
    return ((before == AFTER_WORD) != (following == WORD)) == (assertion == "word_boundary")
