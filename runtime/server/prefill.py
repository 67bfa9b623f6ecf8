"""Prefill and decode apart: a worker that is asked for the KV of a prompt, and the fields with which routers ask.

::

    router ── {"max_tokens": 1, "kv_transfer_params": {"do_remote_decode": true}} ──► prefill worker ──► store
           ◄── {…, "kv_transfer_params": {"do_remote_prefill": true, …}} ── when the store has the prompt's blocks
           ── the request, with these parameters ──► decode worker ◄── store

Fields and their meaning are vLLM's. What goes from worker to worker by way of the router is not the KV but the message
that it is in the store, where every worker finds it by its tokens. So the decode worker needs none of the parameters,
and computes what is missing. The answer of a request for a prompt is not used: its
constraints and least length are not looked at.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ..kv_policies import DEFAULT_KV_POLICY
from ..request import Delta
from .prepare import EngineCall

if TYPE_CHECKING:
    from ..engine.async_engine import AsyncEngine
    from ..engine.engine import Engine

STORE_SECONDS = 5.0  # that the end of an answer waits for the store
OF_ANSWERS = (
    "conversation",
    "prediction",
    "stop_guard",
    "thought_limit",
    "output_ids",
    "explain_tokens",
)  # options without a meaning for a prompt


def answers(engine: AsyncEngine, prompt: Sequence[int], call: EngineCall) -> AsyncGenerator[Delta]:
    """The deltas of a call. Where it is about its prompt alone, the last one comes when the prompt is in the store.

    prompt: the token ids, wherever the call has left them.
    """
    is_for_prompt = call.is_for_prompt or engine.engine.config.role == "prefill"
    if is_for_prompt:
        call = for_prompt(call)
    found: AsyncIterator[Delta] = engine.generate(prompt, call.sampling, call.spec, **call.options)
    deltas = cast("AsyncGenerator[Delta]", found)
    return _held_back(engine.engine, deltas) if is_for_prompt else deltas


def for_prompt(call: EngineCall) -> EngineCall:
    """The same prompt, and one token of an answer that is not read."""
    most = call.sampling.max_tokens
    sampling = replace(
        call.sampling,
        max_tokens=1 if most is None else min(1, most),
        min_tokens=0,
        ignore_eos=True,
        kv_budget=None,
        kv_policy=DEFAULT_KV_POLICY,
        beyond_context=False,
    )
    options = call.options.copy()
    for name in OF_ANSWERS:
        options.pop(name, None)  # type: ignore[misc]  # a name of a key
    return replace(call, sampling=sampling, spec=None, options=options, is_for_prompt=True)


async def _held_back(engine: Engine, deltas: AsyncGenerator[Delta]) -> AsyncGenerator[Delta]:
    async with aclosing(deltas):
        async for delta in deltas:
            if delta.finish_reason is not None:
                await stored(engine)
            yield delta


async def stored(engine: Engine, seconds: float = STORE_SECONDS) -> bool:
    """Waits until the tiers below the pool have what was computed by now, for so long at most; whether they have."""
    tiers = engine.prefix_cache.tiers
    if tiers is None:
        return False
    try:
        async with asyncio.timeout(seconds):
            await asyncio.wrap_future(tiers.written())
    except TimeoutError:
        return False
    return True


def transfer_params(engine: Engine, request_id: str, calls: Sequence[EngineCall]) -> dict[str, Any]:
    """The field of an answer that says where the KV of its prompts is, for a router to hand to the decode worker; of
    requests that are not for a prompt, none.

    Host and port are for connections between workers, of which there are none.
    """
    is_asked = any(call.is_for_prompt for call in calls) or engine.config.role == "prefill"
    if not is_asked or (own_id := engine_id(engine)) is None:
        return {}
    num_blocks = sum(len(call.prompt_ids) for call in calls) // engine.config.block_size
    params = {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_engine_id": own_id,
        "remote_request_id": request_id,
        "remote_block_ids": list(range(num_blocks)),
        "remote_host": None,
        "remote_port": None,
    }
    return {"kv_transfer_params": params}


def engine_id(engine: Engine) -> str | None:
    """The same text for all workers that find each other's blocks; None for one without a store."""
    config, followers = engine.config, engine.prefix_cache.followers
    if followers is None or (config.disk_cache is None and config.shared_cache is None):
        return None
    return "phloem-" + hashlib.sha256(b"engine id" + followers.keys.fingerprint).hexdigest()[:16]
