"""Warming up: using everything once, so that the first request need not wait for what is done once.

That is: the Unicode tables, the automata of the formats of JSON Schema, and the rows inside JSON strings and numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ..errors import ConstraintError
from .any_json import json_grammar
from .constraint import Constraint
from .foresight import forced_tokens
from .network.expression import Alternation, Embed, Expression, Grammar, Literal, Repeat, Sequence
from .regex.regex import regex_to_dfa, regex_to_expression
from .text.counted import counted
from .text.dfa import any_text, of_length
from .text.json_strings import JsonStrings
from .text.letter_case import ignoring_case

MANY_TOKENS = 200  # enough for an automaton to outgrow its first memory
FEW_TOKENS = 4
MANY_ROWS = 512
COMMON_STEPS = 0.1, 0.01, 0.001  # of which every number of six digits has to be tried once


def warm_up(build: Callable[[Grammar], Constraint]) -> None:
    """Builds constraints of every kind and takes some tokens in a few of them."""
    for grammar, num_tokens in _grammars():
        try:
            constraint = build(grammar)
        except ConstraintError:  # a vocabulary that cannot spell it
            continue
        _use(constraint, num_tokens)
        if num_tokens == MANY_TOKENS:
            _use_rarely(constraint)
    ignoring_case(((0x61, 0x61),), ascii_only=False)
    of_length(0, 1).is_disjoint_from(of_length(2, 3))
    of_length(0, 1).accepts("a")


def _grammars() -> Iterator[tuple[Grammar, int]]:
    """Grammars, and how many tokens to take."""
    from .grammars import text_to_grammar
    from .json_schema import schema_to_grammar
    from .json_schema.formats import FORMATS

    letters = Alternation((Literal(b"a"), Literal(b"b")))
    bounded = Embed(JsonStrings(regex_to_dfa("[^a]{1,40}").intersect(regex_to_dfa(".{0,30}"))))
    long = counted(JsonStrings(any_text()), 3, 1000)
    texts: tuple[Expression, ...] = (
        regex_to_expression("a|b|c|ab|bc|ca|abc|bca"),
        Embed(long or any_text()),
        regex_to_expression(r"\w+\d\s\p{Lu}"),
        letters,
        Alternation(tuple(Literal(bytes([letter])) for letter in b"abcd")),
        Repeat(letters, 0, 400),
        Sequence((bounded, Literal(b","))),
    )
    yield json_grammar("value", "compact"), MANY_TOKENS
    for text in texts:
        yield Grammar({"text": text}, "text"), MANY_TOKENS
    yield text_to_grammar('root ::= "a"', "ebnf"), 1
    yield text_to_grammar('start: "a"', "lark"), 1
    number = {"type": "number", "minimum": 0.5}
    yield schema_to_grammar({"type": "object", "properties": {"a": number, "é": {"enum": ["a", "b"]}}}), MANY_TOKENS
    yield schema_to_grammar({"type": "object", "properties": {"a": {"type": "null"}, "b": True}}), 1
    yield schema_to_grammar({"type": "object", "minProperties": 2}), FEW_TOKENS
    yield (
        schema_to_grammar({"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 2}),
        FEW_TOKENS,
    )
    yield schema_to_grammar({"type": "number", "multipleOf": 0.01}), 1  # as all amounts of money are
    for name in FORMATS:
        yield schema_to_grammar({"type": "string", "format": name}), 1
    for step in COMMON_STEPS:
        yield schema_to_grammar({"type": "number", "multipleOf": step}), 1


def _use(constraint: Constraint, num_tokens: int) -> None:
    """Takes the first allowed token again and again, and at first does whatever can be done at each place."""
    cursor = constraint.cursor()
    for turn in range(num_tokens):
        row = cursor.row()
        if turn < FEW_TOKENS:
            forced_tokens(cursor)
            cursor.row_within(cursor.min_tokens_to_accept())
        word = int(np.flatnonzero(row)[0])
        bits = int(row[word])
        if not cursor.advance(32 * word + (bits & -bits).bit_length() - 1) or cursor.is_finished:
            break


def _use_rarely(constraint: Constraint) -> None:
    """What only large constraints need, or vocabularies that cannot encode text."""
    automaton = constraint.automaton
    automaton.advance_bytes(automaton.start, b"a")
    automaton.advance_bytes(automaton.start, b"[" * MANY_ROWS)
    automaton.live_bytes(automaton.start)
    automaton.forced_run(automaton.start, 1)
    constraint.vocabulary.tokens_at(b"a", 0, np.zeros(256, np.uint8))
    constraint.caches.masks.fresh_row(automaton.start)
    if constraint.caches.repeats is not None:
        state, written = constraint.caches.repeats.read(None, automaton.start, b'{"a":0,"a', bytes)
        if written is not None:
            constraint.caches.repeats.row(written, state, constraint.caches.masks.row(state).bits, lambda: b"a")
            moves = constraint.caches.key_moves
            moves.take(moves.steps(state), constraint.vocabulary.ids.get(b"a", 0))
