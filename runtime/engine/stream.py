"""The deltas of one request, for a thread."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Iterator

from ...errors import RequestError
from ..constrain.spec import ConstraintSpec
from ..request import Completion, Delta, SamplingParams
from .collector import Collector
from .step_thread import Deliver, Event, StepThread


class Stream:
    """The deltas of a request under way. Iterate it, or take `completions`.

    Iterating blocks until the next delta and raises the request's error if it fails. A caller that only takes
    `completions` is not woken before the end: with many waiting threads that would cost more than the step itself.
    While a stream is kept, so is its engine.

    Attributes:
        may_run: whether the request may be under way, as far as its deltas have been read.
    """

    def __init__(
        self,
        steps: StepThread,
        request_id: str,
        num_outputs: int,
        constraint: ConstraintSpec | None,
        *,
        engine: object,
    ) -> None:
        """engine: is kept."""
        self.request_id = request_id
        self.constraint = constraint
        self._engine = engine
        self._steps = steps
        self._events: deque[Event] = deque()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()  # may ring without an event, never the other way
        self._wakes_at_end_only = False
        self._is_aborted = False
        self._error: BaseException | None = None
        self.may_run = True
        self._num_open = num_outputs
        self._collector = Collector(num_outputs, constraint)

    def __iter__(self) -> Iterator[Delta]:
        while self._num_open:
            self._steps.wait(self._bell)
            while self._events and self._num_open:
                event = self._events.popleft()
                if not isinstance(event, Delta):  # it was refused, or it has been ended
                    self._num_open = 0
                    self.may_run = False
                    self._error = event
                    raise event
                if event.error is not None:
                    self.abort()
                    self._error = event.error
                    raise event.error
                self._collector.push(event)
                self._num_open -= event.finish_reason is not None
                self.may_run = self._num_open > 0
                yield event

    def completions(self) -> list[Completion]:
        """Waits for the end; one completion per output. Raises as iterating does; RequestError if aborted."""
        self._wakes_at_end_only = True
        for _ in self:
            pass
        if self._error is not None:
            raise self._error
        if self._is_aborted:
            raise RequestError("the request was aborted")
        return self._collector.completions()

    def result(self) -> Completion:
        """Waits for the end of a request with one output."""
        return self.completions()[0]

    def fork(self, n: int = 1, sampling: SamplingParams | None = None, *, index: int = 0) -> list[Stream]:
        """`n` streams that go on from where this request stands now; each begins with all of its output so far.

        See `EngineCore.fork`.
        """
        children: list[Stream] = []

        def new_sink(request_id: str) -> Deliver:
            children.append(Stream(self._steps, request_id, 1, self.constraint, engine=self._engine))
            return children[-1].deliver

        self._steps.fork(self.request_id, n, sampling, index, new_sink).result()
        return children

    def abort(self) -> None:
        """Ends the request; its blocks are free before the next step. Iterating ends too, on any thread."""
        self.end()
        self._steps.leave([(self.request_id, self.deliver)])

    def end(self) -> None:
        """Ends the iteration, on any thread; the request itself goes on."""
        self._num_open = 0
        self._is_aborted = True
        self._bell.put(None)  # ends a wait of the iteration

    def deliver(self, event: Event) -> None:
        """Called on the step thread."""
        self._events.append(event)
        if not self._wakes_at_end_only or not isinstance(event, Delta) or event.finish_reason is not None:
            self._bell.put(None)
