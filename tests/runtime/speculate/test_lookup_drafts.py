"""With look-ups every request says what it says without, whatever else is asked of it, in fewer steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import RequestError
from phloem.radix import RadixTree
from phloem.runtime.constrain.spec import regex
from phloem.runtime.request import Completion, SamplingParams

from ..fakes import EOS, FakeDecoder, fake_engine
from ..stepped import SteppedEngine
from ..traffic import Asked, Questions, truth
from .drafting import CONSTRAINTS

PROSE = b"to be or not to be, that is the question"
ALL_PARAMS: list[dict[str, Any]] = [
    {"temperature": 0.0, "ignore_eos": True},
    {"temperature": 0.3, "top_p": 0.9},
    {"temperature": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.1, "min_tokens": 9},
    {"temperature": 0.0, "logprobs": 2, "stop": ("e t", "\x07\x07", "q")},
    {"temperature": 0.3, "top_k": 3, "logit_bias": {EOS: 4.0, 101: 2.0}, "logprobs": 0},
    {"temperature": 0.0, "prompt_logprobs_from": 1, "logprobs": 1},
    {"temperature": 0.2, "stop_token_ids": (113, 40, 7), "min_p": 0.1},
]
PROMPTS = [tuple(PROSE), tuple(PROSE[3:20]), tuple(PROSE[:7] * 3), tuple(range(20))]


class LoopingDecoder(FakeDecoder):
    """Believes in what its last two tokens suggest, so that it repeats itself and its prompt."""

    def believed(self, context: list[int]) -> np.ndarray:
        logits = super().believed(context[-2:]).copy()
        at = PROSE.find(bytes([context[-1] % 256])) + 1
        logits[PROSE[at % len(PROSE)]] += 6.0  # as if it had learnt it by heart
        return logits


def looping_engine(**settings: Any) -> SteppedEngine:
    return fake_engine(decoder=LoopingDecoder(), **settings)


QUESTIONS = Questions(PROMPTS, ALL_PARAMS, CONSTRAINTS, (30, 50), LoopingDecoder)


@pytest.mark.parametrize("jump", ["off", "verified", "canonical"])
def test_all_laws_say_the_same_together_and_most_of_it_unasked(jump: str) -> None:
    every = QUESTIONS.every(30)
    if jump == "canonical":  # which says forced text in other words
        every = [asked for asked in every if not asked.constraint]
    engine = looping_engine(jump=jump, num_blocks=512, max_running_requests=8)
    QUESTIONS.check_together(engine, every)
    statistics = engine.statistics()
    assert statistics.jumped_tokens > statistics.completion_tokens / 4
    assert statistics.num_held_blocks == 0


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_arrivals_aborts_and_forks_at_any_step_change_nothing(data: st.DataObject) -> None:
    """Over a pool that may be too small for all, so that some are preempted; in turn, and now and then ahead."""
    engine = looping_engine(
        jump=data.draw(st.sampled_from(["off", "verified"])),
        run_ahead=data.draw(st.booleans()),
        block_size=data.draw(st.sampled_from([1, 4])),
        num_blocks=data.draw(st.sampled_from([96, 120, 256])),
        max_batch_tokens=data.draw(st.sampled_from([8, 24, 512])),
        max_draft_tokens=data.draw(st.sampled_from([1, 5, 64])),
        max_running_requests=data.draw(st.sampled_from([2, 5, 16])),
    )
    QUESTIONS.check_traffic(data, engine)


def test_samples_of_one_prompt_say_what_each_says_alone() -> None:
    params = SamplingParams(max_tokens=60, temperature=0.3, seed=5, n=4)
    with_lookups, without = looping_engine(num_blocks=256), looping_engine(num_blocks=256, lookup_drafts=False)
    found = [engine.generate([list(PROMPTS[0])], params) for engine in (with_lookups, without)]
    assert [c.token_ids for c in found[0]] == [c.token_ids for c in found[1]]
    assert sum(c.usage.jumped_tokens for c in found[0]) > 0 == sum(c.usage.drafted_tokens for c in found[1])


def test_a_draft_that_reaches_the_budget_or_the_end_stops_there() -> None:
    for max_tokens in range(1, 40, 2):
        asked = Asked(0, 0, 0, max_tokens)
        QUESTIONS.check_together(looping_engine(), [asked])
        assert len(truth(QUESTIONS, asked).token_ids) == max_tokens


def test_where_rows_cost_as_much_as_steps_nothing_is_drafted() -> None:
    engine = looping_engine(num_blocks=256)
    engine._stepper._drafter.step_costs = (1e-3, 1e-3)
    completion = engine.generate(list(PROMPTS[0]), QUESTIONS.params_of(0, 60))
    assert completion.usage.drafted_tokens == 0


def test_a_text_that_repeats_nothing_does_not_keep_steps_from_running_ahead() -> None:
    ahead = {}
    for lookup_drafts in (False, True):
        engine = fake_engine(run_ahead=True, num_blocks=256, lookup_drafts=lookup_drafts)
        for number in range(4):
            engine.add([number, 7, 9], SamplingParams(max_tokens=150, temperature=1.0, seed=number, ignore_eos=True))
        while engine.has_work:
            engine.step()
        ahead[lookup_drafts] = engine.statistics().num_ahead
    assert ahead[False] > 140
    assert ahead[True] > 0.8 * ahead[False]


def test_texts_that_repeat_much_are_drafted_instead_of_running_ahead() -> None:
    """By a stopwatch that stands still a step in turn takes no longer, and brings more."""
    engine = looping_engine(run_ahead=True, num_blocks=256)
    completion = engine.generate(list(PROMPTS[0]), QUESTIONS.params_of(0, 300))
    assert completion.usage.jumped_tokens > 100


def predicted(engine: SteppedEngine, prediction: list[int] | str, max_tokens: int = 60) -> Completion:
    return engine.generate(list(PROMPTS[0]), QUESTIONS.params_of(1, max_tokens, 3), prediction=prediction)


def test_a_prediction_that_is_right_is_taken_in_one_step_and_one_that_is_wrong_changes_nothing() -> None:
    plain = looping_engine(lookup_drafts=False).generate(list(PROMPTS[0]), QUESTIONS.params_of(1, 60, 3))
    said = list(plain.token_ids)
    right = predicted(looping_engine(), said)
    assert right.token_ids == plain.token_ids
    assert right.usage.num_steps <= 5
    assert right.usage.accepted_prediction_tokens == right.usage.jumped_tokens >= len(said) - 5
    assert right.usage.rejected_prediction_tokens == 0
    wrong = predicted(looping_engine(), [7] * 50)
    assert wrong.token_ids == plain.token_ids
    assert wrong.usage.accepted_prediction_tokens == 0 < wrong.usage.rejected_prediction_tokens
    half = predicted(looping_engine(), [*said[:20], 7, 7, 7, *said[23:]])
    assert half.token_ids == plain.token_ids
    assert half.usage.accepted_prediction_tokens > 20 and half.usage.rejected_prediction_tokens > 0
    assert half.usage.num_steps < 20
    without = predicted(looping_engine(lookup_drafts=False), said)
    assert without.token_ids == plain.token_ids and without.usage.drafted_tokens == 0


def test_a_prediction_is_text_or_ids() -> None:
    (request,) = looping_engine().prepare([1], prediction="to be")
    assert list(request.prediction) == list(b"to be")
    for wrong, param in (([1, 9999], "prediction"), (b"x", "prediction")):
        with pytest.raises(RequestError) as error:
            looping_engine().generate([1], QUESTIONS.params_of(0, 5), prediction=wrong)  # type: ignore[arg-type]
        assert error.value.param == param


def test_what_was_answered_before_is_drafted_where_it_may_be_known() -> None:
    asked = Asked(3, 5, 0, 60, 1)
    params, engine = QUESTIONS.params_of(5, 60, 1), looping_engine(num_blocks=256)
    first, again, elsewhere = (
        engine.generate(list(PROMPTS[3]), params, namespace=namespace) for namespace in ("a", "a", "b")
    )
    assert first.token_ids == again.token_ids == elsewhere.token_ids == tuple(truth(QUESTIONS, asked).token_ids)
    assert again.usage.num_steps < min(elsewhere.usage.num_steps, 6)
    assert again.usage.accepted_prediction_tokens == again.usage.rejected_prediction_tokens == 0


def test_under_a_constraint_no_request_learns_from_another_namespace() -> None:
    engine = fake_engine()
    ours, theirs, common = (
        engine.prepare([1], SamplingParams(), regex("[a-z]{20}"), **options)[0]
        for options in ({"namespace": "ours"}, {"namespace": "theirs"}, {})
    )
    assert [request.cursor.cohort for request in (ours, theirs, common)] == ["ours", "theirs", ""]


def test_nothing_is_asked_of_the_tree_about_another_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = looping_engine(num_blocks=256)
    engine.generate(list(PROMPTS[3]), QUESTIONS.params_of(0, 60), namespace="a")
    tree, found = engine.prefix_cache.tree, []
    plain = RadixTree.continuation
    monkeypatch.setattr(RadixTree, "continuation", lambda *asked: found.append(plain(*asked)) or found[-1])
    for namespace in ("b", "", "a"):
        engine.generate(list(PROMPTS[3]), QUESTIONS.params_of(0, 60), namespace=namespace)
    assert tree.statistics.num_namespaces == 3
    assert found[:2] == [b"", b""] and len(found[2]) > 4 * 40
