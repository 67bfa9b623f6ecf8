"""The table that compares a decimal text with a bound, compiled; `digits.compared` is its only user."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inner_kernel, kernel

LESS, EQUAL, GREATER = -1, 0, 1
START, MINUS = 1, 2


@kernel
def comparison(
    whole: Any, fraction: Any, side: Any, wanted: Any, with_point: Any, sign_class: Any, point_class: Any, digits: Any
) -> Any:
    """Texts in one of the wanted relations to a bound.

    Rows per sign: zero; more digits than the bound has before its point; (digits read, order so far); then, after the
    point, less and greater with and without a digit, and how many digits equal those of the bound.

    Args:
        whole, fraction: uint8, the digits of the bound before and after the point; side: its sign, 0 for zero.
        wanted: uint8[3], whether texts that are less, equal, greater are accepted.
        with_point: whether texts with a fraction are read.
        sign_class, point_class: the classes of - and . ; digits: int32[10], those of the digits, in a row.

    Returns:
        table int32[num_rows, digits[9] + 1] and accepting bool[num_rows]; row 0 is dead, START the first.
    """
    rows_per_sign = 3 * whole.shape[0] + fraction.shape[0] + 9
    table = np.zeros((3 + 2 * rows_per_sign, digits[9] + 1), np.int32)
    accepting = np.zeros(table.shape[0], np.bool_)
    table[START, sign_class] = MINUS
    for sign in (1, -1):
        opening, base = (START, 3) if sign > 0 else (MINUS, 3 + rows_per_sign)
        relations = np.zeros(3, np.bool_)  # whether an order in size is one of the wanted relations
        for order in range(3):
            relation = sign if side == -sign else sign * (order - 1)
            relations[order] = wanted[relation + 1] != 0
        _fill(table, accepting, base, opening, whole, fraction, relations, with_point, point_class, digits[0])
    return table, accepting


@inner_kernel
def _fill(
    table: Any,
    accepting: Any,
    base: Any,
    opening: Any,
    whole: Any,
    fraction: Any,
    relations: Any,
    with_point: Any,
    point_class: Any,
    zero_class: Any,
) -> None:
    """All rows of one sign."""
    num_whole, num_fraction = whole.shape[0], fraction.shape[0]
    zero, beyond, read = base, base + 1, base + 2
    after = read + 3 * num_whole  # less, greater: just behind the point, then with digits; then the equal ones
    for digit in range(10):
        column = zero_class + digit
        table[opening, column] = read + 1 + _order(digit, whole[0]) if digit else zero
        for count in range(1, num_whole):
            row = read + 3 * (count - 1)
            table[row, column] = row + 3
            table[row + 1, column] = row + 4 + _order(digit, whole[count])
            table[row + 2, column] = row + 5
        for order in range(3):
            table[after - 3 + order, column] = beyond
        table[beyond, column] = beyond
    at_zero = _order(0, whole[0]) if num_whole == 1 else LESS
    _end(table, accepting, zero, at_zero, relations, num_fraction, after, with_point, point_class)
    _end(table, accepting, beyond, GREATER, relations, num_fraction, after, with_point, point_class)
    for count in range(1, num_whole + 1):
        for order in (LESS, EQUAL, GREATER):
            size = order if count == num_whole else LESS
            row = read + 3 * (count - 1) + order + 1
            _end(table, accepting, row, size, relations, num_fraction, after, with_point, point_class)
    if not with_point:
        return
    less, greater, equal = after + 2, after + 3, after + 4
    accepting[less], accepting[greater] = relations[0], relations[2]
    for digit in range(10):
        column = zero_class + digit
        table[after, column] = table[less, column] = less
        table[after + 1, column] = table[greater, column] = greater
        for position in range(num_fraction + 2):  # digits read and equal; the last row: all further zeros
            order = _order(digit, fraction[position] if position < num_fraction else 0)
            following = equal + min(position, num_fraction) + 1
            table[equal + position, column] = less if order < 0 else greater if order > 0 else following
    for position in range(1, num_fraction + 2):
        accepting[equal + position] = relations[0 if position < num_fraction else 1]


@inner_kernel
def _order(digit: Any, other: Any) -> Any:
    return LESS if digit < other else GREATER if digit > other else EQUAL


@inner_kernel
def _end(
    table: Any,
    accepting: Any,
    row: Any,
    order: Any,
    relations: Any,
    num_fraction: Any,
    after: Any,
    with_point: Any,
    point_class: Any,
) -> None:
    """A row at which the whole part may end, with this order to the bound's whole part."""
    accepting[row] = relations[0 if order == EQUAL and num_fraction else order + 1]
    if with_point:
        table[row, point_class] = after if order == LESS else after + 1 if order == GREATER else after + 4
