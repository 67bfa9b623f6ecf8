"""An exception at any one call of the prefix cache or of the model runner costs at most one request its answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from phloem.errors import RequestError
from phloem.runtime.engine import Engine
from phloem.runtime.request import SamplingParams

from .fakes import NEVER, expect_short_answers, fake_engine, greedy_truth

LENGTHS = [9, 11, 5, 10]
PROMPTS = [[*range(6), i, *range(40, 40 + i)] for i in range(4)]
FORKED = 1  # the request that is forked, and after how many steps
FORKED_AFTER = 3
NUM_BLOCKS = 10
CACHE_CALLS = [
    "explain",
    "lease",
    "reserve",
    "fork",
    "shrink",
    "keep_scores",
    "commit",
    "pin",
    "release",
    "num_sole_blocks",
]


class Fault(Exception):
    pass


class Saboteur:
    """Counts the calls of some methods and raises at one of them."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.num_calls = 0

    def wrap(self, owner: Any, name: str) -> None:
        method: Callable[..., Any] = getattr(owner, name)

        def call(*args: Any, **options: Any) -> Any:
            self.num_calls += 1
            if self.num_calls == self.at:
                raise Fault(name)
            return method(*args, **options)

        setattr(owner, name, call)


def serve(saboteur: Saboteur) -> tuple[Engine, dict[int, list[int] | None]]:
    """Four requests over a small pool, one of them scored, explained and pinned, and one forked; the text of each, that
    of the fork last, None for what failed."""
    engine = fake_engine(block_size=4, num_blocks=NUM_BLOCKS, max_batch_tokens=32, check_invariants=False)
    expect_short_answers(engine)  # so that it admits too many
    for name in CACHE_CALLS:
        saboteur.wrap(engine.prefix_cache, name)
    saboteur.wrap(engine._runner, "forward")
    names = {}
    for index, (prompt, length) in enumerate(zip(PROMPTS, LENGTHS, strict=True)):
        is_first = index == 0
        params = SamplingParams(
            max_tokens=length,
            temperature=0.0,
            prompt_logprobs_from=2 if is_first else None,
            ignore_eos=True,
            stop=NEVER,
        )
        names[engine.add(prompt, params, explain_cache=is_first, pin_ttl=0.001 if is_first else 0.0)] = index
    text: dict[int, list[int] | None] = {index: [] for index in names.values()}
    for step in range(200):
        if not engine.has_work:
            break
        for delta in engine.step():
            index = names[delta.request_id]
            if delta.error is not None:
                text[index] = None
            else:
                said = text[index]
                assert said is not None
                said += delta.token_ids
        if step == FORKED_AFTER:
            text[len(PROMPTS)] = None
            with suppress(Fault, RequestError):  # a parent that has failed cannot be forked
                (child,) = engine.fork(next(name for name, index in names.items() if index == FORKED))
                names[child] = len(PROMPTS)
                text[len(PROMPTS)] = []
        engine.audit()
    assert not engine.has_work
    assert not engine._requests
    return engine, text


@pytest.fixture(scope="module")
def truth() -> list[list[int]]:
    texts = [greedy_truth(prompt, length) for prompt, length in zip(PROMPTS, LENGTHS, strict=True)]
    return [*texts, texts[FORKED]]


@pytest.fixture(scope="module")
def num_calls(truth: list[list[int]]) -> int:
    """How many calls there are without a fault; the load is one that preempts and evicts."""
    saboteur = Saboteur(-1)
    engine, text = serve(saboteur)
    assert list(text.values()) == truth
    assert engine.statistics().num_preemptions > 0
    return saboteur.num_calls


def test_a_fault_at_any_call_costs_at_most_one_request(num_calls: int, truth: list[list[int]]) -> None:
    """And the fork of it."""
    assert num_calls > 100
    for at in range(1, num_calls + 1):
        engine, text = serve(Saboteur(at))
        failed = {FORKED if index == len(PROMPTS) else index for index, said in text.items() if said is None}
        assert len(failed) <= 1, f"call {at}"
        for index, said in text.items():
            assert said is None or said == truth[index], f"call {at}"
        statistics = engine.statistics()
        assert statistics.num_held_blocks == 0
        assert statistics.num_evictable_blocks == statistics.num_cached_blocks - statistics.num_pinned_blocks
        engine.prefix_cache.flush(pinned=True)
        assert engine.statistics().num_free_blocks == NUM_BLOCKS
