"""Which terminals may stand first in an expression, and which may stand next to one another.

The usual FIRST, LAST and FOLLOW sets, over expressions with repetition. A set is an integer with a bit for each
terminal. Knows names only: a name that is not a rule is a terminal. None of the terminals matches the empty text.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from ..compile_time import FEW, CompileTime
from ..network.expression import Alternation, Expression, Repeat, Rule, Sequence
from ..network.walks import least_fixed_point

Edges = tuple[bool, int, int]
"""Of an expression: whether it may write nothing, the terminals that may stand first in its texts, and last."""
_NOTHING: Edges = (False, 0, 0)
_EMPTY: Edges = (True, 0, 0)


class Adjacency:
    """Sets of one grammar."""

    def __init__(self, rules: Mapping[str, Expression], compile_time: CompileTime) -> None:
        self._time = compile_time
        self._numbers: dict[str, int] = {}  # of the terminals
        self._names: dict[int, tuple[str, ...]] = {}
        pairs: dict[int, int] = {}
        self._edges = least_fixed_point(rules, _NOTHING, lambda body, known: self._found(body, known, {}), compile_time)
        for name, body in rules.items():
            compile_time.check("", f"grammar, rule {name}")
            self._found(body, self._edges, pairs)
        self._followers = [0] * len(self._numbers)
        for before, after in compile_time.over(pairs.items(), name="grammar, its rules"):
            for number in _numbers_in(before):
                self._followers[number] |= after

    def edges(self, name: str) -> Edges:
        """Those of a rule or a terminal."""
        found = self._edges.get(name)
        if found is None:
            bit = 1 << self._numbers[name]
            found = False, bit, bit
        return found

    def followers(self, terminal: str) -> tuple[str, ...]:
        """The terminals that may stand directly after one."""
        return self.names(self._followers[self._numbers[terminal]])

    def names(self, terminals: int) -> tuple[str, ...]:
        """The names of a set of terminals."""
        found = self._names.get(terminals)
        if found is None:
            names = list(self._numbers)
            found = self._names[terminals] = tuple([names[number] for number in _numbers_in(terminals)])
        return found

    def _found(self, expression: Expression, known: Mapping[str, Edges], pairs: MutableMapping[int, int]) -> Edges:
        """The edges of an expression; adds to `pairs` what may follow in it upon what."""
        if isinstance(expression, Rule):
            rule = known.get(expression.name)
            if rule is not None:
                return rule
            bit = 1 << self._numbers.setdefault(expression.name, len(self._numbers))
            return False, bit, bit
        if isinstance(expression, Sequence):
            is_nullable, first, last = _EMPTY
            for part in self._over(expression.parts):
                may_be_empty, part_first, part_last = self._found(part, known, pairs)
                if last:
                    pairs[last] = pairs.get(last, 0) | part_first
                if is_nullable:
                    first |= part_first
                    is_nullable = may_be_empty
                last = part_last | last if may_be_empty else part_last
            return is_nullable, first, last
        if isinstance(expression, Alternation):
            is_nullable, first, last = _NOTHING
            for option in self._over(expression.options):
                may_be_empty, option_first, option_last = self._found(option, known, pairs)
                is_nullable, first, last = is_nullable or may_be_empty, first | option_first, last | option_last
            return is_nullable, first, last
        assert isinstance(expression, Repeat)
        is_nullable, first, last = self._found(expression.item, known, pairs)
        if expression.maximum == 0:
            return _EMPTY
        if last and (expression.maximum is None or expression.maximum > 1):
            pairs[last] = pairs.get(last, 0) | first
        return is_nullable or expression.minimum == 0, first, last

    def _over(self, parts: tuple[Expression, ...]) -> tuple[Expression, ...]:
        if len(parts) > FEW:
            self._time.check("", "grammar, its rules")
        return parts


def _numbers_in(terminals: int) -> list[int]:
    return [number for number, bit in enumerate(reversed(bin(terminals))) if bit == "1"]
