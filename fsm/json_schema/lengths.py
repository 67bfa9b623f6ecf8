"""Lengths: strings of several alternatives that differ in how long they may be, and in nothing else.

::

    lengths 3 to 5, 9, 12 to 13       one automaton that counts:   o-o-o-@-@-@-o-o-o-@-o-o-@-@

Thousands of alternatives are thousands of counts that run in parallel, for every token of a mask. Bounds that
meet are one span; spans with gaps between them are one automaton, up to a length at which it has not too many states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from ..text.dfa import Span
from .algebra import Test

FEW = 4
"""Most spans that stay alternatives of their own."""
MAX_LENGTH = 200_000
"""Longest text that an automaton counts."""


def joined(
    alternatives: Iterable[tuple[Test, ...]], longest: Callable[[tuple[Test, ...]], int]
) -> list[tuple[Test, ...]]:
    """The same strings: alternatives that differ in bounds on the length alone are one.

    Where the bounds meet, it has a test of one length, else, from some number of spans on, one of lengths.

    Args:
        longest: up to which length the texts that pass some tests may be counted.
    """
    bounds: dict[tuple[Test, ...], list[tuple[int, float]]] = {}
    for tests in alternatives:
        lengths: list[Any] = [test for test in tests if test[0] == "length"]
        minimum = max((least for _, least, _ in lengths), default=0)
        maximum = min((math.inf if most is None else most for _, _, most in lengths), default=math.inf)
        others = tuple(test for test in tests if test[0] != "length")
        bounds.setdefault(others, []).append((minimum, maximum))
    options: list[tuple[Test, ...]] = []
    for others, found in bounds.items():
        spans = _met(found)
        if len(spans) > FEW:
            limit = min(longest(others), MAX_LENGTH)
            counted = tuple([span for span in spans if _last(span) <= limit])
            if len(counted) > 1:
                options.append((*others, ("lengths", counted)))
                spans = spans[len(counted) :]
        for minimum, most in spans:
            options.append(others if not minimum and most is None else (*others, ("length", minimum, most)))
    return options


def _met(bounds: Iterable[tuple[int, float]]) -> list[Span]:
    spans: list[tuple[int, float]] = []
    for minimum, maximum in sorted(bounds):
        if spans and minimum <= spans[-1][1] + 1:
            spans[-1] = spans[-1][0], max(maximum, spans[-1][1])
        elif minimum <= maximum:
            spans.append((minimum, maximum))
    return [(minimum, None if maximum == math.inf else int(maximum)) for minimum, maximum in spans]


def _last(span: Span) -> int:
    """The length from which on nothing changes."""
    return span[0] if span[1] is None else span[1]
