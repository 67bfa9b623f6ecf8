"""An exception at any one call of the prefix cache or of the model runner costs at most one request its answer."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from phloem.errors import DeadlineExceeded, RequestError
from phloem.runtime.cache.prefix_cache import PrefixCache
from phloem.runtime.constraint_spec import ConstraintSpec, regex
from phloem.runtime.engine import Engine
from phloem.runtime.request import RequestOptions, SamplingParams

from .fakes import NEVER, expect_short_answers, fake_engine, greedy_truth

LENGTHS = [9, 11, 5, 10]
PROMPTS = [[*range(6), i, *range(40, 40 + i)] for i in range(4)]
FORCED = len(PROMPTS)  # a request whose text is drafted, all but its end
AGAIN = FORCED + 1  # the first prompt, scored once more
LATE = FORCED + 2  # a request that is not begun in time
FORK = FORCED + 3
FORKED = 1  # the request that is forked, and after how many steps
FORKED_AFTER = 3
NUM_BLOCKS = 7
FORCED_TEXT = b"abcdefghij"
UNTOUCHED = {"audit", "flush", "spare_what", "num_score_bytes"}  # called by those who look on, or set up
UNTOUCHED |= {"look", "adopt"}  # called where there are tiers below the pool: see cache/test_tiered_engine.py
UNTOUCHED |= {"compact"}  # of requests with a kv_budget: see test_kv_budget.py


Settings = dict[str, Any]


class Fault(Exception):
    pass


class Saboteur:
    """Counts the calls of some methods and raises at one of them."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.num_calls = 0
        self.by_name: Counter[str] = Counter()

    def called(self, name: str) -> None:
        self.num_calls += 1
        self.by_name[name] += 1
        if self.num_calls == self.at:
            raise Fault(name)

    def wrap(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self.called(name)
            return method(*args, **options)

        return call

    def wrap_cache(self, cache: PrefixCache) -> None:
        """All that is public of it but `UNTOUCHED`."""
        watched: dict[str, Any] = {}
        for name, member in vars(PrefixCache).items():
            if name.startswith("_") or name in UNTOUCHED:
                continue
            if isinstance(member, property):
                assert member.fget is not None
                watched[name] = property(self.wrap(name, member.fget))
            elif inspect.isfunction(member):
                watched[name] = self.wrap(name, member)
        cache.__class__ = type("Watched", (PrefixCache,), watched)


class Clock:
    """Seconds that pass with the steps."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def begin(engine: Engine) -> dict[str, int]:
    """Queues all kinds of request but the fork; the index of each by its id."""
    names: dict[str, int] = {}

    def add(
        index: int,
        prompt: list[int],
        max_tokens: int,
        constraint: ConstraintSpec | None = None,
        scored_from: int | None = None,
        **options: Any,
    ) -> None:
        asked = RequestOptions(**options)
        params = SamplingParams(
            max_tokens=max_tokens, temperature=0.0, prompt_logprobs_from=scored_from, ignore_eos=True, stop=NEVER
        )
        names[engine.add(prompt, params, constraint, **asked)] = index

    for index, (prompt, length) in enumerate(zip(PROMPTS, LENGTHS, strict=True)):
        if index == 0:
            add(index, prompt, length, scored_from=2, explain_cache=True, pin_ttl=2.5)
        else:
            add(index, prompt, length)
    add(FORCED, [9, 9, 9], len(FORCED_TEXT), regex(FORCED_TEXT.decode()))
    add(AGAIN, PROMPTS[0], 3, scored_from=2, priority=-1)
    add(LATE, [8, 8, 8], 3, priority=-2, deadline_seconds=2.0)
    return names


def serve(saboteur: Saboteur, settings: Settings) -> tuple[Engine, dict[int, list[int] | None]]:
    """All requests over a small pool: scored, scored again, explained and pinned, forced, too late, and one forked; the
    text of each, None for what failed."""
    clock = Clock()
    pool: Settings = {"block_size": 4, "num_blocks": NUM_BLOCKS, "max_batch_tokens": 32}
    engine = fake_engine(clock, check_invariants=False, **pool, **settings)
    expect_short_answers(engine)  # so that it admits too many
    saboteur.wrap_cache(engine.prefix_cache)
    engine._runner.forward = saboteur.wrap("forward", engine._runner.forward)  # type: ignore[method-assign]
    names = begin(engine)
    text: dict[int, list[int] | None] = {index: [] for index in names.values()}
    ended: set[str] = set()
    for step in range(200):
        if not engine.has_work:
            break
        clock.now += 1.0
        for delta in engine.step():
            index = names[delta.request_id]
            assert delta.request_id not in ended
            if delta.finish_reason is not None:
                ended.add(delta.request_id)
            if delta.error is not None:
                text[index] = [] if isinstance(delta.error, DeadlineExceeded) else None
            else:
                said = text[index]
                assert said is not None
                said += delta.token_ids
        if step == FORKED_AFTER:
            text[FORK] = None
            with suppress(Fault, RequestError):  # a parent that has failed cannot be forked
                (child,) = engine.fork(next(name for name, index in names.items() if index == FORKED))
                names[child] = FORK
                text[FORK] = []
        engine.audit()
    assert not engine.has_work
    assert not engine._requests
    return engine, text


@pytest.fixture(scope="module")
def truth() -> dict[int, list[int]]:
    texts = {index: greedy_truth(*pair) for index, pair in enumerate(zip(PROMPTS, LENGTHS, strict=True))}
    return {**texts, FORCED: list(FORCED_TEXT), AGAIN: texts[0][:3], LATE: [], FORK: texts[FORKED]}


@pytest.fixture(scope="module", params=[{}, {"run_ahead": True, "jump": "off"}], ids=["drafts", "ahead"])
def engine_settings(request: pytest.FixtureRequest) -> Settings:
    settings: Settings = request.param
    return settings


@pytest.fixture(scope="module")
def num_calls(engine_settings: Settings, truth: dict[int, list[int]]) -> int:
    """How many calls there are without a fault; the load is one that preempts, evicts and drafts or runs ahead."""
    saboteur = Saboteur(-1)
    engine, text = serve(saboteur, engine_settings)
    assert text == truth
    statistics = engine.statistics()
    assert statistics.num_preemptions > 0
    if engine_settings:
        assert statistics.num_ahead > statistics.num_steps / 4
    else:
        assert statistics.jumped_tokens > 0
    public = {name for name in vars(PrefixCache) if not name.startswith("_")}
    assert set(saboteur.by_name) == public - UNTOUCHED - ({"shrink"} if engine_settings else set()) | {"forward"}
    return saboteur.num_calls


def test_a_fault_at_any_call_costs_at_most_one_request(
    num_calls: int, engine_settings: Settings, truth: dict[int, list[int]]
) -> None:
    """And the fork of it. Who comes too late may be in time then, and the other way round."""
    assert num_calls > 250
    for at in range(1, num_calls + 1):
        saboteur = Saboteur(at)
        engine, text = serve(saboteur, engine_settings)
        failed = {FORKED if index == FORK else index for index, said in text.items() if said is None}
        assert len(failed) <= 1, f"call {at}"
        for index, said in text.items():
            assert said is None or index == LATE or said == truth[index], f"call {at}, request {index}"
        statistics = engine.statistics()
        assert statistics.num_held_blocks == 0
        assert statistics.num_evictable_blocks == statistics.num_cached_blocks - statistics.num_pinned_blocks
        engine.prefix_cache.flush(pinned=True)
        assert engine.statistics().num_free_blocks == NUM_BLOCKS
