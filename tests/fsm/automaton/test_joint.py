"""Texts that can be read in very many ways: few configurations to a state, and every text can be brought to its end."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.fsm import Compiler
from phloem.fsm.automaton.automaton import Automaton
from phloem.fsm.json_schema import schema_to_grammar
from phloem.fsm.network.network import build_network

from ..vocabularies import BYTES

COMPILER = Compiler(BYTES)

# an object of the inner kind may be any of three, whatever its keys are, until one of them has a value that tells
SELECTOR = {
    "definitions": {
        "value": {"oneOf": [{"type": "integer"}, {"$ref": "#/definitions/selector"}]},
        "selector": {
            "oneOf": [
                {"type": "object", "patternProperties": {f"^{letters}+$": {"$ref": "#/definitions/value"}}}
                | {"additionalProperties": False, "minProperties": 1, "required": required}
                for letters, required in (("[a-m]", ["a"]), ("[a-m]", ["b"]), ("[a-z]", ["c"]))
            ]
        },
    },
    "$ref": "#/definitions/value",
}

GRAMMARS = {
    "two rules for the same": 'root ::= x | y\nx ::= "(" root ")" | "v"\ny ::= "(" root ")" | "v" "w"?',
    "an end that may be left out": 'root ::= "(" root | "(" root ")" | "v"',
    "repetitions within each other": 'root ::= ("(" root{1,3} ")"){1,4} | "v"',
    "three ways to go on": 'root ::= "(" (root | root root | root root root) ")" | "v"',
}


@pytest.mark.parametrize("name", GRAMMARS)
def test_two_readings_at_every_depth_are_no_more_configurations(name: str) -> None:
    automaton = COMPILER.grammar(GRAMMARS[name]).automaton
    state = automaton.advance_bytes(automaton.start, b"(" * 1000)
    assert len(automaton.configurations(state)) == len(
        automaton.configurations(automaton.advance_bytes(automaton.start, b"(" * 10))
    )
    assert automaton.is_accepting(automaton.advance_bytes(state, b"v" + b")" * 1000))


def test_a_schema_that_applies_to_itself_in_several_ways_can_be_nested() -> None:
    automaton = Automaton(build_network(schema_to_grammar(SELECTOR)), BYTES)
    text = "1"
    for depth in range(60):
        text = json.dumps({"abc"[depth % 3]: json.loads(text)}, separators=(",", ":"))
    end = automaton.advance_bytes(automaton.start, text.encode())
    assert end and automaton.is_accepting(end)
    assert not automaton.advance_bytes(automaton.start, text.encode().replace(b'"a":1', b'"A":1'))


def test_a_chain_of_rules_called_twice_each_is_entered_once() -> None:
    rules = "\n".join(f'x{n} ::= x{n + 1} "a" | x{n + 1} "b"' for n in range(60))
    automaton = COMPILER.grammar(f'root ::= "(" x0\n{rules}\nx60 ::= "v"').automaton
    end = automaton.advance_bytes(automaton.start, b"(v" + b"ab" * 30)
    assert end and automaton.is_accepting(end)


@settings(max_examples=50, deadline=None)
@given(st.text("ab", max_size=24))
def test_palindromes_are_distinguished_from_other_texts(text: str) -> None:
    automaton = COMPILER.grammar('root ::= "a" root "a" | "b" root "b" | "a"? | "b"').automaton
    state = automaton.advance_bytes(automaton.start, text.encode())
    assert automaton.is_accepting(state) == (text == text[::-1])


def test_a_long_text_with_a_reading_for_every_place_in_it_is_written() -> None:
    constraint = COMPILER.grammar('root ::= "a" root "a" | "b" root "b" | "a"? | "b"')
    text = b"ab" * 1000
    state = constraint.automaton.advance_bytes(constraint.automaton.start, text)
    assert constraint.automaton.lasting_bytes < 16 << 20
    assert constraint.automaton.is_accepting(constraint.automaton.advance_bytes(state, text[::-1][: len(text)]))
