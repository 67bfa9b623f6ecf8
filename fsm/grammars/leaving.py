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
from .lexemes import NONE, Lexemes, Obligations

MAX_NEWS = 1 << 19  # answers that reach those that wait for them

Left = int
"""A set of obligations: a bit for each, by its number (`Leaving.obligations`)."""
Key = tuple[int, int]
"""A node, and the number of the obligations before it."""
EMPTY = 0
"""The node of the empty text."""
_AS_IT_IS, _COUNTED = -1, -2  # what is done with an answer instead of asking a node (0 or more) what follows it


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
        obligations: by their numbers; those of number 0 are `NONE`.
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
        self.obligations: list[Obligations] = [NONE]
        self._number_of: dict[Obligations, int] = {NONE: 0}
        self._left_by: dict[Key, Left] = {}  # of terminals
        self._settled: dict[Key, Left] = {}  # what `left` has answered
        self._known: dict[Key, Left] = {}  # what is known so far
        self._users: dict[Key, list[tuple[Key, int]]] = {}  # those that wait for an answer, and what they do with it
        self._pending: list[Key] = []  # asked for the first time
        self._news: list[tuple[Key, int, Left]] = []  # for whom, what it does with it, obligations
        self._num_news = 0

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

    def left(self, node: int, before: int) -> Left:
        """The obligations that a node can leave; `before`: the number of those before it.

        Raises:
            ConstraintTooLarge: there are too many, or the time is over.
        """
        asked = (node, before)
        found = self._settled.get(asked)
        if found is None:
            key = self._resolved(node, before)
            if key is None:
                found = 0
            elif self.kinds[key[0]] in _TERMINALS:
                found = self.left_by(*key)
            else:
                if key not in self._known:
                    self._known[key] = 0
                    self._pending.append(key)
                    self._settle()
                found = self._known[key]
            self._settled[asked] = found
        return found

    def left_by(self, node: int, before: int) -> Left:
        """The obligations that a terminal leaves, perhaps after what is ignored."""
        found = self._left_by.get((node, before))
        if found is None:
            name, here = self.name(node), {self.obligations[before]: None}
            if self.kinds[node] is Spaced:
                name = self._spacing.terminals[name]
                for one in (queue := list(here)):  # grows
                    for ignored in self._spacing.names:
                        for left in self._lexemes.left_by(ignored, one):
                            if left not in here:
                                here[left] = None
                                if self._spacing.repeats:
                                    queue.append(left)
            found = 0
            for one in here:
                for left in self._lexemes.left_by(name, one):
                    found |= 1 << self._number(left)
            self._left_by[node, before] = found
        return found

    def _number(self, obligations: Obligations) -> int:
        number = self._number_of.setdefault(obligations, len(self.obligations))
        if number == len(self.obligations):
            self.obligations.append(obligations)
        return number

    def _resolved(self, node: int, before: int) -> Key | None:
        """What leaves the same, without terminals in front that leave one thing only; None if nothing is left."""
        kinds = self.kinds
        while kinds[node] is Sequence and node != EMPTY:
            one, rest = self.inside(node)
            if kinds[one] not in _TERMINALS:
                break
            after = self.left_by(one, before)
            if not after:
                return None
            if after & (after - 1):
                break
            node, before = rest, after.bit_length() - 1
        return node, before

    def _settle(self) -> None:
        """Looks into what is pending, and carries every answer to those that wait for it, until there is no new one."""
        pending, news, known, users = self._pending, self._news, self._known, self._users
        while pending or news:
            if not news:
                self._time.check("", "grammar, its rules")
                self._look_into(pending.pop())
                continue
            user, then, found = news.pop()
            self._num_news += 1
            if self._num_news > MAX_NEWS:
                raise too_large()
            if then == _COUNTED:
                found = self._counted(user)
            elif then >= 0:
                for one in numbers_in(found):
                    self._ask(then, one, user, _AS_IT_IS)
                continue
            found &= ~known[user]
            if found:
                known[user] |= found
                news += [(other, following, found) for other, following in users.get(user, ())]

    def _ask(self, node: int, before: int, user: Key, then: int) -> None:
        """Has `user` told what a node leaves, now and whenever more is known.

        then: a node that writes on, whose answers are the user's, or one of the numbers that stand for other uses.
        """
        key = self._resolved(node, before)
        if key is None:
            return
        if self.kinds[key[0]] in _TERMINALS:
            self._news.append((user, then, self.left_by(*key)))
            return
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = 0
            self._pending.append(key)
        self._users.setdefault(key, []).append((user, then))
        if found:
            self._news.append((user, then, found))

    def _look_into(self, key: Key) -> None:
        """Asks those inside of a node."""
        node, before = key
        kind = self.kinds[node]
        if kind is Rule:
            self._ask(self.body(self.name(node)), before, key, _AS_IT_IS)
        elif kind is Alternation:
            for option in self.inside(node):
                self._ask(option, before, key, _AS_IT_IS)
        elif node == EMPTY:
            self._news.append((key, _AS_IT_IS, 1 << before))
        elif kind is Sequence:
            one, rest = self.inside(node)
            self._ask(one, before, key, rest)
        else:
            item, minimum, maximum = self.bounds(node)
            if maximum is None and minimum == 0:  # each answer is one that the next turn begins with
                self._users.setdefault(key, []).append((key, item))
                self._news.append((key, _AS_IT_IS, 1 << before))
            else:
                self._news.append((key, _COUNTED, 0))

    def _counted(self, key: Key) -> Left:
        """What a repetition leaves, from what is known of its item; asks what it does not know yet."""
        node, before = key
        item, minimum, maximum = self.bounds(node)
        here, found, turns = 1 << before, 0, 0
        seen: dict[Left, int] = {}
        while True:
            if here in seen and turns < minimum:  # it goes round: whole rounds need not be walked
                period = turns - seen[here]
                turns += (minimum - turns) // period * period
            if turns >= minimum:
                if not here & ~found:
                    return found
                found |= here
            if turns == maximum:
                return found
            seen[here] = turns
            after = 0
            for one in numbers_in(here):
                after |= self._item(item, one, key)
            here = after
            turns += 1

    def _item(self, item: int, before: int, user: Key) -> Left:
        """What is known of what an item leaves; the repetition is counted again when there is more."""
        key = self._resolved(item, before)
        if key is None:
            return 0
        if self.kinds[key[0]] in _TERMINALS:
            return self.left_by(*key)
        if (user, _COUNTED) not in self._users.get(key, ()):
            self._ask(item, before, user, _COUNTED)
        return self._known[key]


def numbers_in(left: Left) -> list[int]:
    """The numbers of the obligations in a set."""
    found = []
    while left:
        lowest = left & -left
        found.append(lowest.bit_length() - 1)
        left ^= lowest
    return found


def too_large() -> ConstraintTooLarge:
    """Terminals may run into one another in too many ways."""
    return ConstraintTooLarge(
        "grammar: there are too many ways in which terminals could run into one another; "
        "put a character between them that belongs to neither"
    )
