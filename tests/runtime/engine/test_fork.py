"""Forks of requests under way say what an unforked request would have said, and nothing is computed twice."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import QueueFull, RequestError
from phloem.runtime.config import EngineConfig
from phloem.runtime.constrain.spec import json_schema, regex
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.request import FinishReason, SamplingParams

from ..fakes import NEVER, expect_short_answers, fake_engine
from ..stepped import SteppedEngine
from ..traffic import Said, listen, step

LENGTH = 24
Heard = defaultdict[str, Said]


def params_of(seed: int, max_tokens: int = LENGTH) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, temperature=1.0, seed=seed, ignore_eos=True, stop=NEVER)


@cache
def truth(token_ids: tuple[int, ...], seed: int, max_tokens: int) -> tuple[int, ...]:
    """What follows these tokens, said by an engine that has no cache and no company."""
    engine = fake_engine(prefix_cache=False, num_blocks=32)
    return engine.generate(list(token_ids), params_of(seed, max_tokens)).token_ids


@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("num_steps", [1, 2, 5, 6, 7, 8, 20])
def test_a_fork_computes_nothing_and_says_what_its_seed_says(block_size: int, num_steps: int) -> None:
    engine = fake_engine(block_size=block_size, num_blocks=160 // block_size, lookup_drafts=False)
    heard = Heard(Said)
    prompt = tuple(range(9))
    parent = engine.add(list(prompt), params_of(1))
    for _ in range(num_steps):
        step(engine, heard)
    said = tuple(heard[parent].token_ids)
    before = engine.statistics()
    children = engine.fork(parent, 3, params_of(7))
    engine.audit()
    assert engine.statistics().num_computed_tokens == before.num_computed_tokens
    listen(engine, heard)
    # Every step of parent and children computes the one token that it decodes from, and no other.
    num_steps_left = LENGTH - len(said)
    assert engine.statistics().num_computed_tokens - before.num_computed_tokens == 4 * num_steps_left
    assert tuple(heard[parent].token_ids) == truth(prompt, 1, LENGTH)
    first, *others = (tuple(heard[child].token_ids) for child in children)
    assert first == said + truth(prompt + said, 7, LENGTH - len(said))
    assert len({first, *others}) == 3
    usage = heard[children[0]].usage
    assert (usage.prompt_tokens, usage.cached_tokens) == (9, 9)
    assert (usage.forked_tokens, usage.completion_tokens) == (len(said), LENGTH - len(said))
    engine.flush_cache()
    assert engine.statistics().num_free_blocks == engine.statistics().num_blocks


@settings(deadline=None, max_examples=60)
@given(
    st.integers(12, 40),
    st.sampled_from([1, 4]),
    st.integers(1, 6),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(["step", "step", "fork", "abort", "add"]), st.integers(0, 50)), max_size=40),
)
def test_forks_aborts_and_preemptions_in_any_order_change_no_text(
    num_blocks: int, block_size: int, seats: int, cached: bool, happenings: list[tuple[str, int]]
) -> None:
    engine = fake_engine(
        num_blocks=num_blocks * 4 // block_size,
        block_size=block_size,
        max_running_requests=seats,
        max_batch_tokens=16,
        prefix_cache=cached,
    )
    expect_short_answers(engine)
    heard = Heard(Said)
    started: dict[str, tuple[tuple[int, ...], int]] = {}  # what comes before it goes its own way, and its seed
    prompts: dict[str, int] = {}
    open_ids: list[str] = []
    for number, (what, choice) in enumerate([("add", 3), *happenings]):
        if what == "step":
            step(engine, heard)
        elif what == "add":
            prompt = tuple(range(choice % 7 + 1))
            request_id = engine.add(list(prompt), params_of(number))
            started[request_id], prompts[request_id] = (prompt, number), len(prompt)
            open_ids.append(request_id)
        open_ids = [one for one in open_ids if one not in heard or heard[one].reason is None]
        if not open_ids or what in ("step", "add"):
            continue
        chosen = open_ids[choice % len(open_ids)]
        if what == "abort":
            assert engine.abort(chosen)
            open_ids.remove(chosen)
            del started[chosen]
        else:
            so_far = started[chosen][0][: prompts[chosen]] + tuple(heard[chosen].token_ids if chosen in heard else ())
            inherits = chosen not in heard and len(started[chosen][0]) > prompts[chosen]
            (child,) = engine.fork(chosen, 1, params_of(1000 + number))
            before = started[chosen][0] if inherits else so_far  # a fork of a fork that has not been heard of yet
            started[child], prompts[child] = (before, 1000 + number), prompts[chosen]
            open_ids.append(child)
        engine.audit()
    listen(engine, heard)
    for request_id, (before, seed) in started.items():
        said = before[prompts[request_id] :]
        expected = said + truth(before, seed, LENGTH - len(said))
        assert tuple(heard[request_id].token_ids) == expected
    engine.flush_cache()
    assert engine.statistics().num_free_blocks == engine.statistics().num_blocks


def test_a_fork_survives_its_parent_and_the_parent_its_forks() -> None:
    for goes in (0, 1):
        engine = fake_engine()
        heard = Heard(Said)
        parent = engine.add([1, 2, 3], params_of(1))
        for _ in range(6):
            step(engine, heard)
        ids = [parent, *engine.fork(parent, 1, params_of(1))]
        engine.abort(ids[goes])
        listen(engine, heard)
        assert tuple(heard[ids[1 - goes]].token_ids) == truth((1, 2, 3), 1, LENGTH)


def test_a_fork_that_finds_no_room_waits_and_still_computes_nothing_twice() -> None:
    """Ten forks over a pool for three: they come one after the other, from what the parent left in the tree."""
    engine = fake_engine(num_blocks=26, max_running_requests=3, lookup_drafts=False)
    heard = Heard(Said)
    parent = engine.add(list(range(30)), params_of(1))
    for _ in range(10):
        step(engine, heard)
    children = engine.fork(parent, 10, params_of(5))
    listen(engine, heard)
    said = tuple(heard[parent].token_ids[:10])
    assert tuple(heard[children[0]].token_ids) == said + truth((*range(30), *said), 5, LENGTH - 10)
    assert engine.statistics().num_computed_tokens == 30 + (LENGTH - 1) + 10 * (LENGTH - 10)


def test_residues_of_a_regex_are_what_forks_within_it_write() -> None:
    """Bytes are tokens here, so what is left of the pattern is a pattern, and an unforked request can say it."""
    for num_said, rest in ((2, r"[a-z]{3}-[0-9]{4}"), (5, r"-[0-9]{4}"), (7, r"[0-9]{3}")):
        engine = fake_engine(jump="verified")
        heard = Heard(Said)
        parent = engine.add([5, 6], params_of(3), regex(r"[a-z]{5}-[0-9]{4}"))
        while len(heard[parent].token_ids) < num_said:
            step(engine, heard)
        said = tuple(heard[parent].token_ids)
        rest = {6: r"[0-9]{4}"}.get(len(said), rest)
        (child,) = engine.fork(parent, 1, params_of(11))
        listen(engine, heard)
        alone = fake_engine(prefix_cache=False).generate([5, 6, *said], params_of(11, 60), regex(rest))
        assert tuple(heard[child].token_ids) == said + alone.token_ids
        assert heard[child].reason is FinishReason.STOP


@pytest.fixture(scope="module")
def nano() -> LoadedModel:
    return load(EngineConfig(device="cpu"))


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "price": {"type": "integer", "maximum": 99999}},
    "required": ["name", "price"],
}


@pytest.mark.parametrize("jump", ["verified", "canonical", "off"])
def test_forks_anywhere_within_json_stay_valid_and_end_as_an_unforked_request_does(
    nano: LoadedModel, jump: str
) -> None:
    """Forks inside keys, strings and numbers. Greedy ones repeat the parent; sampled ones are valid."""
    config = EngineConfig(
        device="cpu",
        check_invariants=True,
        jump=jump,  # type: ignore[arg-type]
        lookup_drafts=False,  # that it takes its steps
    )
    engine = SteppedEngine.from_loaded(config, nano, stopwatch=lambda: 0.0)
    prompt = nano.tokenizer.apply_chat_template([{"role": "user", "content": "Extract the item as JSON."}])
    greedy = SamplingParams(max_tokens=60, temperature=0.0)
    spec = json_schema(SCHEMA)
    expected = engine.generate(prompt, greedy, spec)
    heard = Heard(Said)
    parent = engine.add(prompt, greedy, spec)
    same: list[str] = []
    sampled: list[str] = []
    while heard[parent].reason is None:
        step(engine, heard)
        if heard[parent].token_ids and heard[parent].reason is None:
            before = engine.statistics().num_computed_tokens
            same += engine.fork(parent)
            sampled += engine.fork(parent, 1, SamplingParams(max_tokens=60, temperature=1.5, seed=len(sampled)))
            assert engine.statistics().num_computed_tokens == before
    listen(engine, heard)
    assert len(same) > 5
    assert {tuple(heard[one].token_ids) for one in (parent, *same)} == {expected.token_ids}
    assert {heard[one].text for one in (parent, *same)} == {expected.text}
    assert len({heard[one].text for one in sampled}) > 2
    for one in sampled:
        value = json.loads(heard[one].text)
        assert isinstance(value["name"], str) and value["price"] <= 99999


def test_a_character_begun_before_the_fork_is_completed_behind_it() -> None:
    source = random.Random(4)
    for number in range(8):
        engine = fake_engine()
        heard = Heard(Said)
        parent = engine.add([number, 1], params_of(number))
        for _ in range(source.randrange(1, 20)):
            step(engine, heard)
        children = engine.fork(parent, 2)
        listen(engine, heard)
        for one in (parent, *children):
            assert heard[one].text == engine.tokenizer.decode(heard[one].token_ids)


def test_penalties_log_probabilities_and_least_lengths_go_on_counting_from_the_beginning() -> None:
    params = SamplingParams(max_tokens=20, temperature=0.0, frequency_penalty=1.5, logprobs=2, min_tokens=10)
    engine = fake_engine(lookup_drafts=False)
    expected = engine.generate([3, 1], params)
    heard = Heard(Said)
    parent = engine.add([3, 1], params)
    for _ in range(5):
        step(engine, heard)
    (child,) = engine.fork(parent)
    listen(engine, heard)
    assert tuple(heard[child].token_ids) == expected.token_ids
    assert tuple(heard[child].logprobs) == expected.logprobs


def refusals(engine: SteppedEngine, parent: str) -> Iterator[tuple[str, type[Exception], dict[str, object]]]:
    yield "n", RequestError, {"n": 0}
    yield "request_id", RequestError, {"request_id": "unknown"}
    yield "index", RequestError, {"index": 1}
    yield "max_tokens", RequestError, {"sampling": SamplingParams(max_tokens=3)}
    yield "fork", RequestError, {"sampling": SamplingParams(n=2)}
    yield "waiting", QueueFull, {"n": 100}


def test_a_fork_that_cannot_be_is_refused_and_leaves_the_parent_as_it_was() -> None:
    engine = fake_engine(max_waiting_requests=10)
    heard = Heard(Said)
    parent = engine.add([1, 2, 3], params_of(1))
    for _ in range(6):
        step(engine, heard)
    for word, kind, options in refusals(engine, parent):
        with pytest.raises(kind, match=word):
            engine.fork(**{"request_id": parent, **options})  # type: ignore[arg-type]
    listen(engine, heard)
    assert tuple(heard[parent].token_ids) == truth((1, 2, 3), 1, LENGTH)
    with pytest.raises(RequestError, match="not under way"):
        engine.fork(parent)


def test_forks_of_one_output_of_several_go_on_from_that_one() -> None:
    engine = fake_engine()
    parent = engine.add([1, 2, 3], SamplingParams(max_tokens=8, temperature=1.0, seed=3, n=3, ignore_eos=True))
    tokens: dict[tuple[str, int], list[int]] = {}

    def step() -> None:
        for delta in engine.step():
            tokens.setdefault((delta.request_id, delta.index), []).extend(delta.token_ids)

    for _ in range(5):
        step()
    said = list(tokens[parent, 2])
    (child,) = engine.fork(parent, index=2)
    while engine.has_work:
        step()
    assert tokens[child, 0][: len(said)] == said and len({tuple(ids) for ids in tokens.values()}) == 4
