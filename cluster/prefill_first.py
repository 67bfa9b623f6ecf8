"""Prompts computed by some replicas, answers by others: a request goes to one of the first kind, then of the second.

::

    front ── the prompt ──► prefill replica ── KV ──► store       the answer is not awaited before the store has the KV
          ── the request ─► decode replica ◄── KV ──┘             computes what it does not find

Nothing of this can fail a request: without a prefill replica, or after `PATIENCE` seconds, the decode replica computes
the prompt. Knows how replicas are called, and no Ray.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace

from ..errors import PhloemError
from ..runtime.request import Delta
from ..runtime.server.prefill import for_prompt
from ..runtime.server.prepare import EngineCall
from .remote_engine import Gone, Send

PATIENCE = 60.0  # seconds for a prompt
logger = logging.getLogger("phloem.cluster")


def prefill_first(prefill: Send, decode: Send, is_worth_it: Callable[[bytes, str], bool]) -> Send:
    """Calls `decode`, after `prefill` where that is worth it.

    is_worth_it: whether it is, of a prompt's packed tokens and namespace.
    """

    async def send(tokens: bytes, namespace: str, call: EngineCall) -> AsyncGenerator[Delta | PhloemError]:
        # of a prompt that is scored the decode replica computes everything
        if call.sampling.prompt_logprobs_from is None and is_worth_it(tokens, namespace):
            await _compute(prefill, tokens, namespace, call)
        async with aclosing(decode(tokens, namespace, call)) as answers:
            async for answer in answers:
                yield answer

    return send


async def _compute(prefill: Send, tokens: bytes, namespace: str, call: EngineCall) -> None:
    """Has a prompt computed, and its KV put into the store."""
    call = for_prompt(call)
    call = replace(call, sampling=replace(call.sampling, n=1))
    try:
        async with asyncio.timeout(PATIENCE), aclosing(prefill(tokens, namespace, call)) as answers:
            async for answer in answers:
                if isinstance(answer, PhloemError):
                    raise answer
    except (Gone, PhloemError, TimeoutError) as error:
        logger.warning("no prefill replica has computed a prompt (%s); the decode replica does", error)
