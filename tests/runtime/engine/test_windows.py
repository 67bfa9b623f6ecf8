"""Models with windows in the engine: what lies behind a window makes room, and nothing else changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.engine import Engine
from phloem.runtime.execute.loading import load
from phloem.runtime.execute.pool import pool_size
from phloem.runtime.request import SamplingParams

from ..fakes import FakeDecoder, fake_engine
from ..models.decoder_cases import CASES
from ..models.oracle import Oracle, save_random_model
from ..windowed_fake import WindowedFakeConfig, WindowedFakeDecoder
from .test_run_ahead import QUESTIONS

# windows alone; one of two; five of six; one of two, read by others too; with other heads; with sinks; chunks
WINDOWED = ["mistral-window", "gemma2", "gemma3", "gemma3n", "gemma4-k-eq-v", "gpt-oss", "llama4"]
GREEDY = SamplingParams(max_tokens=9, temperature=0.0)
ONE = SamplingParams(max_tokens=1, temperature=0.0)


def windowed_engine(window: int = 6, **settings: Any) -> Engine:
    engine: Engine = fake_engine(decoder=WindowedFakeDecoder(window), **settings)
    assert engine.prefix_cache.slots.windows is not None
    return engine


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_every_window_that_is_read_is_that_of_the_tokens_before(data: st.DataObject) -> None:
    """Arrivals, aborts, forks, drafts and preemptions at any step, with few blocks and few slots."""
    engine = windowed_engine(
        data.draw(st.sampled_from([1, 2, 4])),
        prefix_cache=data.draw(st.sampled_from([True, True, True, False])),
        draft_decoder=data.draw(st.sampled_from([None, FakeDecoder()])),
        jump=data.draw(st.sampled_from(["off", "verified", "canonical"])),
        run_ahead=data.draw(st.booleans()),
        block_size=data.draw(st.sampled_from([1, 4])),
        num_blocks=data.draw(st.sampled_from([84, 140, 256])),
        max_batch_tokens=data.draw(st.sampled_from([8, 24, 512])),
        max_running_requests=data.draw(st.sampled_from([1, 2, 5])),
    )
    QUESTIONS.check_traffic(data, engine)


def cached_tokens(engine: Engine, prompt: list[int], params: SamplingParams = GREEDY) -> int:
    return engine.generate(prompt, params).usage.cached_tokens


def test_a_long_request_holds_no_more_than_its_window() -> None:
    engine = windowed_engine(num_blocks=96, max_batch_tokens=16)
    windows, most = engine.prefix_cache.slots.windows, 0
    assert windows is not None
    engine.add(list(range(250)), SamplingParams(max_tokens=100, temperature=0.0, ignore_eos=True))
    while engine.has_work:
        engine.step()
        most = max(most, windows.slots.num_held)
    assert most <= (6 - 1) // 4 + 2
    assert engine.statistics().num_evictable_blocks == -(-349 // 4), "all keys of layers without a window are kept"
    assert windows.slots.num_used == windows.slots.num_slots - 1, "slots are kept as long as none needs them"


def test_hits_are_exact_to_the_token_as_long_as_there_are_slots() -> None:
    engine = windowed_engine(num_blocks=256)
    assert [cached_tokens(engine, list(range(23))) for _ in range(2)] == [0, 22]
    assert cached_tokens(engine, [*range(17), 90, 91]) == 17


def test_the_next_turn_resumes_at_the_end_of_the_last() -> None:
    engine = windowed_engine(num_blocks=84)
    chat, sizes = list(range(30)), []
    for turn in range(6):
        found = engine.generate(chat, GREEDY)
        sizes.append((found.usage.cached_tokens, len(chat)))
        chat += [*found.token_ids, 100 + turn]
    assert [cached for cached, _ in sizes[1:]] == [
        size - 2 for _, size in sizes[1:]
    ]  # the last token said, the new one


def test_where_two_prompts_part_the_third_resumes() -> None:
    """The shared prefix is long behind both ends; its window was let go, and is kept from the second on."""
    engine = windowed_engine(num_blocks=140)
    shared = list(range(30))
    found = []
    for i in range(4):
        found.append(cached_tokens(engine, [*shared, *range(40 + 30 * i, 70 + 30 * i), *range(60)], ONE))
        for j in range(3):
            engine.generate([200 + i, j, *range(50)], ONE)
    assert found == [0, 0, 30, 30]


def test_a_hit_that_a_window_cut_short_is_explained() -> None:
    engine = windowed_engine(num_blocks=84, max_batch_tokens=8)
    engine.generate([*range(30), 40, 41, *range(80)], GREEDY)
    engine.generate([250, *range(80)], GREEDY)
    explained = engine.generate([*range(30), 50, 51], GREEDY, explain_cache=True).usage.cache_explanation
    assert explained is not None
    assert (explained.reason, explained.num_cached_tokens, explained.num_agreeing_tokens) == ("no_window", 0, 30)
    assert "of its first 30 tokens are cached, but those in layers with a window have made room" in explained.sentence


@pytest.mark.parametrize(
    ("prompts", "expected"), [([list(range(k, k + 30)) for k in range(6)], 3), ([[*range(30)]] * 6, 6)]
)
def test_a_window_that_is_shared_is_counted_once(prompts: list[list[int]], expected: int) -> None:
    """15 slots for windows: of four blocks each, or of two that are their own and what all share."""
    engine = windowed_engine(9, num_blocks=84)
    for prompt in prompts:
        engine.add(prompt, SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True))
    most = 0
    while engine.has_work:
        engine.step()
        most = max(most, engine.statistics().num_running)
    assert most == expected


def test_slots_are_reported() -> None:
    engine = windowed_engine(num_blocks=84)
    engine.generate(list(range(30)), GREEDY)
    report = engine.cache_report()
    assert (report.num_slots, report.num_held_slots, report.num_used_slots) == (21, 0, 10)
    assert "layers with a window: 21 slots, 0 held by requests, 10 kept for others" in str(report)


@pytest.mark.parametrize(
    ("settings", "num_full"),
    [({"num_blocks": 48}, 1), ({"max_model_len": 6}, 1), ({"host_memory_bytes": 1 << 20}, 0)],
    ids=["too few blocks", "too short a context", "tiers, and no layer that sees all"],
)
def test_without_room_or_use_for_slots_all_keys_are_kept(settings: dict[str, Any], num_full: int) -> None:
    model = WindowedFakeConfig()
    model = replace(model, layers=model.layers[1 - num_full :])
    config = EngineConfig(**{"block_size": 4, "num_blocks": 256, **settings})
    assert not pool_size(config, model, torch.float64, torch.device("cpu")).num_slots  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=WINDOWED)
def checkpoint(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, Oracle]]:
    class_name, options = CASES[request.param]
    folder = tmp_path_factory.mktemp("windows")
    longer = {**options, "max_position_embeddings": 1024}
    yield folder, Oracle(folder, save_random_model(folder, class_name, longer))


def test_a_hit_says_what_a_miss_says_and_transformers_too(checkpoint: tuple[Path, Oracle]) -> None:
    """To the bit, also where tables begin behind the first keys. `whole` is too small for slots, and keeps all keys."""
    loaded, source = load(EngineConfig(model=str(checkpoint[0]), device="cpu")), random.Random(3)

    def tokens(count: int) -> list[int]:
        return [source.randrange(131) for _ in range(count)]

    base = tokens(330)
    prompts = [base[: source.randrange(5, 90)] + tokens(source.randrange(1, 30)) for _ in range(5)] + [base]
    common: dict[str, Any] = {"device": "cpu", "max_batch_tokens": 40, "check_invariants": True}
    config = EngineConfig(**common, block_size=4, num_blocks=200, max_running_requests=3)
    whole = EngineConfig(**common, block_size=64, num_blocks=20, prefix_cache=False)
    engine, cold = Engine.from_loaded(config, loaded), Engine.from_loaded(whole, loaded)
    assert (engine.prefix_cache.slots.windows is None, cold.prefix_cache.slots.windows is None) == (False, True)
    for params in (GREEDY, GREEDY, SamplingParams(max_tokens=9, temperature=0.9, seed=5)):
        params = replace(params, logprobs=1)
        found, expected = engine.generate(prompts, params), cold.generate(prompts, params)
        assert [(one.token_ids, one.logprobs) for one in found] == [(one.token_ids, one.logprobs) for one in expected]
    assert sum(one.usage.cached_tokens for one in found) > 0
    greedy = engine.generate(base, GREEDY)
    checkpoint[1].assert_greedy(base, list(greedy.token_ids))
    turn = [*base, *greedy.token_ids, *tokens(5)]
    again = engine.generate(turn, GREEDY)
    assert again.usage.cached_tokens == len(base) + 8
    assert again.token_ids == cold.generate(turn, GREEDY).token_ids
