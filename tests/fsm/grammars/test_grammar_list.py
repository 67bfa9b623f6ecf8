"""Lists of grammars that name one another, judged by the same grammar written as one."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from phloem.errors import ConstraintError, InvalidGrammar, InvalidSchema
from phloem.fsm import Compiler

from ..vocabularies import BYTES, accepts, words

COMPILER = Compiler(BYTES)


def listed(*grammars: dict[str, Any]) -> str:
    return json.dumps({"grammars": grammars})


def test_a_named_grammar_is_what_its_rules_are_in_one() -> None:
    """Random texts of rules, spread over grammars, without a circle; terminals are single characters, so that lexing is
    the same everywhere."""
    rng, samples = random.Random(9), words("abc", 5)
    for _ in range(20):
        bodies: dict[int, str] = {}
        for number in reversed(range(4)):
            atoms = [f'"{rng.choice("abc")}"' for _ in range(2)] + [f"@{other}" for other in bodies]
            parts = [rng.choice(atoms) + rng.choice(["", "", "?", "*"]) for _ in range(rng.randint(1, 3))]
            bodies[number] = " ".join(parts) + (f" | {rng.choice(atoms)}" if rng.random() < 0.5 else "")
        texts = {number: body.replace("@", "@g") for number, body in bodies.items()}
        spread = listed(*({"name": f"g{number}", "lark_grammar": f"start: {texts[number]}"} for number in range(4)))
        rules = [f"r{number}: {body.replace('@', 'r')}" for number, body in bodies.items()]
        one = COMPILER.grammar("\n".join(["start: r0", *rules]), syntax="lark")
        several = COMPILER.grammar(spread)
        assert [accepts(several, text) for text in samples] == [accepts(one, text) for text in samples], spread


def test_each_grammar_ignores_what_it_says_itself() -> None:
    inner = {"name": "sum", "lark_grammar": 'start: N ("+" N)*\nN: /[0-9]/\n%ignore " "'}
    schema = {"name": "who", "json_schema": {"enum": ["ann"]}}
    constraint = COMPILER.grammar(listed({"lark_grammar": 'start: "f(" @sum ")" @who'}, inner, schema))
    assert accepts(constraint, 'f(1 + 2)"ann"') and accepts(constraint, 'f(3)"ann"')
    for text in ('f( 1)"bob"', 'f (1)"ann"', 'f(1) "ann"', "f(1)"):
        assert not accepts(constraint, text)


def test_grammars_without_names_are_not_each_others() -> None:
    unnamed = {"lark_grammar": 'start: "b"'}
    constraint = COMPILER.grammar(listed({"lark_grammar": 'start: "a"'}, unnamed, {**unnamed, "name": ""}))
    assert accepts(constraint, "a") and not accepts(constraint, "b")


def test_a_header_means_nothing() -> None:
    for header in ("%llguidance {}", '%llguidance {"no_forcing": true}'):
        constraint = COMPILER.grammar(f'{header}\nstart: "a"')
        assert accepts(constraint, "a") and not accepts(constraint, header)


@pytest.mark.parametrize(
    ("text", "kind", "pointer"),
    [
        ("{ nope", InvalidGrammar, ""),
        ("{" * 5000, InvalidGrammar, ""),
        ("{}", InvalidGrammar, ""),
        (listed(), InvalidGrammar, ""),
        (listed({}), InvalidGrammar, "grammars[0]"),
        (listed({"lark_grammar": "start: A", "json_schema": {}}), InvalidGrammar, "grammars[0]"),
        (listed({"lark_grammar": 3}), InvalidGrammar, "grammars[0].lark_grammar"),
        (listed({"lark_grammar": "", "name": 3}), InvalidGrammar, "grammars[0].name"),
        (
            listed({"lark_grammar": "", "name": "a"}, {"json_schema": {}, "name": "a"}),
            InvalidGrammar,
            "grammars[1].name",
        ),
        (listed({"lark_grammar": "", "max_tokens": 3}), InvalidGrammar, "grammars[0].max_tokens"),
        ('{"grammars": [{"json_schema": {}}], "max_tokens": 3}', InvalidGrammar, "max_tokens"),
        (listed({"lark_grammar": "start: @a"}), InvalidGrammar, "grammars[0].lark_grammar, line 1, column 8"),
        (
            listed({"lark_grammar": "start: @a"}, {"name": "a", "lark_grammar": 'start: "x"\n y: z'}),
            InvalidGrammar,
            "grammars[1].lark_grammar, line 2, column 5",
        ),
        (
            listed({"lark_grammar": "start: @a"}, {"name": "a", "json_schema": {"type": "?"}}),
            InvalidSchema,
            "grammars[1].json_schema, /type",
        ),
        (
            listed({"lark_grammar": "start: @a"}, {"name": "a", "lark_grammar": "start: @a?"}),
            InvalidGrammar,
            "grammars[1]",
        ),
        ("start: @a", InvalidGrammar, "line 1, column 8"),
        ('start: A\nA: "x" @a', InvalidGrammar, "line 2, column 8"),
        ("%llguidance 3\nstart: A", InvalidGrammar, "line 1, column 1"),
        ('%llguidance {"x": 1}\nstart: A', InvalidGrammar, "line 1, column 1"),
        ("%llguidance {} start: A", InvalidGrammar, "line 1, column 16"),
    ],
)
def test_a_fault_is_told_with_its_place(text: str, kind: type[ConstraintError], pointer: str) -> None:
    with pytest.raises(ConstraintError) as caught:
        COMPILER.grammar(text, syntax="lark")
    assert type(caught.value) is kind and caught.value.pointer == pointer, str(caught.value)
