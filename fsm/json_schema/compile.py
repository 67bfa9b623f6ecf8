"""From goals to a grammar: one expression per goal, one rule per goal that holds objects or arrays.

The compiler works through a list of goals, so schemas may be nested and recursive without limit; what a value is
made of is decided by `Branching`, how it is written by the writers of strings, numbers, arrays and objects.
"""

from __future__ import annotations

import functools
import json
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter

from ...errors import ConstraintTooLarge, EmptyLanguage
from ..any_json import ExtraKeys, KeyOrder
from ..network.dead_rules import dead_rules
from ..network.expression import CommonRule, Embed, Expression, Grammar, Literal, Rule, alternation
from ..text.dfa import Dfa, no_text
from ..text.json_strings import JsonStrings
from .algebra import ANYTHING, ARRAY, NEVER, NUMBER, OBJECT, STRING, Goal, types_of
from .any_order import AnyKeyOrder
from .arrays import ArrayWriter, DistinctStrings
from .branching import Branching
from .item_states import ItemStates
from .layout import Layout
from .numbers import integer_expression, number_expression
from .objects import ObjectWriter
from .others import Others
from .plain import PlainArray, PlainConstants, PlainObject, plain
from .scalars import ANY_WORD, WORD_LITERALS, WORDS, listed, scalars
from .schema_order import SchemaOrder
from .shape import Shape
from .sites import Sites
from .strings import (
    any_key,
    any_string_expression,
    distinct_strings,
    joined_lengths,
    num_strings,
    string_language,
)
from .texts import error_at
from .xml_arguments import Spell, XmlArguments
from .xml_marks import XmlMarks

MAX_RULES = 200_000

_ANY = "any"
_ANY_VALUE = Rule(_ANY)


class SchemaCompiler:
    """Compiles the goals of one schema text. Used once."""

    def __init__(
        self,
        sites: Sites,
        layout: Layout,
        key_order: KeyOrder = "schema",
        extra_keys: ExtraKeys = "schema",
        *,
        prefix: str = "",
    ) -> None:
        self._prefix = prefix
        self._time = sites.time
        self._branching = Branching(sites, mixes=key_order == "any", closes=extra_keys == "never")
        self._layout = layout
        self._sites = sites
        self._rules: dict[str, Expression] = {}
        self._known: dict[Goal, Expression | None] = {}
        self._any: CommonRule | None = None
        self._names: dict[Goal, Dfa] = {}
        self._plain: dict[Goal, PlainObject | PlainArray | PlainConstants] = {}
        self._mixes = key_order == "any"
        self._pending: list[tuple[str, Goal]] = []
        self._count = 0
        self._counts_others = False
        self._begun: list[tuple[int, Goal]] = []  # goals, and how many rules there were when their bodies were begun
        others = Others(self.value, self.names, self._time)
        self._arrays = ArrayWriter(
            layout,
            self.value,
            self.texts,
            self.constants,
            self.strings,
            lambda value, pointer: sites.synthetic({"const": value}, pointer),
            self._branching.is_impossible,
            ItemStates(layout, self.value, self._reserve, self._rules.__setitem__, self._time.check),
        )
        written = self._writer_of_shapes(layout)
        tell = self._branching.constants, self._branching.is_impossible
        self._objects = ObjectWriter(self.value, others, written, *tell, extra_keys == "never", self._mixes)

    def _writer_of_shapes(self, layout: Layout) -> Callable[[Shape], Expression | None]:
        """Writes shapes in the order asked for, and notes whether some of them count keys that are not named."""
        in_order = SchemaOrder(layout, self._reserve, self._rules.__setitem__, self._time.check)
        write = AnyKeyOrder(layout, in_order).written if self._mixes else in_order.written

        def written(shape: Shape) -> Expression | None:
            self._counts_others = self._counts_others or shape.counts_others
            return write(shape)

        return written

    def grammar(self, goal: Goal | None = None) -> Grammar:
        """The grammar of all values that fulfil the whole text, or a goal of its own.

        Raises:
            EmptyLanguage: there are none.
        """
        root = self._sites.root_goal() if goal is None else goal
        with self._letting_go():
            return self._settled(lambda: self.value(root))

    def xml_arguments(self, marks: XmlMarks, spell: Spell) -> Grammar:
        """The grammar of all objects that are valid under the whole text, with XML around their keys and values.

        Raises:
            EmptyLanguage: there are none.
        """

        def start() -> Expression | None:
            arguments = self._arguments(marks, spell)
            options = arguments.written(self._writer_of_shapes(arguments.layout))
            return alternation(*options) if options else None

        with self._letting_go():
            return self._settled(start)

    def raw_keys(self, marks: XmlMarks) -> frozenset[str]:
        """The keys of the outermost object that can only have strings."""
        with self._letting_go():
            return self._arguments(marks, str.encode).raw_keys()

    @contextmanager
    def _letting_go(self) -> Iterator[None]:
        """At the end drops what refers to this object: a cycle of a million objects would wait for the collector."""
        try:
            yield
        finally:
            del self._arrays, self._objects

    def _arguments(self, marks: XmlMarks, spell: Spell) -> XmlArguments:
        root, branches = self._sites.root_goal(), self._branching.branches
        kinds = {names: self._sites.synthetic({"type": sorted(names)}, "") for _, names in marks.kinds}
        arguments = XmlArguments(marks, spell, self.value, branches, kinds.__getitem__, _ANY_VALUE, self._time, [], {})
        others = Others(lambda goal: _ANY_VALUE if goal == ANYTHING else self.value(goal), self.names, self._time)
        tell = self._branching.constants, self._branching.is_impossible
        writer = ObjectWriter(arguments.noted, others, arguments.collect, *tell, mixes=True)
        objects = [branch.objects for branch in branches(root) if branch.types & OBJECT]
        if objects:
            writer.objects(objects)
        return arguments

    def _settled(self, start: Callable[[], Expression | None]) -> Grammar:
        """The grammar that starts so. Where keys are counted, goals whose rules turn out to be dead have no value.

        Whether a value can be completed is only known once all rules are there; a key whose value cannot must not count
        as one that may still be written. So all is written again, without what was dead, until nothing more is.
        """
        while True:
            grammar = self._finished(start())
            if not self._counts_others:
                return grammar
            dead = dead_rules(self._rules, self._time)
            impossible = [goal for goal, found in self._known.items() if isinstance(found, Rule) and found.name in dead]
            if not impossible:
                return grammar
            gone = [goal for goal, found in self._known.items() if found is None]
            self._known = dict.fromkeys((*gone, *impossible))
            self._rules.clear()
            self._begun.clear()
            self._counts_others = False

    def _finished(self, start: Expression | None) -> Grammar:
        """The grammar that starts so, once all that is pending is written."""
        if start is None:
            raise EmptyLanguage("no value at all is valid under the schema")
        self._write_pending()
        if start is _ANY_VALUE:
            return Grammar(self._rules, _ANY)
        if isinstance(start, Rule):
            return Grammar(self._rules, start.name, self._any, self.pointer_of)
        name = f"{self._prefix}value"
        self._rules[name] = start
        return Grammar(self._rules, name, self._any, self.pointer_of)

    def _write_pending(self) -> None:
        while self._pending:
            name, goal = self._pending.pop()
            self._begun.append((self._count, goal))
            self._time.check(self._sites.pointer(goal))
            self._rules[name] = alternation(*self._options(goal))

    def pointer_of(self, rule: str) -> str:
        """The JSON pointer that a rule of the grammar comes from: of its goal, or of the goal that it is a part of."""
        pointer = self.places().get(rule)
        if pointer is not None:
            return pointer
        number = rule.removeprefix(self._prefix)
        index = bisect_left(self._begun, int(number), key=itemgetter(0)) if number.isdigit() else 0
        return self._sites.pointer(self._begun[index - 1][1]) if index else ""

    def places(self) -> dict[str, str]:
        """The JSON pointer that a rule of the grammar comes from, by its name (rules within objects have none)."""
        return {
            expression.name: self._sites.pointer(goal)
            for goal, expression in self._known.items()
            if isinstance(expression, Rule)
        }

    # ---------------------------------------------------------------- goals

    def value(self, goal: Goal) -> Expression | None:
        """The values that fulfil a goal: a rule if they may be objects or arrays, else the expression itself."""
        known = self._known
        expression = known.get(goal)
        if expression is not None or goal in known:
            return expression
        if goal == NEVER:
            expression = None
        elif goal == ANYTHING:
            expression = _ANY_VALUE
            self._any = _any_value(self._layout)
            self._rules[_ANY] = self._any.body
        else:
            kind = self._sites.names_of_types.get(goal, "")
            expression = _plain_expressions().get(kind) or self._made(goal)
        known[goal] = expression
        return expression

    def _made(self, goal: Goal) -> Expression | None:
        simple = plain(self._sites, goal)
        if simple is not None and not (isinstance(simple, PlainConstants) and self._layout.blank is not None):
            self._plain[goal] = simple
            return self._rule(goal)
        if types_of(self._branching.branches(goal)) & (ARRAY | OBJECT):
            return self._rule(goal)
        options = self._options(goal)
        return alternation(*options) if options else None

    def _rule(self, goal: Goal) -> Rule:
        """A rule that will be written."""
        name = self._reserve()
        self._pending.append((name, goal))
        return Rule(name)

    def names(self, goal: Goal) -> Dfa:
        """The strings that fulfil a goal, as raw text."""
        language = self._names.get(goal)
        if language is None:
            strings = [branch.strings for branch in self._branching.branches(goal) if branch.types & STRING]
            for tests in strings if len(strings) == 1 else joined_lengths(strings, self._time):
                own = string_language(tests, compile_time=self._time)
                language = own if language is None else language.union(own)
            language = self._names[goal] = no_text() if language is None else language
        return language

    def texts(self, goal: Goal, limit: int) -> list[str] | None:
        """All values that fulfil a goal as JSON texts; None if they are more than `limit` or objects or arrays."""
        found: dict[str, None] = {}
        if goal == NEVER:
            return []
        for branch in self._branching.branches(goal):
            if branch.types & (ARRAY | OBJECT):
                return None
            for bit, word in WORDS:
                if branch.types & bit:
                    found[word] = None
            for bit, tests in ((NUMBER, branch.numbers), (STRING, branch.strings)):
                if branch.types & bit:
                    texts = listed(bit, tests, limit, self._time)
                    if texts is None:
                        return None
                    found.update(dict.fromkeys(texts))
        return list(found) if len(found) <= limit else None

    def constants(self, goal: Goal, limit: int) -> list[str] | None:
        """As `texts`, also of a plain list with objects or arrays in it, if each value has one text."""
        simple = plain(self._sites, goal)
        if not isinstance(simple, PlainConstants) or self._layout.blank is not None:
            return self.texts(goal, limit)
        written = self._layout.constants(simple.values, mixes=self._mixes)
        texts = {item.data.decode() for item in written if isinstance(item, Literal)}
        different = {json.dumps(value, sort_keys=True) for value in simple.values}
        is_exact = len(texts) == len(different) <= limit and all(isinstance(item, Literal) for item in written)
        return sorted(texts) if is_exact else None

    def strings(self, goal: Goal) -> DistinctStrings | None:
        """The values of a goal, each at most once in a list; None if some of them are no strings."""
        branches = self._branching.branches(goal)
        if any(branch.types != STRING for branch in branches):
            return None
        if len(branches) == 1:
            return distinct_strings(branches[0].strings, self._time)
        language = self.names(goal)
        if language.is_empty():
            return None, 0
        return Embed(JsonStrings(language), is_item=True), num_strings([language])

    # ---------------------------------------------------------------- branches

    def _options(self, goal: Goal) -> list[Expression]:
        """The kinds of values that fulfil a goal. An error of an automaton that knows no place gets the goal's."""
        try:
            return self._written_options(goal)
        except ConstraintTooLarge as error:
            if error.pointer or str(error).startswith("/"):
                raise
            raise error_at(ConstraintTooLarge, self._sites.pointer(goal), str(error)) from error

    def _written_options(self, goal: Goal) -> list[Expression]:
        simple = self._plain.get(goal)
        if isinstance(simple, PlainConstants):
            return self._layout.constants(simple.values, mixes=self._mixes)
        if simple is not None:
            only = self._arrays.plain(simple) if isinstance(simple, PlainArray) else self._objects.plain(simple)
            return [] if only is None else [only]
        branches = self._branching.branches(goal)
        types = types_of(branches)
        options: list[Expression] = []
        if types & ANY_WORD:
            options += [word for bit, word in WORD_LITERALS if types & bit]
        if types & NUMBER:
            options += scalars(NUMBER, branches, self._time, self._sites.pointer(goal))
        if types & STRING:
            options += scalars(STRING, branches, self._time, self._sites.pointer(goal))
        if types & ARRAY:
            seen: set[tuple[int, ...]] = set()
            for branch in branches:
                key = tuple(map(id, branch.arrays))
                if branch.types & ARRAY and key not in seen:
                    seen.add(key)
                    array = self._arrays.array(branch.arrays)
                    if array is not None:
                        options.append(array)
        if types & OBJECT:
            options += self._objects.objects([branch.objects for branch in branches if branch.types & OBJECT])
        return options

    def _reserve(self) -> str:
        """A name for a rule that will be defined."""
        self._count += 1
        if self._count > MAX_RULES:
            raise ConstraintTooLarge(f"the schema unfolds to more than {MAX_RULES} rules; simplify it")
        return f"{self._prefix}{self._count}"


@functools.cache
def _plain_expressions() -> dict[str, Expression]:
    """The values of the types that are no objects and no arrays."""
    return {
        "null": Literal(b"null"),
        "boolean": alternation(Literal(b"true"), Literal(b"false")),
        "string": any_string_expression(),
        "number": number_expression(),
        "integer": integer_expression(),
    }


@functools.cache
def _any_value(layout: Layout) -> CommonRule:
    """What `_ANY_VALUE` refers to: the same in almost every grammar."""
    return CommonRule(_ANY, _any_body(layout, _ANY_VALUE))


def _any_body(layout: Layout, value: Rule) -> Expression:
    """Any value, whose parts are written by the rule `value`."""
    items = layout.listed((value,), 0, None)
    members = layout.listed((any_key(), *layout.colon, value), 0, None)
    assert items is not None and members is not None
    return alternation(
        *(word for _, word in WORD_LITERALS),
        number_expression(),
        any_string_expression(),
        layout.bracketed(b"[", items[0], b"]", may_be_empty=True),
        layout.bracketed(b"{", members[0], b"}", may_be_empty=True),
    )
