"""Whether the engine still generates, found out by having it generate a token.

::

    0 s ........... PATIENCE ....................... LIMIT
    the probe's own token    or the end of any step   neither: it hangs
    ──────────────────────── healthy ──────────────►  unhealthy

An idle engine answers within a step. A busy one may have a long queue, in which a probe must not wait: once `PATIENCE`
is over it is enough that the engine has ended a step since the probe began. What a step has begun to compute says
nothing: an engine may hang in it. At most one probe is under way, however many callers ask.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from ...errors import PhloemError, QueueFull
from ..request import SamplingParams

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ..engine.async_engine import AsyncEngine
    from ..request import Delta

PATIENCE = 2.0  # seconds in which only the probe's own token counts; routers wait for 5 or more
LIMIT = 20.0  # seconds after which an engine that has ended no step is taken to hang
GLANCE = 0.1  # seconds between two looks at the number of steps
logger = logging.getLogger("phloem.server")


class Probe:
    """Belongs to one event loop.

    Args:
        patience, limit: seconds; see above.
    """

    def __init__(self, async_engine: AsyncEngine, patience: float = PATIENCE, limit: float = LIMIT) -> None:
        self._async_engine = async_engine
        self._patience = patience
        self._limit = limit
        self._under_way: asyncio.Task[bool] | None = None

    async def generates(self) -> bool:
        """Whether the engine generates; known after `limit` seconds at most."""
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.ensure_future(self._find_out())
        return await asyncio.shield(self._under_way)  # a caller that leaves does not end it for the others

    async def _find_out(self) -> bool:
        begin = self._num_steps()
        token = asyncio.ensure_future(self._generate())
        try:
            waited = self._patience
            done, _ = await asyncio.wait({token}, timeout=waited)
            while not done and self._num_steps() <= begin and waited < self._limit:
                waited += GLANCE
                done, _ = await asyncio.wait({token}, timeout=GLANCE)
            return token.result() if done else self._num_steps() > begin
        finally:
            token.cancel()

    async def _generate(self) -> bool:
        """Whether a token came; does not return while the queue has no room for the probe."""
        sampling = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
        deltas = cast("AsyncGenerator[Delta]", self._async_engine.generate([0], sampling, is_probe=True))
        try:
            async with aclosing(deltas):
                return any([bool(delta.token_ids) async for delta in deltas])
        except QueueFull:
            await asyncio.get_running_loop().create_future()
        except PhloemError as error:
            logger.error("the engine generates no token: %s", error)
        return False

    def _num_steps(self) -> int:
        return self._async_engine.statistics().num_steps
