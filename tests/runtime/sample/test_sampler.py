"""Penalties, biases and log-probabilities against the fake model's own logits, with and without drafts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from phloem.errors import ConstraintTooLarge
from phloem.runtime.constrain.spec import choice, grammar, regex
from phloem.runtime.request import Delta, FinishReason, SamplingParams
from phloem.runtime.sample.sampler import MANY_MASKS, MASK_WORK, MASK_WORK_ALONE, mask_work
from phloem.runtime.schedule.share import MOST_SCORED

from ..fakes import EOS, Engine, fake_engine, logits_after

PROMPT = [3, 1, 4, 1, 5]


def penalised(token_ids: list[int], params: SamplingParams) -> np.ndarray:
    """The documented arithmetic, token by token."""
    logits = logits_after(token_ids).astype(np.float32)
    for token_id, bias in params.logit_bias.items():
        logits[token_id] += bias
    for token_id in set(token_ids):
        factor = params.repetition_penalty
        logits[token_id] = logits[token_id] / factor if logits[token_id] > 0 else logits[token_id] * factor
    for token_id, count in Counter(token_ids[len(PROMPT) :]).items():
        logits[token_id] -= params.presence_penalty + params.frequency_penalty * count
    return logits


@pytest.mark.parametrize(
    "settings",
    [
        {"presence_penalty": 1.5},
        {"frequency_penalty": 2.0},
        {"repetition_penalty": 5.0},
        {"logit_bias": {7: 9.0}},
        {
            "presence_penalty": -2.0,
            "frequency_penalty": -1.0,
            "repetition_penalty": 1.3,
            "logit_bias": {9: 6.0, 8: 6.0},
        },
    ],
    ids=lambda settings: "+".join(settings),
)
def test_penalties_follow_their_definition(settings: dict[str, object]) -> None:
    params = SamplingParams(max_tokens=25, temperature=0.0, ignore_eos=True, **settings)  # type: ignore[arg-type]
    token_ids = list(PROMPT)
    for _ in range(25):
        token_ids.append(int(np.argmax(penalised(token_ids, params))))
    assert list(fake_engine().generate(PROMPT, params).token_ids) == token_ids[len(PROMPT) :]


def test_penalties_neither_reach_other_requests_nor_reported_logprobs() -> None:
    plain = SamplingParams(max_tokens=8, temperature=0.0, logprobs=2)
    alone = fake_engine().generate(PROMPT, plain)
    engine = fake_engine()
    engine.add([9], SamplingParams(max_tokens=8, temperature=0.0, frequency_penalty=2.0, logit_bias={5: 50.0}))
    assert engine.generate(PROMPT, plain).logprobs == alone.logprobs
    biased = SamplingParams(max_tokens=1, temperature=0.0, logprobs=0, logit_bias={5: 50.0})
    truth = log_softmax(logits_after(PROMPT))
    assert fake_engine().generate(PROMPT, biased).logprobs[0].logprob == pytest.approx(truth[5], abs=1e-4)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


@pytest.mark.parametrize("jump", ["off", "verified", "canonical"])
def test_logprobs_are_the_models_for_every_token(jump: str) -> None:
    params = SamplingParams(max_tokens=20, temperature=0.0, logprobs=3)
    completion = fake_engine(jump=jump).generate(PROMPT, params, regex("abc(de|fg)hij"))
    assert completion.text in ("abcdehij", "abcfghij")
    token_ids = list(PROMPT)
    assert [entry.token_id for entry in completion.logprobs] == list(completion.token_ids)
    for entry in completion.logprobs:
        truth = log_softmax(logits_after(token_ids))
        assert entry.logprob == pytest.approx(truth[entry.token_id], abs=1e-4)
        best = np.argsort(-truth)[:3]
        assert [token for token, _ in entry.top] == best.tolist()
        assert [value for _, value in entry.top] == pytest.approx(truth[best].tolist(), abs=1e-4)
        token_ids.append(entry.token_id)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafts_change_no_token_and_save_steps(temperature: float) -> None:
    params = SamplingParams(max_tokens=40, temperature=temperature, seed=3)
    spec = regex("name: [a-c]{3}, age: [0-9]{2}, city: (Oslo|Bergen)")
    engines = {jump: fake_engine(jump=jump, lookup_drafts=False) for jump in ("off", "verified", "canonical")}
    runs = {jump: engine.generate(PROMPT, params, spec) for jump, engine in engines.items()}
    assert runs["off"].token_ids == runs["verified"].token_ids == runs["canonical"].token_ids
    assert runs["off"].usage.num_steps == len(runs["off"].token_ids)
    assert runs["verified"].usage.num_steps < len(runs["off"].token_ids) / 2
    usage = runs["verified"].usage
    assert usage.jumped_tokens >= usage.drafted_tokens - 1 > 20  # a draft that ends the text saves one step less


def test_a_stop_string_inside_forced_text_is_seen() -> None:
    for jump in ("off", "verified", "canonical"):
        params = SamplingParams(max_tokens=40, temperature=0.0, stop=("cd",))
        assert fake_engine(jump=jump).generate(PROMPT, params, regex("abcdefgh")).text == "ab"


def test_a_complete_constraint_ends_without_an_end_token() -> None:
    completion = fake_engine().generate(PROMPT, SamplingParams(max_tokens=9, temperature=0.0), choice(["yes", "no"]))
    assert completion.text in ("yes", "no") and EOS not in completion.token_ids


@pytest.mark.parametrize("max_tokens", range(3, 9))
def test_the_budget_always_suffices_for_a_complete_text(max_tokens: int) -> None:
    for seed in range(10):
        params = SamplingParams(max_tokens=max_tokens, temperature=2.0, seed=seed)
        completion = fake_engine().generate(PROMPT, params, regex("a[bc]*d(ef)*g"))
        assert completion.text[0] == "a" and completion.text[-1] == "g" and "d" in completion.text
        assert completion.finish_reason.value == "stop"


BOMBS = {
    "too many ways": "((a{1,100}){1,100}){1,100}",
    "too many states": r"(.{1,1000}){1,1000}",
    "many words": r"(\w{1,50}){1,50}@",
}


def run_all(engine: Engine) -> tuple[dict[str, list[Delta]], list[set[str]]]:
    """Deltas by request, and which requests got one in each step."""
    deltas: dict[str, list[Delta]] = {}
    steps = []
    while engine.has_work:
        found = engine.step()
        steps.append({delta.request_id for delta in found})
        for delta in found:
            deltas.setdefault(delta.request_id, []).append(delta)
    return deltas, steps


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_heavy_constraint_holds_up_no_request_but_its_own(bomb: str) -> None:
    params = SamplingParams(max_tokens=40, temperature=0.0, ignore_eos=True)
    specs = [None, regex("[a-z ]*"), regex("name: [a-c]{30}"), choice(["x" * 30, "y" * 30])]

    def add_ordinary(engine: Engine) -> None:
        for index in range(16):
            engine.add([index + 1, 7, 9], params, specs[index % len(specs)], request_id=f"ordinary {index}")

    without_drafts: dict[str, object] = {"jump": "off", "lookup_drafts": False, "num_blocks": 512}
    alone, together = fake_engine(**without_drafts), fake_engine(**without_drafts)
    together.add(PROMPT, SamplingParams(max_tokens=100, temperature=1.0, seed=1), regex(BOMBS[bomb]), request_id="bomb")
    add_ordinary(alone)
    add_ordinary(together)
    expected, steps = run_all(alone)
    found, shared_steps = run_all(together)
    bombs = found.pop("bomb")
    assert [
        (name, "".join(delta.text for delta in deltas), deltas[-1].finish_reason) for name, deltas in found.items()
    ] == [
        (name, "".join(delta.text for delta in deltas), deltas[-1].finish_reason) for name, deltas in expected.items()
    ]
    assert [ids - {"bomb"} for ids in shared_steps][: len(steps)] == steps
    error = bombs[-1].error
    assert error is None or isinstance(error, ConstraintTooLarge)
    assert together.statistics().num_free_blocks + together.statistics().num_cached_blocks == 512


@pytest.mark.parametrize("jump", ["off", "verified"])
def test_a_grammar_that_outgrows_its_memory_ends_its_own_request_with_a_word_and_no_other(jump: str) -> None:
    """Every a has one reading more than the one before, and what is known of each state is kept."""
    doubling = grammar('root ::= x "c"\nx ::= "a" y | "a" x x\ny ::= "a" | "a" x y')
    never_c = SamplingParams(max_tokens=200, temperature=0.0, logit_bias={ord("c"): -100.0})
    params = SamplingParams(max_tokens=30, temperature=0.0, ignore_eos=True)
    specs = [None, regex("[a-z ]*"), grammar('root ::= ("b" root) | "d"'), choice(["x" * 30, "y" * 30])]
    alone, together = (
        fake_engine(jump=jump, num_blocks=256, max_constraint_bytes=room) for room in (64 << 20, 64 << 10)
    )
    together.add(PROMPT, never_c, doubling, request_id="doubling")
    for engine in (alone, together):
        for index, spec in enumerate(specs):
            engine.add([index + 1, 7, 9], params, spec, request_id=f"ordinary {index}")
    expected, _ = run_all(alone)
    found, _ = run_all(together)
    last = found.pop("doubling")[-1]
    assert last.finish_reason is FinishReason.ERROR and isinstance(last.error, ConstraintTooLarge)
    assert "max_constraint_bytes" in str(last.error) and last.usage.completion_tokens > 10
    assert {name: [token for delta in deltas for token in delta.token_ids] for name, deltas in found.items()} == {
        name: [token for delta in deltas for token in delta.token_ids] for name, deltas in expected.items()
    }
    statistics = together.statistics()
    assert statistics.num_running == 0 and statistics.num_free_blocks + statistics.num_cached_blocks == 256
    again = together.generate(PROMPT, SamplingParams(max_tokens=8, temperature=0.0), doubling)
    assert again.text.endswith("c") and again.finish_reason is FinishReason.STOP


def test_a_postponed_mask_changes_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    params = SamplingParams(max_tokens=30, temperature=1.0, seed=4)
    spec = grammar('root ::= word (" " root)?\nword ::= [a-z] word? | "(" root ")"')
    at_once = fake_engine().generate(PROMPT, params, spec)
    monkeypatch.setattr("phloem.runtime.sample.sampler.MASK_WORK_ALONE", 1)
    in_parts = fake_engine().generate(PROMPT, params, spec)
    assert in_parts.token_ids == at_once.token_ids
    assert in_parts.usage.num_steps > at_once.usage.num_steps


@pytest.mark.parametrize("edge", [{"top_k": 2**40}, {"temperature": 1e-40}, {"temperature": 5e-324}], ids=str)
def test_parameters_at_the_edge_of_numbers_are_what_they_tend_to(edge: dict[str, Any]) -> None:
    plain = {"top_k": 0} if "top_k" in edge else {"temperature": 0.0}
    params, limit = (SamplingParams(max_tokens=12, seed=3, ignore_eos=True, **given) for given in (edge, plain))
    assert fake_engine().generate(PROMPT, params).token_ids == fake_engine().generate(PROMPT, limit).token_ids


def test_long_prompts_are_scored_in_parts() -> None:
    """Each scored token takes a row of logits, so that there are never too many of them at once."""
    prompt = [token % 251 for token in range(1300)]
    engine = fake_engine(num_blocks=400, max_batch_tokens=4096)
    seen: list[int] = []
    forward = engine._runner.forward
    engine._runner.forward = lambda batch, *rest: (seen.append(len(batch.logits_rows)), forward(batch, *rest))[1]  # type: ignore[method-assign]
    params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs_from=1)
    scored = engine.generate(prompt, params).prompt_logprobs
    assert max(seen) <= MOST_SCORED and sum(seen) == 1300
    for position in (1, 511, 512, 513, 1024, 1299):
        expected = log_softmax(logits_after(prompt[:position]))[prompt[position]]
        assert scored[position - 1].logprob == pytest.approx(expected, abs=1e-4)


def test_many_masks_share_the_work_of_a_step() -> None:
    assert mask_work(1, 1) == MASK_WORK_ALONE
    assert mask_work(2, 1) == mask_work(9, MANY_MASKS) == MASK_WORK
    for num_constrained in (9, 64, 1000):
        assert 0 < num_constrained * mask_work(num_constrained, num_constrained) <= MANY_MASKS * MASK_WORK
