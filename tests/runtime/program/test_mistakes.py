"""A mistake raises where it was made, and says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import phloem as ph
from phloem.errors import ProgramError, RequestError
from phloem.runtime.program import ProgramState

from .bodies import run
from .fakes import FakeBackend


def refused(s: ProgramState) -> None:
    s += "REFUSE"
    s += ph.gen("x")  # the line to be named
    s += ph.gen("y")


def test_a_failing_gen_raises_with_its_place_and_cause() -> None:
    with pytest.raises(ProgramError, match="refused on purpose") as caught:
        run(refused)
    line = refused.__code__.co_firstlineno + 2
    assert f"test_mistakes.py:{line}, gen('x')" in str(caught.value)
    assert isinstance(caught.value.__cause__, RequestError)


@pytest.mark.parametrize("read", [lambda s: s["x"], lambda s: s["y"], lambda s: s.text(), lambda s: s.sync()])
def test_every_use_of_a_failed_state_raises(read: Callable[[ProgramState], Any]) -> None:
    def body(s: ProgramState) -> None:
        refused(s)
        with pytest.raises(ProgramError, match="refused"):
            read(s)
        assert isinstance(s.error(), ProgramError)
        with pytest.raises(ProgramError, match="refused"):
            s += "more"

    with pytest.raises(ProgramError, match="refused"):
        run(body)


def test_an_exception_of_the_function_itself_passes_and_cancels_what_runs() -> None:
    backend = FakeBackend()
    backend.gate.clear()

    def body(s: ProgramState) -> None:
        s += ph.gen("x")
        while not backend.streams:
            pass
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(body, backend)
    assert backend.streams[0].aborted.wait(120)


def test_the_first_failing_item_of_a_batch_raises_with_its_index() -> None:
    @ph.function
    def ask(s: ProgramState, a: str) -> None:
        s += a + ph.gen("x")

    with pytest.raises(ProgramError, match="refused") as caught:
        ask.run_batch([("fine",), ("REFUSE",), ("fine",)], backend=FakeBackend())
    assert caught.value.__notes__ == ["in item 1 of a batch of 3"]
    states = ask.run_batch([("fine",), ("REFUSE",), ("fine",)], backend=FakeBackend(), return_errors=True)
    assert [state.error() is None for state in states] == [True, False, True]
    assert states[2]["x"] == "ok"


def test_an_unknown_variable_is_a_key_error_that_lists_the_known_ones() -> None:
    def body(s: ProgramState) -> None:
        s += ph.gen("x")
        with pytest.raises(KeyError, match="no variable 'z' here; it has: x"):
            s.sync()
            s["z"]

    run(body)


def nested(s: ProgramState) -> None:
    s += ph.user("a" + ph.assistant("b"))


def wrong_end(s: ProgramState) -> None:
    s += ph.user_begin() + "a" + ph.assistant_end()


def end_of_nothing(s: ProgramState) -> None:
    s += ph.user_end()


def append_none(s: ProgramState) -> None:
    s += None  # type: ignore[arg-type]


def append_number(s: ProgramState) -> None:
    s += 3  # type: ignore[arg-type]


def block_with_argument(s: ProgramState) -> None:
    with s.user("a"):
        s += "b"


def bad_temperature(s: ProgramState) -> None:
    s += ph.gen("x", temperature=-1)


def bad_fork(s: ProgramState) -> None:
    s.fork(0)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (nested, "assistant begins inside user"),
        (wrong_end, "assistant ends, but user is open"),
        (end_of_nothing, "user ends, but no message is open"),
        (append_none, "None cannot be appended"),
        (append_number, "int cannot be appended"),
        (block_with_argument, "the block is the message"),
        (bad_temperature, "test_mistakes.py.*temperature: -1 is out of range"),
        (bad_fork, "size: expected a positive integer"),
    ],
)
def test_mistakes_raise_where_they_are_made(body: Callable[[ProgramState], None], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        run(body)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ph.gen("x", regex="a", dtype=int), "dtype and regex exclude each other"),
        (lambda: ph.gen("x", choices=["a"], regex="a"), "choices and regex exclude each other"),
        (lambda: ph.gen("x", dtype=list), "is not one of int, float, bool, str"),
        (lambda: ph.gen("x", constraint="[0-9]"), "expected phloem.regex"),  # type: ignore[arg-type]
        (lambda: ph.gen("x", json_schema="{"), "the text is not JSON"),
        (lambda: ph.gen(3), "name: expected text"),  # type: ignore[arg-type]
        (lambda: ph.gen("x", choices_method=ph.greedy_token_selection), "needs choices"),
        (lambda: ph.select("x"), "give at least one"),
        (lambda: ph.select("x", "ab"), "expected a list"),
        (lambda: ph.select("x", ["a", ""]), "empty text"),
        (lambda: ph.select("x", ["a"], temperature=0.7), "compared, not sampled"),
        (lambda: ph.function(lambda state: None), "must be named s"),
        (lambda: ph.function(lambda: None), "must be named s"),
        (lambda: ph.function(lambda s, a: None).run(backend=FakeBackend()), "missing a required argument: 'a'"),
        (lambda: ph.function(lambda s: None).run(zzz=1, backend=FakeBackend()), "unexpected keyword argument 'zzz'"),
        (lambda: ph.function(lambda s, n: None).run(n=1, backend=FakeBackend()), "give the function's by position"),
        (lambda: ph.function(lambda s: None).run(), "no backend"),
        (lambda: ph.function(lambda s: None).run(backend=3), "expected a phloem.Engine"),
        (lambda: ph.function(lambda s, a: None).run_batch([{"a": 1}, {}], backend=FakeBackend()), "item 1: .*'a'"),
        (lambda: ph.function(lambda s: None).run_batch([3], backend=FakeBackend()), "item 0: expected a dict"),  # type: ignore[list-item]
        (lambda: ph.function(lambda s: None).run_batch([{}], num_threads=0, backend=FakeBackend()), "num_threads"),
    ],
)
def test_wrong_arguments_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises((ProgramError, RequestError), match=message):
        make()


def test_an_empty_state_generates_from_bos() -> None:
    backend = FakeBackend()
    state = run(lambda s: s.__iadd__(ph.gen("x")), backend)
    assert backend.asked[0].prompt == [256]
    assert state.token_ids()[0] == 256 and state.text() == "ok"


def test_what_was_cancelled_names_what_cancelled_it() -> None:
    """A failed item of a batch is read after its exception is gone."""
    backend = FakeBackend()
    backend.gate.clear()

    def fails(s: ProgramState) -> None:
        s += ph.gen("x")
        raise ValueError("of its own")

    [state] = ph.function(fails).run_batch([()], backend=backend, return_errors=True)
    with pytest.raises(ProgramError, match=r"ValueError: of its own"):
        _ = state["x"]


def test_a_choices_method_of_another_kind_is_told_which_there_are() -> None:
    with pytest.raises(ProgramError, match=r"phloem\.greedy_token_selection"):
        ph.select("x", ["a", "b"], choices_method="greedy_token_selection")  # type: ignore[arg-type]
