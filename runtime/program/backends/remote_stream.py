"""A request at a server as the stream of deltas that programs know from an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

from ....errors import ProgramError, RequestError
from ...constrain.spec import ConstraintSpec
from ...engine.collector import Collector
from ...request import Completion, Delta, Usage
from ..run import DeltaStream
from .http_call import Call

Read = Callable[[Call, Iterator[Any]], Iterator[Delta]]
"""From an answer's events to deltas; one kind for each API."""


class RemoteStream:
    """One request under way; it begins when it is first read. See `DeltaStream`.

    Args:
        learn: called with the completions once they are all there.
        go_on: the request of that number that goes on from what was said so far; None: the server cannot.
    """

    def __init__(
        self,
        call: Call,
        read: Read,
        num_outputs: int,
        constraint: ConstraintSpec | None,
        learn: Callable[[list[Completion]], None] | None = None,
        go_on: Callable[[Delta, int], DeltaStream] | None = None,
    ) -> None:
        self._call = call
        self._collector = Collector(num_outputs, constraint)
        self._learn = learn
        self._num_open = num_outputs
        self._go_on = go_on
        self._num_forks = 0
        self._said: list[Delta] = []  # of the first output
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
        """Requests that go on from what has come so far; each begins with it.

        Raises:
            RequestError: it has ended.
            ProgramError: the server has no way to do that.
        """
        if self._go_on is None:
            raise ProgramError("fork(inside=…): this API has no way to go on within a generation that is under way")
        said = list(self._said)
        if said and said[-1].finish_reason is not None:
            raise RequestError("the generation has ended")
        ids = tuple(token_id for delta in said for token_id in delta.token_ids)
        logprobs = tuple(entry for delta in said for entry in delta.logprobs)
        begun = Delta("", 0, "".join(delta.text for delta in said), ids, None, Usage(forked_tokens=len(ids)), logprobs)
        numbers = range(self._num_forks, self._num_forks + n)
        self._num_forks += n
        return [self._go_on(replace(begun, usage=replace(begun.usage)), number) for number in numbers]

    def _read(self, read: Read) -> Iterator[Delta]:
        try:
            with closing(self._call.events()) as events:  # an error that is kept keeps no connection
                for delta in read(self._call, events):
                    self._num_open -= delta.finish_reason is not None
                    self._collector.push(delta)
                    if delta.index == 0 and self._go_on is not None:
                        self._said.append(delta)
                    yield delta
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise RequestError(f"the server's answer is none of this API's: {error!r}") from error
        if self._num_open and not self._call.is_aborted:
            raise RequestError("the server ended its answer before it was complete")
