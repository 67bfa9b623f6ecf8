"""Moves: a step that is remembered, or known from the state alone, is the step that the automaton takes."""

from __future__ import annotations

import random

import pytest

from phloem.fsm import Compiler, Constraint

from .vocabularies import BYTES, mixed_vocabulary, small_vocabulary

PIECES = [
    "é",
    "中",
    "\u2028",
    "\u2029",
    "😀",
    "aé",
    "é ",
    " the",
    "th",
    "e",
    '"a',
    'a"',
    "\\n",
    "a\\",
    "\x7f",
    "\n",
    "9",
    "٣",
]
CUT = [b"\xc3", b"a\xc3", b"\xa9", b"\xe2\x80", b"\xf0\x9f"]
VOCABULARIES = [small_vocabulary([*(text.encode() for text in PIECES), *CUT]), mixed_vocabulary(1500, seed=8), BYTES]
PATTERNS = [".*", "[^a]*", r"\w*", r"\d+x", r"(.|\n)*", '"[^"]*"', ".*x|[a-z]*", r"\p{L}*", ".{0,5}", "(ab)*"]
SCHEMAS = [
    {"type": "string"}, {"type": "string", "maxLength": 40}, {"type": "string", "pattern": "^[^é]*$"}, {},
    {"anyOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "e$"}]},
    {"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "array", "items": {"type": "string"}},
]  # fmt: skip


def constraints() -> list[tuple[Constraint, bytes]]:
    """Constraints and something to write under them."""
    found = []
    for vocabulary in VOCABULARIES:
        compiler = Compiler(vocabulary)
        for pattern in PATTERNS:
            found.append((compiler.regex(pattern), b'"the ninth' if '"' in pattern else b"ath9"))
        for schema in SCHEMAS:
            text = {"object": b'{"b":"the', "array": b'["the'}.get(schema.get("type", ""), b'"ath')
            found.append((compiler.json_schema(schema, key_order="any"), text))
    return found


@pytest.mark.parametrize(("constraint", "text"), constraints(), ids=repr)
def test_every_token_leads_where_the_automaton_leads(constraint: Constraint, text: bytes) -> None:
    rng, tokens = random.Random(1), constraint.vocabulary.tokens
    cursor = constraint.cursor()
    for byte in text:
        if not cursor.advance(byte):  # the first tokens are the bytes
            break
        for token_id in rng.sample(range(len(tokens)), min(300, len(tokens))):
            state, fork = cursor.state, cursor.fork()
            expected = constraint.automaton.advance(state, token_id)
            is_taken = fork.advance(token_id)
            if token_id in constraint.vocabulary.eos_ids:
                assert is_taken == cursor.is_accepting
            else:
                assert is_taken == (expected > 0) and fork.state == (expected or state), tokens[token_id]


def test_the_inside_of_a_text_is_known_from_its_state() -> None:
    free = []
    for constraint, text in constraints()[: len(PATTERNS)]:
        cursor = constraint.cursor()
        for byte in text:
            cursor.advance(byte)  # the first tokens are the bytes
        free += [constraint.source] if constraint.caches.moves.steps(cursor.state).is_free else []
    assert free == [".*", r"(.|\n)*", '"[^"]*"']
