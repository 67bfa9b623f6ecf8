"""Left recursion taken out of a grammar, exactly: the language stays what it was.

An automaton that reads from left to right cannot begin a rule with itself. Rules that begin with one another form a
strongly connected *component*; each is split into what begins with a rule of the component and what does not,

    A_i = A_1 R_i1 | … | A_n R_in | B_i

which is a system of linear equations, solved by writing down the ways from what a text begins with to the rule that it
must become (as by Arden's rule)::

    A_i      = B_1 way(1, i) | … | B_n way(n, i)
    way(k,i) = R_1k way(1, i) | … | R_nk way(n, i) | nothing, if k = i

    expr = expr "+" term | term      becomes      expr = term way,  way = "+" term way | nothing

Rules that may be empty hide components (``a = b? a "x"``), so the system is set up for texts that are not empty, and
whether a rule may be empty is kept separately. In a component of one rule, ``A way`` is ``B way``, since ways repeat:
so ``e = e "+" e | number`` does not push onto the stack for every ``+``.

It knows expressions only. Its recursion follows their nesting, which the parsers of grammars bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import ConstraintTooLarge, InvalidGrammar
from ..compile_time import CompileTime
from ..network.expression import EMPTY_TEXT, Alternation, AnyOrder, Embed, Expression, Literal, Repeat, Rule, Sequence
from ..network.walks import children, is_nullable, nullable_rules, strong_components
from ..text.dfa import Dfa, of_length

MAX_COMPONENT = 64  # rules that begin with one another; the number of ways between them is the square
MAX_STEPS = 50_000  # of all these ways together


def without_left_recursion(rules: Mapping[str, Expression], compile_time: CompileTime) -> dict[str, Expression]:
    """Rules of the same languages, under the same names, none of which begins with itself; others are added.

    Raises:
        ConstraintTooLarge: more than 64 rules begin with one another, in too many ways, or the time is over.
        InvalidGrammar: a rule begins with itself by way of an `AnyOrder`.
    """
    nullable = nullable_rules(rules, compile_time)
    begins = {}
    for name, body in rules.items():
        compile_time.check("", f"grammar, rule {name}")
        begins[name] = {other: None for other in _beginnings(body, nullable) if other in rules}
    components = [
        component
        for component in strong_components(begins)
        if len(component) > 1 or component[0] in begins[component[0]]
    ]
    return _Rewriting(rules, nullable, components, compile_time).rules if components else dict(rules)


def with_filled_turns(rules: Mapping[str, Expression], compile_time: CompileTime) -> dict[str, Expression]:
    """Rules of the same languages, under the same names, in which no repetition takes turns that write nothing."""
    nullable = nullable_rules(rules, compile_time)
    rewriting = _Rewriting(rules, nullable, [], compile_time)
    done: set[str] = set()
    while pending := rewriting.rules.keys() - done:
        for name in sorted(pending):
            rewriting.rules[name] = rewriting.turned(rewriting.rules[name])
        done |= pending
        rewriting.fill()
    return rewriting.rules


def _beginnings(body: Expression, nullable: Mapping[str, bool]) -> dict[str, None]:
    """The rules that may stand first in a text of `body`, in order."""
    found: dict[str, None] = {}
    pending = [body]
    while pending:
        expression = pending.pop()
        if isinstance(expression, Rule):
            found[expression.name] = None
        elif isinstance(expression, AnyOrder):
            pending += (*expression.others, *(member.body for member in expression.members if not member.text))
        elif isinstance(expression, Sequence):
            for part in expression.parts:
                pending.append(part)
                if not is_nullable(part, nullable):
                    break
        else:
            pending += children(expression)
    return found


@dataclass(slots=True)
class _TakenApart:
    """An expression taken apart: whether it may be empty, what follows each rule of the component that it may begin
    with (that rule not being empty), and its other texts that are not empty."""

    may_be_empty: bool = False
    after: dict[str, list[Expression]] = field(default_factory=dict)
    others: list[Expression] = field(default_factory=list)

    def add(self, other: _TakenApart, rest: tuple[Expression, ...] = ()) -> None:
        """Adds the texts of another that are not empty, each followed by `rest`."""
        for name, endings in other.after.items():
            self.after.setdefault(name, []).extend(_joined(ending, *rest) for ending in endings)
        self.others.extend(_joined(text, *rest) for text in other.others)


def _joined(*parts: Expression) -> Expression:
    """The sequence of the parts, flat."""
    flat: list[Expression] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, Sequence) else (part,))
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def _either(options: list[Expression]) -> Expression:
    return options[0] if len(options) == 1 else Alternation(tuple(options))


class _Rewriting:
    """The new rules. `name, not empty` is the rule without the empty text; `a → b` is a way."""

    def __init__(
        self,
        rules: Mapping[str, Expression],
        nullable: Mapping[str, bool],
        components: list[list[str]],
        compile_time: CompileTime,
    ) -> None:
        self._time = compile_time
        self._num_steps = 0
        self.rules = dict(rules)
        self._old = rules
        self._nullable = nullable
        self._in_component = {name for component in components for name in component}
        self._pending: list[str] = []
        for component in components:
            if len(component) > MAX_COMPONENT:
                raise ConstraintTooLarge(
                    f"grammar: {len(component)} rules begin with one another ({', '.join(sorted(component)[:3])} …); "
                    f"at most {MAX_COMPONENT} can be rewritten"
                )
            self._open_component(component)
        self.fill()

    def fill(self) -> None:
        """Makes the rules that were asked for without the empty text."""
        while self._pending:
            name = self._pending.pop()
            self._time.check("", f"grammar, rule {name}")
            self.rules[_not_empty(name)] = self._filled(self._old[name])

    def turned(self, expression: Expression) -> Expression:
        """The expression with turns of repetitions that are not empty."""
        if isinstance(expression, Sequence):
            return Sequence(tuple(map(self.turned, expression.parts)))
        if isinstance(expression, Alternation):
            return Alternation(tuple(map(self.turned, expression.options)))
        if not isinstance(expression, Repeat):
            return expression
        if not is_nullable(expression.item, self._nullable):
            return Repeat(self.turned(expression.item), expression.minimum, expression.maximum)
        return Repeat(self.turned(self._filled(expression.item)), 0, expression.maximum)

    def _open_component(self, component: list[str]) -> None:
        members = frozenset(component)
        apart = {name: self._taken_apart(self._old[name], members) for name in component}
        for name in component:
            whole: Expression = Rule(_not_empty(name))
            self.rules[name] = Alternation((whole, EMPTY_TEXT)) if self._nullable[name] else whole
        if len(component) == 1:
            self._open_single(component[0], apart[component[0]])
            return
        leads_to: dict[str, dict[str, list[Expression]]] = {name: {} for name in component}  # from, to -> readings
        empty_steps: dict[str, dict[str, None]] = {name: {} for name in component}
        for name in component:
            for begun, endings in apart[name].after.items():
                for ending in endings:
                    taken = self._taken_apart(ending, frozenset())
                    leads_to[begun].setdefault(name, []).extend(taken.others)
                    if taken.may_be_empty:
                        empty_steps[begun][name] = None
        for name in component:
            self._time.check("", f"grammar, rule {name}")
            beginnings = [
                _joined(_either(apart[first].others), Rule(_way(first, name)))
                for first in component
                if apart[first].others
            ]
            self.rules[_not_empty(name)] = _either(beginnings)
            for first in component:
                self.rules[_way(first, name)] = self._way_body(first, name, leads_to, empty_steps)

    def _way_body(
        self,
        first: str,
        last: str,
        leads_to: dict[str, dict[str, list[Expression]]],
        empty_steps: dict[str, dict[str, None]],
    ) -> Expression:
        options: list[Expression] = []
        reached = {first: None}
        for here in (pending := [first]):  # grows: steps that read nothing
            for target in empty_steps[here]:
                if target not in reached:
                    reached[target] = None
                    pending.append(target)
            if here == last:
                options.append(EMPTY_TEXT)
            self._num_steps += len(leads_to[here])
            if self._num_steps > MAX_STEPS:
                raise ConstraintTooLarge(
                    f"grammar: rules such as {first!r} begin with one another in too many ways; let fewer of them "
                    "write nothing"
                )
            for target, readings in leads_to[here].items():
                if readings:
                    options.append(_joined(_either(readings), Rule(_way(target, last))))
        return _either(options)

    def _open_single(self, name: str, apart: _TakenApart) -> None:
        """``A = A R | B``: begin with B, then any number of R; an A at the very end of either is a B there."""
        beginning, way = Rule(f"{name}, begun"), Rule(_way(name, name))
        again: Expression = Alternation((beginning, EMPTY_TEXT)) if self._nullable[name] else beginning

        def ended(expression: Expression) -> Expression:
            flat = expression.parts if isinstance(expression, Sequence) else (expression,)
            return _joined(*flat[:-1], again) if flat and flat[-1] == Rule(name) else expression

        readings: list[Expression] = []
        for ending in apart.after.get(name, []):
            readings.extend(self._taken_apart(ended(ending), frozenset()).others)
        self.rules[beginning.name] = _either([ended(other) for other in apart.others])
        self.rules[_not_empty(name)] = Sequence((beginning, way))
        self.rules[way.name] = Alternation((*(_joined(reading, way) for reading in readings), EMPTY_TEXT))

    def _filled(self, expression: Expression) -> Expression:
        """The texts of an expression that are not empty."""
        return _either(self._taken_apart(expression, frozenset()).others)

    def _taken_apart(self, expression: Expression, component: frozenset[str]) -> _TakenApart:
        found = _TakenApart()
        if isinstance(expression, Rule):
            found.may_be_empty = self._nullable.get(expression.name, False)
            if expression.name in component:
                found.after[expression.name] = [EMPTY_TEXT]
            else:
                found.others.append(self._filled_rule(expression.name))
        elif isinstance(expression, Alternation):
            for option in expression.options:
                apart = self._taken_apart(option, component)
                found.add(apart)
                found.may_be_empty = found.may_be_empty or apart.may_be_empty
        elif isinstance(expression, Sequence):
            found.may_be_empty = True
            for index, part in enumerate(expression.parts):
                apart = self._taken_apart(part, component)
                found.add(apart, expression.parts[index + 1 :])
                if not apart.may_be_empty:
                    found.may_be_empty = False
                    break
        elif isinstance(expression, Repeat):
            if expression.maximum != 0:
                apart = self._taken_apart(expression.item, component)
                fewer = None if expression.maximum is None else expression.maximum - 1
                rest = Repeat(expression.item, max(expression.minimum - 1, 0), fewer)
                found.add(apart, () if fewer == 0 else (rest,))
                found.may_be_empty = apart.may_be_empty
            found.may_be_empty = found.may_be_empty or expression.minimum == 0
        elif isinstance(expression, Embed):
            found.may_be_empty = is_nullable(expression, {})
            found.others.append(Embed(_without_empty(expression.language)) if found.may_be_empty else expression)
        elif isinstance(expression, AnyOrder) and component & _beginnings(expression, self._nullable).keys():
            raise InvalidGrammar(
                f"grammar: {', '.join(sorted(component)[:3])}: a rule begins with itself by way of what is written in "
                "any order; let something stand before it"
            )
        elif not isinstance(expression, Literal) or expression.data:
            found.others.append(expression)
        else:
            found.may_be_empty = True
        return found

    def _filled_rule(self, name: str) -> Rule:
        """The rule without the empty text."""
        if not self._nullable.get(name) and name not in self._in_component:
            return Rule(name)
        filled = _not_empty(name)
        if filled not in self.rules and name not in self._in_component and name in self._old:
            self.rules[filled] = EMPTY_TEXT  # until its turn comes
            self._pending.append(name)
        return Rule(filled if name in self._old else name)


def _not_empty(name: str) -> str:
    return f"{name}, not empty"


def _way(first: str, last: str) -> str:
    return f"{first} → {last}"


def _without_empty(language: object) -> Dfa:
    if not isinstance(language, Dfa):
        raise AssertionError(f"a language that may be empty is a Dfa, not {type(language).__name__}")
    return language.difference(of_length(0, 0))
