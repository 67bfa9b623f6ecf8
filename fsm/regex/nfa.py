"""Nfa: a pattern's tree as a graph.

Thompson's construction, with one trick: a fragment occupies a contiguous range of nodes and leaves it only through
its last node, so that repeating it n times is copying the range with an offset.

It knows no automata; `determinise` makes one of it. Its size is bounded by `MAX_NODES`: beyond, ConstraintTooLarge.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...errors import ConstraintTooLarge
from ..compile_time import CompileTime
from ..text.alphabet import MAX_CODE_POINT, Interval
from ..text.unicode_sets import Intervals
from .regex_tree import Assertion, CharSet, Concat, Either, Look, Node, Plain, Times

MAX_NODES = 60_000

SET, SPLIT, ASSERT, LOOK, MATCH = range(5)  # kinds of nodes, as `fsm/core/subsets.h` has them

ANY: tuple[Interval, ...] = ((0, MAX_CODE_POINT),)
ANY_SET = CharSet(ANY)
ANY_TEXT = Times(ANY_SET, 0, None)


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


def build(tree: Node, compile_time: CompileTime) -> Nfa:
    """The graph of a tree. Iterative: the stack holds (tree node, progress, first graph node)."""
    nfa = Nfa()
    set_ids: dict[Intervals, int] = {}
    ends: list[list[int]] = []  # for each open Either: the last nodes of the finished options, the last split
    stack: list[tuple[Node, int, int]] = [(tree, 0, 0)]
    while stack:
        node, progress, begin = stack.pop()
        compile_time.check_here()
        if isinstance(node, (CharSet, Plain)):
            sets = [node.intervals] if isinstance(node, CharSet) else [((ord(c), ord(c)),) for c in node.text]
            for intervals in sets:
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
    """split -> option, jump to the end; split -> option, jump ...; every option stands after its split."""
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
    """The SET nodes of a trailing "any text": once one has read its character, every continuation is accepted."""
    kind, following, other = nfa.kind, nfa.next_node, nfa.other
    matches = [False] * len(kind)  # nodes that lead to MATCH by jumps alone, which always go forward
    for node in range(len(kind) - 1, -1, -1):
        if kind[node] == SPLIT and other[node] < 0:
            matches[node] = following[node] > node and matches[following[node]]
        else:
            matches[node] = kind[node] == MATCH
    return frozenset(
        node
        for node in range(len(kind) - 2)
        if kind[node] == SET
        and nfa.sets[nfa.arg[node]] == ANY
        and kind[node + 1] == SPLIT
        and following[node + 1] == node
        and other[node + 1] >= 0
        and matches[other[node + 1]]
    )


def all_accepting(nfa: Nfa) -> frozenset[int]:
    """Those of the universal nodes that are reached only where the text may end as well: of ``.*``, but not ``.+``."""
    kind, following, other = nfa.kind, nfa.next_node, nfa.other
    return frozenset(
        node
        for node in universal_nodes(nfa)
        if node and kind[node - 1] == SPLIT and following[node - 1] == node and other[node - 1] == other[node + 1]
    )
