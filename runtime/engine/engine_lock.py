"""The engine's lock: one thread at a time, and Ctrl-C never stops a change half way.

Python raises KeyboardInterrupt wherever the main thread happens to be. In a step that could be between two changes that
belong together, and would leave blocks without an owner, or a request in no queue. So while the main thread holds the
lock, Ctrl-C is deferred: its handler is called when the lock is released. Pressed again, it is deferred no longer::

    held     ┌──────── step ────────┐
    Ctrl-C            ×             └─► KeyboardInterrupt, out of `with lock`

Other signals and other threads are left alone, and so is a handler that is not Python's. Knows no engine. Cost: about a
microsecond to take it and release it.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType


class EngineLock:
    """A lock that the thread which holds it may take again; to be used with `with`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0  # how many times the main thread has taken it, or waits to
        self._before: object = None  # the handler whose calls are deferred
        self._deferred: tuple[int, FrameType | None] | None = None  # the arguments of such a call

    def __enter__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main:
            self._begin()
        try:
            self._lock.acquire()
        except BaseException:  # pressed twice while another thread held the lock
            if is_main:
                self._end()
            raise

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if threading.current_thread() is threading.main_thread():
            self._end()

    def _begin(self) -> None:
        if not self._depth:
            self._deferred, self._before = None, signal.getsignal(signal.SIGINT)
            if callable(self._before):
                signal.signal(signal.SIGINT, self._defer)
        self._depth += 1

    def _end(self) -> None:
        self._depth -= 1
        if not self._depth and callable(self._before):
            signal.signal(signal.SIGINT, self._before)
            if self._deferred is not None:
                self._before(*self._deferred)

    def _defer(self, number: int, frame: FrameType | None) -> None:
        if self._deferred is not None and callable(self._before):
            self._before(number, frame)
        self._deferred = number, frame
