"""A thread for work that no caller waits for. Knows jobs without arguments or results."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable
from queue import SimpleQueue

CLOSING_SECONDS = 20.0

logger = logging.getLogger("phloem.tiers")

Job = Callable[[], None]


class Failures:
    """Unexpected errors: counted, and the first is logged. Any thread may call.

    Attributes:
        number: so far.
    """

    def __init__(self) -> None:
        self.number = 0

    def note(self, what: str) -> None:
        """To be called where the error is handled."""
        self.number += 1
        if self.number == 1:
            logger.warning("a tier below the pool has failed: %s. Later errors are counted only.", what, exc_info=True)


class Background:
    """Does jobs one after the other. One that fails costs itself alone.

    Attributes:
        close: ends the thread when it has done what it was given before; waits for that for `CLOSING_SECONDS` at most.
            Happens by itself when this object is no longer referenced, and when the interpreter exits: a thread in the
            middle of something must not outlive it.
    """

    def __init__(self, name: str, failures: Failures) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        thread = threading.Thread(target=_work, args=(self._jobs, failures), name=name, daemon=True)
        thread.start()
        self.close = weakref.finalize(self, _close, self._jobs, thread)

    def do(self, job: Job) -> None:
        """Queues a job; after `close` it is dropped."""
        if self.close.alive:
            self._jobs.put(job)


def _work(jobs: SimpleQueue[Job | None], failures: Failures) -> None:
    while (job := jobs.get()) is not None:
        try:
            job()
        except Exception:
            failures.note("what was asked of it was not done")
        del job  # it holds memory


def _close(jobs: SimpleQueue[Job | None], thread: threading.Thread) -> None:
    jobs.put(None)
    if thread is threading.current_thread():  # where a collection of garbage may have led
        return
    begin = time.monotonic()
    thread.join(CLOSING_SECONDS)
    if time.monotonic() - begin >= CLOSING_SECONDS:
        logger.warning("%s: not done after %g s; what is left is given up", thread.name, CLOSING_SECONDS)
