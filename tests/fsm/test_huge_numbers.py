"""Numbers and texts far beyond any bound are compiled or refused, and nothing else comes of them."""

from __future__ import annotations

from typing import Any

import pytest

from phloem.errors import ConstraintError
from phloem.fsm import Compiler

from .vocabularies import BYTES

NUMBERS = (2**31 - 1, 2**31, 2**40 + 1, 10**14, 2**63 - 1, 2**63, 10**30)
BOUNDS = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems", "minContains", "maxContains"),
    "object": ("minProperties", "maxProperties"),
    "integer": ("minimum", "maximum", "multipleOf"),
}
PATTERNS = (  # N stands for the number
    "a{N}",
    ".{0,N}",
    "(?:a|bb){N,}",
    "(?:.{0,10000000}){0,N}",
    "(?:.{10000000}){N}",
    "(?:a{3000}){3000,N}",
)
LENGTHS = (1_000, 1_000_000, 3_000_000)


def is_compiled_or_refused(compile: Any, description: Any) -> bool:
    try:
        constraint = compile(description)
        constraint.cursor().row()
        constraint.min_tokens()
    except ConstraintError:
        pass
    return True


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number(number: int) -> None:
    compiler = Compiler(BYTES)
    for kind, keywords in BOUNDS.items():
        for keyword in keywords:
            schema = {"type": kind, keyword: number, "contains": {"const": 1}}
            assert is_compiled_or_refused(compiler.json_schema, schema)
    for bound in BOUNDS["string"]:
        assert is_compiled_or_refused(compiler.json_schema, {"type": "string", "pattern": "^(ab)*$", bound: number})
        assert is_compiled_or_refused(compiler.json_schema, {"type": "object", "propertyNames": {bound: number}})
    for pattern in PATTERNS:
        for count in (number, min(number, 8_388_608)):
            assert is_compiled_or_refused(compiler.regex, pattern.replace("N", str(count)))
    assert is_compiled_or_refused(compiler.grammar, f'root ::= ("a" | "bb"){{{number},}}')


@pytest.mark.parametrize("text", ["ab", "aé"])
@pytest.mark.parametrize("length", LENGTHS)
def test_a_text(text: str, length: int) -> None:
    compiler, long = Compiler(BYTES), text * (length // 2)
    for schema in (
        {"properties": {long: {}}},
        {"required": [long]},
        {"not": {"const": long}},
        {"pattern": long},
        {"patternProperties": {long: {}}},
    ):
        assert is_compiled_or_refused(compiler.json_schema, schema)
    assert is_compiled_or_refused(compiler.choice, [long, "b"])
    assert is_compiled_or_refused(compiler.grammar, f'root ::= "{long}"')
    assert is_compiled_or_refused(compiler.structural_tag, {"format": {"type": "any_text", "excludes": [long]}})
