"""Network: a grammar compiled to flat arrays, one node per position.

::

    kind    arg                    next            meaning
    BYTE    the byte               node            read it
    BYTES   index into byte_sets   node            read one byte of the set
    TEXT    index into texts       node            run that text automaton, go on wherever it accepts
    SPLIT   first index, options   num_options     any of the nodes options[arg : arg + next]
    CALL    entry node of a rule   node            write the rule, then go on at next
    LOOP    index into loops       node            the item entry .. RETURN, minimum to maximum times, then next
    SET     index into sets        node            at least one of its members, in any order, then next
    KEY     index into sets        -               where a member of the set begins, and inside its text
    RETURN  -                      -               the rule (or one turn of the loop, or one member) is done

`cost[node]` is the least number of bytes from the node to the end of its rule, `NEVER` if it cannot end: such nodes
are unreachable by construction of the automaton, so whatever it lets through can be completed.
It does not know tokens. Building is iterative and linear in the size of the expressions.

Everything is built from its end to its beginning, so a node has a greater number than what follows it (a loop back
aside), and the nodes of a rule lie together: that makes the costs of most networks a matter of one sweep.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import ConstraintTooLarge, EmptyLanguage, InvalidGrammar
from .alphabet import Ints
from .any_order import SetBuilder, SetTables
from .expression import Alternation, AnyOrder, ByteSet, Embed, Expression, Grammar, Literal, Repeat, Rule, Sequence
from .network_kernels import lay_out
from .text_table import TextTable, text_table

if TYPE_CHECKING:
    from .dfa import Language

BYTE, BYTES, TEXT, SPLIT, CALL, LOOP, RETURN, SET, KEY = range(9)
NEVER = 1 << 29
MAX_NODES = 1 << 20
MAX_SHORTEST = 1 << 27  # bytes
MAX_TURNS = 1 << 30
UNROLL_UP_TO = 3  # repetitions; beyond that a counter on the stack is smaller
TRIE_FROM = 4  # literals in one alternation; beyond that common beginnings are shared

Parts = tuple[Expression, ...]
# the builder's verbs; every number from 0 on means: build that many of the parts
PUSH, JOIN, TIE, CLOSE_LOOP, CLOSE_SET = -1, -2, -3, -4, -5

_SIMPLE = frozenset((Literal, Embed, Rule, ByteSet))


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
    sets: SetTables
    start: int
    rule_numbers: Mapping[str, int]
    rule_entries: Ints  # int32[num_rules], by number of the rule

    @property
    def num_nodes(self) -> int:
        return len(self.kind)

    @property
    def num_bytes(self) -> int:
        """Memory of the arrays, and roughly of the names."""
        arrays = (self.kind, self.arg, self.next_node, self.cost, self.options, self.loops, self.byte_sets)
        own = sum(array.nbytes for array in (*arrays, self.rule_entries)) + 200 * len(self.rule_numbers)
        return own + self.sets.num_bytes

    @property
    def entries(self) -> dict[str, int]:
        """The entry node of every rule by its name."""
        return {name: int(self.rule_entries[number]) for name, number in self.rule_numbers.items()}


def build_network(grammar: Grammar) -> Network:
    """Compiles a grammar.

    Raises:
        InvalidGrammar: a rule is referred to that does not exist, or a rule begins with itself.
        EmptyLanguage: no text at all satisfies the start rule.
        ConstraintTooLarge: more than 2**20 positions, or no text short enough to be written.
    """
    builder = _Builder(grammar)
    while builder.pending_rules:
        builder.build_rule(builder.pending_rules.pop())
    return builder.finish()


class _Builder:
    """The network in the making, a literal still being one node.

    `run` works through a stack of (operand, verb), so no depth of an expression can exhaust Python's:

        parts, n >= 0     put the first n parts before the node on top of `results`
        node, PUSH        put a node on top of `results`
        what, JOIN        make one node of the entries of several options
        split, TIE        make a repetition of an item
        loop, CLOSE_LOOP  make a counted repetition of an item
        what, CLOSE_SET   make a set of members in any order
    """

    def __init__(self, grammar: Grammar) -> None:
        self.rules = grammar.rules
        self.kind: list[int] = []
        self.arg: list[int] = []
        self.next_node: list[int] = []
        self.literals: list[bytes] = []  # of the nodes of kind BYTE, in their order
        self.options: list[int] = []
        self.loops: list[tuple[int, int, int]] = []
        self.byte_sets: dict[int, int] = {}
        self.texts: dict[object, int] = {}
        self.text_tables: list[TextTable] = []
        self.numbers = {grammar.start: 0}  # of the rules, which stand for their entries until everything is built
        self.entries = [0]  # by number of the rule
        self.order: list[int] = []  # the numbers in the order in which the rules were built, and their first nodes
        self.firsts: list[int] = []
        self.pending_rules = [grammar.start]
        self.sets = SetBuilder()
        self.tasks: list[Any] = []  # pairs of operand and verb
        self.results: list[int] = []

    def add(self, kind: int, arg: int, next_node: int) -> int:
        self.kind.append(kind)
        self.arg.append(arg)
        self.next_node.append(next_node)
        return len(self.kind) - 1

    def build_rule(self, name: str) -> None:
        if name not in self.rules:
            raise InvalidGrammar(f"the rule {name!r} is referred to, but not defined")
        number = self.numbers[name]
        self.firsts.append(len(self.kind))
        self.order.append(number)
        self.results.append(self.add(RETURN, 0, 0))
        self.run((self.rules[name],))
        self.entries[number] = self.results.pop()

    def run(self, parts: Parts) -> None:
        """Replaces the node on top of `results` by the entry of the parts followed by that node."""
        tasks, results = self.tasks, self.results
        tasks += (parts, len(parts))
        while tasks:
            verb = tasks.pop()
            what = tasks.pop()
            if verb >= 0:
                self.build(what, verb)
            elif verb == TIE:
                self.tie(what)
            elif verb == PUSH:
                results.append(what)
            elif verb == JOIN:
                self.join(what)
            elif verb == CLOSE_LOOP:
                self.close_loop(what)
            else:
                self.close_set(what)
            if len(self.kind) > MAX_NODES:
                raise _too_large()

    def build(self, parts: Parts, count: int) -> None:
        """Puts parts before the node on top of `results`, from the last one to the first that needs a stack."""
        kinds, args, nexts = self.kind, self.arg, self.next_node
        node = self.results[-1]
        while count:
            count -= 1
            part = parts[count]
            if type(part) is Literal:
                if not part.data:
                    continue
                self.literals.append(part.data)
                kinds.append(BYTE)
                args.append(0)
            elif type(part) is Embed:
                kinds.append(TEXT)
                args.append(self.text_index(part.language))
            elif type(part) is Rule:
                kinds.append(CALL)
                args.append(self.rule_number(part.name))
            elif type(part) is ByteSet:
                kinds.append(BYTES)
                args.append(self.byte_sets.setdefault(part.mask, len(self.byte_sets)))
            else:
                if count:
                    self.tasks += (parts, count)
                if type(part) is Sequence:
                    parts = part.parts
                    count = len(parts)
                    continue
                self.results[-1] = node
                if type(part) is Alternation:
                    self.expand_alternation(part)
                elif type(part) is AnyOrder:
                    self.expand_set(part)
                else:
                    assert type(part) is Repeat, part
                    self.expand_repeat(part)
                return
            nexts.append(node)
            node = len(kinds) - 1
        self.results[-1] = node

    def add_literal(self, data: bytes, end: int) -> int:
        if not data:
            return end
        self.literals.append(data)
        return self.add(BYTE, 0, end)

    def text_index(self, language: Language) -> int:
        index = self.texts.get(language)
        if index is None:
            index = self.texts[language] = len(self.text_tables)
            self.text_tables.append(text_table(language))
        return index

    def rule_number(self, name: str) -> int:
        number = self.numbers.get(name)
        if number is None:
            number = self.numbers[name] = len(self.entries)
            self.entries.append(0)
            self.pending_rules.append(name)
        return number

    # ---------------------------------------------------------------- what needs the stack

    def expand_alternation(self, expression: Alternation) -> None:
        literals = [option.data for option in expression.options if type(option) is Literal]
        others = expression.options
        if len(literals) >= TRIE_FROM:
            others = tuple(option for option in expression.options if type(option) is not Literal)
        else:
            literals = []
        if len(others) == 1 and not literals:
            self.tasks += (others, 1)
            return
        end = self.results[-1]
        self.tasks += ((len(others), literals), JOIN)
        for option in others:
            self.tasks += ((option,), 1, end, PUSH)

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
        if minimum > MAX_SHORTEST:
            raise ConstraintTooLarge(f"a repetition of at least {minimum} times is too long; use smaller counts")
        if maximum is not None and maximum > MAX_TURNS:
            maximum = None  # nobody can write so much
        unrolls = UNROLL_UP_TO if type(item) in _SIMPLE else 1
        once = ((item,), 1)
        if maximum is None and minimum <= unrolls - 1:
            split = self.add_split((-1, results[-1]))  # option 0 will be the item, followed by the split itself
            results[-1] = split
            results.append(split)
            tasks += once * minimum
            tasks += (split, TIE, *once)
        elif minimum == 0 and maximum == 1:
            results.append(results[-1])
            tasks += (-1, TIE, *once)
        elif maximum is not None and maximum <= unrolls:
            tasks += once * minimum
            nested: Expression = Literal(b"")
            for _ in range(maximum - minimum):
                nested = Repeat(Sequence((item, nested)), 0, 1)
            tasks += ((nested,), 1)
        else:
            self.loops.append((-1, minimum, -1 if maximum is None else maximum))
            results.append(self.add(RETURN, 0, 0))
            tasks += (len(self.loops) - 1, CLOSE_LOOP, *once)

    def tie(self, split: int) -> None:
        """results: .., end, entry of the item -> .., entry (`split` -1: a new split of item and end)."""
        item = self.results.pop()
        if split < 0:
            self.results[-1] = self.add_split([item, self.results[-1]])
        else:
            self.options[self.arg[split]] = item

    def close_loop(self, loop: int) -> None:
        """results: .., end, entry of the item -> .., entry."""
        _, minimum, maximum = self.loops[loop]
        self.loops[loop] = (self.results.pop(), minimum, maximum)
        self.results[-1] = self.add(LOOP, loop, self.results[-1])

    def expand_set(self, expression: AnyOrder) -> None:
        end = self.add(RETURN, 0, 0)
        self.tasks += (expression, CLOSE_SET)
        for part in (expression.separator, *expression.others, *(member.body for member in expression.members)):
            self.tasks += ((part,), 1, end, PUSH)

    def close_set(self, expression: AnyOrder) -> None:
        """results: .., end, bodies from last to first, others from last to first, separator -> .., entry."""
        members, others = expression.members, expression.others
        entries = self.results[: -len(members) - len(others) - 2 : -1]
        del self.results[-len(entries) :]
        bodies = entries[1 + len(others) :]
        row = self.sets.num_sets
        order, heads = self.sets.add(expression, len(self.options))
        tails = [(members[index].text or b"")[head:] for index, head in zip(order, heads, strict=True)]
        begun = [self.add_literal(tail, bodies[index]) for index, tail in zip(order, tails, strict=True)]
        key = self.add(KEY, row, 0)
        self.results[-1] = node = self.add(SET, row, self.results[-1])
        self.options += (node, key, *entries[: 1 + len(others)], *begun)

    # ---------------------------------------------------------------- the finished network

    def finish(self) -> Network:
        data = b"".join(self.literals)
        if len(self.kind) + len(data) - len(self.literals) > MAX_NODES:
            raise _too_large()
        self.firsts.append(len(self.kind))
        options = self.options or [0]
        text_costs = [text.min_bytes for text in self.text_tables]
        packed = [len(self.kind), len(self.literals), len(options), len(self.loops), len(self.entries), len(text_costs)]
        packed += self.kind
        packed += self.arg
        packed += self.next_node
        packed += map(len, self.literals)
        packed += options
        for loop in self.loops:
            packed += loop
        packed += self.entries
        packed += self.firsts
        packed += self.order
        packed += text_costs
        sets = self.sets.tables()
        kind, arg, next_node, cost, option_nodes, loops, entries, cycles = lay_out(
            np.frombuffer(array("i", packed), np.int32),
            np.frombuffer(data or b"\0", np.uint8),
            sets.sets,
            sets.members,
            sets.lists,
            self.sets.num_sets,
        )
        if cost[entries[0]] >= NEVER:
            raise EmptyLanguage("nothing at all satisfies the constraint")
        if cost[entries[0]] > MAX_SHORTEST:
            raise ConstraintTooLarge(f"the shortest text has more than {MAX_SHORTEST >> 20} MiB; use smaller counts")
        if len(cycles):
            self._refuse_left_recursion(cycles.tolist())
        words = [[mask >> shift & (2**64 - 1) for shift in (0, 64, 128, 192)] for mask in self.byte_sets]
        byte_sets = np.array(words or [[0, 0, 0, 0]], np.uint64)
        texts = tuple(self.text_tables)
        start = int(entries[0])
        return Network(
            kind, arg, next_node, cost, option_nodes, loops, byte_sets, texts, sets, start, self.numbers, entries
        )

    def _refuse_left_recursion(self, calls: list[list[int]]) -> None:
        """InvalidGrammar: a rule can begin with itself; its states would have endless stacks.

        Args:
            calls: (rule, rule that it may begin with), so that every rule here begins with another one here.
        """
        begins_with = {caller: called for caller, called in calls}
        path = {calls[0][0]: None}
        rule = begins_with[calls[0][0]]
        while rule not in path:
            path[rule] = None
            rule = begins_with[rule]
        names = list(self.numbers)
        cycle = [names[number] for number in [*list(path)[list(path).index(rule) :], rule]]
        raise InvalidGrammar(
            f"the rule {names[rule]!r} can begin with itself ({' -> '.join(cycle)}); "
            "write the repetition with * or +, or put the recursion last"
        )


def _too_large() -> ConstraintTooLarge:
    return ConstraintTooLarge(f"the constraint unfolds to more than {MAX_NODES} positions")


def _common_len(a: bytes, b: bytes) -> int:
    limit = min(len(a), len(b))
    for position in range(limit):
        if a[position] != b[position]:
            return position
    return limit
