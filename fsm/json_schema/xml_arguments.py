"""XML arguments: the outermost object with XML around its keys and values (`xml_marks`), all inside of it as JSON.

::

    {"city": "Oslo", "days": [1, 2]}      <parameter=city>⏎Oslo⏎</parameter>⏎<parameter=days>⏎[1, 2]⏎</parameter>

A key that can only have strings has them *raw*: no quotes, no escapes, any text in which the closing mark does not
occur, and all that the schema asks of strings is asked of that text. Of other keys a value is JSON; a string among them
is also written raw, unless a reader that tries JSON first would take it for something else (`_looks_like_json`): then
it has quotes. Whether a key can only have strings is asked of all objects of the schema, since a reader does not know
which of them was meant.

Keys that the schema does not name are not written: an automaton does not know which were written, and `fsm/keys`, which
remembers them, reads JSON only. Where the schema says what their values are, it is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

from ...errors import UnsupportedSchema
from ..compile_time import CompileTime
from ..network.expression import Expression, Literal, alternation, literal, sequence
from ..record import record
from ..regex.regex import regex_to_dfa
from ..remembered import remembered
from ..text.dfa import Dfa
from ..text.free_text import free_text
from .algebra import STRING, Branch, Goal, Test, types_of
from .layout import Layout
from .others import NO_KEYS
from .reading import TYPES
from .shape import Shape
from .strings import raw_expression
from .texts import error_at, escape, is_writable
from .xml_marks import XmlMarks

Spell = Callable[[str], bytes]
"""Spells a mark, in which there may be special tokens."""


@record
class XmlArguments:
    """Writes the arguments of one schema.

    Attributes:
        json_value: the values that fulfil a goal, as JSON.
        branches: what a goal comes to.
        of_types: the goal of all values of some JSON types, by their names.
        any_value: what stands for any value at all.
        time: how long it may take.
        shapes: the objects, whose values are not written yet: the goal of each stands in `goals`.
    """

    marks: XmlMarks
    spell: Spell
    json_value: Callable[[Goal], Expression | None]
    branches: Callable[[Goal], tuple[Branch, ...]]
    of_types: Callable[[frozenset[str]], Goal]
    any_value: Expression
    time: CompileTime
    shapes: list[Shape]
    goals: dict[Expression, Goal]

    @property
    def layout(self) -> Layout:
        """Arguments side by side, each begun by its key."""
        before, after = self.spell(self.marks.before_key), self.spell(self.marks.after_key)
        return Layout.bare(self.marks.joint.encode(), lambda key: before + key.encode() + after)

    def noted(self, goal: Goal) -> Expression | None:
        """Stands for the values of a goal until all shapes are known; None if there are none."""
        if self.json_value(goal) is None:
            return None
        place = literal(f"value {len(self.goals)}")
        self.goals[place] = goal
        return place

    def collect(self, shape: Shape) -> None:
        """Takes an object in, without keys that are not named.

        Raises:
            UnsupportedSchema: it says what their values are, or needs some; or a key cannot be written.
        """
        others = shape.others
        if others.choices is not None or any(value is not self.any_value for _, value in others.cells):
            message = "values of keys that are not named cannot be written as XML; name the keys, or forbid all others"
            raise error_at(UnsupportedSchema, shape.pointer, message)
        num_members = len({shape.key_of.get(name, name) for name, value in shape.members if value is not None})
        if others.cells and shape.minimum > num_members:
            message = f"at least {shape.minimum} keys, of which {num_members} are named; as XML no others are written"
            raise error_at(UnsupportedSchema, f"{shape.pointer}/minProperties", message)
        for name, value in shape.members:
            key = shape.key_of.get(name, name)
            if value is not None and not self.marks.can_hold(key):
                message = "a key that is empty, has blanks around it or the mark that ends it cannot be written as XML"
                raise error_at(UnsupportedSchema, f"{shape.pointer}/properties/{escape(key)}", message)
        self.shapes.append(shape)

    def raw_keys(self) -> frozenset[str]:
        """The keys that can only have strings."""
        types: dict[str, int] = {}
        for shape in self.shapes:
            for name, place in shape.members:
                key = shape.key_of.get(name, name)
                if place is not None:
                    types[key] = types.get(key, 0) | types_of(self.branches(self.goals[place]))
        return frozenset(key for key, found in types.items() if found == STRING)

    def written(self, write: Callable[[Shape], Expression | None]) -> list[Expression]:
        """The objects of all shapes, laid out by `write`."""
        raw_keys = self.raw_keys()
        found: list[Expression] = []
        for shape in self.shapes:
            members = [
                (name, self._value(place, shape.key_of.get(name, name) in raw_keys)) for name, place in shape.members
            ]
            expression = write(replace(shape, members=members, others=NO_KEYS))
            found += [] if expression is None else [expression]
        return found

    # ---------------------------------------------------------------- values

    def _value(self, place: Expression | None, is_raw: bool) -> Expression | None:
        """The values of a key with their end; None if there are none."""
        if place is None:
            return None
        goal, marks = self.goals[place], self.marks
        own = free_text((marks.closing,))
        if marks.kinds:
            options = [option for mark, names in marks.kinds for option in self._marked(goal, mark, names, own)]
        elif is_raw:
            options = self._raw(goal, own)
        else:
            value = self.json_value(goal)
            assert value is not None, "it has been noted"
            options = [value, *self._raw(goal, _not_json(marks.closing))]
        return sequence(alternation(*options), Literal(self.spell(marks.end))) if options else None

    def _marked(self, goal: Goal, mark: str, names: frozenset[str], own: Dfa) -> list[Expression]:
        """The values of a goal that have some types, after the mark that says so."""
        types = sum(TYPES[name] for name in names)
        if types == STRING:
            values = self._raw(goal, own)
        else:
            value = self.json_value(goal | self.of_types(names)) if types_of(self.branches(goal)) & types else None
            values = [] if value is None else [value]
        return [sequence(Literal(self.spell(mark)), alternation(*values))] if values else []

    def _raw(self, goal: Goal, among: Dfa) -> list[Expression]:
        """The strings of a goal as they are, as far as they belong to a language."""
        all_tests = {branch.strings: None for branch in self.branches(goal) if branch.types & STRING}
        found: list[Expression] = []
        for tests in {(): None} if () in all_tests else all_tests:
            found += _texts(tests, among, self.time)
        return found


def _texts(tests: tuple[Test, ...], among: Dfa, time: CompileTime) -> list[Expression]:
    if len(tests) == 1 and tests[0][0] == "among":
        texts = tests[0][1]
        assert isinstance(texts, frozenset)
        return [literal(text) for text in sorted(texts) if is_writable(text) and among.accepts(text)]
    expression = raw_expression(tests, among, time)
    return [] if expression is None else [expression]


@remembered(64)
def _not_json(closing: str) -> Dfa:
    """Text without a closing mark that is not JSON, nor begins like JSON that has an end."""
    return free_text((closing,)).difference(_looks_like_json())


@functools.cache
def _looks_like_json() -> Dfa:
    """What a reader that tries JSON first, and then Python's literals, may take for a value; and more."""
    words = ("null", "none", "true", "false", "nan", "inf", "infinity")
    word = "|".join("".join(f"[{letter.lower()}{letter.upper()}]" for letter in word) for word in words)
    number = r"(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][-+]?[\d_]+)?[jJ]?|0[xX][\da-fA-F_]+|0[oObB][\d_]+"
    return regex_to_dfa(rf"\s*(?:[\[{{(\"'](?:[^\n]|\n)*|[-+]?(?:{number}|{word})\s*)", dialect="python")
