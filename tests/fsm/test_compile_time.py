"""Budgets of one compilation: what runs out, where, and how to raise it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from phloem.errors import ConstraintTooLarge
from phloem.fsm import Compiler, Limits, compiler
from phloem.fsm.compile_time import NO_LIMIT, CompileTime
from phloem.fsm.grammars import text_to_grammar
from phloem.fsm.json_schema import schema_to_grammar
from phloem.fsm.json_schema.algebra import OBJECT, Conjunction, Disjunction, ObjectFacet
from phloem.fsm.json_schema.factoring import Factoring
from phloem.fsm.json_schema.negation import negated
from phloem.fsm.json_schema.sheet import Sheet
from phloem.fsm.network.network import build_network
from phloem.fsm.regex.regex import regex_to_dfa, regex_to_expression
from phloem.fsm.tags.structural_tags import structural_tag_to_grammar

from .vocabularies import BYTES

SCHEMA: dict[str, Any] = {
    "properties": {f"k{n}": {"anyOf": [{"type": "integer"}, {"items": {"minimum": n}}]} for n in range(9)}
}


def after(num_questions: int) -> CompileTime:
    """Time that is over once it has been asked for so often."""
    wall = itertools.count(step=num_questions + 1)  # on which enough passes that the other clock has to be read
    return CompileTime(num_questions, clock=itertools.count().__next__, wall=wall.__next__)


def left_off(compiled: Callable[[CompileTime], Any], numbers: Iterable[int] | None = None) -> list[ConstraintTooLarge]:
    """The errors with which it ends where more and more questions are granted, until they are enough."""
    errors = []
    for num_questions in numbers or itertools.count(1):
        try:
            compiled(after(num_questions))
            break
        except ConstraintTooLarge as error:
            assert "raise max_compile_seconds" in str(error)
            errors.append(error)
    return errors


def growing() -> Iterator[int]:
    """Numbers of questions: one by one at first, then by a quarter."""
    number = 1
    while True:
        yield number
        number += 1 + number // 4


def test_a_schema_is_left_off_at_the_part_that_comes_next() -> None:
    errors = left_off(lambda time: build_network(schema_to_grammar(SCHEMA, compile_time=time)))
    assert {"/properties/k0", "/properties/k8"} <= {error.pointer[:14] for error in errors}


def test_rules_of_a_grammar_are_left_off_at_their_name() -> None:
    with pytest.raises(ConstraintTooLarge, match=r"rule \S+: compiling took 1 s"):
        build_network(text_to_grammar(EBNF), after(1))


def test_rules_of_a_schema_are_left_off_at_its_pointers() -> None:
    inner = {"properties": {f"a{n}": {"items": {"minimum": n}} for n in range(3)}}
    schema = {"properties": {"x": inner, "y": {"prefixItems": [inner, {"maximum": 3}]}}}
    errors = left_off(lambda time: build_network(schema_to_grammar(schema), time))
    assert all(str(error).startswith(f"{error.pointer or '/'}: compiling took") for error in errors)
    pointers = {error.pointer for error in errors}
    assert {"/properties/x", "/properties/y", "/properties/x/properties/a2"} <= pointers


PATTERN = r"(?i)(?:[b-d\p{Lu}](?=q[ab])(?<!7.)|x{2}|y\b)*"


@pytest.mark.parametrize("reads", [regex_to_dfa, regex_to_expression])
def test_a_pattern_is_left_off_wherever_it_is(reads: Callable[..., Any]) -> None:
    """While it is read, made into a graph and followed thread by thread; with the pattern as its place."""
    pattern = PATTERN + reads.__name__
    errors = left_off(lambda time: reads(pattern, compile_time=time), growing())
    assert all(str(error).startswith("pattern '(?i)(?:[b-d") for error in errors) and len(errors) > 8


def test_what_was_compiled_before_is_found_again_without_any_time() -> None:
    pattern = PATTERN + "again"
    assert regex_to_dfa(pattern, compile_time=NO_LIMIT) is regex_to_dfa(pattern, compile_time=after(0))


@pytest.mark.parametrize("keyword", ["pattern", "patternProperties", "propertyNames"])
def test_a_pattern_in_a_schema_is_left_off_at_its_pointer(keyword: str) -> None:
    pattern = PATTERN + keyword
    schema: dict[str, Any] = {keyword: {"pattern": pattern} if keyword == "propertyNames" else pattern}
    if keyword == "patternProperties":
        schema = {keyword: {pattern: {"minimum": 3}}, "type": "object"}
    errors = left_off(lambda time: schema_to_grammar({"properties": {"a": schema}}, compile_time=time), growing())
    assert all(str(error).startswith("/") for error in errors)
    pointers = {error.pointer.replace(pattern, "*") for error in errors}
    place = {"pattern": "pattern", "patternProperties": "patternProperties/*", "propertyNames": "propertyNames/pattern"}
    assert f"/properties/a/{place[keyword]}" in pointers


EBNF = (
    "root ::= "
    + " ".join(f"r{n}" for n in range(5))
    + "\n"
    + "\n".join(f'r{n} ::= r{n} "x" | [a-z]+' for n in range(5))
)
LARK = """
start: (NAME | "a" NAME | other)*
other: NUMBER "." | other NAME
NAME: /[a-z]+/
%import common.NUMBER
%ignore " "
"""
TAGS: dict[str, Any] = {
    "format": {
        "type": "sequence",
        "elements": [
            {"type": "json_schema", "json_schema": SCHEMA},
            {"type": "grammar", "grammar": EBNF},
            {"type": "const_string", "value": "end"},
        ],
    }
}


@pytest.mark.parametrize("text", [EBNF, LARK])
def test_a_grammar_is_left_off_wherever_it_is(text: str) -> None:
    """However many questions are granted, one too few ends in the error that names a rule or terminal."""
    errors = left_off(lambda time: text_to_grammar(text, compile_time=time))
    places = {str(error).partition(":")[0] for error in errors}
    assert len(places) >= 5 and all(place.startswith("grammar, ") for place in places), places


def test_a_list_of_grammars_is_left_off_before_each() -> None:
    schema = {"name": "a", "json_schema": {"type": "integer"}}
    text = json.dumps({"grammars": [{"lark_grammar": "start: @a"}, schema]})
    said = " ".join(map(str, left_off(lambda time: text_to_grammar(text, compile_time=time), itertools.count())))
    assert "grammars[0].lark_grammar: compiling" in said and "grammars[1].json_schema: compiling" in said


def test_names_that_a_key_needs_are_left_off_where_they_are() -> None:
    schema = {"dependentRequired": {"a": [f"k{n}" for n in range(300)]}}
    errors = left_off(lambda time: schema_to_grammar(schema, compile_time=time), range(1, 10))
    assert len(errors) == 9 and "/dependentRequired" in {error.pointer for error in errors}


MISSING = tuple(
    Conjunction(f"/{n}", OBJECT, objects=(ObjectFacet("", {}, clauses=(frozenset(((f"k{n}", False),)),)),))
    for n in range(100)
)


def test_options_made_into_conditions_are_left_off_where_they_are() -> None:
    sheet = Sheet()
    sheet.disjunctions = [((0,), Disjunction(MISSING))]
    with pytest.raises(ConstraintTooLarge, match="raise max_compile_seconds") as caught:
        Factoring(lambda _: MISSING[0], False, after(50)).split(sheet)
    assert caught.value.pointer in {part.pointer for part in MISSING[10:]}


def test_pairs_of_options_are_left_off() -> None:
    only_one = Conjunction("/oneOf", disjunctions=(Disjunction(MISSING, exclusive=True),))
    assert len(negated(only_one, NO_LIMIT)) == 1 + 99 * 100 // 2
    with pytest.raises(ConstraintTooLarge, match="/oneOf: compiling took"):
        negated(only_one, after(60))


def test_a_description_of_tags_is_left_off_wherever_it_is() -> None:
    places = {error.pointer for error in left_off(lambda time: structural_tag_to_grammar(TAGS, compile_time=time))}
    assert "/format/elements/2" in places
    assert any(place.startswith("/format/elements/0/json_schema/properties/k8") for place in places)
    assert any("grammar, rule r4" in place or "/format/elements/1/grammar" in place for place in places)


@pytest.mark.parametrize(("kind", "source"), [("json_schema", SCHEMA), ("grammar", EBNF), ("structural_tag", TAGS)])
def test_the_limit_of_a_compiler_is_that_of_every_front_end(kind: str, source: Any) -> None:
    compile_it = getattr(Compiler(BYTES, limits=Limits(max_compile_seconds=1e-9)), kind)
    with pytest.raises(ConstraintTooLarge, match="raise max_compile_seconds"):
        compile_it(source)


def test_the_time_of_a_compiler_may_be_without_end() -> None:
    assert Compiler(BYTES, limits=Limits(max_compile_seconds=None)).json_schema(SCHEMA)


@pytest.mark.parametrize("kind", ["json_schema", "structural_tag", "choice"])
def test_to_read_a_description_counts(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def clock() -> float:
        return now[0]

    def slow(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            now[0] += 2.0
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(compiler, "json", SimpleNamespace(loads=slow(json.loads)))
    monkeypatch.setattr(compiler, "packed", slow(compiler.packed))
    monkeypatch.setattr(compiler, "CompileTime", lambda bound: CompileTime(bound, clock, wall=clock))
    source: Any = {"json_schema": json.dumps(SCHEMA), "structural_tag": json.dumps(TAGS), "choice": ["a", "b"]}[kind]
    assert getattr(Compiler(BYTES, limits=Limits(max_compile_seconds=5.0)), kind)(source)
    with pytest.raises(ConstraintTooLarge, match="raise max_compile_seconds"):
        getattr(Compiler(BYTES, limits=Limits(max_compile_seconds=1.0)), kind)(source)


def test_the_memory_of_a_compiler_can_be_set() -> None:
    with pytest.raises(ConstraintTooLarge, match="raise max_constraint_bytes"):
        Compiler(BYTES, limits=Limits(max_automaton_bytes=1 << 10)).json_schema(SCHEMA)


def test_the_clock_is_only_asked_when_it_could_have_run_out() -> None:
    wall, spent = [0.0], [0.0]
    asked: list[float] = []

    def clock() -> float:
        asked.append(wall[0])
        return spent[0]

    time = CompileTime(10, clock, wall=lambda: wall[0])
    for now, own in ((9, 1), (10, 4), (11, 5), (15, 9), (17, 9.5), (18, 10.5)):
        wall[0], spent[0] = now, own
        if own > 10:
            with pytest.raises(ConstraintTooLarge):
                time.check("/items")
        else:
            time.check("/items")
    assert asked == [0, 11, 17, 18]  # at 11 half was left, so until 16 it could not be used up; at 17 a half second
