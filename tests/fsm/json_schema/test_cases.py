"""Schemas by keyword with valid and invalid instances, or with the error they must give (../cases/json_schema)."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from phloem import errors
from phloem.fsm.json_schema import schema_to_grammar
from phloem.fsm.json_schema.sites import CONTENT, KEYWORDS
from phloem.fsm.network.network import build_network

from .walks import accepts, compiled, constraint_of, judge_of, walk, written

FOLDER = Path(__file__).parent.parent / "cases" / "json_schema"
CASES = [
    pytest.param(case, id=f"{path.stem}: {case['name']}")
    for path in sorted(FOLDER.glob("*.json"))
    for case in json.loads(path.read_text(encoding="utf-8"))
]
REFUSED = [case for case in CASES if "error" in case.values[0]]
COMPILED = [case for case in CASES if "error" not in case.values[0]]


@pytest.mark.parametrize("case", COMPILED)
def test_valid_instances_are_let_through_and_invalid_ones_are_not(case: dict[str, Any]) -> None:
    automaton = constraint_of(case["schema"])
    for value in case.get("valid", []):
        assert accepts(automaton, written(value)), f"refused: {written(value)}"
    for value in case.get("invalid", []):
        assert not accepts(automaton, written(value)), f"accepted: {written(value)}"
    for text in case.get("texts", []):
        assert accepts(automaton, text), f"refused: {text}"
    for text in case.get("no_texts", []):
        assert not accepts(automaton, text), f"accepted: {text}"


def without(schema: Any, keyword: str) -> Any:
    """The schema as it is when the keyword is left out wherever it stands."""
    if not isinstance(schema, dict):
        return schema
    return {key: without(value, keyword) for key, value in schema.items() if key != keyword}


@pytest.mark.parametrize("keyword", sorted(KEYWORDS.difference(CONTENT)))  # `CONTENT`: test_optional_keywords
def test_in_some_case_the_keyword_alone_is_broken(keyword: str) -> None:
    for case in (parameters.values[0] for parameters in COMPILED):
        if f'"{keyword}"' in json.dumps(case["schema"]):
            automaton = compiled(without(case["schema"], keyword))
            if automaton and any(accepts(automaton, written(value)) for value in case.get("invalid", [])):
                return
    pytest.fail("no case would notice if it were not read")


@pytest.mark.parametrize("case", COMPILED)
def test_the_judge_agrees_with_the_cases(case: dict[str, Any]) -> None:
    judge = judge_of(case["schema"])
    for value in case.get("valid", []):
        assert judge.is_valid(value), value
    if "format" not in json.dumps(case["schema"]):  # the judge checks few formats, and these loosely
        for value in case.get("invalid", []):
            assert not judge.is_valid(value), value


@pytest.mark.parametrize("case", COMPILED)
def test_whatever_is_written_is_valid(case: dict[str, Any]) -> None:
    judge = judge_of(case["schema"])
    automaton = constraint_of(case["schema"])
    generator = random.Random(case["name"])
    for _ in range(10):
        text = walk(automaton, generator)
        assert judge.is_valid(json.loads(text)), text


@pytest.mark.parametrize("case", COMPILED)
def test_spaced_and_flexible_layouts_take_the_same_values(case: dict[str, Any]) -> None:
    spaced, flexible = constraint_of(case["schema"], "spaced"), constraint_of(case["schema"], "flexible")
    for value in case.get("valid", []):
        assert accepts(spaced, written(value, "spaced"))
        assert accepts(flexible, written(value)) and accepts(flexible, written(value, "spaced"))
        assert accepts(flexible, json.dumps(value, indent=2, ensure_ascii=False))
    for value in case.get("invalid", []):
        assert not accepts(spaced, written(value, "spaced"))
        assert not accepts(flexible, written(value, "spaced"))


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_enforced_is_refused_with_its_place(case: dict[str, Any]) -> None:
    with pytest.raises(getattr(errors, case["error"])) as refusal:
        build_network(schema_to_grammar(case["schema"]))
    assert refusal.type is getattr(errors, case["error"])
    if "pointer" in case:
        assert refusal.value.pointer == case["pointer"]
        assert case["pointer"] in str(refusal.value)
