"""Requests whose replicas die go on at others: every answer is the one of an engine that nothing happens to."""

from __future__ import annotations

import asyncio
import pickle
from array import array
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import asdict
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.cluster.front import engine_without_weights
from phloem.cluster.remote_engine import MOST_TRIES, Gone, RemoteEngine
from phloem.errors import EngineStopped, PhloemError, RequestError
from phloem.runtime.config import EngineConfig
from phloem.runtime.constrain.spec import json_schema, regex
from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.engine.engine import Engine
from phloem.runtime.execute.loading import load
from phloem.runtime.request import Delta, SamplingParams
from phloem.runtime.server.prepare import EngineCall

from ..runtime.fakes import NEVER, threaded_engine

Result = TypeVar("Result")
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a", "b"]}
CONSTRAINTS = [None, regex("[a-z]{3,9}(-[0-9]{2}){1,3}"), json_schema(SCHEMA)]


class Fleet:
    """Replicas in this process. What goes between them and a front is pickled, as Ray does.

    Attributes:
        deaths: of calls to come, how many deltas each gets before its replica dies; None: it does not.
        num_open: calls under way.
    """

    def __init__(self, num_replicas: int = 2, make: Callable[[], Engine] = threaded_engine) -> None:
        self.replicas = [AsyncEngine(make()) for _ in range(num_replicas)]
        self.deaths: list[int | None] = []
        self.num_calls = 0
        self.num_open = 0

    async def send(self, tokens: bytes, namespace: str, call: EngineCall) -> AsyncGenerator[Delta | PhloemError]:
        call = pickle.loads(pickle.dumps(call))
        engine = self.replicas[self.num_calls % len(self.replicas)]
        self.num_calls += 1
        left = self.deaths.pop(0) if self.deaths else None
        stream: Any = engine.generate(array("i", tokens), call.sampling, call.spec, **call.options)
        self.num_open += 1
        try:
            async with aclosing(stream) as deltas:
                async for delta in deltas:
                    if left == 0:
                        raise Gone("ActorDiedError")
                    yield pickle.loads(pickle.dumps(delta))
                    left = None if left is None else left - 1
        except PhloemError as error:
            yield pickle.loads(pickle.dumps(error))
        finally:
            self.num_open -= 1

    def front(self, engine: Engine | None = None) -> RemoteEngine:
        return RemoteEngine(engine or threaded_engine(num_blocks=2), self.send, list)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            return asyncio.run(work)
        finally:
            for replica in self.replicas:
                replica.stop()


async def said(front: RemoteEngine, *request: Any, **options: Any) -> dict[int, tuple[Any, ...]]:
    """By output: tokens, text, logprobs, why it ended, tokens of the answer."""
    found: dict[int, tuple[Any, ...]] = {}
    async with aclosing(front.generate(*request, **options)) as deltas:
        async for delta in deltas:
            tokens, text, scores, *_ = found.get(delta.index, ((), "", ()))
            found[delta.index] = (
                tokens + delta.token_ids,
                text + delta.text,
                scores + delta.logprobs,
                delta.finish_reason,
                delta.usage.completion_tokens,
            )
    return found


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**40), st.sampled_from(CONSTRAINTS), st.sampled_from([1, 1, 3]), st.sampled_from([0.0, 1.0]))
def test_a_death_changes_no_answer(seed: int, constraint: Any, n: int, temperature: float) -> None:
    rng = Random(seed)
    sampling = SamplingParams(
        max_tokens=24, temperature=temperature, seed=rng.getrandbits(60), n=n, stop=NEVER, ignore_eos=True, logprobs=1
    )
    prompt = [rng.randrange(256) for _ in range(rng.randint(1, 20))]
    quiet, fleet = Fleet(), Fleet()
    truth = quiet.run(said(quiet.front(), prompt, sampling, constraint))
    # each output meets fewer deaths than it would be given up at
    fleet.deaths = [rng.choice([None, rng.randrange(20)]) for _ in range(MOST_TRIES - 1)]
    first, deaths = fleet.deaths[0], sum(death is not None for death in fleet.deaths)
    front = fleet.front()
    assert fleet.run(said(front, prompt, sampling, constraint)) == truth
    assert front.num_retries <= deaths and not fleet.num_open
    if first == 0:
        assert front.num_retries


def test_an_answer_without_a_seed_goes_on_as_the_draw_that_it_was() -> None:
    fleet = Fleet()
    fleet.deaths = [9]
    front = fleet.front()
    sampling = SamplingParams(max_tokens=24, stop=NEVER, ignore_eos=True)
    ((tokens, *_),) = fleet.run(said(front, [1, 2], sampling)).values()
    assert len(tokens) == 24 and front.num_retries == 1


def test_after_three_deaths_the_request_ends_with_an_error() -> None:
    fleet = Fleet()
    fleet.deaths = [2] * MOST_TRIES
    with pytest.raises(EngineStopped, match="3 replicas have stopped"):
        fleet.run(said(fleet.front(), [1, 2], SamplingParams(stop=NEVER, ignore_eos=True)))
    assert not fleet.num_open


def test_dropped_keys_are_not_guessed() -> None:
    fleet, sampling = Fleet(), SamplingParams(max_tokens=90, kv_budget=64, stop=NEVER, ignore_eos=True, temperature=0.0)
    fleet.deaths = [0]
    assert len(fleet.run(said(fleet.front(), [1], sampling))[0][0]) == 90, "nothing was said yet"
    fleet = Fleet()
    fleet.deaths = [3]
    with pytest.raises(EngineStopped, match="kv_budget"):
        fleet.run(said(fleet.front(), [1], sampling))


def test_a_refusal_is_the_requests_own_and_no_death() -> None:
    fleet = Fleet()
    front = fleet.front()
    with pytest.raises(RequestError, match="bad_words") as caught:
        sampling = SamplingParams(bad_words=("a",))
        fleet.run(said(front, [1], sampling, CONSTRAINTS[1]))
    assert caught.value.param == "bad_words" and front.num_retries == 0


def test_who_leaves_ends_the_request_where_it_is() -> None:
    fleet = Fleet(1)

    async def leave() -> None:
        sampling = SamplingParams(max_tokens=5000, n=3, stop=NEVER, ignore_eos=True)
        async with aclosing(fleet.front().generate([1], sampling)) as deltas:
            async for _ in deltas:
                break
        for _ in range(500):
            if not fleet.replicas[0].statistics().num_running and not fleet.num_open:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("it is still under way")

    fleet.run(leave())


def test_the_next_turn_of_a_chat_begins_with_the_tokens_of_the_reply() -> None:
    config = EngineConfig(device="cpu", num_blocks=64)
    loaded = load(config)
    fleet, engine = Fleet(1, lambda: Engine.from_loaded(config, loaded)), engine_without_weights(config)
    messages = [{"role": "user", "content": "Hi"}]
    chat = engine.encode_chat(messages)
    sampling = SamplingParams(max_tokens=8, temperature=0.0)
    tokens, text, *_ = fleet.run(said(fleet.front(engine), chat.token_ids, sampling, conversation=chat.text))[0]
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "more"}]
    num_said = len([token for token in tokens if token not in engine.tokenizer.eos_ids])
    assert engine.encode_chat(messages).num_spliced_tokens == len(chat.token_ids) + num_said


def test_statistics_are_sums() -> None:
    engines = [threaded_engine() for _ in range(3)]
    for number, engine in enumerate(engines):
        engine.generate([1] * (number + 1), SamplingParams(max_tokens=3, temperature=0.0))
    fleet = Fleet(1)
    reports = [asdict(engine.statistics()) for engine in engines]
    reports[0]["tier_bytes"] = {"host": 0, "disk": 5}
    reports[1]["tier_bytes"] = {"disk": 3}
    front = RemoteEngine(threaded_engine(num_blocks=2), fleet.send, lambda: reports)
    found = front.statistics()
    assert (found.prompt_tokens, found.num_finished, found.num_blocks) == (6, 3, 3 * 64)
    assert found.block_size == 4 and found.running_adapters == ()
    assert found.tier_bytes == {"host": 0, "disk": 8}
    assert RemoteEngine(engines[0], fleet.send, list).statistics().num_blocks == 0
    fleet.replicas[0].stop()
