"""Warming up: using everything once, so that the first request need not wait for what is done once.

That is: compiling the loops (half a minute if numba has nothing for this machine on disk, a quarter of a second of
loading otherwise), the Unicode tables, and the rows inside JSON strings and numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ConstraintError
from .constraint import Constraint
from .expression import Alternation, Embed, Grammar, Literal, Repeat, Sequence
from .regex import regex_to_dfa
from .unicode_sets import ignoring_case

if TYPE_CHECKING:
    from .compiler import Compiler

MANY_TOKENS = 200  # enough for an automaton to outgrow its first memory
FEW_TOKENS = 4


def warm_up(compiler: Compiler) -> None:
    """Compiles a few constraints of every kind and takes some tokens in each."""
    bounded = Embed(regex_to_dfa("[^a]{1,40}").intersect(regex_to_dfa(".{0,30}")).json_string())
    letters = Repeat(Alternation((Literal(b"a"), Literal(b"b"))), 0, 400)
    attempts: tuple[Callable[[], Constraint], ...] = (
        compiler.json_value,
        lambda: compiler.regex(r"\w+\d\s\p{Lu}"),
        lambda: compiler.choice(["a", "b"]),
        lambda: compiler.from_grammar(Grammar({"s": letters}, "s")),
        lambda: compiler.from_grammar(Grammar({"s": Sequence((bounded, Literal(b",")))}, "s")),
    )
    for attempt in attempts:
        try:
            constraint = attempt()
        except ConstraintError:  # a vocabulary that cannot spell it
            continue
        _use(constraint)
    ignoring_case(((0x61, 0x61),), ascii_only=False)


def _use(constraint: Constraint) -> None:
    """Takes the first allowed token again and again, and at first does whatever can be done at each place."""
    cursor = constraint.cursor()
    for turn in range(MANY_TOKENS):
        row = cursor.row()
        if turn < FEW_TOKENS:
            cursor.draft()
            cursor.bitmask_within(np.empty_like(row), cursor.min_tokens_to_accept())
        word = int(np.flatnonzero(row)[0])
        bits = int(row[word])
        if not cursor.advance(32 * word + (bits & -bits).bit_length() - 1) or cursor.is_finished:
            break
