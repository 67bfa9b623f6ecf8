"""A thought ends within its budget, at a sentence if one ends in time, whatever is said and however it is drafted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phloem.runtime.request import SamplingParams
from phloem.runtime.sample.thought_limit import MOST_WINDOW, SENTENCE_ENDS, ThoughtLimit

from ..fakes import FakeDecoder, fake_engine

BEGIN, END = "<think>", "</think>"
PIECES = ["a", " b", ".", "!\n", "。", "</", "think>", END, BEGIN, "\n", "<", "        "]
CLOSINGS = [(7,), (5, 6)]  # the mark as one token, or as two


def show(token_ids: Sequence[int]) -> str:
    return "".join(PIECES[token_id] for token_id in token_ids)


def limit_of(budget: int, closing: Sequence[int], *, is_open: bool) -> ThoughtLimit:
    return ThoughtLimit(budget, BEGIN, END, closing, is_open=is_open, show=show)


def say(limit: ThoughtLimit, wanted: Sequence[int]) -> tuple[list[int], list[bool]]:
    """What is said where a model wants these tokens, and which of them were due."""
    said, due = [], []
    for token_id in wanted:
        said.append(token_id if limit.due is None else limit.due)
        due.append(limit.due is not None)
        limit.push(said[-1])
    return said, due


@given(
    st.lists(st.integers(0, len(PIECES) - 1), min_size=40, max_size=80),
    st.integers(0, 30),
    st.sampled_from(CLOSINGS),
    st.booleans(),
)
def test_it_ends_within_the_budget_and_changes_nothing_else(
    wanted: list[int], budget: int, closing: tuple[int, ...], is_open: bool
) -> None:
    said, due = say(limit_of(budget, closing, is_open=is_open), wanted)
    text, opened = show(said), is_open or show(said).lstrip().startswith(BEGIN)
    if not opened:
        assert said == wanted and not any(due)
        return
    first = next(n for n in range(len(said) + 1) if is_open or show(said[:n]).lstrip().startswith(BEGIN))
    inside = next(n for n in range(first, len(said) + 1) if END in show(said[first:n]))
    assert END in text
    num_marks = sum(due)
    assert num_marks in (0, len(closing))
    assert inside - first - max(1, num_marks) <= budget
    if num_marks:
        at = due.index(True)
        ended = show(said[:at]).rstrip(" ").endswith(SENTENCE_ENDS)
        assert at - first == budget or (ended and at - first >= budget - min(budget // 4, MOST_WINDOW))
        assert said[at : at + num_marks] == list(closing)
    rest = [index for index, was_due in enumerate(due) if not was_due]
    assert [said[index] for index in rest] == [wanted[index] for index in rest]


@given(st.lists(st.integers(0, len(PIECES) - 1), min_size=30, max_size=50), st.integers(0, 12), st.integers(0, 30))
def test_a_fork_goes_on_as_it_would(wanted: list[int], budget: int, at: int) -> None:
    limit = limit_of(budget, CLOSINGS[1], is_open=True)
    say(limit, wanted[:at])
    twin = limit.fork()
    assert say(twin, wanted[at:]) == say(limit, wanted[at:])


@pytest.mark.parametrize(
    ("budget", "is_sentence"),
    [(1, False), (1, True), (2, False), (4, True), (7, False), (8, True), (16, False), (23, False), (23, True)],
)
def test_drafts_change_no_thought(budget: int, is_sentence: bool) -> None:
    """Over the fake model, whose tokens are bytes: `|` closes."""

    def shown(ids: Sequence[int]) -> str:
        return "." if is_sentence else bytes(ids).decode("latin-1")

    def limit() -> ThoughtLimit:
        return ThoughtLimit(budget, "", "|", [ord("|")], is_open=True, show=shown)

    params = SamplingParams(max_tokens=60, temperature=0.0, ignore_eos=True, logit_bias={256: -100.0})
    prompt = [*range(30)]
    plain = fake_engine(jump="off", lookup_drafts=False)
    free = plain.generate(prompt, params).token_ids
    expected = plain.generate(prompt, params, thought_limit=limit).token_ids
    at = expected.index(ord("|"))
    assert at <= budget and expected[:at] == free[:at] and expected != free
    own = fake_engine(draft_decoder=FakeDecoder(), lookup_drafts=False)
    for engine, predicted in ((fake_engine(), {"prediction": list(free)}), (own, {})):
        for _ in range(2):  # the second time the reply to the first is known
            drafted = engine.generate(prompt, params, thought_limit=limit, **predicted)
            assert drafted.token_ids == expected
