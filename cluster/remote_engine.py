"""The engine's interface for the server's routes, while the engines are in other processes.

Templates, constraints and checks need a tokenizer, no weights: they are done here, in the front, by an `Engine` that
never steps. What is to be generated is sent to a replica. If that dies, the request goes on at another one: same
seed, and the tokens so far as `output_ids`, so the answer is the same as without the failure.

Knows Serve's handle by its calls only, so that tests may give another.
"""

from __future__ import annotations

import logging
import secrets
import time
from array import array
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, fields, replace
from typing import Any, Unpack

from ..errors import EngineStopped, PhloemError
from ..runtime.constrain.spec import ConstraintSpec
from ..runtime.engine.engine import Engine
from ..runtime.engine.prompts import Prompt
from ..runtime.engine.request_factory import seed_of_output
from ..runtime.engine.statistics import EngineStatistics
from ..runtime.request import Delta, RequestOptions, SamplingParams
from ..runtime.server.merged import merged
from ..runtime.server.prepare import EngineCall

MOST_TRIES = 3
logger = logging.getLogger("phloem.cluster")


class Gone(Exception):
    """A replica has died or was removed, and its unfinished requests with it."""


Send = Callable[[bytes, str, EngineCall], AsyncGenerator[Delta | PhloemError]]
"""Calls `Replica.generate` on some replica; raises `Gone` where that dies."""


@dataclass(frozen=True, slots=True)
class _Way:
    """What of a request stays the same wherever it goes."""

    tokens: bytes
    namespace: str
    spec: ConstraintSpec | None
    options: RequestOptions


class RemoteEngine:
    """The interface of `AsyncEngine` that the server's routes use.

    Args:
        engine: without weights; for its tokenizer, templates, constraints and settings.
        send: how a replica is called.
        reports: statistics of the replicas, as each has said them last.

    Attributes:
        num_retries: how often a request went on at another replica.
    """

    def __init__(self, engine: Engine, send: Send, reports: Callable[[], Iterable[Mapping[str, Any]]]) -> None:
        self.engine = engine
        self.num_retries = 0
        self.is_alive = True
        self._send = send
        self._reports = reports

    @property
    def last_step_at(self) -> float:
        """`time.monotonic()` of a sign of life: Serve replaces replicas that give none."""
        return time.monotonic()

    async def generate(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        **options: Unpack[RequestOptions],
    ) -> AsyncGenerator[Delta]:
        """A request's deltas. Closing the generator ends the request, wherever it is."""
        params = sampling or SamplingParams()
        if params.seed is None:  # or what goes on elsewhere would be another draw
            params = replace(params, seed=secrets.randbits(63))
        request_factory = self.engine.request_factory
        token_ids = request_factory.token_ids(prompt)
        tokens = token_ids.tobytes() if isinstance(token_ids, array) else array("i", token_ids).tobytes()
        namespace = request_factory.namespace(options.get("namespace", ""), options.get("adapter"))
        way = _Way(tokens, namespace, constraint, options)
        said: dict[int, list[int]] = {index: [] for index in range(params.n)}
        texts = dict.fromkeys(said, "")
        async with aclosing(self._outputs(way, params, said)) as deltas:
            async for delta in deltas:
                texts[delta.index] += delta.text
                yield delta
                if delta.finish_reason is not None and options.get("conversation"):
                    whole = array("i", tokens) + array("i", said[delta.index])
                    text = texts[delta.index]
                    self.engine.core.chats.remember(options["conversation"], len(tokens) // 4, whole, text, namespace)

    def statistics(self) -> EngineStatistics:
        """The sums over all replicas; state and counters as each has said them last."""
        total = self.engine.statistics()
        found = [EngineStatistics(**report) for report in self._reports()]
        sums: dict[str, Any] = {}
        for field in fields(EngineStatistics):
            values = [getattr(one, field.name) for one in found]
            if field.name == "block_size":
                sums[field.name] = total.block_size
            elif isinstance(getattr(total, field.name), tuple):
                sums[field.name] = tuple(sorted({name for names in values for name in names}))
            elif isinstance(getattr(total, field.name), dict):
                names = sorted({name for one in values for name in one})
                sums[field.name] = {name: sum(one.get(name, 0) for one in values) for name in names}
            else:
                sums[field.name] = sum(values)
        return EngineStatistics(**sums)

    async def close(self) -> None:
        """Takes no more requests."""
        self.is_alive = False
        self.engine.close()

    async def _outputs(self, way: _Way, params: SamplingParams, said: dict[int, list[int]]) -> AsyncGenerator[Delta]:
        """The deltas of all outputs; `said` keeps up with them."""
        if params.n == 1:
            async with aclosing(self._one(way, params, 0, said[0])) as deltas:
                async for delta in deltas:
                    yield delta
            return
        is_open = set(said)
        try:
            async with aclosing(self._send(way.tokens, way.namespace, _call(way, params, ()))) as answers:
                async for answer in answers:
                    delta = _checked(answer)
                    said[delta.index] += delta.token_ids
                    if delta.finish_reason is not None:
                        is_open.discard(delta.index)
                    yield delta
        except (Gone, EngineStopped) as error:
            self._count(error)
        if is_open:  # each goes on alone
            assert params.seed is not None
            parts = [
                self._one(way, replace(params, n=1, seed=seed_of_output(params.seed, index)), index, said[index])
                for index in sorted(is_open)
            ]
            async with aclosing(merged(parts)) as deltas:
                async for _, delta in deltas:
                    yield delta

    async def _one(self, way: _Way, params: SamplingParams, index: int, said: list[int]) -> AsyncGenerator[Delta]:
        """The deltas of one output that has `said` something already, at one replica after the other."""
        for _ in range(MOST_TRIES):
            if said and params.kv_budget is not None:
                raise EngineStopped("kv_budget: the replica is gone that knew which keys were kept; ask again")
            try:
                async with aclosing(self._send(way.tokens, way.namespace, _call(way, params, said))) as answers:
                    async for answer in answers:
                        delta = _checked(answer)
                        said += delta.token_ids
                        yield delta if delta.index == index else replace(delta, index=index)
                        if delta.finish_reason is not None:
                            return
            except (Gone, EngineStopped) as error:
                self._count(error)
        raise EngineStopped(f"{MOST_TRIES} replicas have stopped while they were at this request; ask again later")

    def _count(self, error: Exception) -> None:
        self.num_retries += 1
        logger.warning("a replica is gone (%s); its request goes on at another one", error)


def _call(way: _Way, params: SamplingParams, said: Iterable[int]) -> EngineCall:
    options = way.options.copy()
    output_ids = list(said)
    if output_ids:
        options["output_ids"] = output_ids
    return EngineCall((), params, way.spec, options)


def _checked(answer: Delta | PhloemError) -> Delta:
    """Raises the error of a request that has failed."""
    if isinstance(answer, PhloemError):
        raise answer
    if answer.error is not None:
        raise answer.error
    return answer
