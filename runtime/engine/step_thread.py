"""The thread that steps an engine, and the commands by which other threads reach it.

::

    a caller's thread                              the step thread
    request_factory.prepare ──► commands ────────► between two steps: queue, abort, fork, pin …
    Stream, AsyncStream ◄────── deltas ◄────────── core.step()

The thread alone changes the core, so the core needs no lock, and Ctrl-C, which Python raises in the main thread only,
never stops a change half way; other threads call `prepare` and `statistics`, which change nothing. The thread is
started by the first command. It is a daemon, but one that is inside compiled code when the interpreter goes away would
take the process down (SIGABRT), so it is also ended at exit. A process that was forked has no such thread: there all
commands are refused.

Knows no prompts and no text, only the core's calls and where the deltas of a request go. Cost: a look-up per delta.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

from ...errors import EngineStopped, RequestError
from ..parallel.ranks import RankLost
from ..request import Delta, Request, SamplingParams
from .engine_core import EngineCore
from .recent_values import RecentValues

logger = logging.getLogger("phloem")

Result = TypeVar("Result")
Event = Delta | BaseException
Deliver = Callable[[Event], None]
"""Takes the deltas of a request, on the step thread. An exception is the last event: it is refused, or was ended."""


class Command(Generic[Result]):
    """A function to be called on the step thread, and what becomes of it."""

    def __init__(self, function: Callable[[], Result]) -> None:
        self._function = function
        self.future: Future[Result] = Future()

    def execute(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self._function())
        except RankLost as error:  # the next step ends the engine
            self.future.set_exception(EngineStopped(f"the engine has stopped: {error}"))
        except BaseException as error:
            self.future.set_exception(error)

    def refuse(self, error: EngineStopped) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class StepThread:
    """Belongs to one core.

    Attributes:
        last_step_at: `time.monotonic()` of the thread's last sign of life.
        step_seconds: how long the latest steps took.
    """

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._commands: queue.SimpleQueue[Command[object]] = queue.SimpleQueue()
        self._sinks: dict[str, tuple[Deliver, int]] = {}
        self._backlog: deque[tuple[list[Request], Deliver]] = deque()  # of `post_all`, in order
        self._thread: threading.Thread | None = None
        self._process = 0  # in which the thread was started
        self._starting = threading.Lock()
        self._is_stopping = False
        self._has_ended = False
        self._fatal: BaseException | None = None
        if core.processes is not None:
            core.processes.on_lost = self._wake
        self.last_step_at = time.monotonic()
        self.step_seconds = RecentValues()

    # -- for any thread ----------------------------------------------------------------------------------------

    @property
    def is_alive(self) -> bool:
        """Whether requests are served, or would be if there were any."""
        return not self._has_ended and self._process in (0, os.getpid())

    def call(self, function: Callable[[], Result]) -> Future[Result]:
        """Calls `function` on the step thread between two steps; at once if this is the step thread."""
        command = Command(function)
        if threading.current_thread() is self._thread:
            command.execute()
            return command.future
        self._start()
        if self._process not in (0, os.getpid()):
            command.refuse(self._stopped())
            return command.future
        self._commands.put(command)  # type: ignore[arg-type]  # its result is the caller's alone
        if self._has_ended:  # the thread may have taken its last look before
            self._refuse_commands()
        return command.future

    def _wake(self) -> None:
        """Lets the thread look at the core."""
        self.call(lambda: None)

    def submit(self, requests: list[Request], deliver: Deliver) -> Future[None]:
        """Queues the outputs of one request; the future has the error if it is refused (QueueFull …)."""
        return self.call(lambda: self._enqueue(requests, deliver))

    def post(self, requests: list[Request], deliver: Deliver) -> None:
        """`submit`, where the error is delivered."""
        self.submit(requests, deliver).add_done_callback(partial(_tell, (deliver,)))

    def post_all(self, batch: Sequence[tuple[list[Request], Deliver]]) -> None:
        """Several requests in order, each as soon as the queue has room."""
        begun = self.call(lambda: self._backlog.extend(batch))
        begun.add_done_callback(partial(_tell, [deliver for _, deliver in batch]))

    def abort(self, *request_ids: str) -> Future[None]:
        """Ends these requests if they have not ended; the future is done when their blocks are free."""
        return self.call(lambda: self._abort([(request_id, None) for request_id in request_ids]))

    def leave(self, readers: Sequence[tuple[str, Deliver]]) -> Future[None]:
        """As `abort`, but only what is delivered there: later requests may have the same ids."""
        return self.call(lambda: self._abort(readers))

    def fork(
        self, request_id: str, n: int, sampling: SamplingParams | None, index: int, new_sink: Callable[[str], Deliver]
    ) -> Future[None]:
        """Forks a request; see `EngineCore.fork`. `new_sink` is called with the id of each fork."""

        def fork() -> None:
            for child in self._core.fork(request_id, n, sampling, index=index):
                self._sinks[child] = (new_sink(child), 1)

        return self.call(fork)

    def wait(self, bell: queue.SimpleQueue[None]) -> None:
        """Waits until a bell rings, which some `deliver` rings.

        Raises:
            RequestError: this is the step thread, which would wait for itself.
            EngineStopped: the process was forked since.
        """
        if not bell.empty():
            bell.get()
            return
        if threading.current_thread() is self._thread:
            raise RequestError("the step thread cannot wait for a step; call the engine from another thread")
        if self._process not in (0, os.getpid()):
            raise self._stopped()
        bell.get()

    def stop(self, *, waits: bool = True) -> None:
        """Aborts everything, ends the thread and closes the core. Callers that wait get `EngineStopped`."""
        self._is_stopping = True
        with self._starting:
            thread = self._thread
            if thread is None:
                self._has_ended = True
                self._core.close()
                self._refuse_commands()
                return
        if self._process == os.getpid():
            self._commands.put(Command(lambda: None))
            if waits and threading.current_thread() is not thread:
                thread.join()

    # -- the thread --------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._thread is not None or self._is_stopping:
            return
        with self._starting:
            if self._thread is None and not self._is_stopping:
                self._process = os.getpid()
                thread = threading.Thread(target=self._loop, name="phloem-step", daemon=True)
                atexit.register(self.stop)
                self._thread = thread  # first: an interrupted `start` has started it all the same
                try:
                    thread.start()
                except RuntimeError:  # the system gives no more threads
                    self._thread = None
                    raise

    def _loop(self) -> None:
        try:
            while not self._is_stopping:
                self._wait_for_work()
                self._execute_commands()
                self._queue_backlog()
                self.last_step_at = begin = time.monotonic()
                has_work = self._core.has_work
                for delta in self._core.step():
                    self._dispatch(delta)
                if has_work:
                    self.step_seconds.add(time.monotonic() - begin)
        except BaseException as error:
            self._fatal = error
        self._end()

    def _end(self) -> None:
        self._is_stopping = True
        atexit.unregister(self.stop)
        try:
            self._core.close()
        except BaseException as error:
            self._fatal = self._fatal or error
        self._has_ended = True
        self._refuse_commands()
        waiting = [deliver for deliver, _ in self._sinks.values()] + [deliver for _, deliver in self._backlog]
        self._sinks.clear()
        self._backlog.clear()
        for deliver in waiting:
            _deliver_safely(deliver, self._stopped())

    def _wait_for_work(self) -> None:
        """Returns when there is a step to do or a command was executed; meanwhile pins end when their time is over."""
        while not self._core.has_work and not self._backlog:
            seconds = self._core.pins.end_expired()
            with suppress(queue.Empty):
                self._commands.get(timeout=None if math.isinf(seconds) else min(max(0.0, seconds), 3600.0)).execute()
                return

    def _execute_commands(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._commands.get_nowait().execute()

    def _refuse_commands(self) -> None:
        """Any thread may do so once the step thread has ended."""
        with suppress(queue.Empty):
            while True:
                self._commands.get_nowait().refuse(self._stopped())

    def _enqueue(self, requests: list[Request], deliver: Deliver) -> None:
        request_id = self._core.enqueue(requests)
        self._sinks[request_id] = (deliver, len(requests))

    def _queue_backlog(self) -> None:
        while self._backlog and self._core.num_free_places >= len(self._backlog[0][0]):
            requests, deliver = self._backlog.popleft()
            try:
                self._enqueue(requests, deliver)
            except Exception as error:
                _deliver_safely(deliver, error)

    def _abort(self, readers: Sequence[tuple[str, Deliver | None]]) -> None:
        """Ends requests; with a reader only if they are its own."""
        if self._backlog:
            wanted = dict(readers)
            self._backlog = deque(
                (requests, deliver)
                for requests, deliver in self._backlog
                if requests[0].request_id not in wanted or wanted[requests[0].request_id] not in (None, deliver)
            )
        for request_id, reader in readers:
            deliver, _ = self._sinks.get(request_id, (None, 0))
            if reader not in (None, deliver):
                continue
            self._sinks.pop(request_id, None)
            self._core.abort(request_id)
            if deliver is not None:  # it may have been aborted by its name, and not by its reader
                _deliver_safely(deliver, RequestError("the request was aborted"))

    def _dispatch(self, delta: Delta) -> None:
        sink = self._sinks.get(delta.request_id)
        if sink is None:
            return
        deliver, num_open = sink
        if delta.finish_reason is not None:
            num_open -= 1
            if num_open:
                self._sinks[delta.request_id] = (deliver, num_open)
            else:
                del self._sinks[delta.request_id]
        if not _deliver_safely(deliver, delta):
            self._sinks.pop(delta.request_id, None)
            self._core.abort(delta.request_id)

    def _stopped(self) -> EngineStopped:
        if self._process not in (0, os.getpid()):
            return EngineStopped("the engine runs in another process, of which this one is a fork; make one here")
        if isinstance(self._fatal, EngineStopped):
            return self._fatal
        if self._fatal is not None:
            return EngineStopped(f"the engine has stopped: {type(self._fatal).__name__}: {self._fatal}")
        return EngineStopped("the engine has stopped: it was closed, by close() or at the end of its `with` block")


def _tell(deliveries: Iterable[Deliver], begun: Future[None]) -> None:
    """Delivers the error of what has begun, if it has one."""
    error = begun.exception()
    if error is not None:
        for deliver in deliveries:
            _deliver_safely(deliver, error)


def _deliver_safely(deliver: Deliver, event: Event) -> bool:
    """False: the reader has failed, which costs no other request anything."""
    try:
        deliver(event)
    except Exception:
        logger.exception("a reader of a request has failed; the request is aborted")
        return False
    return True
