"""How long a running stream waits while a bomb is compiled and its text begins (`bombs.py --stream`).

One engine, as a server has it: a stream that never ends, and next to it requests with bombs, each prepared by a thread
of its own and stepped with the stream. Four figures for each; all but the first are CPU seconds, so that other
processes on the machine do not count:

    waited   the longest time between two deltas of the stream, by the clock on the wall: it means something on a
             machine with two processors that does nothing else. For the stream alone, see the first row
    gap      the most that this process computed between two deltas of the stream. What the preparing thread computes
             in parallel, without the interpreter's lock, is in it
    held     the most that the preparing thread computed between two looks of a thread that wants to look every 5 ms:
             so long it held the interpreter's lock
    prepare  what the preparing thread computed in all
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import phloem as ph
from phloem.errors import PhloemError
from phloem.runtime.engine import gc_tuning
from phloem.runtime.engine.async_engine import SWITCH_SECONDS, AsyncEngine

LOOK_EVERY = 0.005  # seconds
ALONE = 1.0  # seconds of the stream alone
MAX_TOKENS = 20  # of a bomb's request
SETTLE = 0.1  # seconds for the deltas that are on their way


@dataclass
class Timing:
    """CPU seconds, and what came of it; see the module's docstring."""

    waited: float = 0.0
    gap: float = 0.0
    held: float = 0.0
    prepare: float = 0.0
    outcome: str = ""


@dataclass
class Submitting:
    """Takes a bomb where it expects a compiler, and sends it as a request. `prepare`: CPU seconds of this thread."""

    engine: AsyncEngine
    prepare: float = 0.0
    texts: list[str] = field(default_factory=list)

    def json_schema(self, schema: Any, *, key_order: Any = "schema") -> None:
        """As `Compiler.json_schema`."""
        self._send(lambda: ph.json_schema(schema, key_order=key_order))

    def regex(self, pattern: str) -> None:
        """As `Compiler.regex`."""
        self._send(lambda: ph.regex(pattern))

    def choice(self, options: list[str]) -> None:
        """As `Compiler.choice`."""
        self._send(lambda: ph.choice(options))

    def grammar(self, text: str) -> None:
        """As `Compiler.grammar`."""
        self._send(lambda: ph.grammar(text))

    def structural_tag(self, description: Any) -> None:
        """As `Compiler.structural_tag`."""
        self._send(lambda: ph.structural_tag(description))

    def _send(self, spec: Callable[[], Any]) -> None:
        begin = time.thread_time()
        try:
            stream = self.engine.submit("x", ph.SamplingParams(max_tokens=MAX_TOKENS, seed=0), spec())
        finally:
            self.prepare = time.thread_time() - begin
        self.texts.append(stream.result().text)


class BackgroundStream:
    """A stream that runs until the process ends; times what runs next to it."""

    def __init__(self) -> None:
        engine = ph.Engine("nano", device="cpu", num_blocks=4096)
        engine.compiler.warm_up()
        gc_tuning.settle()
        sys.setswitchinterval(SWITCH_SECONDS)
        self.engine = AsyncEngine(engine)
        self._stamps: list[tuple[float, float]] = []  # of each delta: on the wall, and CPU seconds of this process
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        while len(self._stamps) < 100:
            time.sleep(LOOK_EVERY)

    def alone(self) -> Timing:
        """The stream alone."""
        return self._timed(lambda: time.sleep(ALONE), Timing(outcome="-"))

    def bomb(self, bomb: Callable[[Any], Any]) -> Timing:
        """The stream with one more request."""
        gc_tuning.settle()  # what the bombs before have left is not searched through in this one's time
        timing, submitting = Timing(), Submitting(self.engine)

        def run() -> None:
            try:
                bomb(submitting)
                timing.outcome = f"compiled, {submitting.texts[-1]!r}"
            except PhloemError as error:
                timing.outcome = f"{type(error).__name__}: {str(error)[:110]}"
            except BaseException as error:  # what must never happen is what this is for
                timing.outcome = f"FAULT {type(error).__name__}: {str(error)[:90]}"
            timing.prepare = submitting.prepare

        return self._timed(lambda: self._watched(run, timing), timing)

    def _timed(self, work: Callable[[], None], timing: Timing) -> Timing:
        first = len(self._stamps) - 1
        work()
        time.sleep(SETTLE)
        stamps = [*self._stamps[first:], _now()]  # the last gap may not have ended
        timing.waited, timing.gap = (
            max(after[clock] - before[clock] for before, after in pairwise(stamps)) for clock in (0, 1)
        )
        return timing

    def _watched(self, run: Callable[[], None], timing: Timing) -> None:
        begun, may_end = threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            run()
            may_end.wait()  # the clock of a thread ends with it

        thread = threading.Thread(target=work)
        thread.start()
        begun.wait()
        clock, last = time.pthread_getcpuclockid(thread.ident or 0), 0.0
        while not timing.outcome:
            time.sleep(LOOK_EVERY)
            now = time.clock_gettime(clock)
            timing.held, last = max(timing.held, now - last), now
        may_end.set()
        thread.join()

    def _read(self) -> None:
        while True:
            endless = ph.SamplingParams(max_tokens=3000, ignore_eos=True)
            for _ in self.engine.submit("Once upon a time", endless):
                self._stamps.append(_now())


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()
