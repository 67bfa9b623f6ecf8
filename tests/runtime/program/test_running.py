"""Programs run in parallel with their readers: what waits for what, batches, and streams."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import phloem as ph
from phloem.errors import ProgramError
from phloem.runtime.program import ProgramState

from .bodies import echo, run
from .fakes import FakeBackend


def test_gen_does_not_block_and_reading_waits_for_its_own_variable_only() -> None:
    backend = FakeBackend()
    backend.gate.clear()
    seen: list[str] = []

    def program(s: ProgramState) -> None:
        s["before"] = 1
        s += ph.gen("x") + ph.gen("y")
        seen.append("appended")
        assert s["before"] == 1 and "x" in s and "y" in s
        backend.gate.set()
        seen.append(s["x"])

    run(program, backend)
    assert seen == ["appended", "ok"]


def test_positional_named_and_bound_arguments() -> None:
    @ph.function
    def add(s: ProgramState, a: int, b: int = 2, *, c: int = 3) -> int:
        s += f"{a}{b}{c}" + ph.gen("x")
        return a + b + c

    backend = FakeBackend(reply=echo)
    assert add.run(1, backend=backend)["x"] == "6"
    assert add.run(a=2, c=0, backend=backend)["x"] == "4"
    assert add.bind(b=5)(1, backend=backend).ret_value == 9


def test_the_default_backend_is_used() -> None:
    backend = FakeBackend()
    ph.set_default_backend(backend)
    try:
        assert ph.function(lambda s: s.__iadd__(ph.gen("x"))).run()["x"] == "ok"
    finally:
        ph.set_default_backend(None)
    assert len(backend.asked) == 1


def test_batches_keep_their_order() -> None:
    @ph.function
    def add(s: ProgramState, a: int, b: int = 0) -> None:
        s += f"{a}{b}" + ph.gen("x")

    items: list[Any] = [{"a": 1, "b": 2}, (3,), {"a": 4}, (5, 5)]
    backend = FakeBackend(reply=echo)
    assert [state["x"] for state in add.run_batch(items, backend=backend)] == ["3", "3", "4", "10"]
    states = add.run_batch(items, backend=backend, generator_style=True, num_threads=2)
    assert [state["x"] for state in states] == ["3", "3", "4", "10"]
    assert add.run_batch([], backend=backend) == []


def test_a_generator_starts_only_what_the_threads_allow_and_cancels_the_rest() -> None:
    backend = FakeBackend()

    @ph.function
    def ask(s: ProgramState, a: int) -> None:
        s += f"{a}" + ph.gen("x")

    states = ask.run_batch([(i,) for i in range(50)], backend=backend, generator_style=True, num_threads=3)
    assert next(states)["x"] == "ok"
    backend.gate.clear()
    states.close()  # type: ignore[attr-defined]
    assert len(backend.asked) <= 6


def test_programs_of_a_batch_run_side_by_side() -> None:
    barrier = threading.Barrier(8)

    @ph.function
    def meet(s: ProgramState, a: int) -> None:
        barrier.wait(timeout=120)

    meet.run_batch([(i,) for i in range(8)], backend=FakeBackend())


class Items:
    """Arguments without end, or until an error; counts those that were taken."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.num_taken = 0
        self._fails_at = fails_at

    def __iter__(self) -> Iterator[tuple[int]]:
        while self.num_taken != self._fails_at:
            self.num_taken += 1
            yield (self.num_taken - 1,)
        raise OSError("no more lines")


@ph.function
def add_up(s: ProgramState, a: int) -> None:
    s += f"{a}" + ph.gen("x")


@pytest.mark.parametrize("num_threads", [1, 3, 96])
def test_a_batch_is_read_as_it_is_needed(num_threads: int) -> None:
    items = Items()
    states = add_up.run_batch(items, backend=FakeBackend(echo), generator_style=True, num_threads=num_threads)
    assert items.num_taken == 0
    for index in range(150):
        state = next(states)
        assert state["x"] == str(sum(map(int, str(index))))
        assert items.num_taken <= index + num_threads
    states.close()  # type: ignore[attr-defined]
    assert items.num_taken <= 150 + num_threads


def test_a_batch_without_a_length_may_be_a_list_in_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    backend = FakeBackend(echo)
    states = add_up.run_batch(((i,) for i in range(200)), backend=backend, num_threads=7, progress_bar=True)
    assert [state["x"] for state in states] == [str(sum(map(int, str(i)))) for i in range(200)]
    out, err = capsys.readouterr()
    assert not out and "add_up" in err
    with pytest.raises(ProgramError, match="refused") as caught:
        ph.function(lambda s, a: s.__iadd__(a + ph.gen("x"))).run_batch(
            (("REFUSE" if i == 30 else "fine",) for i in range(50)), backend=backend
        )
    assert caught.value.__notes__ == ["in item 30 of a batch"]


@pytest.mark.parametrize("return_errors", [False, True])
def test_what_the_batch_itself_raises_comes_after_all_items_before_it(return_errors: bool) -> None:
    states = add_up.run_batch(
        Items(fails_at=11), backend=FakeBackend(echo), generator_style=True, num_threads=4, return_errors=return_errors
    )
    seen = []
    with pytest.raises(OSError, match="no more lines"):
        for state in states:
            seen.append(state["x"])
    assert seen == [*map(str, range(10)), "1"]


def test_an_item_that_is_none_comes_in_its_place() -> None:
    items: list[Any] = [(1,), {"b": 2}, 3, (4,)]
    states = list(add_up.run_batch(items, backend=FakeBackend(echo), return_errors=True))
    assert [state.error() is None for state in states] == [True, False, False, True]
    assert (states[0]["x"], states[3]["x"]) == ("1", "4")
    assert str(states[1].error()) == "program add_up: run_batch: item 1: missing a required argument: 'a'"
    assert "item 2: expected a dict of arguments or a tuple, got int" in str(states[2].error())
    seen = []
    with pytest.raises(ProgramError, match=r"item 1: .*missing a required argument") as caught:
        for state in add_up.run_batch(iter(items), backend=FakeBackend(echo), generator_style=True):
            seen.append(state["x"])
    assert seen == ["1"] and caught.value.__notes__ == ["in item 1 of a batch"]


# -- streaming -----------------------------------------------------------------------------------------------------


def story(s: ProgramState) -> None:
    s += ph.user("Tell") + ph.assistant(ph.gen("a") + " and " + ph.gen("b"))


@pytest.mark.parametrize("name", [None, "a", "b"])
@pytest.mark.parametrize("stream", [True, False])
def test_increments_concatenate_to_the_text(name: str | None, stream: bool) -> None:
    state = run(story, FakeBackend(reply="once upon a time"), stream=stream)
    pieces = list(state.text_iter(name))
    assert "".join(pieces) == (state.text() if name is None else "once upon a time")


@pytest.mark.parametrize("name", [None, "b"])
def test_async_increments_concatenate_to_the_text(name: str | None) -> None:
    backend = FakeBackend(reply="once upon a time")
    backend.gate.clear()

    async def read() -> str:
        state = run(story, backend, stream=True)
        pieces = []
        asyncio.get_running_loop().call_later(0.05, backend.gate.set)
        async for piece in state.text_async_iter(name):
            pieces.append(piece)
        return "".join(pieces)

    text = asyncio.run(read())
    assert text.endswith("once upon a time<|end|>" if name is None else "once upon a time")


@pytest.mark.parametrize("name", [None, "a"])
def test_increments_come_as_the_text_does(name: str | None) -> None:
    backend = FakeBackend(reply="slow answer")
    backend.pace = threading.Semaphore(0)
    state = run(story, backend, stream=True)
    pieces = state.text_iter(name)
    if name is None:
        assert next(pieces) == "<s><|user|>Tell<|end|><|assistant|>"
    backend.pace.release()
    assert next(pieces) == "sl"
    backend.pace.release()
    assert next(pieces) == "ow"
    backend.pace.release(100)
    assert "".join(pieces).startswith(" answer")


def test_a_variable_that_is_set_by_hand_streams_whole() -> None:
    def body(s: ProgramState) -> None:
        s["v"] = "by hand"

    assert list(run(body, stream=True).text_iter("v")) == ["by hand"]


def test_streaming_a_variable_that_never_comes_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="ended without setting 'zzz'"):
        list(run(story, stream=True).text_iter("zzz"))


def test_a_failure_reaches_the_reader_of_a_stream() -> None:
    def body(s: ProgramState) -> None:
        s += "REFUSE" + ph.gen("x")

    with pytest.raises(ProgramError, match="refused on purpose"):
        list(run(body, stream=True).text_iter())

    def raising(s: ProgramState) -> None:
        raise ValueError("my own")

    state = run(raising, stream=True)
    with pytest.raises(ProgramError, match="ValueError: my own"):
        list(state.text_iter())
    assert isinstance(state.error(), ProgramError)
