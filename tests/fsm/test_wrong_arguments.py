"""Wrong arguments of the compiled core and of what `phloem.fsm` exports: an error, never a crash."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phloem._core import fsm as core
from phloem.errors import ConfigError, ConstraintError
from phloem.fsm import Compiler, Limits, Vocabulary, flatten
from phloem.fsm.foresight import count_allowed, forced_tokens_within, guess_within, remember

PROGRAM = Path(__file__).with_name("wrong_arguments.py")
VOCABULARY = Vocabulary([*(bytes([byte]) for byte in range(256)), b""], [256])
COMPILER = Compiler(VOCABULARY)


def test_no_wrong_argument_of_the_core_ends_the_process() -> None:
    """In a process of its own, which a read out of bounds may end."""
    ended = subprocess.run([sys.executable, str(PROGRAM), "1", "5000"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "Automaton" in ended.stdout


@pytest.mark.parametrize("state", [-1, 1 << 20, (1 << 63) - 1])
def test_a_wrong_state_is_an_index_error(state: int) -> None:
    bound = COMPILER.regex("a[bc]+").automaton
    row = np.zeros(VOCABULARY.num_words, np.int32)
    bounds = core.CompletionBounds(bound)
    calls: list[Callable[[], object]] = [
        lambda: bound.is_accepting(state),
        lambda: bound.configurations(state),
        lambda: bound.advance(state, 97),
        lambda: bound.walk(state, row),
        lambda: bound.begin_row(state, 3, row),
        lambda: bound.targets(state, row),
        lambda: bound.frame(state),
        lambda: core.advance_keys(bound, state, 97, False),
        lambda: core.note_mode(bound, state, 1),
        lambda: bounds.known(state),
        lambda: bounds.tokens(state),
    ]
    for call in calls:
        with pytest.raises(IndexError):
            call()
    for token in (-1, 257, 1 << 40):
        with pytest.raises(IndexError):
            bound.advance(bound.start, token)
        with pytest.raises(IndexError):
            core.advance_keys(bound, bound.start, token, True)


def test_rows_that_would_be_written_in_vain_are_refused() -> None:
    bound = COMPILER.regex("a[bc]+").automaton
    right = np.zeros(VOCABULARY.num_words, np.int32)
    read_only = right.copy()
    read_only.flags.writeable = False
    for row in (right.astype(np.int64), np.zeros(2 * len(right), np.int32)[::2], read_only):
        with pytest.raises(TypeError):
            bound.walk(bound.start, row)
    for row in (right[:-1], np.zeros(len(right) + 1, np.int32)):
        with pytest.raises(ValueError, match="bits"):
            bound.walk(bound.start, row)
    assert bound.walk(bound.start, right) and right.any()


ARGUMENTS: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: COMPILER.regex(b"a"), ConstraintError, "regex"),  # type: ignore[arg-type]
    (lambda: COMPILER.choice("ab"), ConstraintError, "choice"),
    (lambda: COMPILER.choice(3), ConstraintError, "choice"),  # type: ignore[arg-type]
    (lambda: COMPILER.choice(text for text in "ab"), ConstraintError, "choice"),  # type: ignore[arg-type]
    (lambda: COMPILER.json_schema(3), ConstraintError, "schema"),
    (lambda: COMPILER.json_schema({}, whitespace="wide"), ConstraintError, "whitespace"),  # type: ignore[arg-type]
    (lambda: COMPILER.json_schema({}, key_order=3), ConstraintError, "key_order"),  # type: ignore[arg-type]
    (lambda: COMPILER.json_schema({}, extra_keys="no"), ConstraintError, "extra_keys"),  # type: ignore[arg-type]
    (lambda: COMPILER.json_object(whitespace=None), ConstraintError, "whitespace"),  # type: ignore[arg-type]
    (lambda: COMPILER.json_value(whitespace="no"), ConstraintError, "whitespace"),  # type: ignore[arg-type]
    (lambda: COMPILER.grammar(b"root"), ConstraintError, "grammar"),  # type: ignore[arg-type]
    (lambda: COMPILER.grammar('root ::= "a"', "gbnf"), ConstraintError, "syntax"),  # type: ignore[arg-type]
    (lambda: COMPILER.structural_tag(3), ConstraintError, "structural tag"),
    (lambda: COMPILER.structural_tag({}, whitespace="no"), ConstraintError, "whitespace"),  # type: ignore[arg-type]
    (lambda: COMPILER.from_grammar("root"), TypeError, "grammar"),  # type: ignore[arg-type]
    (lambda: COMPILER.regex("a").accepts("a"), TypeError, "text"),  # type: ignore[arg-type]
    (lambda: Compiler([b"a"]), TypeError, "vocabulary"),  # type: ignore[arg-type]
    (lambda: Compiler(VOCABULARY, max_cached_bytes=-1), ConfigError, "max_cached_bytes"),
    (lambda: Compiler(VOCABULARY, max_cached_bytes=1e9), TypeError, "max_cached_bytes"),  # type: ignore[arg-type]
    (lambda: Compiler(VOCABULARY, limits=3), TypeError, "limits"),  # type: ignore[arg-type]
    (lambda: Limits(max_automaton_bytes=-1), ConfigError, "max_automaton_bytes"),
    (lambda: Limits(max_compile_seconds=float("nan")), ConfigError, "max_compile_seconds"),
    (lambda: Limits(max_compile_seconds="1"), TypeError, "max_compile_seconds"),  # type: ignore[arg-type]
    (lambda: Vocabulary(["a"], [0]), TypeError, "tokens"),  # type: ignore[list-item]
    (lambda: Vocabulary([3], [0]), TypeError, "tokens"),  # type: ignore[list-item]
    (lambda: Vocabulary("abc", [0]), TypeError, "tokens"),  # type: ignore[arg-type]
    (lambda: Vocabulary([b"a"], 0), TypeError, "eos_ids"),  # type: ignore[arg-type]
    (lambda: Vocabulary([b"a"], ["a"]), TypeError, "eos_ids"),  # type: ignore[list-item]
    (lambda: Vocabulary([b"a"], [1]), ConfigError, "eos_ids"),
    (lambda: Vocabulary([b"a"], [0], "a"), TypeError, "encode"),  # type: ignore[arg-type]
    (lambda: Vocabulary([b"a"], [0], pieces=3), TypeError, "pieces"),  # type: ignore[arg-type]
    (lambda: Vocabulary([b"a"], [0], special_ids={"a": "b"}), TypeError, "special_ids"),  # type: ignore[dict-item]
    (lambda: flatten("a"), TypeError, "constraint"),  # type: ignore[arg-type]
    (lambda: flatten(COMPILER.regex("a"), 0), ConfigError, "max_states"),
]


@pytest.mark.parametrize(("call", "error", "name"), ARGUMENTS)
def test_a_wrong_argument_is_refused_by_its_name(call: Callable[[], object], error: type[Exception], name: str) -> None:
    with pytest.raises(error, match=name):
        call()


@pytest.mark.parametrize("wrong", [None, "3", 2.5, True, [3]])
def test_numbers_of_tokens_that_are_none_are_refused_by_name(wrong: object) -> None:
    cursor = COMPILER.regex("a{3,9}").cursor()
    calls: dict[str, list[Callable[[Any], object]]] = {
        "limit": [cursor.is_within, lambda limit: guess_within(cursor, 9, limit)],
        "remaining": [
            cursor.row_within,
            lambda remaining: forced_tokens_within(cursor, remaining),
            lambda remaining: cursor.row_soon(remaining, 9),
            lambda remaining: guess_within(cursor, remaining, 9),
            lambda remaining: count_allowed(cursor, [97], remaining),
        ],
        "count": [lambda count: remember(cursor, count)],
        "work": [lambda work: cursor.row_soon(9, work)],
        "num_tokens": [cursor.rollback],
    }
    for name, several in calls.items():
        for call in several:
            with pytest.raises(TypeError, match=f"{name}: give .*, not {type(wrong).__name__}"):
                call(wrong)
