"""The compiler: what it takes, what it keeps, what it refuses."""

from __future__ import annotations

import gc
import json
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from pydantic import BaseModel

from phloem import errors
from phloem.fsm import Compiler, Limits, Vocabulary
from phloem.fsm.foresight import forced_bytes, forced_tokens, forced_tokens_within, guess_within, remember

from .vocabularies import BYTES, accepts, allowed_ids, mixed_vocabulary


class Person(BaseModel):
    name: str
    age: int | None = None


def test_a_schema_may_be_a_dict_a_bool_text_or_a_pydantic_model() -> None:
    compiler = Compiler(BYTES)
    for schema in (Person, Person.model_json_schema(), json.dumps(Person.model_json_schema())):
        constraint = compiler.json_schema(schema)
        assert accepts(constraint, '{"name":"Ada","age":36}') and not accepts(constraint, '{"age":36}')
    assert accepts(compiler.json_schema(True), "[1]")
    with pytest.raises(errors.EmptyLanguage):
        compiler.json_schema(False)


@pytest.mark.parametrize("schema", ["{", 7, None, "[" * 100_000])
def test_what_is_no_schema_is_refused(schema: object) -> None:
    with pytest.raises(errors.InvalidSchema):
        Compiler(BYTES).json_schema(schema)


def test_choice_of_ten_thousand() -> None:
    options = [f"option {number}" for number in range(10_000)]
    constraint = Compiler(BYTES).choice(options)
    assert accepts(constraint, "option 9999") and accepts(constraint, "option 77")
    assert not accepts(constraint, "option 10000") and not accepts(constraint, "option ")
    assert forced_bytes(constraint.cursor()) == b"option "


def test_choices_with_common_beginnings_and_odd_characters() -> None:
    options = ["", "a", "ab", "é", '"', "a\n", "ab"]
    constraint = Compiler(BYTES).choice(options)
    assert all(accepts(constraint, option) for option in options) and not accepts(constraint, "b")
    with pytest.raises(errors.EmptyLanguage):
        Compiler(BYTES).choice([])
    with pytest.raises(errors.EmptyLanguage, match="surrogate") as caught:
        Compiler(BYTES).choice(["a", "b\ud800"])
    assert caught.value.pointer == "/1"


def test_json_styles() -> None:
    compiler = Compiler(BYTES)
    value = {"a": [1, {"b": None}], "c": "x"}
    compact, spaced = json.dumps(value, separators=(",", ":")), json.dumps(value)
    assert [accepts(compiler.json_object(whitespace="compact"), t) for t in (compact, spaced)] == [True, False]
    assert [accepts(compiler.json_object(whitespace="spaced"), t) for t in (compact, spaced)] == [False, True]
    for text in (compact, spaced, json.dumps(value, indent=2)):
        assert accepts(compiler.json_object(whitespace="flexible"), text)
    assert not accepts(compiler.json_object(whitespace="flexible"), '{"a":' + " " * 30 + "1}")
    assert not accepts(compiler.json_object(), "[]") and accepts(compiler.json_value(), "[]")


def test_equal_sources_are_compiled_once() -> None:
    compiler = Compiler(BYTES)
    assert compiler.regex("a+") is compiler.regex("a+")
    assert compiler.regex("a+") is not compiler.choice(["a+"])
    assert compiler.json_schema({"type": "null"}) is compiler.json_schema('{"type": "null"}')
    assert compiler.json_object() is not compiler.json_object(whitespace="spaced")


def test_the_cache_is_bounded_in_bytes() -> None:
    compiler = Compiler(BYTES, max_cached_bytes=2 << 20)
    first = compiler.regex("x0")
    for number in range(200):
        compiler.regex(f"x{number}").cursor().row()
    assert compiler.regex("x199") is compiler.regex("x199")
    assert compiler.regex("x0") is not first
    assert compiler.num_cached_bytes <= 3 << 20


def test_dropped_constraints_are_freed_unless_a_cursor_is_in_use() -> None:
    """Neither rows nor drafts nor text automata that are kept hold on to a constraint, nor do other cursors."""
    compiler = Compiler(mixed_vocabulary(300, seed=2), max_cached_bytes=2 << 20)
    running = compiler.regex("[a-z]{2,9}x").cursor()
    gone = []
    for number in range(60):
        compiled = compiler.json_schema({"type": "object", "properties": {f"key{number}": {"pattern": "^[a-z]+$"}}})
        cursor = compiled.cursor()
        cursor.row_within(5)
        forced_tokens(cursor)
        while cursor.advance(ord('{"key'[cursor.num_consumed % 5])):
            cursor.row()
        gone.append(weakref.ref(compiled))
    gone.append(weakref.ref(running.constraint))
    del compiled, cursor
    compiler.clear()
    gc.collect()
    assert [ref() is not None for ref in gone] == [False] * 60 + [True]
    assert running.advance(ord("a")) and running.row().any()
    del running
    gc.collect()
    assert gone[-1]() is None


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}, '{"a":1'),
        ({"type": "object"}, '{"a":1,"b'),
        ({"items": {"type": "string"}, "uniqueItems": True}, '["a","b'),
    ],
    ids=["no keys", "keys", "strings"],
)
def test_the_memory_of_states_is_free_with_the_last_cursor(schema: object, text: str) -> None:
    """No parts of a constraint refer to each other, which would wait for the garbage collector."""
    compiler = Compiler(BYTES)
    constraint = compiler.json_schema(schema)
    cursor = constraint.cursor()
    gc.collect()
    gc.disable()
    try:
        for used, byte in enumerate(text.encode()):
            assert cursor.row().any() and cursor.row_within(90 - used).any()
            guess_within(cursor, 90 - used, 4)
            forced_tokens_within(cursor, 90 - used)
            assert cursor.advance(byte)
            remember(cursor, 1)
        cursor.fork().rollback(2)
        automaton = weakref.ref(constraint.automaton)
        compiler.clear()
        del constraint, cursor
        assert automaton() is None
    finally:
        gc.enable()


def test_threads_share_a_compiler() -> None:
    vocabulary = mixed_vocabulary(500, seed=1)
    compiler, alone = Compiler(vocabulary), Compiler(vocabulary)
    patterns = [f"[a-z]{{{n % 7 + 1}}}|\\d+x{n % 5}" for n in range(60)]

    def rows(pattern: str) -> bytes:
        cursor = compiler.regex(pattern).cursor()
        found = [cursor.row().tobytes()]
        if cursor.advance(ord("a")):
            found.append(cursor.row().tobytes())
        return b"".join(found)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(rows, patterns))
    for pattern, row in zip(patterns, found, strict=True):
        assert row.startswith(alone.regex(pattern).cursor().row().tobytes())


def test_vocabularies_without_an_end_are_refused() -> None:
    for eos_ids in ([], [5], [-1]):
        with pytest.raises(errors.ConfigError, match="eos_ids"):
            Vocabulary([b"a", b"b"], eos_ids)


def test_several_ids_may_end_a_text() -> None:
    vocabulary = Vocabulary([b"a", b"</s>", b"b", b"<eot>"], [1, 3])
    cursor = Compiler(vocabulary).regex("a").cursor()
    assert cursor.advance(0)
    assert allowed_ids(cursor.row()) == [1, 3]
    assert cursor.advance(3) and cursor.is_finished


def test_warming_up_changes_nothing() -> None:
    warm, cold = Compiler(BYTES), Compiler(BYTES)
    warm.warm_up()
    assert np.array_equal(warm.json_value().cursor().row(), cold.json_value().cursor().row())


def test_a_text_that_nests_without_end_spoils_the_constraint_for_no_other_request() -> None:
    compiler = Compiler(BYTES, limits=Limits(max_automaton_bytes=1 << 20))
    brackets = 'root ::= "[" (root ("," root)*)? "]"'
    cursor = compiler.grammar(brackets).cursor()
    with pytest.raises(errors.ConstraintTooLarge, match="1024 KiB"):
        for _ in range(100_000):
            assert cursor.advance(ord("["))
    for _ in range(3):
        assert accepts(compiler.grammar(brackets), "[" * 500 + "]" * 500)
    assert compiler.grammar(brackets) is compiler.grammar(brackets)
