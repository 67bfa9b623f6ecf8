"""Threads and one automaton: calls at once find what one thread finds; a long one lets the others run."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from phloem.fsm import Compiler, Constraint
from phloem.fsm.foresight import forced_bytes

from ..vocabularies import BYTES, allowed_ids, mixed_vocabulary

VOCABULARY = mixed_vocabulary(600, seed=2)
ITEM = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 30}, "size": {"type": "integer"}, "tags": {"type": "array"}},
    "required": ["name"],
}


def constraint() -> Constraint:
    return Compiler(VOCABULARY).json_schema({"type": "array", "items": ITEM, "minItems": 2}, key_order="any")


def walked(of: Constraint, seed: int) -> list[object]:
    """What is said along a random text."""
    rng, cursor, said = Random(seed), of.cursor(), []
    for left in range(60, 0, -1):
        row = cursor.row_within(left + of.min_tokens())
        said += [row.tobytes(), cursor.row().tobytes(), forced_bytes(cursor), cursor.min_tokens_to_accept()]
        if cursor.is_finished or not allowed_ids(row):
            break
        assert cursor.advance(rng.choice(allowed_ids(row)))
    return said


@pytest.mark.usefixtures("hasty_interpreter")
def test_threads_with_one_automaton_find_what_one_thread_finds() -> None:
    shared = constraint()
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(lambda seed: walked(shared, seed % 8), range(24)))
    alone = constraint()
    assert found == [walked(alone, seed % 8) for seed in range(24)]


@pytest.fixture
def patient() -> Iterator[None]:
    """A thread goes on until it releases the interpreter's lock by itself."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("patient")
def test_a_long_call_lets_other_threads_run() -> None:
    for _ in range(20):  # whichever thread runs first: it is enough that this one can run at all
        automaton = Compiler(BYTES).json_schema({}).automaton
        begun, is_done, met = threading.Event(), threading.Event(), []

        def long_call(
            automaton: object = automaton, begun: threading.Event = begun, is_done: threading.Event = is_done
        ) -> None:
            begun.set()
            automaton.advance_bytes(automaton.start, b"[" * 100_000)  # type: ignore[attr-defined]
            is_done.set()

        thread = threading.Thread(target=long_call)
        thread.start()
        begun.wait()
        met.append(is_done.is_set())
        thread.join()
        if not met[0]:
            return
    raise AssertionError("no other thread ran before the call was over")
