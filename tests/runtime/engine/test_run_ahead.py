"""Steps that run ahead of what they have read say what steps in turn say, whatever comes in between."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import RequestError
from phloem.runtime.constrain.spec import ConstraintSpec, json_schema, regex
from phloem.runtime.engine.engine import Engine
from phloem.runtime.execute.batch import Batch
from phloem.runtime.request import Phase, SamplingParams
from phloem.runtime.sample.sampler_output import SamplerOutput, UnreadOutputs
from phloem.runtime.speculate.overlap_policy import OverlapPolicy

from ..fakes import EOS, NEVER, FakeDecoder, fake_engine
from ..traffic import Asked, Questions, Whim, listen

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yy"]}}, "required": ["a"]}
CONSTRAINTS: list[ConstraintSpec | None] = [None, regex("[a-c]{3,9}(de|fg)"), json_schema(SCHEMA)]
ALL_PARAMS: list[dict[str, Any]] = [
    {"temperature": 0.0, "ignore_eos": True},
    {"temperature": 0.7, "top_p": 0.8, "stop_token_ids": tuple(range(0, 257, 9))},
    {"temperature": 1.0, "frequency_penalty": 1.0, "repetition_penalty": 1.2, "min_tokens": 4},
    {"temperature": 0.0, "logprobs": 2, "stop": ("a", "é", "zz")},
    {"temperature": 0.9, "top_k": 5, "logit_bias": {EOS: 3.0}, "logprobs": 0},
    {"temperature": 0.0, "prompt_logprobs_from": 1, "logprobs": 1},
]
PROMPTS = [tuple(range(length)) for length in (2, 3, 9, 17, 30)] + [(*range(9), 77, 78, 79), (*range(17), 1, 1)]
QUESTIONS = Questions(PROMPTS, [{"min_tokens": 4, **params} for params in ALL_PARAMS], CONSTRAINTS, (12, 18))


def test_all_laws_say_the_same_together_and_ahead() -> None:
    every = QUESTIONS.every(14)
    random.Random(3).shuffle(every)
    engine = fake_engine(jump="off", run_ahead=True, num_blocks=256, max_running_requests=16, max_batch_tokens=40)
    QUESTIONS.check_together(engine, every)
    statistics = engine.statistics()
    assert statistics.num_ahead > statistics.num_steps / 3
    assert statistics.num_held_blocks == 0


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_arrivals_aborts_and_forks_at_any_step_change_nothing(data: st.DataObject) -> None:
    """Over a pool that may be too small for all, so that some are preempted, and with drafts now and then."""
    engine = fake_engine(
        jump=data.draw(st.sampled_from(["off", "verified"])),
        run_ahead=True,
        block_size=data.draw(st.sampled_from([1, 4])),
        num_blocks=data.draw(st.sampled_from([64, 80, 256])),
        max_batch_tokens=data.draw(st.sampled_from([8, 24, 512])),
        max_running_requests=data.draw(st.sampled_from([2, 5, 16])),
    )
    QUESTIONS.check_traffic(data, engine)


class Watch:
    """Notes when forwards are queued and when choices are read."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[str] = []
        forward: Callable[..., Any] = engine._runner.forward
        read = UnreadOutputs.read

        def watched_forward(*args: Any) -> Any:
            self.events.append("forward")
            return forward(*args)

        def watched_read(unread: UnreadOutputs) -> list[SamplerOutput]:
            self.events.append("read")
            return read(unread)

        monkeypatch.setattr(engine._runner, "forward", watched_forward)
        monkeypatch.setattr(UnreadOutputs, "read", watched_read)


def test_the_next_forward_is_queued_before_the_last_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine(run_ahead=True, max_batch_tokens=6)
    watch = Watch(engine, monkeypatch)
    engine.generate(list(range(16)), SamplingParams(max_tokens=5, temperature=0.0, ignore_eos=True))
    # three chunks and five tokens, of which the last needs no forward: seven steps, the last forward follows the sixth
    assert watch.events == ["forward"] + ["forward", "read"] * 6 + ["read"]
    assert engine.statistics().num_ahead == 6
    assert not engine._stepper._computation.is_ahead


def test_canonical_text_is_as_forced_whether_steps_run_ahead_or_not() -> None:
    params, forced = QUESTIONS.params_of(0, 40), regex("[a-c]{2}-forced text-[a-c]{2,5}-and more")
    for seed in range(8):
        engine = fake_engine(jump="canonical", run_ahead=True)
        engine._stepper._overlap_policy = Whim(seed)
        ids = [engine.add([index, 7], params, forced) for index in range(5)]
        said = listen(engine)
        for index, request_id in enumerate(ids):
            in_turn = fake_engine(jump="canonical").generate([index, 7], params, forced)
            assert said[request_id].text == in_turn.text
        assert engine.statistics().num_ahead > 0 and engine.statistics().jumped_tokens > 0


def test_where_drafts_save_more_steps_go_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine(run_ahead=True)
    watch = Watch(engine, monkeypatch)
    neighbour = engine.add([1, 2], SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True))
    constrained = engine.add([5], SamplingParams(max_tokens=40, temperature=0.0), regex("[a-z]{9}0123456789[a-z]{9}"))
    said = listen(engine)
    assert watch.events == ["forward", "read"] * (len(watch.events) // 2)
    assert engine.statistics().num_ahead == 0
    assert len(said[neighbour].token_ids) == 4 and len(said[constrained].token_ids) > 20


def test_who_may_draft_runs_ahead_with_the_others_where_that_saves_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OverlapPolicy, "prefers_ahead", lambda self, num_requests, num_drafting: True)
    engine = fake_engine(run_ahead=True)
    every = [Asked(p, 0, c, 14) for p in range(3) for c in range(3)]
    QUESTIONS.check_together(engine, every)
    statistics = engine.statistics()
    assert statistics.num_ahead > statistics.num_steps / 2


def test_what_follows_the_end_of_a_text_is_computed_once_in_vain_and_not_kept() -> None:
    stops = SamplingParams(max_tokens=9, temperature=0.0, stop_token_ids=tuple(range(257)))
    engine = fake_engine(run_ahead=True)
    engine.generate([1, 2, 3, 4, 5], stops)
    assert engine.statistics().num_computed_tokens == 6
    assert not engine.has_work
    assert engine.step() == []
    assert engine.generate([1, 2, 3, 4, 5, 6], stops).usage.cached_tokens == 5


def test_a_forward_that_fails_ahead_costs_no_request_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine(run_ahead=True)
    forward = engine._runner.forward

    def failing(batch: Any, decided: Any = None) -> Any:
        if batch.unread is not None:
            raise RuntimeError("no memory")
        return forward(batch)

    monkeypatch.setattr(engine._runner, "forward", failing)
    QUESTIONS.check_together(engine, [Asked(2, 0, 0, 14)])


def test_choices_that_cannot_be_read_are_made_again_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine(run_ahead=True)
    read, num_reads = UnreadOutputs.read, 0

    def failing(unread: UnreadOutputs) -> list[SamplerOutput]:
        nonlocal num_reads
        num_reads += 1
        if len(unread.outputs) > 1 and num_reads % 3 == 0:
            raise RuntimeError("lost on the way")
        return read(unread)

    monkeypatch.setattr(UnreadOutputs, "read", failing)
    every = [Asked(p, w, 0, 14) for p in range(4) for w in (0, 2, 3)]
    QUESTIONS.check_together(engine, every)
    assert num_reads > 30


def test_a_step_that_fails_ahead_is_made_again_without_those_who_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine(run_ahead=True)
    launch, num_failed = engine._sampler.launch, 0

    def failing(logits: torch.Tensor, batch: Batch, *hidden: None) -> UnreadOutputs:
        nonlocal num_failed
        if any(extend.request.phase is Phase.FINISHED for extend in batch.extends):
            num_failed += 1
            raise RuntimeError("lost on the way")
        return launch(logits, batch, *hidden)

    monkeypatch.setattr(engine._sampler, "launch", failing)
    QUESTIONS.check_together(engine, [Asked(p, w, 0, 14) for p in range(4) for w in (0, 1)])
    assert num_failed > 0


def test_a_request_that_fails_while_the_next_step_is_under_way_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fake_engine(run_ahead=True, jump="off")
    good = engine.add([1, 2, 3], SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True, stop=NEVER))
    bad = engine.add([4, 5], SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True))
    request = engine._requests[bad][0]
    push = request.output.push
    monkeypatch.setattr(type(request.output), "push", failing_push(request.output, push, at=4))
    errors: list[RequestError] = []
    tokens: list[int] = []
    while engine.has_work:
        for delta in engine.step():
            if delta.error is not None:
                assert delta.request_id == bad
                errors.append(delta.error)
            elif delta.request_id == good:
                tokens += delta.token_ids
    assert len(errors) == 1 and "lost" in str(errors[0])
    alone = fake_engine().generate([1, 2, 3], SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True))
    assert tokens == list(alone.token_ids)
    assert engine.statistics().num_held_blocks == 0


def failing_push(output: Any, push: Callable[..., bool], at: int) -> Callable[..., bool]:
    """A push that raises when this output gets its token number `at`."""
    original, num_pushed = type(output).push, 0

    def pushed(self: Any, token_id: int, *, check_stop: bool = True) -> bool:
        nonlocal num_pushed
        num_pushed += self is output
        if self is output and num_pushed == at:
            raise ValueError("lost")
        return bool(original(self, token_id, check_stop=check_stop))

    return pushed


class BreakingDecoder(FakeDecoder):
    """Its logits are no numbers after the token 99."""

    def forward(self, token_ids: torch.Tensor, *others: Any) -> torch.Tensor:
        assert int(token_ids.min()) >= 0, "no token is looked up in the embedding"
        logits = super().forward(token_ids, *others)
        wanted = others[-1]
        logits[token_ids[wanted] == 99] = torch.nan
        return logits


@pytest.mark.parametrize("run_ahead", [False, True], ids=["in turn", "ahead"])
def test_logits_that_are_no_numbers_end_their_request_alone(run_ahead: bool) -> None:
    engine = fake_engine(decoder=BreakingDecoder(), run_ahead=run_ahead, prefix_cache=False)
    greedy = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True, stop_token_ids=())
    good = [engine.add([5, index], greedy) for index in range(3)]
    bad = engine.add([5, 99], greedy)
    errors: dict[str, RequestError] = {}
    ended: set[str] = set()
    while engine.has_work:
        for delta in engine.step():
            if delta.error is not None:
                errors[delta.request_id] = delta.error
            elif delta.finish_reason is not None:
                ended.add(delta.request_id)
    assert "logits are not numbers" in str(errors[bad])
    assert ended == set(good) and set(errors) == {bad}
