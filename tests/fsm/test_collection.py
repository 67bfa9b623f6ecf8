"""The garbage collector is off while something is compiled, and as before when it is done."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from phloem.errors import ConstraintTooLarge, EmptyLanguage, PhloemError
from phloem.fsm import Compiler
from phloem.fsm.collection import put_off, while_put_off

from .vocabularies import BYTES

WIDE = {"properties": {f"k{index}": {"type": "object", "properties": {f"v{index}": {}}} for index in range(500)}}


@pytest.fixture
def collections() -> Iterator[list[int]]:
    """The threads on which collections by themselves began."""
    threads: list[int] = []

    def note(phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            threads.append(threading.get_ident())

    gc.callbacks.append(note)
    yield threads
    gc.callbacks.remove(note)


def test_nothing_is_searched_for_meanwhile_and_again_afterwards(collections: list[int]) -> None:
    with put_off():
        kept = [[index] for index in range(100_000)]
        assert not collections
    kept += [[index] for index in range(100_000)]
    assert collections and gc.isenabled()


def test_a_large_schema_is_compiled_with_one_search_at_the_end(collections: list[int]) -> None:
    Compiler(BYTES).json_schema(WIDE)
    assert len(collections) <= 2, "right after the compilation, and perhaps before it"


def test_it_is_on_again_after_an_error() -> None:
    with pytest.raises(EmptyLanguage):
        Compiler(BYTES).json_schema(False)
    assert gc.isenabled()


def test_who_has_turned_it_off_finds_it_off() -> None:
    gc.disable()
    try:
        Compiler(BYTES).json_schema(WIDE)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_many_threads_at_once_leave_it_on() -> None:
    def pause(_: int) -> None:
        for _ in range(200):
            with put_off():
                [[index] for index in range(20)]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(pause, range(8)))
    assert gc.isenabled()


class Made:
    """Something that can be referred to weakly, in no reference cycle."""


def fail(made: list[weakref.ref[Made]], kind: type[Exception]) -> None:
    """Raises an error from within a function that holds on to what was made by its closure and by its frame."""
    thing = Made()
    made.append(weakref.ref(thing))

    def within() -> None:
        own = thing
        raise ValueError(str(own))

    try:
        within()
    except ValueError as error:
        raise kind("no") from error


def test_a_refusal_lets_go_of_what_was_made_up_to_there() -> None:
    made: list[weakref.ref[Made]] = []
    with pytest.raises(ConstraintTooLarge), put_off():
        fail(made, ConstraintTooLarge)
    assert made[0]() is None


def test_it_has_let_go_before_the_first_search(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Made]] = []
    alive: list[bool] = []
    enable = gc.enable

    def note() -> None:
        alive.append(made[-1]() is not None)
        enable()

    def kept(made: list[weakref.ref[Made]]) -> None:
        thing = Made()
        made.append(weakref.ref(thing))

    monkeypatch.setattr(gc, "enable", note)
    with pytest.raises(ConstraintTooLarge):
        while_put_off(fail)(made, ConstraintTooLarge)
    while_put_off(kept)(made)
    assert alive == [False, False]


@pytest.mark.parametrize("last", [{"type": "nonsense"}, {"const": 2000}])
def test_a_schema_leaves_nothing_to_be_searched_through(last: object, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps({"oneOf": [*({"const": number} for number in range(2000)), last]})
    compiler, counts, enable = Compiler(BYTES), [], gc.enable
    with suppress(PhloemError):
        compiler.json_schema(text)  # what is made once in a process
    compiler.clear()
    gc.collect()

    def note() -> None:
        counts.append(len(gc.get_objects(0)))  # what the first search goes through
        enable()

    monkeypatch.setattr(gc, "enable", note)
    with suppress(PhloemError):
        compiler.json_schema(text)
    assert counts and max(counts) < 500


def test_a_fault_keeps_its_frames() -> None:
    made: list[weakref.ref[Made]] = []
    with pytest.raises(KeyError) as caught, put_off():
        fail(made, KeyError)
    assert [entry.name for entry in caught.traceback][-1] == "fail"
    assert made[0]() is not None
