"""A run that no reader follows any more ends: its requests are aborted, its threads go."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

import phloem as ph
from phloem.errors import ProgramError
from phloem.runtime.program import ProgramState

from .bodies import run
from .fakes import FakeBackend

pytestmark = pytest.mark.timeout(120)


def stalled() -> FakeBackend:
    """Takes requests and says two characters of each."""
    backend = FakeBackend(reply="a long answer")
    backend.pace = threading.Semaphore(0)
    return backend


def plain(s: ProgramState) -> None:
    s += "Q" + ph.gen("x") + ph.gen("y")


def forking(s: ProgramState) -> None:
    s += "Q"
    forks = s.fork(3)
    forks += ph.gen("x")
    forks.join()


def inside(s: ProgramState) -> None:
    s += "Q" + ph.gen("x")
    s.fork(2, inside="x").join()


def choosing(s: ProgramState) -> None:
    s += "Q" + ph.select("x", ["a", "b"])


def nested(s: ProgramState, server: FakeBackend) -> None:
    ph.function(plain).run(backend=server)


def nested_batch(s: ProgramState, server: FakeBackend) -> None:
    ph.function(plain).run_batch([()] * 3, backend=server)


def nested_twice(s: ProgramState, server: FakeBackend) -> None:
    ph.function(nested).run(server, backend=server)


def nested_stream(s: ProgramState, server: FakeBackend) -> None:
    ph.function(plain).run(backend=server, stream=True).sync()


def close_iterator(state: ProgramState) -> None:
    pieces = state.text_iter()
    assert next(pieces)
    pieces.close()  # type: ignore[attr-defined]


def leave_loop(state: ProgramState) -> None:
    for _ in state.text_iter():
        break


def close_async_iterator(state: ProgramState) -> None:
    async def read() -> None:
        async for _ in state.text_async_iter():
            break
        gc.collect()

    asyncio.run(read())


def cancel_reading_task(state: ProgramState) -> None:
    async def read() -> None:
        async def follow() -> None:
            async for _ in state.text_async_iter():
                pass

        task = asyncio.create_task(follow())
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(read())


def drop(state: ProgramState) -> None:
    pass


WAYS = [ProgramState.cancel, close_iterator, leave_loop, close_async_iterator, cancel_reading_task, drop]


@pytest.mark.parametrize("way", WAYS[1:])
@pytest.mark.parametrize(("body", "num_requests"), [(plain, 1), (forking, 3), (inside, 3), (choosing, 2)])
def test_a_dropped_stream_ends_its_requests(
    body: Callable[[ProgramState], None], num_requests: int, way: Callable[[ProgramState], None]
) -> None:
    backend = stalled()
    if body is choosing:
        backend.gate.clear()
    ends(lambda: run(body, backend, stream=True), backend, num_requests, way)


@pytest.mark.parametrize(
    ("body", "num_requests"), [(nested, 1), (nested_batch, 3), (nested_twice, 1), (nested_stream, 1)]
)
@pytest.mark.parametrize("way", [ProgramState.cancel, drop])
def test_runs_within_a_run_end_with_it(
    body: Callable[..., None], num_requests: int, way: Callable[[ProgramState], None]
) -> None:
    backend = stalled()
    ends(lambda: ph.function(body).run(backend, backend=backend, stream=True), backend, num_requests, way)


def ends(
    start: Callable[[], ProgramState], backend: FakeBackend, num_requests: int, way: Callable[[ProgramState], None]
) -> None:
    threads = set(threading.enumerate())
    state = start()
    assert wait_for(lambda: len(backend.streams) + len(backend.scores) >= num_requests)
    way(state)
    del state
    assert wait_for(lambda: set(threading.enumerate()) <= threads), "its threads have ended"
    requests: list[Any] = [*backend.streams, *backend.scores]
    assert len(requests) == num_requests, "and nothing new was asked"
    assert all(request.aborted.is_set() for request in requests)


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    for _ in range(int(seconds * 100)):
        if condition():
            return True
        threading.Event().wait(0.01)
    return condition()


def test_a_reader_of_a_cancelled_run_gets_an_error() -> None:
    """Even while the function is busy with something else."""
    backend, busy = stalled(), threading.Event()

    def body(s: ProgramState) -> None:
        s += "Q" + ph.gen("x")
        busy.wait(60)

    state = run(body, backend, stream=True)
    assert wait_for(lambda: len(backend.streams) == 1)
    threading.Timer(0.05, state.cancel).start()
    with pytest.raises(ProgramError, match="the run was cancelled"):
        list(state.text_iter())
    with pytest.raises(ProgramError, match="cancelled"):
        _ = state["x"]
    assert isinstance(state.error(), ProgramError)
    busy.set()


@pytest.mark.parametrize(
    "use",
    [
        lambda s: s.__iadd__("more"),
        lambda s: s.__iadd__(ph.gen("y")),
        lambda s: s.__iadd__(ph.select("y", ["a", "b"])),
        lambda s: s.fork(2).__iadd__(ph.gen("y")).join(),
    ],
)
def test_nothing_is_begun_in_a_run_that_was_cancelled(use: Callable[[ProgramState], Any]) -> None:
    backend = FakeBackend()

    def body(s: ProgramState) -> None:
        s += "Q" + ph.gen("x")
        assert s["x"] == "ok"
        s.cancel()
        use(s)

    with pytest.raises(ProgramError, match="cancelled"):
        run(body, backend)
    assert len(backend.streams) == 1 and not backend.scores


def test_a_run_that_is_through_cannot_be_cancelled_any_more() -> None:
    for stream in (False, True):
        state = run(plain, stream=stream)
        state.sync()
        state.cancel()
        assert state["y"] == "ok" and state.error() is None and "".join(state.text_iter()) == state.text()


def test_a_stream_goes_on_while_anything_refers_to_it() -> None:
    """Its iterators, other readers, and forks."""
    backend = stalled()
    assert backend.pace is not None
    pieces = run(plain, backend, stream=True).text_iter()
    gc.collect()
    backend.pace.release(1000)
    assert "".join(pieces).endswith("a long answera long answer")

    backend = stalled()
    assert backend.pace is not None
    state = run(plain, backend, stream=True)
    first, second = state.text_iter(), state.text_iter("x")
    assert next(first)
    backend.pace.release()
    assert next(second)
    first.close()  # type: ignore[attr-defined]
    backend.pace.release(1000)
    assert "".join(second) == "long answer" and state["y"] == "a long answer"

    backend = stalled()
    assert backend.pace is not None
    state = run(plain, backend, stream=True)
    [fork] = state.fork(1, inside="x")
    del state
    gc.collect()
    backend.pace.release(1000)
    assert fork["x"] == "a long answer/0"


def test_the_program_itself_may_stop_reading() -> None:
    backend = FakeBackend(reply="a long answer")

    def body(s: ProgramState) -> None:
        s += "Q" + ph.gen("x")
        for _ in s.text_iter("x"):
            break
        s += ph.gen("y")

    for stream in (False, True):
        assert run(body, backend, stream=stream)["y"] == "a long answer"


def test_an_iterator_that_has_had_all_may_be_left() -> None:
    backend = stalled()
    assert backend.pace is not None
    state = run(plain, backend, stream=True)
    backend.pace.release(6)
    pieces = state.text_iter("x")
    assert wait_for(lambda: len(backend.streams) == 1)
    text = ""
    for piece in pieces:
        text += piece
        if len(text) == 12:
            backend.pace.release(1000)
    assert text == "a long answer" and state["y"] == "a long answer"


def test_nothing_waits_for_a_tokenizer_but_the_program_itself() -> None:
    """It may be a server's, which is silent."""
    backend, asked, answers = FakeBackend(), threading.Event(), threading.Event()
    encode = backend.tokenizer.encode_message

    def slow(text: str) -> list[int]:
        asked.set()
        assert answers.wait(60)
        return encode(text)

    backend.tokenizer.encode_message = slow  # type: ignore[method-assign]
    state = run(lambda s: s.__iadd__(ph.user("a") + ph.gen("x")), backend, stream=True)
    assert asked.wait(60) and "x" in state
    state.cancel()
    assert "cancelled" in str(state.error())
    answers.set()
