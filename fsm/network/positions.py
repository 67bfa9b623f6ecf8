"""Positions: the nodes of a network in the making, a literal still being one node.

Everything is built from its end to its beginning, so a node has a greater number than what follows it (a loop back
aside), and the nodes of a rule lie together: that makes the costs of most networks a matter of one sweep.

What is plain (`_place`) is built at once. The rest goes through a stack of (operand, verb), so that no depth of an
expression can exhaust Python's:

    parts, n >= 0     put the first n parts before the node on top of `results`
    node, PUSH        put a node on top of `results`
    what, JOIN        make one node of the entries of several options
    option, TIE       make a repetition of an item
    loop, CLOSE_LOOP  make a counted repetition of an item
    what, CLOSE_SET   make a set of members in any order

Linear in the size of the expressions. `network` documents the kinds of nodes, and finishes them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._core import fsm as core
from ...errors import ConstraintTooLarge, InvalidGrammar
from ..columns import K_BYTE, K_BYTES, K_CALL, K_KEY, K_LOOP, K_RETURN, K_SET, K_SPLIT, K_TEXT
from ..compile_time import FEW, NO_LIMIT, CompileTime
from ..in_order import in_order
from ..text.text_table import TextTable, text_table
from .any_order import SetBuilder
from .expression import (
    Alternation,
    AnyOrder,
    ByteSet,
    CommonRule,
    Embed,
    Expression,
    Grammar,
    Literal,
    Parts,
    Repeat,
    Rule,
    Sequence,
)

if TYPE_CHECKING:
    from ..text.language import Language

MAX_NODES = 1 << 20
MANY_NODES = 1 << 10  # the time is checked once per this many
MAX_SHORTEST = 1 << 27  # bytes
MAX_TURNS = 1 << 30
UNROLL_UP_TO = 3  # repetitions; beyond that a counter on the stack is smaller
TRIE_FROM = 4  # literals in one alternation; beyond that common beginnings are shared
NOT_PLAIN = -1

# the builder's verbs; every number from 0 on means: build that many of the parts
PUSH, JOIN, TIE, CLOSE_LOOP, CLOSE_SET = -1, -2, -3, -4, -5

_SIMPLE = frozenset((Literal, Embed, Rule, ByteSet))


class Positions:
    """The nodes made so far; `build_rule` every rule of `pending_rules`, which grows meanwhile."""

    def __init__(self, grammar: Grammar, compile_time: CompileTime) -> None:
        self.rules = grammar.rules
        self.time = compile_time
        self.next_check = MANY_NODES
        self.kind: list[int] = []
        self.arg: list[int] = []
        self.next_node: list[int] = []
        self.literals: list[bytes] = []  # of the nodes of kind K_BYTE, in their order
        self.options: list[int] = []
        self.loops: list[tuple[int, int, int]] = []
        self.byte_sets: dict[int, int] = {}  # masks
        self.texts: dict[Language, int] = {}
        self.key_texts: dict[Language, int] = {}
        self.item_texts: dict[Language, int] = {}
        self.edge_texts: dict[Language, int] = {}
        self.owes_keys = False
        self.text_tables: list[TextTable] = []
        self.numbers = {grammar.start: 0}  # of the rules, which stand for their entries until everything is built
        self.entries = [0]  # by number of the rule
        self.order: list[int] = []  # the numbers in the order in which the rules were built, and their first nodes
        self.firsts: list[int] = []
        self.pending_rules = [grammar.start]
        self.sets = SetBuilder()
        self.tasks: list[Any] = []  # pairs of operand and verb
        self.results: list[int] = []
        if grammar.common is not None:
            self.begin_with(_positions_of(grammar.common))
            self.numbers[grammar.common.name] = 1

    def begin_with(self, other: Positions) -> None:
        """Takes over what another has built; before anything else is built."""
        self.kind += other.kind
        self.arg += other.arg
        self.next_node += other.next_node
        self.literals += other.literals
        self.options += other.options
        self.loops += other.loops
        self.byte_sets.update(other.byte_sets)
        self.texts.update(other.texts)
        self.key_texts.update(other.key_texts)
        self.item_texts.update(other.item_texts)
        self.edge_texts.update(other.edge_texts)
        self.owes_keys = self.owes_keys or other.owes_keys
        self.text_tables += other.text_tables
        self.entries = other.entries.copy()
        self.order += other.order
        self.firsts += other.firsts

    def _add(self, kind: int, arg: int, next_node: int) -> int:
        """A new node; its number."""
        self.kind.append(kind)
        self.arg.append(arg)
        self.next_node.append(next_node)
        return len(self.kind) - 1

    def build_rule(self, name: str) -> None:
        """Lays a rule out, its last node first."""
        if name not in self.rules:
            raise InvalidGrammar(f"the rule {name!r} is referred to, but not defined")
        number = self.numbers[name]
        self.firsts.append(len(self.kind))
        self.order.append(number)
        self.results.append(self._add(K_RETURN, 0, 0))
        self._run((self.rules[name],))
        self.entries[number] = self.results.pop()

    def _run(self, parts: Parts) -> None:
        """Replaces the node on top of `results` by the entry of the parts followed by that node."""
        tasks, results = self.tasks, self.results
        tasks += (parts, len(parts))
        while tasks:
            verb = tasks.pop()
            what = tasks.pop()
            if verb >= 0:
                self._build(what, verb)
            elif verb == TIE:
                self._tie(what)
            elif verb == PUSH:
                results.append(what)
            elif verb == JOIN:
                self._join(what)
            elif verb == CLOSE_LOOP:
                self._close_loop(what)
            else:
                self._close_set(what)
            if len(self.kind) > self.next_check:
                self._look_up()

    def _look_up(self) -> None:
        """Asks whether there is time for more, and room; after every MANY_NODES."""
        self.next_check = len(self.kind) + MANY_NODES
        self.time.check_here()
        if len(self.kind) > MAX_NODES:
            raise too_large()

    def _build(self, parts: Parts, count: int) -> None:
        """Puts parts before the node on top of `results`, from the last one to the first that needs a stack."""
        node = self.results[-1]
        while count:
            count -= 1
            part = parts[count]
            if type(part) in _SIMPLE:
                node = self._place(part, node)
                if len(self.kind) > self.next_check:
                    self._look_up()
                continue
            if count:
                self.tasks += (parts, count)
            if type(part) is Sequence:
                parts = part.parts
                count = len(parts)
                continue
            self.results[-1] = node
            if type(part) is Alternation:
                self._expand_alternation(part)
            elif type(part) is AnyOrder:
                self._expand_set(part)
            else:
                assert type(part) is Repeat, part
                self._expand_repeat(part)
            return
        self.results[-1] = node

    def _place(self, part: Expression, end: int) -> int:
        """The node of a part before the node `end` if it is plain, or a sequence of plain parts; else NOT_PLAIN."""
        kinds = self.kind
        if type(part) is ByteSet:
            kinds.append(K_BYTES)
            self.arg.append(self.byte_sets.setdefault(part.mask, len(self.byte_sets)))
        elif type(part) is Literal:
            if not part.data:
                return end
            self.literals.append(part.data)
            kinds.append(K_BYTE)
            self.arg.append(0)
        elif type(part) is Rule:
            kinds.append(K_CALL)
            self.arg.append(self.rule_number(part.name))
        elif type(part) is Embed:
            kinds.append(K_TEXT)
            self.arg.append(self._text_index(part))
        elif type(part) is Sequence and _SIMPLE.issuperset(map(type, part.parts)):
            for inner in reversed(part.parts):
                end = self._place(inner, end)
            return end
        else:
            return NOT_PLAIN
        self.next_node.append(end)
        return len(kinds) - 1

    def _text_index(self, part: Embed) -> int:
        """The number of a text automaton, which is kept once for texts, for keys and for items."""
        texts = self.key_texts if part.is_key else self.item_texts if part.is_item else self.texts
        texts = self.edge_texts if part.is_edge else texts
        self.owes_keys = self.owes_keys or part.is_owed
        index = texts.get(part.language)
        if index is None:
            self.time.check_here()
            index = texts[part.language] = len(self.text_tables)
            self.text_tables.append(text_table(part.language))
        return index

    def rule_number(self, name: str) -> int:
        """The number of a rule, which is laid out in its turn."""
        number = self.numbers.get(name)
        if number is None:
            number = self.numbers[name] = len(self.entries)
            self.entries.append(0)
            self.pending_rules.append(name)
        return number

    # ---------------------------------------------------------------- what needs the stack

    def _expand_alternation(self, expression: Alternation) -> None:
        """Options: plain ones at once, many literals as a trie, the others by tasks that `_join` collects."""
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
        some = others if len(others) <= FEW else self.time.over(others)
        nodes = [self._place(option, end) for option in some]
        open_nodes = [index for index, node in enumerate(nodes) if node == NOT_PLAIN]
        if not open_nodes:
            self._join((nodes, open_nodes, literals))
            return
        self.tasks += ((nodes, open_nodes, literals), JOIN)
        for index in open_nodes:
            self.tasks += ((others[index],), 1, end, PUSH)

    def _join(self, what: tuple[list[int], list[int], list[bytes]]) -> None:
        """results: end, open option n, .., open option 1 -> entry."""
        nodes, open_nodes, literals = what
        for index in open_nodes:
            nodes[index] = self.results.pop()
        end = self.results[-1]
        if literals:
            nodes.extend(self._add_trie(in_order(literals, self.time), end))
        self.results[-1] = nodes[0] if len(nodes) == 1 else self._add_split(nodes)

    def _add_split(self, nodes: Seq[int]) -> int:
        """A node from which some others are reached without reading anything."""
        first = len(self.options)
        self.options.extend(nodes)
        return self._add(K_SPLIT, first, len(nodes))

    def _add_trie(self, literals: list[bytes], end: int) -> list[int]:
        """Nodes that together spell exactly these sorted literals, common beginnings shared; returns the entries."""
        self.time.check_here()
        data, lens = b"".join(literals), np.array(list(map(len, literals)), np.int64)
        nodes, spans, options, entries = core.literal_trie(data, lens, end, len(self.kind), len(self.options))
        self.time.check_here()
        if len(self.kind) + len(nodes) > MAX_NODES:
            raise too_large()
        kinds, args, nexts = nodes.T.tolist()
        self.kind += kinds
        self.arg += args
        self.next_node += nexts
        self.literals += [data[begin:end] for begin, end in spans.tolist()]
        self.options += options.tolist()
        found: list[int] = entries.tolist()
        return found

    def _expand_repeat(self, expression: Repeat) -> None:
        """A repetition: written out where that is short, a cycle where nothing is counted, else a loop that counts."""
        minimum, maximum, item = expression.minimum, expression.maximum, expression.item
        results, tasks = self.results, self.tasks
        if maximum == 0:
            return
        if minimum > MAX_SHORTEST:
            raise ConstraintTooLarge(f"a repetition of at least {minimum} times is too long; use smaller counts")
        if maximum is not None and maximum > MAX_TURNS:
            maximum = None  # no text is that long
        unrolls = UNROLL_UP_TO if type(item) in _SIMPLE else 1
        once = ((item,), 1)
        if minimum == 0 and maximum == 1:
            node = self._place(item, results[-1])
            if node != NOT_PLAIN:
                results[-1] = self._add_split((node, results[-1]))
                return
            results.append(results[-1])
            tasks += (-1, TIE, *once)
        elif maximum is None and minimum <= unrolls - 1:
            first = len(self.options)  # this option will be the item, followed by the split itself
            results[-1] = split = self._add_split((-1, results[-1]))
            tasks += once * minimum
            self.options[first] = node = self._place(item, split)
            if node == NOT_PLAIN:
                results.append(split)
                tasks += (first, TIE, *once)
        elif maximum is not None and maximum <= unrolls:
            tasks += once * minimum
            nested: Expression = Literal(b"")
            for _ in range(maximum - minimum):
                nested = Repeat(Sequence((item, nested)), 0, 1)
            tasks += ((nested,), 1)
        else:
            self.loops.append((-1, minimum, -1 if maximum is None else maximum))
            results.append(self._add(K_RETURN, 0, 0))
            tasks += (len(self.loops) - 1, CLOSE_LOOP, *once)

    def _tie(self, option: int) -> None:
        """results: .., end, entry of the item -> .., entry (`option` -1: a new split of item and end)."""
        item = self.results.pop()
        if option < 0:
            self.results[-1] = self._add_split((item, self.results[-1]))
        else:
            self.options[option] = item

    def _close_loop(self, loop: int) -> None:
        """results: .., end, entry of the item -> .., entry."""
        _, minimum, maximum = self.loops[loop]
        self.loops[loop] = (self.results.pop(), minimum, maximum)
        self.results[-1] = self._add(K_LOOP, loop, self.results[-1])

    def _expand_set(self, expression: AnyOrder) -> None:
        """Like bodies (most are "any string") are one node, as all of them end at the same one."""
        end = self._add(K_RETURN, 0, 0)
        parts = {id(member.body): member.body for member in expression.members}
        for part in (expression.separator, *expression.others):
            parts[id(part)] = part
        nodes = {key: self._place(part, end) for key, part in parts.items()}
        if NOT_PLAIN not in nodes.values():
            self._close_set((expression, nodes, ()))
            return
        open_parts = [key for key, node in nodes.items() if node == NOT_PLAIN]
        self.tasks += ((expression, nodes, open_parts), CLOSE_SET)
        for key in open_parts:
            self.tasks += ((parts[key],), 1, end, PUSH)

    def _close_set(self, what: tuple[AnyOrder, dict[int, int], Seq[int]]) -> None:
        """results: .., end, what was open among separator, others and bodies, from last to first -> .., entry."""
        expression, nodes, open_parts = what
        results = self.results
        for key in open_parts:
            nodes[key] = results.pop()
        row, first = self.sets.num_sets, len(self.kind)
        members = self.sets.add(expression, len(self.options), len(self.literals))
        begun = [nodes[id(member.body)] for member in members]
        texts = [member.text for member in members if member.text is not None]  # the first ones have texts
        key = first + len(texts)
        self.literals += texts
        self.kind += (*[K_BYTE] * len(texts), K_KEY, K_SET)
        self.arg += (*[0] * len(texts), row, row)
        self.next_node += (*begun[: len(texts)], 0, results[-1])
        begun[: len(texts)] = range(first, key)
        results[-1] = key + 1
        self.options += (key + 1, key, nodes[id(expression.separator)])
        self.options += [nodes[id(other)] for other in expression.others]
        self.options += begun


@functools.lru_cache(maxsize=16)
def _positions_of(common: CommonRule) -> Positions:
    """A common rule built as the rule of number 1 of a grammar of which nothing else has been built yet."""
    made = Positions(Grammar({common.name: common.body}, ""), NO_LIMIT)
    made.rule_number(common.name)
    made.build_rule(common.name)
    return made


def too_large() -> ConstraintTooLarge:
    """There are too many positions."""
    return ConstraintTooLarge(f"the constraint unfolds to more than {MAX_NODES} positions")
