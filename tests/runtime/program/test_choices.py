"""Which choice wins, against the definitions written out."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import phloem as ph
from phloem.errors import ProgramError
from phloem.runtime.program.choices import ChoicesMethod, pick
from phloem.runtime.program.state import ProgramState
from phloem.runtime.request import TokenLogprob

from .fakes import FakeBackend, fake_logprob

METHODS = [ph.token_length_normalized, ph.greedy_token_selection, ph.unconditional_likelihood_normalized]
CHOICES = st.lists(st.text(alphabet="ab", min_size=1, max_size=4), min_size=1, max_size=6)


def scored(context: Sequence[int], text: str) -> list[TokenLogprob]:
    """One token per character."""
    ids = list(text.encode())
    return [TokenLogprob(i, fake_logprob([*context, *ids[:at]], i)) for at, i in enumerate(ids)]


def mean(tokens: Sequence[TokenLogprob]) -> float:
    return statistics.fmean(token.logprob for token in tokens)


def greedy(choices: Sequence[str], context: Sequence[int]) -> str:
    """Extends the text by the likeliest character that a choice allows; a choice that is complete bids its mean."""
    text = ""
    while True:
        allowed = [choice for choice in choices if choice.startswith(text)]
        bids = {
            choice: mean(scored(context, choice)) if choice == text else scored(context, choice)[len(text)].logprob
            for choice in allowed
        }
        best = max(allowed, key=lambda choice: bids[choice])
        if best == text or len(set(allowed)) == 1:
            return best
        text += best[len(text)]


@given(CHOICES, st.lists(st.integers(0, 255), max_size=3))
def test_the_winner_is_the_one_by_definition(choices: list[str], context: list[int]) -> None:
    conditional = [scored(context, choice) for choice in choices]
    unconditional = [scored([256], choice) for choice in choices]

    def winner(method: ChoicesMethod) -> str:
        return choices[pick(method, conditional, unconditional)]

    assert winner(ph.token_length_normalized) == max(choices, key=lambda choice: mean(scored(context, choice)))
    gains = {choice: mean(scored(context, choice)) - mean(scored([256], choice)) for choice in choices}
    assert gains[winner(ph.unconditional_likelihood_normalized)] == pytest.approx(max(gains.values()))
    assert winner(ph.greedy_token_selection) == greedy(choices, context)


def test_a_long_choice_is_not_favoured_by_its_length() -> None:
    sure = [TokenLogprob(1, -0.1)]
    long = [TokenLogprob(2, -1.0)] * 5
    assert pick(ph.token_length_normalized, [long, sure], []) == 1
    assert pick(ph.token_length_normalized, [sure, long], []) == 0


@pytest.mark.parametrize("method", METHODS)
def test_all_choices_are_scored_from_the_shared_prefix_at_once(method: ChoicesMethod) -> None:
    backend = FakeBackend()

    @ph.function
    def decide(s: ProgramState) -> None:
        s += ph.user("Which?") + ph.assistant(ph.select("x", ["left", "right", "up"], choices_method=method))

    state = decide.run(backend=backend)
    prompts = [prompt for prompt, _ in backend.scored]
    assert prompts == [
        backend.engine.tokenizer.apply_chat_template(state.messages()[:1]),
        *([[256]] if method.needs_unconditional else []),
    ]
    assert all(len(continuations) == 3 for _, continuations in backend.scored)


def test_a_model_without_bos_cannot_score_choices_by_themselves() -> None:
    backend = FakeBackend()
    backend.engine.tokenizer.bos_id = -1

    @ph.function
    def decide(s: ProgramState) -> None:
        s += "a" + ph.select("x", ["b"], choices_method=ph.unconditional_likelihood_normalized)

    with pytest.raises(ProgramError, match="needs a model with a BOS token"):
        decide.run(backend=backend)
