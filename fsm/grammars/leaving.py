"""Which obligations the parts of a grammar leave, given those before them.

::

    start: NAME kw        before kw: {NAME may go on}        left by kw, directly: nothing can stand there
    kw: "in" | "like"            or, after a blank, {}       left by kw: {}

Equal parts of all rules are one `node`, and the rest of a sequence is a node as well. What a node leaves depends on
what the nodes inside of it leave, through rules perhaps on itself: the least solution, found by asking again only where
an answer has grown. It knows obligations as values, and asks `Lexemes` what terminals do with them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import ConstraintTooLarge
from ..compile_time import CompileTime
from ..network.expression import Alternation, Expression, Repeat, Rule, Sequence
from .adjacency import Adjacency
from .lexemes import Lexemes, Obligations

MAX_ASKED = 50_000  # questions about which obligations a node leaves

Left = frozenset[Obligations]
Key = tuple[int, Obligations]
NO_ANSWER: Left = frozenset()
EMPTY = 0
"""The node of the empty text."""


class Spaced:
    """The kind of a node: a terminal after what is ignored."""


@dataclass(frozen=True)
class Spacing:
    """What is ignored.

    Attributes:
        terminals: rules that are a terminal after what is ignored, and that terminal.
        names: the terminals that are ignored.
        repeats: whether any number of them may stand there, else at most one.
    """

    terminals: Mapping[str, str]
    names: tuple[str, ...]
    repeats: bool


NO_SPACING = Spacing({}, (), False)
_TERMINALS: tuple[type, ...] = (str, Spaced)


class Leaving:
    """The nodes of a grammar's rules, and what they leave.

    Attributes:
        kinds: of each node: `Sequence` (one node and the rest), `Alternation`, `Repeat`, `Rule` (of the grammar),
            `str` (a terminal, or a foreign name) or `Spaced`.
        parts: of each node: the nodes inside of it, the bounds of a repetition after its item; a rule's or a terminal's
            name.
        first: of each node the terminals that its texts may begin with, as a set of `Adjacency`.
        is_nullable: of each node whether it may write nothing.
    """

    def __init__(
        self,
        rules: Mapping[str, Expression],
        spacing: Spacing,
        adjacency: Adjacency,
        lexemes: Lexemes,
        compile_time: CompileTime,
    ) -> None:
        self._rules = rules
        self._spacing = spacing
        self._adjacency = adjacency
        self._lexemes = lexemes
        self._time = compile_time
        self.kinds: list[type] = [Sequence]
        self.parts: list[tuple[int | None, ...] | str] = [()]
        self.first: list[int] = [0]
        self.is_nullable: list[bool] = [True]
        self._numbers: dict[object, int] = {}
        self._bodies: dict[str, int] = {}
        self._left: dict[Key, Left] = {}  # of the terminals after what is ignored
        self._settled: dict[Key, Left] = {}  # what `left` has answered
        self._known: dict[Key, Left] = {}  # what is known so far
        self._users: dict[Key, dict[Key, None]] = {}
        self._pending: list[Key] = []
        self._num_asked = 0

    # ---------------------------------------------------------------- nodes

    def body(self, name: str) -> int:
        """The node of a rule's body."""
        found = self._bodies.get(name)
        if found is None:
            self._time.check("", f"grammar, rule {name}")
            found = self._bodies[name] = self.node(self._rules[name])
        return found

    def node(self, expression: Expression) -> int:
        """The node of an expression over rules and terminals."""
        if isinstance(expression, Rule):
            name = expression.name
            kind: type = Rule if name in self._rules else str
            if name in self._spacing.terminals:
                kind = Spaced
            is_nullable, first, _ = self._adjacency.edges(name)
            return self._add(kind, name, first, is_nullable)
        if isinstance(expression, Sequence):
            found = EMPTY
            for part in self._time.over(reversed(expression.parts), name="grammar, its rules"):
                found = self.pair(self.node(part), found)
            return found
        if isinstance(expression, Alternation):
            parts = self._time.over(expression.options, name="grammar, its rules")
            options = tuple(dict.fromkeys(map(self.node, parts)))
            if len(options) == 1:
                return options[0]
            first = functools.reduce(operator.or_, [self.first[option] for option in options], 0)
            return self._add(Alternation, options, first, any(self.is_nullable[option] for option in options))
        assert isinstance(expression, Repeat)
        return self.repeat(self.node(expression.item), expression.minimum, expression.maximum)

    def pair(self, one: int, rest: int) -> int:
        """The node of a node and what follows."""
        if one == EMPTY:
            return rest
        if self.kinds[one] is Sequence:
            parts = []
            while one != EMPTY and self.kinds[one] is Sequence:
                part, one = self.inside(one)
                parts.append(part)
            for part in (one, *reversed(parts)):
                rest = self.pair(part, rest)
            return rest
        nullable = self.is_nullable[one]
        first = self.first[one] | self.first[rest] if nullable else self.first[one]
        return self._add(Sequence, (one, rest), first, nullable and self.is_nullable[rest])

    def repeat(self, item: int, minimum: int, maximum: int | None) -> int:
        """The node of a repetition of a node."""
        if maximum == 0 or item == EMPTY:
            return EMPTY
        nullable = minimum == 0 or self.is_nullable[item]
        return self._add(Repeat, (item, minimum, maximum), self.first[item], nullable)

    def inside(self, node: int) -> tuple[int, ...]:
        """The nodes inside of a sequence or of alternatives."""
        parts = self.parts[node]
        assert not isinstance(parts, str)
        return parts  # type: ignore[return-value]  # only a repetition has None in it

    def bounds(self, node: int) -> tuple[int, int, int | None]:
        """The item of a repetition, and its bounds."""
        return self.parts[node]  # type: ignore[return-value]

    def name(self, node: int) -> str:
        """The name of a rule or a terminal."""
        found = self.parts[node]
        assert isinstance(found, str)
        return found

    def _add(self, kind: type, parts: tuple[int | None, ...] | str, first: int, is_nullable: bool) -> int:
        key = (kind, parts)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.kinds)
            self.kinds.append(kind)
            self.parts.append(parts)
            self.first.append(first)
            self.is_nullable.append(is_nullable)
        return number

    # ---------------------------------------------------------------- what they leave

    def left(self, node: int, before: Obligations) -> Left:
        """The obligations that a node can leave.

        Raises:
            ConstraintTooLarge: there are too many, or the time is over.
        """
        asked = (node, before)
        found = self._settled.get(asked)
        if found is None:
            key = self._resolved(node, before)
            if key is None:
                found = NO_ANSWER
            elif self.kinds[key[0]] in _TERMINALS:
                found = self._left_by(*key)
            else:
                if key not in self._known:
                    self._known[key] = NO_ANSWER
                    self._pending.append(key)
                    self._settle()
                found = self._known[key]
            self._settled[asked] = found
        return found

    def _resolved(self, node: int, before: Obligations) -> Key | None:
        """What leaves the same, without terminals in front that leave one thing only; None if nothing is left."""
        kinds = self.kinds
        while kinds[node] is Sequence and node != EMPTY:
            one, rest = self.inside(node)
            if kinds[one] not in _TERMINALS:
                break
            after = self._left_by(one, before)
            if len(after) > 1:
                break
            if not after:
                return None
            (before,) = after
            node = rest
        return node, before

    def _left_by(self, node: int, before: Obligations) -> Left:
        """The obligations that a terminal leaves, perhaps after what is ignored."""
        name = self.name(node)
        if self.kinds[node] is str:
            return self._lexemes.left_by(name, before)
        found = self._left.get((node, before))
        if found is None:
            reached = {before: None}
            for one in (queue := [before]):  # grows
                for ignored in self._spacing.names:
                    for left in self._lexemes.left_by(ignored, one):
                        if left not in reached:
                            reached[left] = None
                            if self._spacing.repeats:
                                queue.append(left)
            terminal = self._spacing.terminals[name]
            found = NO_ANSWER.union(*[self._lexemes.left_by(terminal, one) for one in reached])
            self._left[node, before] = found
        return found

    def _settle(self) -> None:
        """Answers what is pending, and again whatever was answered from less than is known now."""
        pending, known, users = self._pending, self._known, self._users
        waiting = set(pending)
        while pending:
            key = pending.pop()
            waiting.discard(key)
            self._num_asked += 1
            self._time.check("", "grammar, its rules")
            if self._num_asked > MAX_ASKED:
                raise too_large()
            num_pending = len(pending)
            found = self._answer(key)
            if len(pending) > num_pending:  # asked for the first time: those come first, then this one again
                asked = pending[num_pending:]
                del pending[num_pending:]
                pending.append(key)
                pending += asked
                waiting.add(key)
                waiting.update(asked)
            if found != known[key]:
                known[key] = found
                again = [user for user in users.get(key, ()) if user not in waiting]
                pending += again
                waiting.update(again)
        users.clear()

    def _ask(self, node: int, before: Obligations, user: Key) -> Left:
        key = self._resolved(node, before)
        if key is None:
            return NO_ANSWER
        if self.kinds[key[0]] in _TERMINALS:
            return self._left_by(*key)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = NO_ANSWER
            self._pending.append(key)
        self._users.setdefault(key, {})[user] = None
        return found

    def _answer(self, key: Key) -> Left:
        """What a node leaves, from what is known of those inside of it."""
        node, before = key
        kind = self.kinds[node]
        if kind is Rule:
            return self._ask(self.body(self.name(node)), before, key)
        if kind is Alternation:
            return NO_ANSWER.union(*[self._ask(option, before, key) for option in self.inside(node)])
        if kind is Repeat:
            return self._answer_repeat(key)
        if node == EMPTY:
            return frozenset((before,))
        one, rest = self.inside(node)
        after = self._ask(one, before, key)
        return NO_ANSWER.union(*[self._ask(rest, other, key) for other in after])

    def _answer_repeat(self, key: Key) -> Left:
        node, before = key
        item, minimum, maximum = self.bounds(node)
        here, found, turns = frozenset((before,)), NO_ANSWER, 0
        seen: dict[Left, int] = {}
        while True:
            if here in seen and turns < minimum:  # it goes round: whole rounds need not be walked
                period = turns - seen[here]
                turns += (minimum - turns) // period * period
            if turns >= minimum:
                if here <= found:
                    return found
                found |= here
            if turns == maximum:
                return found
            seen[here] = turns
            here = NO_ANSWER.union(*[self._ask(item, one, key) for one in here])
            turns += 1


def too_large() -> ConstraintTooLarge:
    """Terminals may run into one another in too many ways."""
    return ConstraintTooLarge(
        "grammar: there are too many ways in which terminals could run into one another; "
        "put a character between them that belongs to neither"
    )
