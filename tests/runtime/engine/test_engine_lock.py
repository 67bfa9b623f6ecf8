"""Ctrl-C in the middle of a step, wherever the main thread happens to be: the engine stays whole."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from phloem.runtime.cache.prefix_cache import PrefixCache
from phloem.runtime.engine.engine import Engine
from phloem.runtime.engine.engine_lock import EngineLock
from phloem.runtime.request import SamplingParams

from ..fakes import fake_engine

PARAMS = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True)


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    """Python's own handler; and no garbage collection, in whose callbacks (Hypothesis has one) an exception is lost."""
    gc.disable()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    gc.enable()
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler, "it is put back"


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("name", ["_allocate", "_hand_over", "lease", "commit", "release"])
@pytest.mark.parametrize("streams", [False, True])
def test_a_step_is_not_left_half_way(monkeypatch: pytest.MonkeyPatch, name: str, streams: bool) -> None:
    engine = fake_engine(num_blocks=32)
    prompts = [list(range(3, 40)), list(range(3, 60))]
    truth = [completion.token_ids for completion in engine.generate(prompts, PARAMS)]
    engine.flush_cache()
    plain = getattr(PrefixCache, name)

    def pressed(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(PrefixCache, name, plain)
        done = plain(*arguments, **options)
        press()
        return done

    monkeypatch.setattr(PrefixCache, name, pressed)
    with pytest.raises(KeyboardInterrupt):
        list(engine.stream(prompts[0], PARAMS)) if streams else engine.generate(prompts, PARAMS)
    assert not engine.has_work, "what was asked for is aborted"
    engine.audit()
    assert [completion.token_ids for completion in engine.generate(prompts, PARAMS)] == truth


def test_a_request_is_aborted_that_was_just_enqueued(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine(num_blocks=32)
    plain = Engine.enqueue

    def pressed(*arguments: Any) -> str:
        request_id = plain(*arguments)
        press()
        return request_id

    monkeypatch.setattr(Engine, "enqueue", pressed)
    with pytest.raises(KeyboardInterrupt):
        list(engine.stream([3, 4, 5], PARAMS))
    assert not engine.has_work


def test_pressed_twice_it_waits_no_longer() -> None:
    turn, reached = EngineLock(), []
    with pytest.raises(KeyboardInterrupt), turn, turn:
        press()
        reached.append(1)
        press()
        reached.append(2)
    assert reached == [1]


def test_pressed_twice_while_another_thread_has_its_turn() -> None:
    turn, has_begun, is_asked = EngineLock(), threading.Event(), threading.Event()
    heard: list[int] = []

    def hear(number: int, _: FrameType | None) -> None:
        heard.append(number)
        if len(heard) == 1:
            raise KeyboardInterrupt

    def other() -> None:
        with turn:
            has_begun.set()
            is_asked.wait(60)
            for _ in range(1000):
                if heard:
                    break
                press()
                time.sleep(0.01)

    signal.signal(signal.SIGINT, hear)
    thread = threading.Thread(target=other)
    thread.start()
    has_begun.wait(60)
    with pytest.raises(KeyboardInterrupt):
        is_asked.set()
        with turn:
            pass
    thread.join()
    assert signal.signal(signal.SIGINT, signal.default_int_handler) is hear


def test_a_handler_of_its_own_is_called_once_behind_the_turn() -> None:
    heard: list[int] = []
    inside: list[int] = []

    def hear(number: int, _: FrameType | None) -> None:
        heard.append(number)

    signal.signal(signal.SIGINT, hear)
    turn = EngineLock()
    with turn:
        press()
        inside += heard
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert inside == []
    assert heard == [signal.SIGINT]


def test_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with EngineLock():
        press()
    assert signal.signal(signal.SIGINT, signal.default_int_handler) is signal.SIG_IGN
