"""What the engine promises its users, on the bundled model: the cache and the jump change nothing but the time."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import jsonschema
import pytest
import torch

from phloem.fsm.foresight import forced_tokens
from phloem.runtime.config import EngineConfig
from phloem.runtime.constrain.spec import ConstraintSpec, choice, json_object, json_schema, regex
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.request import Completion, FinishReason, SamplingParams

from ..fakes import NEVER, expect_short_answers
from ..schemas import random_schemas
from ..stepped import SteppedEngine
from ..traffic import listen

GREEDY = SamplingParams(max_tokens=24, temperature=0.0)


@pytest.fixture(scope="module")
def nano() -> Iterator[LoadedModel]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load(EngineConfig(device="cpu"))
    torch.set_num_threads(threads)


def engine(nano: LoadedModel, **settings: object) -> SteppedEngine:
    """By its stopwatch nothing takes any time, so drafts are the same in every run."""
    config = EngineConfig(device="cpu", check_invariants=True, **settings)  # type: ignore[arg-type]
    return SteppedEngine.from_loaded(config, nano, stopwatch=lambda: 0.0)


def chats(nano: LoadedModel, count: int, system: str) -> list[list[int]]:
    return [
        nano.tokenizer.apply_chat_template(
            [{"role": "system", "content": system}, {"role": "user", "content": f"Repeat: sample {i}"}]
        )
        for i in range(count)
    ]


def texts(completions: list[Completion]) -> list[tuple[int, ...]]:
    return [completion.token_ids for completion in completions]


def test_many_requests_over_one_system_prompt_compute_it_once(nano: LoadedModel) -> None:
    system = "You read documents. "
    while len(nano.tokenizer.encode(system)) < 1000:
        system += "Item 12 costs 30 gold. "
    prompts = chats(nano, 20, system)
    cached = engine(nano)
    warm = cached.generate(prompts, GREEDY)
    assert sum(completion.usage.cached_tokens for completion in warm) >= 19 * 992
    cold = engine(nano, prefix_cache=False).generate(prompts[::5], GREEDY)
    assert texts(warm)[::5] == texts(cold)
    assert all(completion.usage.cached_tokens == 0 for completion in cold)
    assert texts(cached.generate(prompts, GREEDY)) == texts(warm)


def test_seeds_reproduce_samples_whatever_the_batch_and_the_cache(nano: LoadedModel) -> None:
    prompts = chats(nano, 8, "You read documents.")
    params = [SamplingParams(max_tokens=20, temperature=0.8, top_p=0.95, seed=i) for i in range(8)]
    alone = [engine(nano, prefix_cache=False).generate(p, s) for p, s in zip(prompts, params, strict=True)]
    crowd = engine(nano, max_batch_tokens=48)
    ids = [crowd.add(p, s) for p, s in zip(prompts, params, strict=True)]
    said = listen(crowd)
    assert [tuple(said[request_id].token_ids) for request_id in ids] == texts(alone)


@pytest.mark.parametrize("settings", [{"block_size": 1}, {"max_batch_tokens": 33, "max_running_requests": 2}])
def test_chunks_blocks_and_batches_do_not_change_greedy_text(nano: LoadedModel, settings: dict[str, int]) -> None:
    prompts = chats(nano, 12, "You read documents. " * 12)
    plain = engine(nano, prefix_cache=False, max_running_requests=1).generate(prompts, GREEDY)
    assert texts(engine(nano, **settings).generate(prompts, GREEDY)) == texts(plain)


def test_a_pool_of_a_quarter_of_the_need_gives_the_same_text(nano: LoadedModel) -> None:
    prompts = chats(nano, 24, "You read documents.")
    params = SamplingParams(max_tokens=60, temperature=0.0, ignore_eos=True, stop=NEVER)
    large = engine(nano, prefix_cache=False)
    need = sum(-(-(len(prompt) + 60) // 16) for prompt in prompts)
    small = engine(nano, num_blocks=need // 4)
    expect_short_answers(small)
    assert texts(small.generate(prompts, params)) == texts(large.generate(prompts, params))
    assert small.statistics().num_preemptions > 0
    assert small.statistics().num_held_blocks == 0


def test_jumping_changes_no_token_over_random_schemas(nano: LoadedModel) -> None:
    schemas = random_schemas(seed=11, count=60)
    prompt = nano.tokenizer.apply_chat_template([{"role": "user", "content": "Extract the person as JSON."}])
    params = SamplingParams(max_tokens=160, temperature=0.0)
    runs = {}
    for jump in ("off", "verified"):
        served = engine(
            nano, jump=jump, lookup_drafts=jump != "off", max_running_requests=8
        )  # few enough for drafts to pay
        runs[jump] = run(served, [(prompt, params, json_schema(schema)) for schema in schemas])
    assert texts(runs["off"]) == texts(runs["verified"])
    assert sum(c.usage.jumped_tokens for c in runs["off"]) == 0
    assert (
        sum(c.usage.jumped_tokens for c in runs["verified"]) > sum(c.usage.completion_tokens for c in runs["off"]) / 10
    )


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_what_earlier_requests_wrote_changes_no_token_of_later_ones(nano: LoadedModel, temperature: float) -> None:
    schemas = random_schemas(seed=13, count=12)
    rounds: dict[str, list[list[tuple[int, ...]]]] = {}
    jumped: dict[str, list[int]] = {}
    for jump in ("off", "verified"):
        served = engine(nano, jump=jump, max_running_requests=8)
        for number in (0, 0, 1):
            prompt = nano.tokenizer.apply_chat_template([{"role": "user", "content": f"Extract person {number}."}])
            params = SamplingParams(max_tokens=80, temperature=temperature, seed=number)
            completions = run(served, [(prompt, params, json_schema(schema)) for schema in schemas])
            rounds.setdefault(jump, []).append(texts(completions))
            jumped.setdefault(jump, []).append(sum(c.usage.jumped_tokens for c in completions))
    assert rounds["verified"] == rounds["off"]
    first, again, _ = jumped["verified"]
    assert again > first


def test_drafts_are_canonical_tokenisations(nano: LoadedModel) -> None:
    tokenizer = nano.tokenizer
    served = engine(nano)
    num_drafts = 0
    for schema in random_schemas(seed=12, count=60):
        cursor = served.request_factory.compile(json_schema(schema)).cursor()
        source = random.Random(1)
        for _ in range(200):
            draft = forced_tokens(cursor)
            if draft:
                num_drafts += 1
                assert tokenizer.encode(tokenizer.decode(draft)) == draft
            if cursor.must_stop or not advance_somehow(cursor, draft, source):
                break
    assert num_drafts > 60


def advance_somehow(cursor, draft: list[int], source: random.Random) -> bool:  # type: ignore[no-untyped-def]
    """Takes the draft, or a random allowed token; False if only the end token is allowed."""
    if draft:
        return all(cursor.advance(token_id) for token_id in draft)
    row = cursor.row()
    allowed = [t for t in range(len(row) * 32) if row[t >> 5] >> (t & 31) & 1]
    token_id = source.choice(allowed)
    return cursor.advance(token_id) and not cursor.is_finished


def run(served: SteppedEngine, work: list[tuple[list[int], SamplingParams, ConstraintSpec | None]]) -> list[Completion]:
    prompts, all_params, constraints = zip(*work, strict=True)
    return served.generate(list(prompts), all_params, constraints)


def test_constrained_output_always_validates_in_a_mixed_batch(nano: LoadedModel) -> None:
    """Hundreds of requests, five kinds of constraint and none, every temperature, budgets from tight to ample."""
    source = random.Random(9)
    served = engine(nano, num_blocks=400)
    prompt = nano.tokenizer.apply_chat_template([{"role": "user", "content": "Extract the person as JSON."}])
    schemas = random_schemas(seed=13, count=60)
    work: list[tuple[list[int], SamplingParams, ConstraintSpec | None]] = []
    wanted: list[object] = []
    for i in range(240):
        kind = i % 6
        spec: ConstraintSpec | None
        if kind < 2:
            schema = schemas[source.randrange(len(schemas))]
            spec, want = json_schema(schema), schema
        else:
            spec, want = [
                (json_object(), None),
                (regex(r"[a-z]{2,5}-\d{3}"), None),
                (choice(["yes", "no", "maybe so"]), None),
                (None, None),
            ][kind - 2]
        need = served.request_factory.compile(spec).cursor().min_tokens_to_accept() if spec else 1
        params = SamplingParams(
            max_tokens=need + source.choice([0, 1, 5, 60]), temperature=source.choice([0.0, 0.7, 1.5, 3.0]), seed=i
        )
        work.append((prompt, params, spec))
        wanted.append(want)
    for (_, _, spec), want, completion in zip(work, wanted, run(served, work), strict=True):
        if spec is None:
            continue
        assert completion.finish_reason is FinishReason.STOP, (spec, completion)
        value = spec.parse(completion.text)
        if want is not None:
            jsonschema.validate(json.loads(completion.text), want)  # type: ignore[arg-type]
        elif spec.kind == "json_object":
            assert isinstance(value, dict)
        elif spec.kind == "choice":
            assert completion.text in spec.source
    assert served.statistics().num_held_blocks == 0
