"""SingleAnswer: the way of a request with one output to its answer, where an API speaks in words of its own.

Everything is the chat endpoint's work (`as_chat`); what an API shows of it is its own (`Shown`). Knows no API's words.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from ..request import Delta
from .errors import callers_names
from .outputs import Output, gather
from .prepare import PreparedChat
from .protocol import ChatRequest
from .request_record import RequestRecord
from .service import Service


class Body(Protocol):
    """A request in an API's own words."""

    @property
    def model(self) -> str | None: ...

    def as_chat(self) -> ChatRequest: ...


class Shown(Protocol):
    """What an API shows of one answer: all at once, or piece by piece."""

    def whole(self, output: Output) -> dict[str, Any]: ...

    def push(self, delta: Delta) -> bytes:
        """The frames of the events for what arrived; none, perhaps."""


class SingleAnswer:
    """One request's way to its answer; `renamed`: see `callers_names`."""

    def __init__(
        self,
        service: Service,
        body: Body,
        api_key: str | None,
        record: RequestRecord,
        renamed: Sequence[tuple[str, str]],
        show: Callable[[PreparedChat], Shown],
    ) -> None:
        self._service = service
        self._body = body
        self._api_key = api_key
        self._record = record
        self._renamed = renamed
        self._show = show
        self._clock = service.metrics.clock()

    async def input_tokens(self) -> int:
        with callers_names(self._renamed):
            return len((await self._prepare()).call.prompt_ids)

    async def whole(self) -> dict[str, Any]:
        with callers_names(self._renamed):
            prepared = await self._prepare()
            eos_ids = self._service.engine.tokenizer.eos_ids
            async with aclosing(self._service.deltas([prepared.call], self._record)) as deltas:
                [[output]] = await gather(deltas, 1, 1, eos_ids, self._clock)
        return self._show(prepared).whole(output)

    async def frames(self) -> AsyncGenerator[bytes]:
        with self._service.lifecycle.track(), callers_names(self._renamed):
            prepared = await self._prepare()
            shown = self._show(prepared)
            async with aclosing(self._service.deltas([prepared.call], self._record)) as deltas:
                async for _, delta in deltas:
                    self._clock.tick(0, delta)
                    if frames := shown.push(delta):
                        yield frames
            self._clock.end()

    async def _prepare(self) -> PreparedChat:
        return await self._service.prepare(self._body.as_chat(), self._body.model, self._api_key)
