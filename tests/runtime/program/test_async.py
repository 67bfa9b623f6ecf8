"""Programs on event loops: awaited, cancelled, and left behind by a loop that is closed."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import itertools
import threading
from typing import Any

import pytest

import phloem as ph
from phloem.runtime.program import ProgramState

from .bodies import echo
from .fakes import FakeBackend
from .test_cancelling import stalled, wait_for


@ph.function
def add_up(s: ProgramState, a: int, *, n: int = 1) -> int:
    s += f"{a}" + ph.gen("x")
    return a * n


def test_a_program_can_be_awaited() -> None:
    async def all_of_them() -> list[ProgramState]:
        runs = (add_up.bind(n=2).run_async(i, backend=FakeBackend(echo), temperature=0.5) for i in range(12))
        return await asyncio.gather(*runs)

    states = asyncio.run(all_of_them())
    assert [state["x"] for state in states] == [*map(str, range(10)), "1", "2"]
    assert [state.ret_value for state in states] == [2 * i for i in range(12)]


@pytest.mark.parametrize("error", [ValueError("of its own"), StopIteration(3), ph.ProgramError("no")])
def test_what_the_function_raises_is_raised_where_it_is_awaited(error: Exception) -> None:
    @ph.function
    def fails(s: ProgramState) -> None:
        raise error

    expected = RuntimeError if isinstance(error, StopIteration) else type(error)  # as coroutines have it
    with pytest.raises(expected) as caught:
        asyncio.run(fails.run_async(backend=FakeBackend()))
    assert "in program fails" in "".join((caught.value.__cause__ or caught.value).__notes__)
    with pytest.raises(ph.ProgramError, match="unexpected keyword argument 'b'"):
        asyncio.run(add_up.run_async(1, b=2, backend=FakeBackend()))


def test_the_loop_goes_on_meanwhile() -> None:
    backend = FakeBackend()
    backend.gate.clear()

    async def main() -> str:
        task = asyncio.create_task(add_up.run_async(1, backend=backend))
        while not backend.streams:
            await asyncio.sleep(0)
        backend.gate.set()
        return str((await task)["x"])

    assert asyncio.run(main()) == "ok"


@pytest.mark.parametrize("how", ["cancel", "timeout", "end of the loop", "closed loop"])
@pytest.mark.parametrize("what", ["run_async", "text_async_iter"])
def test_a_run_ends_with_what_awaits_it(how: str, what: str) -> None:
    backend, threads = stalled(), set(threading.enumerate())
    assert backend.pace is not None

    async def waiting() -> None:
        if what == "run_async":
            await add_up.run_async(1, backend=backend)
        else:
            async for _ in add_up.run(1, backend=backend, stream=True).text_async_iter("x"):
                pass

    async def begun() -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(waiting(), context=contextvars.Context())
        while not backend.streams:
            await asyncio.sleep(0)
        return task

    async def main() -> None:
        task = await begun()
        if how == "cancel":
            task.cancel()
            await asyncio.wait([task])
        elif how == "timeout":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(task, 0.001)

    if how == "closed loop":
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda *_: None)  # which would tell of the task that is left pending
        task: Any = loop.run_until_complete(begun())
        loop.close()
        backend.pace.release()  # a step later
        del task, loop
        gc.collect()
    else:
        asyncio.run(main())
    assert backend.streams[0].aborted.wait(60)
    assert wait_for(lambda: set(threading.enumerate()) <= threads)


def test_text_comes_with_what_is_known_of_it() -> None:
    async def read() -> tuple[list[tuple[str, Any]], dict[str, Any]]:
        state = add_up.run(1, backend=FakeBackend("a long answer"), stream=True)
        return [pair async for pair in state.text_async_iter("x", return_meta_data=True)], state.get_meta_info("x")

    pairs, info = asyncio.run(read())
    assert "".join(text for text, _ in pairs) == "a long answer"
    assert pairs[-1][1] == info and info["finish_reason"] == {"type": "stop"}
    assert all(known["prompt_tokens"] == info["prompt_tokens"] for _, known in pairs)

    async def nameless() -> None:
        async for _ in add_up.run(1, backend=FakeBackend()).text_async_iter(return_meta_data=True):  # type: ignore[call-overload]
            pass

    with pytest.raises(ph.ProgramError, match="give its name"):
        asyncio.run(nameless())


def test_an_endless_batch_holds_no_more_threads_and_states_than_it_runs() -> None:
    gc.collect()
    states_before = num_states()
    before, most = threading.active_count(), 0
    states = add_up.run_batch(
        ((i,) for i in itertools.count()), backend=FakeBackend(echo), generator_style=True, num_threads=4
    )
    for state in itertools.islice(states, 300):
        assert state["x"]
        most = max(most, threading.active_count())
    states.close()  # type: ignore[attr-defined]
    del state
    gc.collect()
    assert most - before <= 2 * 4  # the function's and, while it generates, its worker's
    assert num_states() - states_before <= 4


def num_states() -> int:
    return sum(type(one) is ProgramState for one in gc.get_objects())
