"""Streams around the step thread: order, abort on leaving, errors to the right caller, an end for everyone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from phloem.errors import RequestError
from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.request import SamplingParams

from ..fakes import fake_engine, greedy_truth, threaded_engine

GREEDY = SamplingParams(max_tokens=12, temperature=0.0)
ENDLESS = SamplingParams(max_tokens=200, temperature=1.0, ignore_eos=True)


@pytest.fixture
def served() -> Iterator[AsyncEngine]:
    engine = AsyncEngine(threaded_engine(num_blocks=512))
    yield engine
    engine.stop()


def wait_until_idle(served: AsyncEngine) -> None:
    while served.call(lambda: served.engine.core.has_work).result(timeout=120):
        pass


def test_many_coroutines_get_their_own_answers(served: AsyncEngine) -> None:
    async def ask(first: int) -> list[int]:
        return list((await served.complete([first, 1, 2], GREEDY))[0].token_ids)

    async def ask_all() -> list[list[int]]:
        return await asyncio.gather(*(ask(i) for i in range(32)))

    answers = asyncio.run(ask_all())
    assert answers == [greedy_truth([i, 1, 2], 12) for i in range(32)]


def test_blocks_are_free_within_a_step_of_leaving(served: AsyncEngine) -> None:
    async def leave() -> tuple[int, int, int]:
        stream = served.generate(list(range(50)), ENDLESS)
        async for _ in stream:
            break
        held = served.statistics().num_held_blocks
        await stream.aclose()
        num_steps = served.statistics().num_steps
        after = served.call(served.engine.statistics).result(timeout=120)
        return held, after.num_held_blocks, after.num_steps - num_steps

    held, held_after, num_steps = asyncio.run(leave())
    assert held > 0
    assert held_after == 0
    assert num_steps <= 1  # the one that was under way


def test_a_coroutine_forks_its_request_under_way(served: AsyncEngine) -> None:
    """Parent and forks say what seeds say, and a fork that is closed unread leaves nothing."""

    async def tell() -> tuple[list[int], list[int], list[int]]:
        stream = served.generate([1, 2], SamplingParams(max_tokens=30, seed=1, ignore_eos=True))
        told = [await anext(stream), await anext(stream)]
        forks = await stream.fork(3, SamplingParams(max_tokens=30, seed=7, ignore_eos=True))
        assert len({stream.request_id, *(fork.request_id for fork in forks)}) == 4
        await forks[2].aclose()
        texts = [[token for part in told for token in part.token_ids]]
        for one in (stream, *forks[:2]):
            texts.append([token async for delta in one for token in delta.token_ids])
        with pytest.raises(RequestError, match="not under way"):
            await stream.fork()
        return texts[0] + texts[1], texts[2], texts[3]

    parent, fork, other = asyncio.run(tell())
    alone = fake_engine(prefix_cache=False)
    assert tuple(parent) == alone.generate([1, 2], SamplingParams(max_tokens=30, seed=1, ignore_eos=True)).token_ids
    num_said = next(number for number, (mine, its) in enumerate(zip(parent, fork, strict=True)) if mine != its)
    assert num_said >= 2 and len(fork) == len(other) == 30 and fork != other
    wait_until_idle(served)
    assert served.statistics().num_held_blocks == 0
    assert served.statistics().num_finished == 4


def test_a_request_that_has_not_begun_cannot_be_forked(served: AsyncEngine) -> None:
    async def fork() -> None:
        await served.generate([1], GREEDY).fork()

    with pytest.raises(RequestError, match="not under way"):
        asyncio.run(fork())


def test_a_pin_ends_in_time_while_the_engine_rests(served: AsyncEngine) -> None:
    served.engine.pin(list(range(40)), ttl=1.0)
    assert served.statistics().num_pinned_blocks == 10
    deadline = time.monotonic() + 120
    while served.statistics().num_pinned_blocks and time.monotonic() < deadline:
        time.sleep(0.02)
    now = served.statistics()
    assert now.num_pinned_blocks == 0 and now.num_evictable_blocks == now.num_cached_blocks == 10


def test_cancelling_a_task_aborts_its_request(served: AsyncEngine) -> None:
    async def cancel() -> None:
        task = asyncio.create_task(served.complete([1], ENDLESS))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    wait_until_idle(served)
    assert served.statistics().num_held_blocks == 0


def test_a_refused_request_raises_at_its_caller(served: AsyncEngine) -> None:
    with pytest.raises(RequestError, match="empty"):
        served.submit([])
    with pytest.raises(RequestError, match="empty"):
        asyncio.run(served.complete(""))
    assert list(served.submit([3], GREEDY).result().token_ids) == greedy_truth([3], 12)


def test_scores_equal_the_engines(served: AsyncEngine) -> None:
    assert served.score([1, 2, 3], [[4], [5, 6]]) == fake_engine().score([1, 2, 3], [[4], [5, 6]])


def test_streams_of_forks_begin_with_all_that_was_said_and_end_on_their_own(served: AsyncEngine) -> None:
    stream = served.submit([1, 2], SamplingParams(max_tokens=300, temperature=1.0, ignore_eos=True, seed=1))
    deltas = iter(stream)
    said = [token for _ in range(3) for token in next(deltas).token_ids]
    children = stream.fork(3)
    children[0].abort()
    outputs = [list(child.result().token_ids) for child in children[1:]]
    outputs.append(list(stream.result().token_ids))
    assert all(ids[:3] == said and len(ids) == 300 for ids in outputs)
    assert len({tuple(ids) for ids in outputs}) == 3
    with pytest.raises(RequestError, match="not under way"):
        stream.fork()
    wait_until_idle(served)
    assert served.statistics().num_held_blocks == 0
