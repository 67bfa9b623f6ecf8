"""gpt-oss as a whole: a random checkpoint in its published form with harmony's tokenizer, through the engine."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import phloem as ph

from ..tokenizer.harmony import harmony_folder
from .oracle import Oracle
from .test_mxfp4_models import publish

GREEDY = ph.SamplingParams(max_tokens=40, temperature=0.0)
PROMPTS = ["We'll see what they've done", "HTTPServer, camelCase and 1234567 things, isn't it?", "Grüße"]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    folder = tmp_path_factory.mktemp("gpt-oss")
    model = publish(folder, vocab_size=700)
    harmony_folder(folder)
    return Oracle(folder, model)


@pytest.fixture(scope="module")
def engine(oracle: Oracle) -> Iterator[ph.Engine]:
    with ph.Engine(str(oracle.folder), device="cpu", dtype="float32", num_blocks=64, block_size=4) as engine:
        yield engine


def test_answers_are_transformers_cold_and_cached_alone_and_together(engine: ph.Engine, oracle: Oracle) -> None:
    ends = engine.tokenizer.eos_ids
    assert len(ends) == 3
    for _ in range(2):
        together = engine.generate(PROMPTS, GREEDY)
        for prompt, found in zip(PROMPTS, together, strict=True):
            oracle.assert_greedy(engine.tokenizer.encode_prompt(prompt), list(found.token_ids))
            assert len(found.token_ids) == 40 or found.token_ids[-1] in ends
            assert not set(ends).intersection(found.token_ids[:-1])
            assert engine.generate(prompt, GREEDY).token_ids == found.token_ids
    assert together[1].usage.cached_tokens > 8


def test_a_generation_ends_with_a_call_as_with_a_return(engine: ph.Engine) -> None:
    for name in ("<|call|>", "<|return|>"):
        end = engine.tokenizer.special_ids[name]
        found = engine.generate("Hi", ph.SamplingParams(max_tokens=9, temperature=0.0, logit_bias={end: 100.0}))
        assert (found.text, list(found.token_ids), found.finish_reason) == ("", [end], "stop")


def test_special_tokens_are_shown_where_that_is_asked_for(engine: ph.Engine) -> None:
    channel = engine.tokenizer.special_ids["<|channel|>"]
    params = ph.SamplingParams(max_tokens=2, temperature=0.0, logit_bias={channel: 100.0})
    assert engine.generate("Hi", params).text == ""
    assert engine.generate("Hi", params, shows_special=True).text == "<|channel|><|channel|>"


def test_constraints_hold_over_its_vocabulary(engine: ph.Engine) -> None:
    found = engine.generate("Hi", GREEDY, ph.regex(r"[a-z]{3}, [0-9]{4}-[0-9]{2}!"))
    assert re.fullmatch(r"[a-z]{3}, [0-9]{4}-[0-9]{2}!", found.text)


@pytest.mark.parametrize("settings", [{"quantise": "int8"}, {"kv_dtype": "int8"}, {"dtype": "bfloat16"}], ids=str)
def test_it_runs_in_fewer_bits(oracle: Oracle, settings: dict[str, str]) -> None:
    options = {"device": "cpu", "dtype": "float32", "num_blocks": 64, **settings}
    with ph.Engine(str(oracle.folder), **options) as engine:  # type: ignore[arg-type]
        found = engine.generate(PROMPTS, ph.SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True))
    assert [len(each.token_ids) for each in found] == [8, 8, 8]
