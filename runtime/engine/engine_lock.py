"""Who has the engine: one thread at a time, and nobody half way.

Python raises KeyboardInterrupt wherever the main thread happens to be. In a step that would be between two changes that
belong together: blocks that nobody holds any more, a request in no line. So on the main thread Ctrl-C waits until the
turn is over, and does then what it would have done; pressed again it waits no longer::

    turn     ┌──────── step ────────┐
    Ctrl-C            ×             └─► KeyboardInterrupt, out of `with turn`

Other signals and other threads are left alone, and so is a handler that is not Python's. A turn costs a microsecond.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType


class EngineLock:
    """A lock that the thread which holds it may take again; to be used with `with`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0  # of the main thread's turn
        self._before: object = None  # the handler that is put off
        self._came: tuple[int, FrameType | None] | None = None

    def __enter__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main:
            self._begin()
        try:
            self._lock.acquire()
        except BaseException:  # pressed twice while another thread had its turn
            if is_main:
                self._end()
            raise

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        if threading.current_thread() is threading.main_thread():
            self._end()

    def _begin(self) -> None:
        if not self._depth:
            self._came, self._before = None, signal.getsignal(signal.SIGINT)
            if callable(self._before):
                signal.signal(signal.SIGINT, self._put_off)
        self._depth += 1

    def _end(self) -> None:
        self._depth -= 1
        if not self._depth and callable(self._before):
            signal.signal(signal.SIGINT, self._before)
            if self._came is not None:
                self._before(*self._came)

    def _put_off(self, number: int, frame: FrameType | None) -> None:
        if self._came is not None and callable(self._before):
            self._before(number, frame)
        self._came = number, frame
