"""An engine and its step thread: callers that share it, leave it, interrupt it, outlive it or are left by it."""

from __future__ import annotations

import gc
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from phloem.errors import EngineStopped, QueueFull, RequestError
from phloem.runtime.engine.engine import Engine
from phloem.runtime.request import SamplingParams

from ..fakes import greedy_truth, threaded_engine

GREEDY = SamplingParams(max_tokens=12, temperature=0.0)
ENDLESS = SamplingParams(max_tokens=3000, ignore_eos=True)
PATIENCE = 120.0
LEFT_RUNNING = """
import atexit
import phloem as ph

engine = ph.Engine()
atexit.register(lambda: print("alive" if engine.step_thread.is_alive else "stopped"))  # the last of all
stream = engine.submit("Hi", ph.SamplingParams(max_tokens=3000, ignore_eos=True))
next(iter(stream))
"""


@pytest.fixture
def engine() -> Iterator[Engine]:
    with threaded_engine(num_blocks=1024) as engine:
        yield engine


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def gated(engine: Engine) -> threading.Event:
    """Holds the step thread before its next step until the event is set; returns when it is held."""
    held, gate = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        gate.wait(PATIENCE)

    engine.step_thread.call(hold)
    assert held.wait(PATIENCE)
    return gate


def test_threads_that_share_an_engine_get_their_own_answers(engine: Engine) -> None:
    answers: dict[int, list[list[int]]] = {}
    streamed: dict[int, list[int]] = {}

    def generate(first: int) -> None:
        batch = [[first, 1], [first, 2, 3]]
        answers[first] = [list(completion.token_ids) for completion in engine.generate(batch, GREEDY)]

    def stream(first: int) -> None:
        streamed[first] = [token_id for delta in engine.stream([first], GREEDY) for token_id in delta.token_ids]

    threads = [
        threading.Thread(target=target, args=(i,), daemon=True) for i in range(8) for target in (generate, stream)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert answers == {i: [greedy_truth([i, 1], 12), greedy_truth([i, 2, 3], 12)] for i in range(8)}
    assert streamed == {i: greedy_truth([i], 12) for i in range(8)}
    engine.step_thread.call(engine.core.audit).result(PATIENCE)
    assert engine.statistics().num_held_blocks == 0 and not engine.core.has_work


def test_a_list_of_prompts_may_be_longer_than_the_queue() -> None:
    with threaded_engine(num_blocks=512, max_waiting_requests=3, max_running_requests=2) as engine:
        batch = [[number, 1] for number in range(20)]
        found = engine.generate(batch, GREEDY)
        assert [list(one.token_ids) for one in found] == [greedy_truth(prompt, 12) for prompt in batch]
        gate = gated(engine)
        streams: queue.Queue[Any] = queue.Queue()

        def submit() -> None:
            try:
                streams.put(engine.submit([1], GREEDY))
            except QueueFull as error:
                streams.put(error)

        threads = [threading.Thread(target=submit) for _ in range(5)]
        for thread in threads:
            thread.start()
        until(lambda: engine.step_thread._commands.qsize() == 5)
        gate.set()
        for thread in threads:
            thread.join(PATIENCE)
        kinds = [isinstance(streams.get(), QueueFull) for _ in range(5)]
        assert sum(kinds) == 2, "what is submitted does not wait for room"


def test_the_thread_begins_with_the_first_request(engine: Engine) -> None:
    def threads() -> int:
        return sum(thread.name == "phloem-step" for thread in threading.enumerate())

    before = threads()
    assert engine.statistics().num_blocks == 1024
    assert threads() == before and engine.step_thread.is_alive
    engine.generate([1], GREEDY)
    assert threads() == before + 1


@pytest.mark.parametrize("end", ["close", "abort"])
def test_what_is_ended_elsewhere_ends_here(engine: Engine, end: str) -> None:
    stream = engine.stream([1], ENDLESS, request_id="mine")
    next(stream)
    if end == "close":
        engine.close()
    else:
        engine.step_thread.abort("mine")
    with pytest.raises((EngineStopped, RequestError)):
        list(stream)


def test_a_stream_that_failed_fails_again(engine: Engine) -> None:
    stream = engine.submit([1], ENDLESS, request_id="mine")
    next(iter(stream))
    engine.step_thread.abort("mine")
    for _ in range(2):
        with pytest.raises(RequestError):
            stream.completions()


@pytest.mark.parametrize("what", ["generate", "stream", "score", "pin", "flush_cache", "submit"])
def test_after_close_every_call_is_refused(engine: Engine, what: str) -> None:
    calls: dict[str, Callable[[], object]] = {
        "generate": lambda: engine.generate([[1], [2]], GREEDY),
        "stream": lambda: list(engine.stream([1], GREEDY)),
        "score": lambda: engine.score([1], [[2]]),
        "pin": lambda: engine.pin([1, 2, 3, 4]),
        "flush_cache": engine.flush_cache,
        "submit": lambda: engine.submit([1], GREEDY),
    }
    if what != "submit":
        engine.generate([1], GREEDY)
    engine.close()
    engine.close()
    with pytest.raises(EngineStopped):
        calls[what]()
    assert not engine.step_thread.is_alive


def test_a_call_that_meets_the_end_is_answered() -> None:
    for _ in range(30):
        engine = threaded_engine()
        engine.generate([1], SamplingParams(max_tokens=1))
        answered: queue.Queue[object] = queue.Queue()

        def ask(engine: Engine = engine, answered: queue.Queue[object] = answered) -> None:
            try:
                while True:
                    engine.generate([[1], [2]], SamplingParams(max_tokens=1))
            except EngineStopped as error:
                answered.put(error)

        threads = [threading.Thread(target=ask, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        engine.close()
        for _ in threads:
            answered.get(timeout=PATIENCE)


def test_a_dead_step_thread_tells_all(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = engine.submit([1], ENDLESS)
    monkeypatch.setattr(engine.core._scheduler, "plan", sys.exit)
    for call in (stream.result, lambda: engine.generate([1], GREEDY), engine.flush_cache):
        with pytest.raises(EngineStopped, match="SystemExit"):
            call()
    assert not engine.step_thread.is_alive


def test_on_the_step_thread_a_call_does_not_wait_for_itself(engine: Engine) -> None:
    call = engine.step_thread.call
    for waits in (lambda: engine.generate([1], GREEDY), lambda: next(engine.stream([1], GREEDY))):
        with pytest.raises(RequestError, match="step thread"):
            call(waits).result(PATIENCE)
    assert call(engine.flush_cache).result(PATIENCE) == 0
    stream = call(lambda: engine.submit([7], GREEDY)).result(PATIENCE)
    assert list(stream.result().token_ids) == greedy_truth([7], 12)
    until(lambda: not engine.core.has_work)
    call(engine.close).result(PATIENCE)
    until(lambda: not engine.step_thread.is_alive)


@pytest.mark.parametrize("what", ["generate", "stream", "submit"])
def test_ctrl_c_ends_the_call_and_its_requests_alone(engine: Engine, what: str) -> None:
    other = engine.submit([9], SamplingParams(max_tokens=300, temperature=0.0, ignore_eos=True))
    gate = gated(engine) if what == "submit" else None
    begun = engine.statistics().num_steps

    def press() -> None:
        if gate is not None:
            until(lambda: engine.step_thread._commands.qsize() > 0)
        else:
            until(lambda: engine.statistics().num_steps > begun + 2 and engine.statistics().num_running > 1)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    presser = threading.Thread(target=press)
    gc.disable()  # in whose callbacks (Hypothesis has one) an exception would be lost
    try:
        presser.start()
        with pytest.raises(KeyboardInterrupt):
            if what == "generate":
                engine.generate([[1], [2]], ENDLESS)
            elif what == "stream":
                list(engine.stream([1], ENDLESS))
            else:
                engine.submit([1], ENDLESS)
    finally:
        gc.enable()
        presser.join(PATIENCE)
        signal.signal(signal.SIGINT, before)
        if gate is not None:
            gate.set()
    assert len(other.result().token_ids) == 300
    until(lambda: not engine.core.has_work)
    assert engine.statistics().num_held_blocks == 0
    assert list(engine.generate([5], GREEDY).token_ids) == greedy_truth([5], 12)


def test_leaving_a_stream_frees_its_blocks(engine: Engine) -> None:
    stream = engine.stream([1, 2, 3], ENDLESS)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert not engine.core.has_work
    assert engine.statistics().num_held_blocks == 0


@pytest.mark.parametrize("way", ["list", "submit", "stream"])
def test_an_id_that_is_in_use_costs_its_first_request_nothing(engine: Engine, way: str) -> None:
    params = SamplingParams(max_tokens=40, temperature=0.0)
    first = engine.submit([1], params, request_id="mine")
    with pytest.raises(RequestError, match="mine"):
        if way == "list":
            engine.generate([[2], [3]], params, request_id="mine")
        elif way == "submit":
            engine.submit([2], params, request_id="mine")
        else:
            list(engine.stream([2], params, request_id="mine"))
    assert list(first.result().token_ids) == greedy_truth([1], 40)


def test_a_stream_that_has_ended_ends_no_later_request_of_its_id(engine: Engine) -> None:
    old = engine.submit([1], GREEDY, request_id="mine")
    old.result()
    new = engine.submit([2], SamplingParams(max_tokens=40, temperature=0.0), request_id="mine")
    old.abort()
    assert list(new.result().token_ids) == greedy_truth([2], 40)


@pytest.mark.parametrize("at", ["a delta", "its end"])
def test_a_reader_that_fails_costs_no_other_request_anything(
    engine: Engine, at: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(event: object) -> None:
        raise ValueError("a reader")

    engine.step_thread.submit(engine.core.prepare([7], ENDLESS), fail).result()
    if at == "a delta":
        assert list(engine.generate([1], GREEDY).token_ids) == greedy_truth([1], 12)
        until(lambda: not engine.core.has_work)
    else:
        other = engine.submit([1], ENDLESS)
        engine.close()
        with pytest.raises(EngineStopped):
            other.result()
    assert "a reader of a request has failed" in caplog.text


def test_an_engine_that_is_forgotten_ends_its_thread() -> None:
    engine = threaded_engine()
    stream = engine.submit([1], GREEDY)
    seen, steps, core = weakref.ref(engine), engine.step_thread, engine.core
    del engine
    assert list(stream.result().token_ids) == greedy_truth([1], 12), "a stream keeps its engine"
    until(lambda: not core.has_work)
    del stream
    until(lambda: gc.collect() >= 0 and seen() is None)
    until(lambda: not steps.is_alive)


def test_a_forked_process_has_no_step_thread(engine: Engine) -> None:
    stream = engine.submit([1], GREEDY)
    stream.result()
    waiting = engine.submit([2], ENDLESS)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        told = []
        for call in (lambda: engine.generate([1], GREEDY), waiting.result, engine.flush_cache, engine.close):
            try:
                call()
                told.append("ok")
            except EngineStopped as error:
                told.append("fork" if "fork" in str(error) else "other")
        os.write(write, " ".join(told).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"fork fork fork ok"
    os.close(read)
    waiting.abort()
    assert list(engine.generate([1], GREEDY).token_ids) == greedy_truth([1], 12)


def test_who_exits_with_requests_under_way_leaves_no_thread_behind() -> None:
    """A daemon thread inside compiled code would end the process with SIGABRT, now and then."""
    found = subprocess.run(
        [sys.executable, "-c", LEFT_RUNNING], capture_output=True, text=True, check=False, timeout=240
    )
    assert (found.returncode, found.stdout) == (0, "stopped\n"), found.stderr
