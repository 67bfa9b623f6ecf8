"""A mistake raises where it was made, and says what to do."""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

import phloem as ph
from phloem.errors import InvalidRegex, ProgramError, RequestError
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


def test_an_unknown_variable_is_a_key_error_that_lists_the_known_ones_and_those_on_their_way() -> None:
    backend = FakeBackend()
    backend.gate.clear()

    def body(s: ProgramState) -> None:
        forks = s.fork(2)
        forks += ph.gen("y")
        with pytest.raises(KeyError, match=r"it has: none; a fork's variables are here after forks.join\(\)"):
            s["y"]
        with pytest.raises(KeyError, match=r"no variable 'z' here; it has: y\"$"):
            forks[0]["z"]
        backend.gate.set()

    run(body, backend)


def nested(s: ProgramState) -> None:
    s += ph.user("a" + ph.assistant("b"))


def wrong_end(s: ProgramState) -> None:
    s += ph.user_begin() + "a" + ph.assistant_end()


def end_of_nothing(s: ProgramState) -> None:
    s += ph.user_end()


def append_none(s: ProgramState) -> None:
    s += None  # type: ignore[arg-type]


def user_none(s: ProgramState) -> None:
    s += ph.user(None)  # type: ignore[arg-type]


def state_system_none(s: ProgramState) -> None:
    s.system(None)  # type: ignore[arg-type]


def add_to_state(s: ProgramState) -> None:
    s = s + ph.user("a")


def add_to_forks(s: ProgramState) -> None:
    s.fork(2) + "a"


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
        (user_none, "None cannot be appended"),
        (state_system_none, "None cannot be appended"),
        (add_to_state, r"write `s \+= …`"),
        (add_to_forks, r"write `forks \+= …`"),
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
        (lambda: ph.gen("x", constraint=int), r"int is a type; write phloem\.json_schema\(int\)"),  # type: ignore[arg-type]
        (lambda: ph.gen("x", json_schema="{"), "the text is not JSON"),
        (lambda: ph.gen("x", regex="("), "a '\\(' that is never closed at offset 0"),
        (lambda: ph.gen("x", regex=r"(a)\1"), "backreference"),
        (lambda: ph.gen("x", regex=r"[^\s\S]"), "no text matches the pattern"),
        (lambda: ph.gen("x", json_schema={"type": "nonsense"}), "/type: 'nonsense' is no type"),
        (lambda: ph.gen("x", json_schema=False), "no value at all is valid"),
        (lambda: ph.gen("x", json_schema={"type": "integer", "minimum": 5, "maximum": 3}), "no value at all is valid"),
        (lambda: ph.gen("x", json_schema={"type": "array", "items": {"enum": []}, "minItems": 1}), "/items"),
        (lambda: ph.gen("x", constraint=ph.grammar("root ::= missing")), "missing"),
        (lambda: ph.gen("x", constraint=ph.choice(["a", "\ud800"])), "surrogate"),
        (lambda: ph.gen("x", constraint=ph.structural_tag({"type": "structural_tag", "format": {"type": "no"}})), "no"),
        (lambda: ph.gen_string("x", top_p=0), "test_mistakes.py:[0-9]+, gen\\('x'\\): top_p: 0 is out of range"),
        (lambda: ph.gen(temperature=-1), "test_mistakes.py:[0-9]+, gen\\(\\): temperature: -1 is out of range"),
        (lambda: ph.gen("x", min_tokens=3, max_tokens=2), "min_tokens: 3 is out of range"),
        (lambda: ph.gen("x", stop=[""]), "stop: every stop string"),
        (lambda: ph.function(lambda s: None).run_batch(3, backend=FakeBackend()), "expected items of arguments"),  # type: ignore[arg-type]
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


def test_what_only_an_engine_can_tell_is_left_to_it() -> None:
    """Special tokens, whatever they are called; bounds of time and memory; what the run's own arguments say."""
    named = {"type": "token", "token": "<|of some model|>"}
    ph.gen("x", constraint=ph.structural_tag({"type": "structural_tag", "format": named}))
    ph.gen("x", regex="(a{1,200}b{1,200}){1,200}c{1,200}" * 3)
    ph.gen("x", min_tokens=200)
    run(lambda s: s.__iadd__(ph.gen("x", min_tokens=200)), max_tokens=300)


def raises(s: ProgramState, how: str) -> None:
    s += "text"
    if how == "here":
        raise ValueError("boom")
    if how == "in a library":
        json.loads("{")
    if how == "in a helper":
        helper()
    if how == "in a block":
        with s.user():
            int("x")
    if how == "in a callback":
        s.fork(2).__iadd__(lambda index: {}[index])
    if how == "of ours":
        s.fork(0)
    if how == "wrong argument":
        s += ph.gen("x", regex="(")
    if how == "unknown variable":
        s["nothing"]
    if how == "on the state":
        inner(s)
    if how == "exit":
        sys.exit(3)


def helper() -> None:
    raise KeyError("boom")


@ph.function
def inner(s: ProgramState) -> None:
    raise ValueError("boom")


def lines() -> dict[str, int]:
    """The line of `raises` that fails, for each way."""
    source, first = inspect.getsourcelines(raises)
    found = {}
    for number, line in enumerate(source):
        if line.strip().startswith("if how =="):
            how = line.split('"')[1]
            found[how] = first + number + (2 if how == "in a block" else 1)
    return found


@pytest.mark.parametrize("how", lines())
@pytest.mark.parametrize("wrapped", [False, True])
def test_an_exception_of_the_function_has_its_line_in_every_mode(how: str, wrapped: bool) -> None:
    def decorated(s: ProgramState, how: str) -> None:
        raises(s, how)

    program = ph.function(functools.wraps(raises)(decorated) if wrapped else raises)
    place = f"test_mistakes.py:{lines()[how]}"
    backend = FakeBackend()

    def notes(error: BaseException) -> str:
        return str(error) + "".join(getattr(error, "__notes__", ()))

    with pytest.raises(BaseException) as caught:
        program.run(how, backend=backend)
    own = type(caught.value)
    assert f"program raises, {__file__}:{lines()[how]}" in notes(caught.value)
    with pytest.raises(own) as caught:
        program.run_batch([(how,)], backend=backend)
    assert place in notes(caught.value) and "in item 0 of a batch of 1" in notes(caught.value)
    read: list[Callable[[ProgramState], Any]] = [ProgramState.sync, ProgramState.text, lambda s: list(s.text_iter())]
    for look in read:
        with pytest.raises(ProgramError, match=f"program raises, .*{place}") as caught:
            look(program.run(how, backend=backend, stream=True))
        assert caught.value.place == f"{__file__}:{lines()[how]}"
        assert type(caught.value.__cause__) is (InvalidRegex if how == "wrong argument" else own)
    if how != "exit":
        [state] = program.run_batch([(how,)], backend=backend, return_errors=True)
        assert place in str(state.error())


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


def test_an_unknown_choices_method_is_refused_with_those_there_are() -> None:
    with pytest.raises(ProgramError, match=r"phloem\.greedy_token_selection"):
        ph.select("x", ["a", "b"], choices_method="greedy_token_selection")  # type: ignore[arg-type]
