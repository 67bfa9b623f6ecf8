"""An exception at any one call of the prefix cache or of the model runner costs at most one request its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from phloem.runtime.engine import Engine
from phloem.runtime.request import SamplingParams

from .fakes import fake_engine, greedy_truth

LENGTHS = [12, 15, 9, 14, 6, 15]
PROMPTS = [[*range(8), i, *range(40, 40 + i)] for i in range(6)]
CACHE_CALLS = ["lease", "reserve", "shrink", "commit", "release", "num_sole_blocks"]


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
    """Six requests over a small pool; the text of each, None for one that failed."""
    engine = fake_engine(block_size=4, num_blocks=12, max_batch_tokens=32)
    short = SamplingParams(max_tokens=200, temperature=0.0, stop_token_ids=tuple(range(256)))
    engine.generate([[200 + i] for i in range(9)], short)  # so that it admits too many
    for name in CACHE_CALLS:
        saboteur.wrap(engine.prefix_cache, name)
    saboteur.wrap(engine._runner, "forward")
    names = {}
    for index, (prompt, length) in enumerate(zip(PROMPTS, LENGTHS, strict=True)):
        params = SamplingParams(max_tokens=length, temperature=0.0)
        names[engine.add(prompt, params)] = index
    text: dict[int, list[int] | None] = {index: [] for index in names.values()}
    for _ in range(500):
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
        engine.audit()
    assert not engine.has_work
    return engine, text


@pytest.fixture(scope="module")
def truth() -> list[list[int]]:
    return [greedy_truth(prompt, length) for prompt, length in zip(PROMPTS, LENGTHS, strict=True)]


@pytest.fixture(scope="module")
def num_calls(truth: list[list[int]]) -> int:
    """How many calls there are without a fault; the load is one that preempts and evicts."""
    saboteur = Saboteur(-1)
    engine, text = serve(saboteur)
    assert list(text.values()) == truth
    assert engine.statistics().num_preemptions > 0
    return saboteur.num_calls


@pytest.mark.parametrize("part", range(2))
def test_a_fault_at_any_call_costs_at_most_one_request(part: int, num_calls: int, truth: list[list[int]]) -> None:
    assert num_calls > 100
    for at in range(1 + part, num_calls + 1, 2):
        engine, text = serve(Saboteur(at))
        assert sum(said is None for said in text.values()) <= 1, f"call {at}"
        for index, said in text.items():
            assert said is None or said == truth[index], f"call {at}"
        statistics = engine.statistics()
        assert statistics.num_held_blocks == 0
        assert statistics.num_evictable_blocks == statistics.num_cached_blocks
        engine.flush_cache()
        assert engine.statistics().num_free_blocks == 12
