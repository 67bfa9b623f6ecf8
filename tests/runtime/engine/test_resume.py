"""An output that goes on in another engine brings what the first engine would have, from any token on."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import RequestError
from phloem.runtime.constrain.spec import json_schema, regex
from phloem.runtime.engine.engine import Engine
from phloem.runtime.engine.request_factory import seed_of_output
from phloem.runtime.request import Delta, SamplingParams

from ..fakes import NEVER, fake_engine

CONSTRAINTS: dict[str, Any] = {
    "none": None,
    "regex": regex("[a-z]{3,9}(-[0-9]{2}){1,3}"),
    "schema": json_schema(
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["b", "a"]}
    ),
}
LAWS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 1.0, "seed": 11},
    "penalties": {"temperature": 0.8, "seed": 5, "repetition_penalty": 1.3, "frequency_penalty": 0.4},
    "logprobs": {"temperature": 1.0, "seed": 3, "logprobs": 2},
    "stop strings": {"temperature": 1.2, "seed": 8, "stop": ("e", "\x00\x01"), "min_tokens": 6},
    "masks": {"temperature": 1.0, "seed": 9, "bad_words": ("a",), "min_p": 0.01, "top_k": 40},
}
CASES = [(name, kind) for name in LAWS for kind in CONSTRAINTS if name != "masks" or kind == "none"]


def law(name: str, **more: Any) -> SamplingParams:
    fixed = {"max_tokens": 24, **LAWS[name], **more}
    return SamplingParams(**({"stop": NEVER, "ignore_eos": True, **fixed} if "stop" not in fixed else fixed))


def deltas_of(
    engine: Engine, prompt: list[int], sampling: SamplingParams, constraint: Any, **options: Any
) -> list[Delta]:
    engine.add(prompt, sampling, constraint, **options)
    found: list[Delta] = []
    while engine.has_work:
        found += engine.step()
    assert all(delta.error is None for delta in found), found[-1].error
    return found


def said(deltas: list[Delta]) -> tuple[Any, ...]:
    last = deltas[-1]
    return (
        sum((delta.token_ids for delta in deltas), ()),
        "".join(delta.text for delta in deltas),
        sum((delta.logprobs for delta in deltas), ()),
        (last.finish_reason, last.stopped_by, last.usage.prompt_tokens, last.usage.completion_tokens),
    )


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_from_every_delta_on_the_same_follows(name: str, kind: str) -> None:
    prompt, sampling, constraint = [7, 8, 9], law(name), CONSTRAINTS[kind]
    whole = deltas_of(fake_engine(), prompt, sampling, constraint)
    assert len(whole) > 2
    for cut in range(1, len(whole)):
        begun, rest = whole[:cut], whole[cut:]
        there = deltas_of(fake_engine(), prompt, sampling, constraint, output_ids=said(begun)[0])
        assert said(there) == said(rest), cut


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**40), st.sampled_from(CASES), st.booleans())
def test_from_any_token_on_in_company_the_same_tokens_follow(seed: int, case: tuple[str, str], drafts: bool) -> None:
    """The other engine has other work, another size of block, preempts, and has another idea of drafts."""
    rng = Random(seed)
    sampling, constraint = law(case[0]), CONSTRAINTS[case[1]]
    prompt = [rng.randrange(256) for _ in range(rng.randint(1, 20))]
    whole = said(deltas_of(fake_engine(prefix_cache=False), prompt, sampling, constraint))
    cut = rng.randrange(len(whole[0]))
    engine = fake_engine(
        block_size=rng.choice([1, 4]), num_blocks=120, max_batch_tokens=16, max_running_requests=3, lookup_drafts=drafts
    )
    for _ in range(rng.randrange(4)):
        engine.add([rng.randrange(256) for _ in range(rng.randint(1, 20))], law("greedy"))
    for _ in range(rng.randrange(6)):
        engine.step()
    request_id = engine.add(prompt, sampling, constraint, output_ids=whole[0][:cut])
    found: list[Delta] = []
    while engine.has_work:
        found += [delta for delta in engine.step() if delta.request_id == request_id]
    there = said(found)
    assert whole[0][:cut] + there[0] == whole[0]
    assert whole[1].endswith(there[1]) and there[3] == whole[3]
    engine.flush_cache()
    assert engine.statistics().num_free_blocks == engine.statistics().num_blocks


def test_one_output_of_several_goes_on_under_its_seed() -> None:
    sampling = law("sampled", n=3)
    whole: dict[int, tuple[int, ...]] = {}
    for delta in deltas_of(fake_engine(), [1, 2], sampling, None):
        whole[delta.index] = whole.get(delta.index, ()) + delta.token_ids
    for index, token_ids in whole.items():
        alone = law("sampled", seed=seed_of_output(11, index))
        there = deltas_of(fake_engine(), [1, 2], alone, None, output_ids=token_ids[:9])
        assert said(there)[0] == token_ids[9:]


def test_what_is_said_already_counts_against_the_budget_and_in_no_sum_of_prompts() -> None:
    engine = fake_engine()
    whole = said(deltas_of(fake_engine(), [1, 2], law("greedy"), None))
    there = deltas_of(engine, [1, 2], law("greedy"), None, output_ids=whole[0][:20])
    assert (len(said(there)[0]), there[-1].usage.prompt_tokens, there[-1].usage.completion_tokens) == (4, 2, 24)
    assert there[-1].usage.cached_tokens == 0


@pytest.mark.parametrize(
    ("given", "options", "error"),
    [
        ([300], {}, "output_ids"),
        ([-1], {}, "output_ids"),
        ("ab", {}, "output_ids"),
        (5, {}, "output_ids"),
        ([1.5], {}, "output_ids"),
        ([65], {"n": 2}, "output_ids: one output goes on, not 2"),
        ([65], {"kv_budget": 64}, "output_ids: with kv_budget"),
        ([1] * 24, {}, "has ended with token 24 of 24"),
        ([1] * 30, {}, "has ended with token 24 of 30"),
    ],
)
def test_bad_ones_are_refused(given: Any, options: dict[str, Any], error: str) -> None:
    engine = fake_engine()
    with pytest.raises(RequestError, match=error) as caught:
        engine.add([1, 2], law("sampled", **options), output_ids=given)
    assert caught.value.param == "output_ids" and not engine.has_work


def test_what_the_constraint_forbids_is_named() -> None:
    engine = fake_engine()
    with pytest.raises(RequestError, match="output_ids: the constraint forbids token 45 at position 2"):
        engine.add([1, 2], law("greedy"), CONSTRAINTS["regex"], output_ids=[*b"ab-"])
    assert not engine.has_work and engine.statistics().num_failed == 0
