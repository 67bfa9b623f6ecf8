"""Which terminals may stand first in an expression, and which may stand next to one another.

The usual FIRST, LAST and FOLLOW sets, over expressions with repetition. Knows names only: a name that is not a rule is
a terminal. None of the terminals matches the empty text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..compile_time import CompileTime
from ..network.expression import Alternation, Expression, Repeat, Rule, Sequence
from ..network.walks import is_nullable, least_fixed_point, nullable_rules

Names = frozenset[str]
NO_NAMES: Names = frozenset()


class Adjacency:
    """Sets of one grammar.

    Attributes:
        followers: for every terminal, those that may stand directly after it.
    """

    def __init__(self, rules: Mapping[str, Expression], compile_time: CompileTime) -> None:
        self._rules = rules
        self._time = compile_time
        self._nullable = nullable_rules(rules, compile_time)
        edge = self._edge
        self._first = least_fixed_point(rules, NO_NAMES, lambda *known: edge(*known, is_last=False), compile_time)
        self._last = least_fixed_point(rules, NO_NAMES, lambda *known: edge(*known, is_last=True), compile_time)
        self.followers: dict[str, set[str]] = {}
        for name, body in rules.items():
            self._note_pairs(name, body)

    def is_nullable(self, expression: Expression) -> bool:
        """Whether the expression may write nothing."""
        if isinstance(expression, Rule):
            return self._nullable.get(expression.name, False)
        return is_nullable(expression, self._nullable)

    def first(self, expression: Expression) -> Names:
        """The terminals that a text of the expression may begin with."""
        return self._edge(expression, self._first, is_last=False)

    def _edge(self, expression: Expression, known: Mapping[str, Names], *, is_last: bool) -> Names:
        if isinstance(expression, Rule):
            return known[expression.name] if expression.name in self._rules else frozenset((expression.name,))
        if isinstance(expression, Repeat):
            return NO_NAMES if expression.maximum == 0 else self._edge(expression.item, known, is_last=is_last)
        if isinstance(expression, Alternation):
            return NO_NAMES.union(*(self._edge(option, known, is_last=is_last) for option in expression.options))
        found = NO_NAMES
        if isinstance(expression, Sequence):
            for part in reversed(expression.parts) if is_last else expression.parts:
                found |= self._edge(part, known, is_last=is_last)
                if not self.is_nullable(part):
                    break
        return found

    def _note_pairs(self, name: str, body: Expression) -> None:
        pending = [body]
        while pending:
            expression = pending.pop()
            if isinstance(expression, Repeat):
                pending.append(expression.item)
                if expression.maximum is None or expression.maximum > 1:
                    self._note(name, self._last_of(expression.item), self.first(expression.item))
            elif isinstance(expression, Alternation):
                pending.extend(expression.options)
            elif isinstance(expression, Sequence):
                pending.extend(expression.parts)
                before: Names = NO_NAMES
                for part in expression.parts:
                    self._note(name, before, self.first(part))
                    before = self._last_of(part) | (before if self.is_nullable(part) else NO_NAMES)

    def _last_of(self, expression: Expression) -> Names:
        return self._edge(expression, self._last, is_last=True)

    def _note(self, name: str, before: Collection[str], after: Collection[str]) -> None:
        for terminal in before:
            self._time.check("", f"grammar, rule {name}")
            self.followers.setdefault(terminal, set()).update(after)
