"""How many different values an expression has, at the least: whether a list that must have several has enough.

The number is that of the values, not of their texts: blanks, spellings of numbers and orders of members count once.
It may be too low, never too high. What is said of each expression is that, and whether it has keys or items in it that
must differ, such as keys of a pattern: their number is no product, and no list of them is endless but where they are.

Knows expressions only; nothing is walked by recursion.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from math import inf

import numpy as np

from ...errors import ConstraintTooLarge
from ..compile_time import CompileTime
from ..network.expression import Alternation, AnyOrder, ByteSet, Embed, Expression, Literal, Repeat, Rule, Sequence
from ..network.walks import folded, least_fixed_point
from ..regex.regex import regex_to_dfa
from ..text.counted import Counted
from ..text.dfa import Dfa
from ..text.extent import class_sizes, is_finite, num_texts
from ..text.json_strings import JsonStrings
from ..text.language import Language

MOST = 1 << 20
"""Finite numbers are counted up to here."""
MOST_STEPS = 4_096
"""Most characters of strings that are counted."""

Count = tuple[float, bool]
"""How many values, and whether keys or items in them must differ."""
NONE: Count = 0, False
ONE: Count = 1, False


def least_values(
    expressions: Iterable[Expression], rules: Mapping[str, Expression], compile_time: CompileTime
) -> list[float]:
    """Of each expression, a number of values that it has at least; 0: it has none, infinity: endlessly many."""

    def count_of(expression: Expression, known: Mapping[str, Count]) -> Count:
        def found_of(part: Expression, inner: list[Count]) -> Count:
            return known[part.name] if isinstance(part, Rule) else _count(part, inner)

        return folded(expression, found_of, compile_time)

    known = least_fixed_point(rules, NONE, count_of, compile_time)
    return [count_of(expression, known)[0] for expression in expressions]


def _count(part: Expression, inner: list[Count]) -> Count:
    """Of an expression that is no rule, given what is known of its children."""
    is_marked = any(marked for _, marked in inner)
    match part:
        case Literal() | ByteSet():
            return ONE
        case Embed():
            return _of_language(part.language), part.is_key or part.is_item or part.is_edge
        case Alternation():
            words = {_word(option.data) for option in part.options if isinstance(option, Literal)} - {None}
            return max([len(words), *(count for count, _ in inner)]), is_marked
        case Sequence():
            return _product([count for count, _ in inner], is_marked), is_marked
        case Repeat():
            return _repeated(inner[0][0], part.minimum, part.maximum, is_marked), is_marked
        case AnyOrder():
            return _in_any_order(part, [count for count, _ in inner], is_marked), is_marked
    raise AssertionError(part)


def _word(text: bytes) -> bytes | Fraction | None:
    """The same for all spellings of a string, a word or a number; None if it is none, such as a part of one."""
    try:
        found = json.loads(text, parse_int=Decimal, parse_float=Decimal)
    except (ValueError, RecursionError):
        return None
    return Fraction(found) if isinstance(found, Decimal) else text if not isinstance(found, list | dict) else None


def _product(counts: list[float], is_marked: bool) -> float:
    if 0 in counts:
        return 0
    if inf in counts:
        return inf
    found = 1.0
    for count in counts:
        found = min(found * count, MOST)
    return 1 if is_marked else found


def _repeated(count: float, minimum: int, maximum: int | None, is_marked: bool) -> float:
    if not count or maximum == 0:
        return 0 if minimum else 1
    if count == inf or (maximum is None and not is_marked):
        return inf
    if is_marked or maximum is None:
        return 1
    longest = MOST if count > 1 and maximum > MOST.bit_length() else min(count**maximum, MOST)
    return max(longest, min(maximum - minimum + 1, MOST))


def _in_any_order(order: AnyOrder, counts: list[float], is_marked: bool) -> float:
    members = counts[: len(order.members)]
    required = [count for member, count in zip(order.members, members, strict=True) if member.is_required]
    is_free = order.maximum is None and not any(member.implied or member.excluded for member in order.members)
    more = [count for count in counts[:-1] if is_free] + [1]
    most = max(more)
    if 0 in required:
        return 0
    if inf in required or most == inf:
        return inf
    return 1 if is_marked else max(_product(required, is_marked=False), most)


def _of_language(language: Language) -> float:
    """Of strings, or of numbers; 1 of whatever else it may be."""
    if isinstance(language, JsonStrings):
        return _num_texts(language.texts)
    if isinstance(language, Counted):
        return max(_num_counted(language), 1)
    if isinstance(language, Dfa):
        try:
            return max(_num_texts(language.intersect(_shortest_numbers())), 1)
        except ConstraintTooLarge:
            return 1
    return 1


def _num_texts(language: Dfa) -> float:
    return num_texts(language, MOST) if is_finite(language) else inf


def _num_counted(counted: Counted) -> float:
    """The strings of a language with a least or greatest length."""
    language = counted.language
    texts = language.texts if isinstance(language, JsonStrings) else language
    if counted.maximum is None and not is_finite(texts):
        return inf
    sizes = [*class_sizes(texts), 1]
    most = min(MOST_STEPS, MOST_STEPS if counted.maximum is None else counted.maximum)
    ways = np.zeros(len(language.table))
    ways[language.start_state] = 1
    for length in range(most + 1):
        ends = float(ways[language.accepting].sum())
        if length >= counted.minimum and (ends >= MOST or length == most):
            return min(ends, MOST)
        after = np.zeros_like(ways)
        for index in range(language.table.shape[1]):
            np.add.at(after, language.table[:, index], ways * sizes[index])
        after[0] = 0
        ways = np.minimum(after, MOST)
    return 0


@functools.cache
def _shortest_numbers() -> Dfa:
    """One text for each number."""
    return regex_to_dfa(r"0|-?[1-9][0-9]*|-?(?:0|[1-9][0-9]*)\.[0-9]*[1-9]", search=False)
