"""Nested counted repetition: the same texts as Python's `re` finds, with few configurations to a state."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.fsm.automaton.automaton import Automaton
from phloem.fsm.network.expression import Embed, Expression, Grammar, Literal, Repeat, Sequence
from phloem.fsm.network.network import build_network
from phloem.fsm.regex.regex import regex_to_dfa, regex_to_expression
from phloem.fsm.text.counted import counted

from ..vocabularies import BYTES

TEXTS = ["".join(letters) for length in range(9) for letters in itertools.product("ab", repeat=length)]
bounds = st.tuples(st.integers(0, 4), st.integers(0, 5)).map(lambda pair: (pair[0], pair[0] + pair[1]))
Both = tuple[str, Expression]


def times(item: Both, low: int, high: int) -> Both:
    return f"(?:{item[0]}){{{low},{high}}}", Repeat(item[1], low, high)


def run(low: int, high: int) -> Both:
    """Letters whose number is counted outside the automaton."""
    found = counted(regex_to_dfa("[ab]*", search=False), low, high)
    assert found is not None
    return f"[ab]{{{low},{high}}}", Embed(found)


def joined(items: list[Both]) -> Both:
    return "".join(item[0] for item in items), Sequence(tuple(item[1] for item in items))


letters: st.SearchStrategy[Both] = st.sampled_from([("a", Literal(b"a")), ("b", Literal(b"b"))])
items = st.recursive(
    letters | bounds.map(lambda pair: run(*pair)),
    lambda inner: st.lists(inner, min_size=1, max_size=2).flatmap(
        lambda parts: bounds.map(lambda pair: times(joined(parts), *pair))
    ),
    max_leaves=4,
)


def automaton(expression: Expression) -> Automaton:
    return Automaton(build_network(Grammar({"text": expression}, "text")), BYTES)


@settings(deadline=None, max_examples=60)
@given(items)
def test_nested_counts_accept_what_re_does(item: Both) -> None:
    pattern, expression = item
    found = automaton(expression)
    for text in TEXTS:
        state = found.advance_bytes(found.start, text.encode()) if text else found.start
        assert (state > 0 and found.is_accepting(state)) == bool(re.fullmatch(pattern, text)), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "most"),
    [
        ("(.{1,1000}b?){1,1000}", 8),
        ("(?:[ab]{0,500}c?){0,500}d", 8),
        (r"(\p{L}{1,100}\d?){1,100}", 8),
        ("(?:(?:(?:a{1,90}b?){1,80}c?){1,70}d?){1,60}", 40),
    ],
)
def test_a_state_has_few_configurations_however_the_text_may_be_divided(pattern: str, most: int) -> None:
    found = automaton(regex_to_expression(pattern))
    state = found.start
    for _ in range(60):
        state = found.advance_bytes(state, b"a")
        assert len(found.configurations(state)) <= most
