"""Network: a grammar compiled to flat arrays, one node per position.

::

    kind    arg                    next            meaning
    BYTE    the byte               node            read it
    BYTES   index into byte_sets   node            read one byte of the set
    TEXT    index into texts       node            run that text automaton, go on wherever it accepts
    SPLIT   first index, options   num_options     any of the nodes options[arg : arg + next]
    CALL    entry node of a rule   node            write the rule, then go on at next
    LOOP    index into loops       node            the item entry .. RETURN, minimum to maximum times, then next
    RETURN  -                      -               the rule (or one turn of the loop) is done

`cost[node]` is the least number of bytes from the node to the end of its rule, `NEVER` if it cannot end: such nodes
are unreachable by construction of the automaton, so whatever it lets through can be completed.
It does not know tokens. Building is iterative and linear in the size of the expressions.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import ConstraintTooLarge, EmptyLanguage, InvalidGrammar
from .alphabet import Ints
from .expression import Alternation, ByteSet, Embed, Expression, Grammar, Literal, Repeat, Rule, Sequence
from .network_kernels import relax_costs
from .text_table import TextTable, text_table

BYTE, BYTES, TEXT, SPLIT, CALL, LOOP, RETURN = range(7)
NEVER = 1 << 29
EXPAND, PUSH, JOIN, TIE, CLOSE_LOOP = range(5)  # the builder's verbs; see _Builder.run
MAX_NODES = 1 << 20
UNROLL_UP_TO = 3  # repetitions; beyond that a counter on the stack is smaller
TRIE_FROM = 4  # literals in one alternation; beyond that common beginnings are shared


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """See the module's docstring. Immutable; `start` is the entry node."""

    kind: Ints
    arg: Ints
    next_node: Ints
    cost: Ints
    options: Ints
    loops: Ints  # int32[num_loops, 4]: entry node, minimum, maximum (-1: none), cost of one item
    byte_sets: npt.NDArray[np.uint64]  # [num_sets, 4]
    texts: tuple[TextTable, ...]
    start: int

    @property
    def num_nodes(self) -> int:
        return len(self.kind)


def build_network(grammar: Grammar) -> Network:
    """Compiles a grammar.

    Raises:
        InvalidGrammar: a rule is referred to that does not exist, or a rule begins with itself.
        EmptyLanguage: no text at all satisfies the start rule.
        ConstraintTooLarge: more than 2**20 positions.
    """
    builder = _Builder(grammar)
    builder.build_rule(grammar.start)
    while builder.pending_rules:
        builder.build_rule(builder.pending_rules.pop())
    return builder.finish()


class _Builder:
    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.kind: list[int] = []
        self.arg: list[int] = []
        self.next_node: list[int] = []
        self.options: list[int] = []
        self.loops: list[tuple[int, int, int]] = []
        self.byte_sets: dict[int, int] = {}
        self.texts: dict[object, int] = {}
        self.text_tables: list[TextTable] = []
        self.entries: dict[str, int] = {}
        self.calls: list[tuple[int, str]] = []
        self.pending_rules: list[str] = []
        self.requested: set[str] = {grammar.start}
        self.tasks: list[tuple[int, object]] = []
        self.results: list[int] = []

    def add(self, kind: int, arg: int, next_node: int) -> int:
        if len(self.kind) >= MAX_NODES:
            raise ConstraintTooLarge(f"the constraint unfolds to more than {MAX_NODES} positions")
        self.kind.append(kind)
        self.arg.append(arg)
        self.next_node.append(next_node)
        return len(self.kind) - 1

    def build_rule(self, name: str) -> None:
        if name not in self.grammar.rules:
            raise InvalidGrammar(f"the rule {name!r} is referred to, but not defined")
        self.results.append(self.add(RETURN, 0, 0))
        self.run(self.grammar.rules[name])
        self.entries[name] = self.results.pop()

    def run(self, expression: Expression) -> None:
        """Replaces the node on top of `results` by the entry of `expression` followed by that node."""
        tasks, results = self.tasks, self.results
        tasks.append((EXPAND, expression))
        while tasks:
            verb, what = tasks.pop()
            if verb == EXPAND:
                self.expand(what)  # type: ignore[arg-type]
            elif verb == PUSH:
                results.append(what)  # type: ignore[arg-type]
            elif verb == JOIN:
                self.join(what)  # type: ignore[arg-type]
            elif verb == TIE:
                self.tie(what)  # type: ignore[arg-type]
            else:
                self.close_loop(what)  # type: ignore[arg-type]

    def expand(self, expression: Expression) -> None:
        results, tasks = self.results, self.tasks
        if isinstance(expression, Literal):
            results[-1] = self.add_literal(expression.data, results[-1])
        elif isinstance(expression, Sequence):
            tasks.extend((EXPAND, part) for part in expression.parts)  # the last is popped, thus built, first
        elif isinstance(expression, Rule):
            if expression.name not in self.requested:
                self.requested.add(expression.name)
                self.pending_rules.append(expression.name)
            results[-1] = self.add(CALL, -1, results[-1])
            self.calls.append((results[-1], expression.name))
        elif isinstance(expression, Embed):
            results[-1] = self.add(TEXT, self.text_index(expression), results[-1])
        elif isinstance(expression, ByteSet):
            index = self.byte_sets.setdefault(expression.mask, len(self.byte_sets))
            results[-1] = self.add(BYTES, index, results[-1])
        elif isinstance(expression, Alternation):
            self.expand_alternation(expression)
        else:
            self.expand_repeat(expression)

    def add_literal(self, data: bytes, end: int) -> int:
        """A chain of consecutive nodes, the first one first."""
        if not data:
            return end
        first = len(self.kind)
        if first + len(data) > MAX_NODES:
            raise ConstraintTooLarge(f"the constraint unfolds to more than {MAX_NODES} positions")
        self.kind.extend([BYTE] * len(data))
        self.arg.extend(data)
        self.next_node.extend(range(first + 1, first + len(data)))
        self.next_node.append(end)
        return first

    def text_index(self, expression: Embed) -> int:
        language = expression.language
        index = self.texts.get(language)
        if index is None:
            index = self.texts[language] = len(self.text_tables)
            self.text_tables.append(text_table(language))
        return index

    def expand_alternation(self, expression: Alternation) -> None:
        literals = [option.data for option in expression.options if type(option) is Literal]
        others = expression.options
        if len(literals) >= TRIE_FROM:
            others = tuple(option for option in expression.options if not isinstance(option, Literal))
        else:
            literals = []
        if len(others) == 1 and not literals:
            self.tasks.append((EXPAND, others[0]))
            return
        end = self.results[-1]
        self.tasks.append((JOIN, (len(others), literals)))
        for option in others:
            self.tasks.append((EXPAND, option))
            self.tasks.append((PUSH, end))

    def join(self, what: tuple[int, list[bytes]]) -> None:
        """results: end, option n, .., option 1 -> entry."""
        num_options, literals = what
        end = self.results[-1 - num_options]
        nodes = self.results[len(self.results) - num_options :]
        del self.results[len(self.results) - num_options :]
        if literals:
            nodes.extend(self.add_trie(sorted(set(literals)), end))
        self.results[-1] = nodes[0] if len(nodes) == 1 else self.add_split(nodes)

    def add_split(self, nodes: Seq[int]) -> int:
        first = len(self.options)
        self.options.extend(nodes)
        return self.add(SPLIT, first, len(nodes))

    def add_trie(self, literals: list[bytes], end: int) -> list[int]:
        """Nodes that together spell exactly these sorted literals, common beginnings shared; returns the entries."""
        # frames: (depth, nodes for the texts that pass this point); built from the last literal to the first
        frames: list[tuple[int, list[int]]] = [(0, [])]
        previous = b""
        for literal in reversed(literals):
            shared = _common_len(previous, literal)
            self._fold(frames, previous, shared)
            if frames[-1][0] != len(literal):
                frames.append((len(literal), []))
            frames[-1][1].append(end)
            previous = literal
        self._fold(frames, previous, 0)
        return frames[0][1]

    def _fold(self, frames: list[tuple[int, list[int]]], text: bytes, depth: int) -> None:
        """Turns the frames deeper than `depth` into chains that end at it."""
        while frames[-1][0] > depth:
            below, nodes = frames.pop()
            node = nodes[0] if len(nodes) == 1 else self.add_split(nodes[::-1])
            upper = max(depth, frames[-1][0])
            entry = self.add_literal(text[upper:below], node)
            if frames[-1][0] < upper:
                frames.append((upper, []))
            frames[-1][1].append(entry)

    def expand_repeat(self, expression: Repeat) -> None:
        minimum, maximum, item = expression.minimum, expression.maximum, expression.item
        results, tasks = self.results, self.tasks
        if maximum == 0:
            return
        unrolls = UNROLL_UP_TO if isinstance(item, (Literal, ByteSet, Embed, Rule)) else 1
        if maximum is None and minimum <= unrolls - 1:
            split = self.add_split([-1, results[-1]])  # option 0 will be the item, followed by the split itself
            results[-1] = split
            tasks.extend((EXPAND, item) for _ in range(minimum))
            tasks.extend(((TIE, split), (EXPAND, item), (PUSH, split)))
        elif minimum == 0 and maximum == 1:
            tasks.extend(((TIE, -1), (EXPAND, item), (PUSH, results[-1])))
        elif maximum is not None and maximum <= unrolls:
            tasks.extend((EXPAND, item) for _ in range(minimum))
            nested: Expression = Literal(b"")
            for _ in range(maximum - minimum):
                nested = Repeat(Sequence((item, nested)), 0, 1)
            tasks.append((EXPAND, nested))
        else:
            self.loops.append((-1, minimum, -1 if maximum is None else maximum))
            results[-1] = self.add(LOOP, len(self.loops) - 1, results[-1])
            tasks.extend(((CLOSE_LOOP, len(self.loops) - 1), (EXPAND, item)))
            results.append(self.add(RETURN, 0, 0))

    def tie(self, split: int) -> None:
        """results: .., end, entry of the item -> .., entry (`split` -1: a new split of item and end)."""
        item = self.results.pop()
        if split < 0:
            self.results[-1] = self.add_split([item, self.results[-1]])
        else:
            self.options[self.arg[split]] = item

    def close_loop(self, loop: int) -> None:
        _, minimum, maximum = self.loops[loop]
        self.loops[loop] = (self.results.pop(), minimum, maximum)

    def finish(self) -> Network:
        for node, name in self.calls:
            self.arg[node] = self.entries[name]
        kind, arg, next_node = (np.array(x, np.int32) for x in (self.kind, self.arg, self.next_node))
        options = np.array(self.options or [0], np.int32)
        loops = np.zeros((max(len(self.loops), 1), 4), np.int32)
        if self.loops:
            loops[: len(self.loops), :3] = self.loops
        text_costs = np.array([text.min_bytes for text in self.text_tables] or [0], np.int32)
        cost = relax_costs(kind, arg, next_node, options, loops, text_costs, NEVER)
        loops[:, 3] = cost[loops[:, 0]]
        start = self.entries[self.grammar.start]
        if cost[start] >= NEVER:
            raise EmptyLanguage("nothing at all satisfies the constraint")
        self._refuse_left_recursion(cost.tolist())
        words = [[mask >> shift & (2**64 - 1) for shift in (0, 64, 128, 192)] for mask in self.byte_sets]
        byte_sets = np.array(words or [[0, 0, 0, 0]], np.uint64)
        return Network(kind, arg, next_node, cost, options, loops, byte_sets, tuple(self.text_tables), start)

    def _refuse_left_recursion(self, cost: list[int]) -> None:
        """InvalidGrammar if a rule can begin with itself: its states would have endless stacks."""
        rule_of = {entry: name for name, entry in self.entries.items()}
        begins_with = {name: self._first_calls(entry, cost) for name, entry in self.entries.items()}
        done: set[str] = set()
        for name in begins_with:
            path: dict[str, None] = {}
            pending = [(name, False)]
            while pending:
                current, is_left = pending.pop()
                if is_left:
                    del path[current]
                    done.add(current)
                elif current in path:
                    cycle = [*list(path)[list(path).index(current) :], current]
                    raise InvalidGrammar(
                        f"the rule {current!r} can begin with itself ({' -> '.join(cycle)}); "
                        "write the repetition with * or +, or put the recursion last"
                    )
                elif current not in done:
                    path[current] = None
                    pending.append((current, True))
                    pending.extend((rule_of[entry], False) for entry in begins_with[current])

    def _first_calls(self, entry: int, cost: list[int]) -> list[int]:
        """The entries of the rules that may be called before anything is read."""
        found: list[int] = []
        seen = {entry}
        pending = [entry]
        while pending:
            node = pending.pop()
            kind, arg, following = self.kind[node], self.arg[node], self.next_node[node]
            if kind == SPLIT:
                onward = self.options[arg : arg + following]
            elif kind == CALL:
                found.append(arg)
                onward = [following] if cost[arg] == 0 else []
            elif kind == LOOP:
                item, minimum, _ = self.loops[arg]
                onward = [item, following] if minimum == 0 or cost[item] == 0 else [item]
            elif kind == TEXT:
                onward = [following] if self.text_tables[arg].min_bytes == 0 else []
            else:
                onward = []
            for target in onward:
                if target not in seen and cost[target] < NEVER:
                    seen.add(target)
                    pending.append(target)
        return found


def _common_len(a: bytes, b: bytes) -> int:
    limit = min(len(a), len(b))
    for position in range(limit):
        if a[position] != b[position]:
            return position
    return limit
