"""Alternatives that begin alike, begun once.

::

    term ::= name | name "(" args ")"        becomes        term ::= name (nothing | "(" args ")")

The same language with fewer positions to follow at a time (left factoring): without it, every alternative follows
`name` by itself, and calls the rule again. Knows expressions only.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..compile_time import CompileTime
from ..network.expression import Alternation, Expression, Literal, Parts, Repeat, Sequence

_NESTED = frozenset((Sequence, Repeat, Alternation))


def factored(rules: Mapping[str, Expression], compile_time: CompileTime) -> dict[str, Expression]:
    """The rules with the same names and languages."""
    found: dict[str, Expression] = {}
    factoring = _Factoring(compile_time)
    for name, body in rules.items():
        compile_time.check("", f"grammar, rule {name}")
        found[name] = factoring.factored(body)
    return found


class _Factoring:
    """Expressions and what became of them: those that stand in many places are factored once."""

    def __init__(self, compile_time: CompileTime) -> None:
        self.time = compile_time
        self.known: dict[int, tuple[Expression, Expression]] = {}  # by identity, which the first of them keeps
        self.numbers: dict[object, int] = {}  # of parts that options begin with; equal ones have the same
        self.number_of: dict[int, tuple[Expression, int]] = {}  # by identity

    def factored(self, expression: Expression) -> Expression:
        if not isinstance(expression, (Sequence, Repeat, Alternation)):
            return expression
        known = self.known.get(id(expression))
        if known is None:
            known = self.known[id(expression)] = expression, self.made(expression)
        return known[1]

    def made(self, expression: Sequence | Repeat | Alternation) -> Expression:
        if isinstance(expression, Sequence):
            parts = self.time.over(expression.parts, name="grammar, its rules")
            return Sequence(tuple([self.factored(part) if type(part) in _NESTED else part for part in parts]))
        if isinstance(expression, Repeat):
            return Repeat(self.factored(expression.item), expression.minimum, expression.maximum)
        if all(isinstance(option, Literal) for option in expression.options):
            return expression
        return self.either([_parts(option) for option in expression.options])

    def either(self, options: list[Parts]) -> Expression:
        groups: dict[int, list[Parts]] = {}
        for option in options:
            groups.setdefault(self.number(option[0]) if option else -1, []).append(option)
        found = [self.joined(group) for group in groups.values()]
        return found[0] if len(found) == 1 else Alternation(tuple(found))

    def number(self, part: Expression) -> int:
        """The same for equal parts, whose own parts then have the same numbers: each expression is looked at once."""
        known = self.number_of.get(id(part))
        if known is None:
            key: object = part
            if isinstance(part, Sequence):
                key = Sequence, *map(self.number, part.parts)
            elif isinstance(part, Alternation):
                key = Alternation, *map(self.number, part.options)
            elif isinstance(part, Repeat):
                key = Repeat, self.number(part.item), part.minimum, part.maximum
            known = self.number_of[id(part)] = part, self.numbers.setdefault(key, len(self.numbers))
        return known[1]

    def joined(self, group: list[Parts]) -> Expression:
        """The options of a group, which have the first part in common."""
        distinct = group
        if len(group) > 1:
            distinct = list({tuple(map(self.number, option)): option for option in group}.values())
        if len(distinct) == 1:
            some = self.time.over(distinct[0], name="grammar, its rules")
            parts = tuple([self.factored(part) if type(part) in _NESTED else part for part in some])
            return parts[0] if len(parts) == 1 else Sequence(parts)
        length = 1
        while (
            all(len(option) > length for option in distinct)
            and len({self.number(option[length]) for option in distinct}) == 1
        ):
            length += 1
        begun = map(self.factored, distinct[0][:length])
        return Sequence((*begun, self.either([option[length:] for option in distinct])))


def _parts(expression: Expression) -> Parts:
    """An expression as a sequence, flat."""
    if not isinstance(expression, Sequence):
        return (expression,)
    if Sequence not in map(type, expression.parts):
        return expression.parts
    flat: list[Expression] = []
    for part in expression.parts:
        flat.extend(_parts(part))
    return tuple(flat)
