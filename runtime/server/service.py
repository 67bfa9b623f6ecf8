"""What the routes share: the engine, the settings, which caller may use which model, and how answers are pulled.

One instance per application; it is handed to each router explicitly.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from starlette.requests import Request

from ...errors import ConfigError, PhloemError, RequestError
from ..request import Delta
from .body import read_request
from .errors import ApiError, api_error, internal, invalid, model_not_found, unavailable
from .formats.table import output_format_of
from .lifecycle import Lifecycle
from .merged import merged
from .messages_request import CountRequest
from .metrics import Metrics
from .prefill import answers
from .prepare import EngineCall, PreparedChat, prepare_chat, prepare_completions
from .protocol import ChatRequest, CompletionRequest, Generation
from .request_record import RequestRecord
from .response_request import ResponsesRequest
from .settings import ServerSettings
from .vectors_request import Read

if TYPE_CHECKING:
    from ..engine.async_engine import AsyncEngine

P = ParamSpec("P")
Result = TypeVar("Result")
Asked = TypeVar("Asked", bound=Generation | Read)
ChatBody = ChatRequest | CountRequest | ResponsesRequest
NUM_WORKERS = 4
REPORT_SECONDS = 2.0  # for so long a report of the cache is good enough
logger = logging.getLogger("phloem.server")


class Service:
    """Everything an endpoint needs.

    Attributes:
        max_model_len: tokens of the longest request, prompt and answer: what both the context and the pool hold.
        reported_at: when the last report of the cache was made.
    """

    def __init__(self, async_engine: AsyncEngine, settings: ServerSettings, version: str) -> None:
        self.async_engine = async_engine
        self.engine = async_engine.engine
        self.max_model_len = min(self.engine.max_model_len, async_engine.statistics().num_pool_tokens)
        self.settings = settings
        self.version = version
        self.fingerprint = f"phloem-{version}"
        self.lifecycle = Lifecycle()
        self.metrics = Metrics(async_engine.statistics, self.engine.config, settings)
        self.output_format = output_format_of(
            self.engine.tokenizer, settings.tool_call_format, settings.reasoning_format
        )
        self.model_names = (settings.model_name, *settings.aliases)
        for name in self.adapter_names():
            self.check_adapter_name(name)
        self._workers: ThreadPoolExecutor | None = None
        self._reporting = asyncio.Lock()
        self._report: dict[str, Any] | None = None
        self.reported_at = 0.0

    def open(self) -> None:
        """Starts the workers and takes requests."""
        self._workers = ThreadPoolExecutor(NUM_WORKERS, thread_name_prefix="phloem-prepare")
        self.lifecycle.open()

    def close(self) -> None:
        """Takes no more requests; does not wait for a worker that is busy."""
        self.lifecycle.drain()
        if self._workers is not None:
            self._workers.shutdown(wait=False, cancel_futures=True)
            self._workers = None

    # -- admission ---------------------------------------------------------------------------------------------

    def check_ready(self) -> None:
        """Raises `ApiError` 503 unless requests are taken."""
        if self.lifecycle.phase == "draining":
            raise unavailable("The server is shutting down.", self.settings.retry_after)
        if not self.async_engine.is_alive:
            raise unavailable("The engine has stopped.", self.settings.retry_after)
        if not self.lifecycle.is_ready:
            raise unavailable("The server is not ready.", self.settings.retry_after)

    def check_model(self, name: str | None) -> str:
        """The model's name as answered; a request without one means the served model."""
        if name is None:
            return self.settings.model_name
        if name not in self.model_names and name not in self.adapter_names():
            raise model_not_found(name)
        return name

    async def read(self, request: Request, kind: type[Asked]) -> tuple[Asked, str]:
        """The body of a request to the engine, and the model's name as answered. Raises ApiError."""
        body = await read_request(request, kind, self.settings)
        self.check_ready()
        return body, self.check_model(body.model)

    def adapter_names(self) -> tuple[str, ...]:
        """Adapters are models of their own to clients."""
        return self.engine.adapters.names

    def adapter_of(self, model: str | None) -> str | None:
        """The adapter that a request's model means; None: the served model itself."""
        return None if model in self.model_names else model

    def check_adapter_name(self, name: str) -> None:
        """Raises ConfigError: it is the served model's name."""
        if name in self.model_names:
            raise ConfigError(f"adapters: {name!r} is a name of the served model; give the adapter another one")

    def api_key(self, state: Any) -> str | None:
        """The key that parts caches, if they are parted by key."""
        return state.api_key if self.settings.isolates_keys else None

    async def cache_report(self, seconds: float = REPORT_SECONDS) -> dict[str, Any]:
        """The engine's report, at most `seconds` old: the replay costs one, so one at a time is made."""
        async with self._reporting:
            if self._report is None or time.monotonic() - self.reported_at > seconds:
                found = await self.on_worker(self.engine.cache_report, shows_tree=self.settings.admin)
                self._report, self.reported_at = found.as_data(), time.monotonic()
            return self._report

    # -- work --------------------------------------------------------------------------------------------------

    async def prepare(self, request: Request, body: ChatBody) -> PreparedChat:
        """`prepare_chat`, by a worker."""
        chat, key = body.as_chat(), self.api_key(request.state)
        adapter, extra_keys = self.adapter_of(body.model), self.settings.extra_keys
        return await self.on_worker(
            prepare_chat, self.engine, chat, key, self.output_format, adapter=adapter, extra_keys=extra_keys
        )

    async def prepare_prompts(self, request: Request, body: CompletionRequest) -> list[EngineCall]:
        """`prepare_completions`, by a worker."""
        key, adapter = self.api_key(request.state), self.adapter_of(body.model)
        return await self.on_worker(prepare_completions, self.engine, body, key, adapter, self.settings.extra_keys)

    async def on_worker(self, function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """Runs slow CPU work off the event loop.

        Raises:
            ApiError: 400 when it took longer than `prepare_timeout` (the thread finishes on its own; compilers and
                templates are bounded).
        """
        if self._workers is None:
            raise unavailable("The server is not ready.", self.settings.retry_after)
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._workers, lambda: function(*args, **kwargs))
        try:
            async with asyncio.timeout(self.settings.prepare_timeout):
                return await work
        except TimeoutError as error:
            text = f"Preparing the request took longer than {self.settings.prepare_timeout:g} seconds; simplify it."
            raise invalid(text, code="prepare_timeout") from error

    def explain(self, error: Exception, request_id: str) -> ApiError:
        """An exception as an error for the client. A request that failed through no fault of its own is logged."""
        if isinstance(error, ApiError):
            return error
        if isinstance(error, PhloemError) and not (isinstance(error, RequestError) and error.is_fault):
            return api_error(error, retry_after=self.settings.retry_after)
        logger.error("%s failed", request_id, exc_info=error)
        return internal(request_id)

    async def deltas(self, calls: Sequence[EngineCall], record: RequestRecord) -> AsyncGenerator[tuple[int, Delta]]:
        """The deltas of all calls as they come, each with its call's index, recorded. Closing it aborts them all."""
        record.begin(calls)
        async with aclosing(merged([answers(self.async_engine, call.prompt_ids, call) for call in calls])) as deltas:
            async for index, delta in deltas:
                record.push(index, delta)
                yield index, delta
