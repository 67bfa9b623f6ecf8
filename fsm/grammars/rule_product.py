"""The product of a grammar's rules and the obligations between terminals.

::

    start: NAME kw        before kw: {NAME may go on}        left by kw, directly: nothing can stand there
    kw: "in" | "like"            or, after a blank, {}       left by kw: {}

Equal parts of all rules are one node, and the rest of a sequence is a node as well. What a node leaves depends on what
the nodes inside of it leave, through rules perhaps on itself: the least solution. Then a rule is written for each node
with the obligations before it, and those that it may leave, that the start rule leads to. Both are found by the core
(`fsm/core/leaving.h`, `rule_product.h`), which knows obligations as numbers and asks `Lexemes` what terminals do with
them, once for each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from ..._core import fsm as core
from ...errors import ConstraintTooLarge
from ..compile_time import CompileTime
from ..network.expression import NOTHING, Alternation, Expression, Grammar, Repeat, Rule, Sequence
from .adjacency import Adjacency
from .lexemes import NONE, Lexemes, Obligations

MAX_RULES = 10_000  # rules with obligations in their names
MAX_NEWS = 1 << 22  # answers to those that wait for them: some tenths of a second
SEQUENCE, ALTERNATION, REPEAT, RULE, TERMINAL, SPACED = range(6)  # kinds of nodes, and of what is written
EMPTY = 0
"""The node of the empty text."""
Operands = tuple[int, int, int]
_ANY = -1


@dataclass(frozen=True)
class Spacing:
    """What is ignored.

    Attributes:
        terminals: rules that are a terminal after what is ignored, and that terminal.
        names: the terminals that are ignored.
    """

    terminals: Mapping[str, str]
    names: tuple[str, ...]


NO_SPACING = Spacing({}, ())


class _Nodes:
    """The nodes of a grammar's rules, as `LexedNodes` has them (`fsm/core/leaving.h`).

    Attributes:
        kinds, operands, nullable, firsts: by node; `firsts`: the number of a set in `first_sets`.
        options: of all alternatives.
        bodies: the node of each rule, in the order of the rules.
        terminals: those that stand in the rules.
        first_sets: sets of terminals that a text may begin with, as `Adjacency` has them.
    """

    def __init__(
        self, rules: Mapping[str, Expression], spacing: Spacing, adjacency: Adjacency, compile_time: CompileTime
    ) -> None:
        self._rule_numbers = {name: number for number, name in enumerate(rules)}
        self._spaced = spacing.terminals
        self._adjacency = adjacency
        self._time = compile_time
        self.kinds = [SEQUENCE]
        self.operands: list[Operands] = [(0, 0, 0)]
        self.nullable = [True]
        self.firsts = [0]
        self.first_sets = [0]
        self.options: list[int] = []
        self.terminals: list[str] = []
        self._numbers: dict[object, int] = {}
        self._first_numbers = {0: 0}
        bodies: dict[str, int] = {}
        for name in (*spacing.terminals, *rules):  # the core wants bodies of the former before nodes that name them
            compile_time.check("", f"grammar, rule {name}")
            bodies[name] = self.node(rules[name])
        self.bodies = [bodies[name] for name in rules]

    def node(self, expression: Expression) -> int:
        """The node of an expression over rules and terminals."""
        if isinstance(expression, Rule):
            return self._named(expression.name)
        if isinstance(expression, Sequence):
            found = EMPTY
            for part in self._time.over(reversed(expression.parts), name="grammar, its rules"):
                found = self._pair(self.node(part), found)
            return found
        if isinstance(expression, Alternation):
            parts = self._time.over(expression.options, name="grammar, its rules")
            return self._either(tuple(dict.fromkeys(map(self.node, parts))))
        assert isinstance(expression, Repeat)
        item, minimum, maximum = self.node(expression.item), expression.minimum, expression.maximum
        if maximum == 0 or item == EMPTY:
            return EMPTY
        first = self.first_sets[self.firsts[item]]
        bounds = (item, minimum, -1 if maximum is None else maximum)
        return self._add(REPEAT, bounds, bounds, first, minimum == 0)  # no turn writes nothing

    def _named(self, name: str) -> int:
        found = self._numbers.get(name)
        if found is None:
            is_nullable, first, _ = self._adjacency.edges(name)
            kind, number = RULE, self._rule_numbers.get(name, -1)
            if name in self._spaced:
                kind = SPACED
            elif number < 0:
                kind, number = TERMINAL, len(self.terminals)
                self.terminals.append(name)
            found = self._numbers[name] = self._add(kind, name, (number, 0, 0), first, is_nullable)
        return found

    def _pair(self, one: int, rest: int) -> int:
        """The node of a node and what follows."""
        if one == EMPTY:
            return rest
        if self.kinds[one] == SEQUENCE:
            parts = []
            while one != EMPTY and self.kinds[one] == SEQUENCE:
                part, one, _ = self.operands[one]
                parts.append(part)
            for part in (one, *reversed(parts)):
                rest = self._pair(part, rest)
            return rest
        nullable, first = self.nullable[one], self.first_sets[self.firsts[one]]
        if nullable:
            first |= self.first_sets[self.firsts[rest]]
        return self._add(SEQUENCE, (one, rest), (one, rest, 0), first, nullable and self.nullable[rest])

    def _either(self, options: tuple[int, ...]) -> int:
        if len(options) == 1:
            return options[0]
        first = 0
        for option in options:
            first |= self.first_sets[self.firsts[option]]
        begin = len(self.options)
        found = self._add(
            ALTERNATION, options, (begin, begin + len(options), 0), first, any(self.nullable[one] for one in options)
        )
        if found == len(self.kinds) - 1:
            self.options += options
        return found

    def _add(self, kind: int, key: object, operands: Operands, first: int, is_nullable: bool) -> int:
        """The node, found again by its kind and key."""
        number = self._numbers.setdefault((kind, key), len(self.kinds))
        if number == len(self.kinds):
            self.kinds.append(kind)
            self.operands.append(operands)
            self.nullable.append(is_nullable)
            first_number = self._first_numbers.setdefault(first, len(self.first_sets))
            if first_number == len(self.first_sets):
                self.first_sets.append(first)
            self.firsts.append(first_number)
        return number


class RuleProduct:
    """Rules with obligations in their names, of one grammar.

    Args:
        rules: over rules and terminals.
        spacing: what is ignored.
        adjacency: of the same rules.
        lexemes: the terminals.
    """

    def __init__(
        self,
        rules: Mapping[str, Expression],
        spacing: Spacing,
        adjacency: Adjacency,
        lexemes: Lexemes,
        compile_time: CompileTime,
    ) -> None:
        self._rules = list(rules)
        self._spacing = spacing
        self._adjacency = adjacency
        self._lexemes = lexemes
        self._time = compile_time
        self._nodes = _Nodes(rules, spacing, adjacency, compile_time)
        self._obligations: list[Obligations] = [NONE]
        self._number_of: dict[Obligations, int] = {NONE: 0}
        self._seen: dict[object, int] = {}
        self._ignored: dict[int, dict[Obligations, None]] = {}
        self._harmed: dict[int, tuple[int, int]] = {}  # by obligations: terminals asked about, and those that are

    def grammar(self, start: str) -> Grammar:
        """The grammar over characters.

        Raises:
            ConstraintTooLarge: there are too many rules, or the time is over.
        """
        nodes = self._nodes
        found = core.rule_product(
            np.array(nodes.kinds, np.int32),
            np.array(nodes.operands, np.int32),
            np.array(nodes.options, np.int32),
            np.array(nodes.firsts, np.int32),
            np.array(nodes.nullable, np.bool_),
            np.array(nodes.bodies, np.int32),
            self._rules.index(start),
            self._left_by,
            self._is_harmless,
            self._seen_by,
            lambda: self._time.check("", "grammar, its rules"),
            MAX_RULES,
            MAX_NEWS,
        )
        if found is None:
            raise too_large()
        rows, children, names, bodies, sets = found
        if not len(names):
            return Grammar({start: NOTHING}, start)
        all_names = (*self._rules, "rest", "repeat")
        labels = [f"{all_names[name]} [{number}]" for number, name in enumerate(names.tolist())]
        written = self._written(rows.tolist(), children.tolist(), labels, sets)
        return Grammar({label: written[body] for label, body in zip(labels, bodies.tolist(), strict=True)}, labels[0])

    def _written(
        self, rows: list[list[int]], children: list[int], labels: list[str], sets: list[list[int]]
    ) -> list[Expression]:
        """The expressions that the core has written (`WrittenRules`)."""
        found: list[Expression] = []
        for kind, one, two, three in self._time.over(rows, name="grammar, its rules"):
            if kind == SEQUENCE:
                found.append(Sequence(tuple([found[child] for child in children[one:two]])))
            elif kind == ALTERNATION:
                found.append(Alternation(tuple([found[child] for child in children[one:two]])))
            elif kind == RULE:
                found.append(Rule(labels[one]))
            elif kind == REPEAT:
                found.append(Repeat(found[one], two, None if three < 0 else three))
            else:
                leaves = None if three == _ANY else frozenset([self._obligations[number] for number in sets[three]])
                name = self._nodes.terminals[one]
                found.append(self._lexemes.expression(name, self._obligations[two], leaves))
        return found

    # ---------------------------------------------------------------- what the core asks

    def _left_by(self, node: int, before: int) -> list[int]:
        """The obligations that a terminal leaves, perhaps after what is ignored."""
        number, left_by = self._nodes.operands[node][0], self._lexemes.left_by
        if self._nodes.kinds[node] == TERMINAL:
            return list(map(self._number, left_by(self._nodes.terminals[number], self._obligations[before])))
        name = self._spacing.terminals[self._rules[number]]
        return [self._number(left) for one in self._after_ignored(before) for left in left_by(name, one)]

    def _after_ignored(self, before: int) -> Collection[Obligations]:
        """The obligations that may be there before a terminal, after what is ignored and without."""
        found = self._ignored.get(before)
        if found is None:
            found = self._ignored[before] = {self._obligations[before]: None}
            for one in (queue := list(found)):  # grows
                for ignored in self._spacing.names:
                    for left in self._lexemes.left_by(ignored, one):
                        if left not in found:
                            found[left] = None
                            queue.append(left)
        return found

    def _number(self, obligations: Obligations) -> int:
        number = self._number_of.setdefault(obligations, len(self._obligations))
        if number == len(self._obligations):
            self._obligations.append(obligations)
        return number

    def _is_harmless(self, first: int, before: int) -> bool:
        """Whether obligations change nothing for any terminal of a set, nor outlive it."""
        terminals, obligations = self._nodes.first_sets[first], self._obligations[before]
        asked, harmed = self._harmed.get(before, (0, 0))
        for name in self._adjacency.names(terminals & ~asked):
            if not self._lexemes.is_harmless(name, obligations):
                harmed |= self._adjacency.edges(name)[1]
        self._harmed[before] = asked | terminals, harmed
        return not terminals & harmed

    def _seen_by(self, first: int, before: int) -> int:
        """What terminals of a set can tell of obligations: what is left of them after each character that these may
        begin with, as a number."""
        names, obligations = self._adjacency.names(self._nodes.first_sets[first]), self._obligations[before]
        seen = tuple([self._lexemes.after_first(name, obligations) for name in names])
        return self._seen.setdefault(seen, len(self._seen))


def too_large() -> ConstraintTooLarge:
    """Terminals may run into one another in too many ways."""
    return ConstraintTooLarge(
        "grammar: there are too many ways in which terminals could run into one another; "
        "put a character between them that belongs to neither"
    )
