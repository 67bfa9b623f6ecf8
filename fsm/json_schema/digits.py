"""Digit automata: comparison of a decimal text with a bound, and divisibility, digit by digit.

::

    bound 13.5:   "1" -> equal so far, "3" -> equal so far, "." "4" -> less ... ; "2" -> one digit, now greater or
    shorter; whether a whole part is shorter than the bound's is known only where it ends

All functions are pure and cached; the automata are over ASCII text and know no JSON Schema.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from ..alphabet import Alphabet
from ..dfa import Dfa, explore

_SYMBOLS = "-0123456789.e+"
_ALPHABET, _members = Alphabet.from_sets([[(ord(symbol), ord(symbol))] for symbol in _SYMBOLS])
_CLASS_OF = {symbol: classes[0] for symbol, classes in zip(_SYMBOLS, _members, strict=True)}
_SYMBOL_OF = {number: symbol for symbol, number in _CLASS_OF.items()}

Node = tuple[Any, ...]
"""A kind and what is known so far: sign, number of digits, order (-1, 0, 1) of the digits to the bound's."""

_DEAD: Node = ("dead",)


@functools.lru_cache(maxsize=1024)
def compared_plain(bound: Fraction, wanted: frozenset[int]) -> Dfa:
    """Plain decimal texts whose value is less than (-1), equal to (0) or greater than (1) the bound, as wanted.

    Args:
        bound: a finite decimal.
    """
    whole, fraction = _digits(abs(bound))

    def step(node: Node, symbol: str) -> Node:
        kind, *rest = node
        if kind in ("start", "minus"):
            if symbol == "-" and kind == "start":
                return ("minus",)
            if not symbol.isdigit():
                return _DEAD
            sign = -1 if kind == "minus" else 1
            return ("zero" if symbol == "0" else "whole", sign, 1, _compare(symbol, whole[0]))
        if kind in ("zero", "whole"):
            sign, count, order = rest
            if symbol == ".":
                order = _by_length(count, order, whole)
                return ("point", sign, order, 0)
            if kind == "zero" or not symbol.isdigit():
                return _DEAD
            if count < len(whole) and order == 0:
                order = _compare(symbol, whole[count])
            count = min(count + 1, len(whole) + 1)
            return ("whole", sign, count, order if count <= len(whole) else 1)
        sign, order, position = rest
        if not symbol.isdigit():
            return _DEAD
        if order == 0:
            order = _compare(symbol, fraction[position] if position < len(fraction) else "0")
            position = min(position + 1, len(fraction)) if order == 0 else 0
        return ("fraction", sign, order, position)

    def accept(node: Node) -> bool:
        kind, *rest = node
        if kind in ("zero", "whole"):
            sign, count, order = rest
            order = _by_length(count, order, whole)
            if order == 0 and fraction:
                order = -1
        elif kind == "fraction":
            sign, order, position = rest
            if order == 0 and position < len(fraction):
                order = -1
        else:
            return False
        return _relation(sign, order, bound) in wanted

    return _explored(step, accept)


@functools.lru_cache(maxsize=1024)
def compared_scientific(bound: Fraction, wanted: frozenset[int]) -> Dfa:
    """Scientific texts (1.5e-07, exponents up to 307) by their relation to the bound."""
    mantissa, exponent = _normalised(abs(bound))
    size = f"{abs(exponent):02d}"
    below_one = -1 if exponent < 0 else 1

    def step(node: Node, symbol: str) -> Node:
        kind, *rest = node
        if kind in ("start", "minus"):
            if symbol == "-" and kind == "start":
                return ("minus",)
            if symbol not in "123456789":
                return _DEAD
            return ("first", -1 if kind == "minus" else 1, _compare(symbol, mantissa[0]), 1)
        if kind in ("first", "point", "more"):
            sign, order, position = rest
            if symbol == "." and kind == "first":
                return ("point", sign, order, position)
            if symbol == "e" and kind != "point":
                if order == 0 and position < len(mantissa):
                    order = -1
                return ("e", sign, order)
            if not symbol.isdigit() or kind == "first":
                return _DEAD
            if order == 0:
                order = _compare(symbol, mantissa[position] if position < len(mantissa) else "0")
                position = min(position + 1, len(mantissa))
            return ("more", sign, order, position if order == 0 else 0)
        if kind == "e":
            if symbol not in "+-":
                return _DEAD
            return ("exponent", *rest, -1 if symbol == "-" else 1, "", 0)
        sign, order, side, shape, relation = rest
        return ("exponent", *_exponent_step(sign, order, side, shape, relation, symbol, size))

    def accept(node: Node) -> bool:
        if node[0] != "exponent":
            return False
        _, sign, order, side, shape, relation = node
        if shape not in ("dd", "ddd"):
            return False
        if mantissa == "0":
            magnitude = 1
        elif side != below_one and not (exponent == 0 and relation == 0):
            magnitude = side
        else:
            longer = len(shape) - len(size)
            by_size = longer if longer else relation
            magnitude = by_size * side if by_size else order
        return _relation(sign, magnitude, bound) in wanted

    return _explored(step, accept)


def _exponent_step(
    sign: int, order: int, side: int, shape: str, relation: int, symbol: str, size: str
) -> Node:
    """Reads one digit of an exponent of two or three digits, at most 307; `relation`: to the bound's digits."""
    dead: Node = (sign, order, side, "dead", 0)
    if not symbol.isdigit():
        return dead
    before = shape
    if before == "":
        after = {"0": "0", "3": "3"}.get(symbol, "d" if symbol in "12" else "9")
    elif before in ("0", "9"):
        after = "dd"
    elif before == "d":
        after = "dD"
    elif before == "3":
        after = "30" if symbol == "0" else "dd"
    elif before == "dD" or (before == "30" and symbol in "01234567"):
        after = "ddd"
    else:
        return dead
    position = {"": 0, "dD": 2, "30": 2}.get(before, 1)
    if relation == 0 and position < len(size):
        relation = _compare(symbol, size[position])
    return (sign, order, side, after, relation)


@functools.lru_cache(maxsize=256)
def multiples(numerator: int, places: int) -> Dfa:
    """Plain decimal texts whose value is a multiple of numerator / 10**places.

    States are remainders: `whole` after the digits before the point, then one set per decimal place.
    """
    num_classes = _ALPHABET.num_classes
    start, minus, zero, whole = 1, 2, 3, 4
    points = whole + numerator
    table = np.zeros((points + (places + 2) * numerator + 1, num_classes), np.int32)
    accepting = np.zeros(len(table), np.bool_)
    remainders = np.arange(numerator)
    table[start, _CLASS_OF["-"]] = minus
    for digit in range(10):
        class_id = _CLASS_OF[str(digit)]
        table[start, class_id] = table[minus, class_id] = whole + digit % numerator if digit else zero
        following = (remainders * 10 + digit) % numerator
        table[whole + remainders, class_id] = whole + following
        for place in range(places):
            table[points + place * numerator + remainders, class_id] = points + (place + 1) * numerator + following
    last = points + places * numerator + remainders
    beyond = points + (places + 1) * numerator + remainders
    table[last, _CLASS_OF["0"]] = beyond
    table[beyond, _CLASS_OF["0"]] = beyond
    table[zero, _CLASS_OF["."]] = points
    table[whole + remainders, _CLASS_OF["."]] = points + remainders
    accepting[zero] = True
    accepting[whole + remainders] = remainders * 10**places % numerator == 0
    for place in range(1, places + 1):
        accepting[points + place * numerator + remainders] = remainders * 10 ** (places - place) % numerator == 0
    accepting[beyond] = remainders == 0
    return Dfa.from_table(_ALPHABET, table, accepting, start).minimised()


def _explored(step: Callable[[Node, str], Node], accept: Callable[[Node], bool]) -> Dfa:
    def steps(node: Node) -> list[Node]:
        return [
            _live(step(node, _SYMBOL_OF[c])) if c in _SYMBOL_OF else _DEAD for c in range(_ALPHABET.num_classes)
        ]

    return explore(_ALPHABET, ("start",), _DEAD, steps, accept).minimised()


def _live(node: Node) -> Node:
    return _DEAD if "dead" in node else node


def _compare(digit: str, other: str) -> int:
    return (digit > other) - (digit < other)


def _by_length(count: int, order: int, whole: str) -> int:
    """How a whole part of `count` digits compares with the bound's whole part."""
    if count != len(whole):
        return 1 if count > len(whole) else -1
    return order


def _relation(sign: int, order: int, bound: Fraction) -> int:
    """How a number of this sign and of this relation to |bound| compares with the bound."""
    if sign > 0:
        return 1 if bound < 0 else order
    return -1 if bound > 0 else -order


def _digits(value: Fraction) -> tuple[str, str]:
    """Digits before and after the point, without superfluous zeros ("0" and "" for 0)."""
    whole, rest = divmod(value.numerator, value.denominator)
    fraction = []
    while rest:
        digit, rest = divmod(rest * 10, value.denominator)
        fraction.append(str(digit))
    return str(whole), "".join(fraction)


def _normalised(value: Fraction) -> tuple[str, int]:
    """Digits d1 d2 ... and exponent e with value = d1.d2... * 10**e; ("0", 0) for 0."""
    whole, fraction = _digits(value)
    if whole != "0":
        return (whole + fraction).rstrip("0"), len(whole) - 1
    stripped = fraction.lstrip("0")
    if not stripped:
        return "0", 0
    return stripped, len(stripped) - len(fraction) - 1
