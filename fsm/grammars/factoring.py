"""Alternatives that begin alike, begun once.

::

    term ::= name | name "(" args ")"        becomes        term ::= name (nothing | "(" args ")")

The same language with fewer positions to follow at a time (left factoring): without it, every alternative follows
`name` by itself, and calls the rule again. Knows expressions only.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..compile_time import CompileTime
from ..network.expression import Alternation, Expression, Literal, Repeat, Sequence

Parts = tuple[Expression, ...]


def factored(rules: Mapping[str, Expression], compile_time: CompileTime) -> dict[str, Expression]:
    """The rules with the same names and languages."""
    found: dict[str, Expression] = {}
    for name, body in rules.items():
        compile_time.check("", f"grammar, rule {name}")
        found[name] = _factored(body)
    return found


def _factored(expression: Expression) -> Expression:
    if isinstance(expression, Sequence):
        return Sequence(tuple(map(_factored, expression.parts)))
    if isinstance(expression, Repeat):
        return Repeat(_factored(expression.item), expression.minimum, expression.maximum)
    if isinstance(expression, Alternation) and not all(isinstance(option, Literal) for option in expression.options):
        return _either([_parts(option) for option in expression.options])
    return expression


def _either(options: list[Parts]) -> Expression:
    groups: dict[Parts, list[Parts]] = {}
    for option in options:
        groups.setdefault(option[:1], []).append(option)
    found = [_joined(group) for group in groups.values()]
    return found[0] if len(found) == 1 else Alternation(tuple(found))


def _joined(group: list[Parts]) -> Expression:
    """The options of a group, which have the first part in common."""
    distinct = list(dict.fromkeys(group))
    if len(distinct) == 1:
        parts = tuple(map(_factored, distinct[0]))
        return parts[0] if len(parts) == 1 else Sequence(parts)
    length = 1
    while all(len(option) > length and option[length] == distinct[0][length] for option in distinct):
        length += 1
    return Sequence((*map(_factored, distinct[0][:length]), _either([option[length:] for option in distinct])))


def _parts(expression: Expression) -> Parts:
    """An expression as a sequence, flat."""
    if not isinstance(expression, Sequence):
        return (expression,)
    flat: list[Expression] = []
    for part in expression.parts:
        flat.extend(_parts(part))
    return tuple(flat)
