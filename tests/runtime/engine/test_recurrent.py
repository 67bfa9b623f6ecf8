"""Models with recurrent layers in the engine: a prefix is resumed where a state is, and nothing else changes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import ConfigError
from phloem.runtime.capacity.plan_table import table
from phloem.runtime.capacity.planner import plan
from phloem.runtime.capacity.window_memory import EMPTY_BLOCKS
from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.engine import Engine
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.models import ModelConfig
from phloem.runtime.models.architectures import ARCHITECTURES
from phloem.runtime.request import SamplingParams

from ..fakes import fake_engine
from ..models.decoder_cases import CASES
from ..models.oracle import Oracle, save_random_model
from ..models.saved_adapters import save_adapter
from ..recurrent_fake import RecurrentFakeDecoder
from ..speculate.drafting import engine_with
from ..traffic import Asked
from .test_run_ahead import PROMPTS, QUESTIONS

# one case of each arrangement: the decoder's own tests go through all of them
AS_OTHERS = {"BambaForCausalLM", "FalconMambaForCausalLM", "Lfm2MoeForCausalLM", "Qwen3_5MoeForCausalLM"}
RECURRENT = {kind for kind, options in ARCHITECTURES.items() if options.recurrent is not None} - AS_OTHERS
HYBRIDS = list({kind: name for name, (kind, _) in CASES.items() if kind in RECURRENT}.values())
MIXERS, ADAPTER = r".*(self_attn|conv|linear_attn|mamba)\..*", "adapter"
ADAPTED = {"Lfm2ForCausalLM", "Qwen3NextForCausalLM", "Qwen3_5ForCausalLM", "GraniteMoeHybridForCausalLM"}
GREEDY = SamplingParams(max_tokens=9, temperature=0.0)


def recurrent_engine(**settings: Any) -> Engine:
    return fake_engine(decoder=RecurrentFakeDecoder(), **settings)


@settings(max_examples=120)
@given(st.data())
def test_every_state_that_is_read_is_that_of_the_tokens_before(data: st.DataObject) -> None:
    """Arrivals, aborts, forks, drafts and preemptions at any step, with few blocks and few states."""
    state_bytes, running = 16, data.draw(st.sampled_from([1, 2, 5]))
    drafter = data.draw(st.sampled_from([None, None, "mtp", "noisy"]))
    engine = engine_with(
        drafter,
        length=3 * (drafter is not None),
        decoder=RecurrentFakeDecoder(),
        jump=data.draw(st.sampled_from(["off", "verified", "canonical"])),
        run_ahead=data.draw(st.booleans()),
        block_size=data.draw(st.sampled_from([1, 4])),
        num_blocks=data.draw(st.sampled_from([64, 80, 256])),
        max_batch_tokens=data.draw(st.sampled_from([8, 24, 512])),
        max_running_requests=running,
        state_interval=data.draw(st.sampled_from([0, 1, 5, 512])),
        state_memory_bytes=data.draw(st.sampled_from([2, 3, 2 * running, 2 * running + 9, 99])) * state_bytes,
    )
    QUESTIONS.check_traffic(data, engine)
    assert drafter is None or not engine._stepper._drafter.model.num_failed


def test_steps_run_ahead_where_slots_are_left() -> None:
    every = [Asked(prompt, which, 0, 14) for prompt in range(len(PROMPTS)) for which in range(2)]
    shares = []
    for num_slots in (16, 99):
        settings = {"jump": "off", "run_ahead": True, "num_blocks": 256, "max_running_requests": 8, "state_interval": 0}
        engine = recurrent_engine(**settings, prefix_cache=False, state_memory_bytes=16 * num_slots)
        QUESTIONS.check_together(engine, every)
        statistics = engine.statistics()
        shares.append(statistics.num_ahead / statistics.num_steps)
    assert shares[0] < 0.7 < 0.9 < shares[1]


def cached_tokens(engine: Engine, prompt: list[int], params: SamplingParams = GREEDY) -> int:
    return engine.generate(prompt, params).usage.cached_tokens


SHARED = list(range(30))


@pytest.mark.parametrize(
    ("settings", "prompts", "cached"),
    [
        ({"state_interval": 0}, [SHARED, SHARED], [0, 29]),
        ({"state_interval": 0}, [[*SHARED, 40 + i, 41] for i in range(3)], [0, 0, 28]),
        ({"state_interval": 8}, [[*SHARED, 40 + i, 41] for i in range(2)], [0, 24]),
        ({"state_interval": 8, "max_batch_tokens": 8}, [[*SHARED, 40 + i, 41] for i in range(2)], [0, 24]),
    ],
    ids=["the same prompt", "where prompts part, in whole blocks", "at intervals", "where chunks end too"],
)
def test_a_request_resumes_where_a_state_was_kept(
    settings: dict[str, int], prompts: list[list[int]], cached: list[int]
) -> None:
    engine = recurrent_engine(**settings)
    assert [cached_tokens(engine, prompt) for prompt in prompts] == cached


def test_the_next_turn_resumes_at_the_end_of_the_last() -> None:
    engine = recurrent_engine(state_interval=0)
    first = engine.generate(list(range(23)), GREEDY)
    computed = 23 + len(first.token_ids) - 1  # the last token of a reply was never computed
    assert cached_tokens(engine, [*range(23), *first.token_ids, 5, 6]) == computed


def test_a_miss_for_want_of_a_state_is_explained() -> None:
    engine = recurrent_engine(state_interval=0)
    engine.generate([*range(30), 40, 41], GREEDY)
    explained = engine.generate([*range(30), 50, 51], GREEDY, explain_cache=True).usage.cache_explanation
    assert explained is not None
    assert (explained.reason, explained.num_cached_tokens, explained.num_agreeing_tokens) == ("no_state", 0, 30)
    assert "of its first 30 tokens are cached, but no state of the recurrent layers" in explained.sentence


def test_a_state_that_made_room_is_named() -> None:
    """One slot for what is kept while a request runs: the states of longer prompts stay, which spare more."""
    engine = recurrent_engine(state_interval=0, max_running_requests=1, state_memory_bytes=3 * 16)
    for prompt in ([*range(200, 209)], [*range(60)], [*range(100, 160)]):
        engine.generate(prompt, GREEDY)
    again = engine.generate([*range(200, 209), 7, 8, 9], GREEDY, explain_cache=True).usage.cache_explanation
    assert again is not None
    assert (again.reason, again.num_cached_tokens, again.num_agreeing_tokens, again.state_at) == ("no_state", 0, 9, 8)
    assert again.sentence.endswith("the state of the recurrent layers at token 8 made room for others that save more.")


@pytest.mark.parametrize(
    ("settings", "seats"),
    [({}, 256), ({"state_memory_bytes": 15 * 16}, 7), ({"max_batch_tokens": 5}, 5), ({"max_running_requests": 3}, 3)],
)
def test_statistics_have_the_number_that_may_run(settings: dict[str, Any], seats: int) -> None:
    """The setting, unless states (16 bytes each, two for each request) or the tokens of a step are for fewer."""
    assert recurrent_engine(**settings).statistics().max_running_requests == seats


def test_without_a_prefix_cache_there_are_no_states_to_keep() -> None:
    engine = recurrent_engine(prefix_cache=False)
    assert [cached_tokens(engine, list(range(23))) for _ in range(2)] == [0, 0]
    assert engine.prefix_cache.slots.states is not None
    assert engine.prefix_cache.slots.states.slots.num_kept == 0


def test_the_state_that_saves_least_goes_first() -> None:
    """Slots for one request and one kept state: the long prompt's stays."""
    engine = recurrent_engine(state_interval=0, max_running_requests=1, state_memory_bytes=3 * 16)
    long, short = list(range(60)), [200, 201, 202]
    engine.generate(long, SamplingParams(max_tokens=1, temperature=0.0))
    engine.generate(short, SamplingParams(max_tokens=1, temperature=0.0))
    assert cached_tokens(engine, [*long, 7]) == 60


@pytest.fixture(scope="module", params=HYBRIDS)
def hybrid(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Oracle]]:
    class_name, options = CASES[request.param]
    folder = tmp_path_factory.mktemp("hybrid")
    model = save_random_model(folder, class_name, options)
    if class_name in ADAPTED:
        save_adapter(folder / ADAPTER, model, MIXERS, {}, target_modules=MIXERS)
    yield folder, Oracle(folder, model)


@pytest.fixture
def loaded(hybrid: tuple[Path, Oracle]) -> LoadedModel:
    folder = hybrid[0]
    adapters = {ADAPTER: str(folder / ADAPTER)} if (folder / ADAPTER).exists() else {}
    return load(EngineConfig(model=str(folder), device="cpu", adapters=adapters))


def test_without_attention_blocks_hold_nothing_and_states_are_found_by_them(tmp_path: Path) -> None:
    save_random_model(tmp_path, *CASES["mamba2"])
    config = EngineConfig(model=str(tmp_path), device="cpu", state_interval=0)
    with Engine.from_loaded(config, load(config)) as engine:
        assert engine.statistics().num_blocks == EMPTY_BLOCKS
        assert [cached_tokens(engine, list(range(23))) for _ in range(2)] == [0, 22]
    found = table(plan(ModelConfig.from_folder(tmp_path), pool_bytes=1 << 20))
    assert "KV per token  none: no layer keeps keys" in found and "KV pool       none; 65,536 blocks" in found


def test_a_hit_says_what_a_miss_says_and_transformers_too(hybrid: tuple[Path, Oracle], loaded: LoadedModel) -> None:
    source = random.Random(3)

    def tokens(count: int) -> list[int]:
        return [source.randrange(131) for _ in range(count)]

    base = tokens(40)
    prompts = [base[: source.randrange(5, 40)] + tokens(source.randrange(1, 30)) for _ in range(8)]
    common = {"device": "cpu", "block_size": 4, "num_blocks": 100, "max_batch_tokens": 24, "check_invariants": True}
    config = EngineConfig(**common, state_interval=8, max_running_requests=3)  # type: ignore[arg-type]
    cold = Engine.from_loaded(EngineConfig(**common, prefix_cache=False), loaded)  # type: ignore[arg-type]
    engine, sampled = Engine.from_loaded(config, loaded), SamplingParams(max_tokens=9, temperature=0.9, seed=5)
    if loaded.adapters:
        first, again = (engine.generate(prompts[0], sampled, adapter=ADAPTER) for _ in range(2))
        assert (first.usage.cached_tokens, again.usage.cached_tokens) == (0, len(prompts[0]) - 1)
        assert first.token_ids == again.token_ids == cold.generate(prompts[0], sampled, adapter=ADAPTER).token_ids
        assert first.token_ids != engine.generate(prompts[0], sampled).token_ids
    for params in (GREEDY, GREEDY, sampled):
        found = engine.generate(prompts, params)
        assert [one.token_ids for one in found] == [one.token_ids for one in cold.generate(prompts, params)]
    assert sum(one.usage.cached_tokens for one in found) >= sum(len(prompt) - 1 for prompt in prompts) / 2
    greedy = engine.generate(prompts[0], GREEDY)
    hybrid[1].assert_greedy(prompts[0], list(greedy.token_ids))
    turn = [*prompts[0], *greedy.token_ids, *tokens(5)]
    again = engine.generate(turn, GREEDY)
    assert again.usage.cached_tokens == len(prompts[0]) + 8
    assert again.token_ids == cold.generate(turn, GREEDY).token_ids


def test_too_little_memory_for_states_is_refused() -> None:
    with pytest.raises(ConfigError, match="state_memory_bytes: the memory does not hold the two states of one"):
        recurrent_engine(state_memory_bytes=30)
    with pytest.raises(ConfigError, match=r"--state-memory\): 1,073,741,824.00 GiB cannot be had on cpu; .* are free"):
        recurrent_engine(state_memory_bytes=1 << 60)


def test_a_step_that_fails_is_computed_again_from_the_states_before() -> None:
    engine = recurrent_engine()
    forward, calls = engine._runner.forward, []

    def sometimes(batch: Any, *rest: Any) -> torch.Tensor:
        logits = forward(batch, *rest)
        calls.append(len(batch.extends))
        if len(calls) % 3 == 1 and len(batch.extends) > 1:
            raise RuntimeError("the device has hiccups")
        return logits

    prompts = [list(range(length)) for length in (5, 9, 30)]
    expected = recurrent_engine(prefix_cache=False).generate(prompts, GREEDY)
    engine._runner.forward = sometimes  # type: ignore[method-assign]
    found = engine.generate(prompts, GREEDY)
    assert [one.token_ids for one in found] == [one.token_ids for one in expected]
    assert any(count > 1 for count in calls[::3])
