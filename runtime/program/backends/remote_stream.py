"""A request at a server as the stream of deltas that programs know from an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from ....errors import ProgramError, RequestError
from ...constrain.spec import ConstraintSpec
from ...engine.collector import Collector
from ...request import Completion, Delta
from ..run import DeltaStream
from .http_call import Call

Read = Callable[[Call, Iterator[Any]], Iterator[Delta]]
"""From an answer's events to deltas; one kind for each API."""


class RemoteStream:
    """One request under way; it begins when it is first read. See `DeltaStream`.

    learn: called with the completions once they are all there.
    """

    def __init__(
        self,
        call: Call,
        read: Read,
        num_outputs: int,
        constraint: ConstraintSpec | None,
        learn: Callable[[list[Completion]], None] | None = None,
    ) -> None:
        self._call = call
        self._collector = Collector(num_outputs, constraint)
        self._learn = learn
        self._num_open = num_outputs
        self._deltas = self._read(read)

    def __iter__(self) -> Iterator[Delta]:
        return self._deltas

    def completions(self) -> list[Completion]:
        """Waits for the end.

        Raises:
            RequestError: the server refuses, fails, is silent for too long, or leaves; or the request was aborted.
        """
        for _ in self._deltas:
            pass
        if self._call.is_aborted:
            raise RequestError("the request was aborted")
        found = self._collector.completions()
        if self._learn is not None:
            self._learn(found)
        return found

    def abort(self) -> None:
        self._call.abort()

    def fork(self, n: int = 1) -> list[DeltaStream]:
        raise ProgramError("fork(inside=…): only an engine in this process can fork a generation that is under way")

    def _read(self, read: Read) -> Iterator[Delta]:
        try:
            with closing(self._call.events()) as events:  # an error that is kept keeps no connection
                for delta in read(self._call, events):
                    self._num_open -= delta.finish_reason is not None
                    self._collector.push(delta)
                    yield delta
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise RequestError(f"the server's answer is none of this API's: {error!r}") from error
        if self._num_open and not self._call.is_aborted:
            raise RequestError("the server ended its answer before it was complete")
