"""What is drafted for a constraint: what is right often enough for its rows, and now and then what was not."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from phloem.fsm import Guess
from phloem.runtime.speculate.draft import Drafter
from phloem.runtime.speculate.step_costs import TRY_EVERY


class Forced:
    """As `Guesses` of a constraint in which the same word is forced at every step."""

    def may_find(self, state: int, habits: object, chances: Sequence[float], floor: float, *, looks: bool) -> bool:
        return chances[0] >= floor

    def find(
        self,
        state: int,
        habits: object,
        trail: object,
        remaining: int,
        limit: int,
        chances: Sequence[float],
        floor: float,
        *,
        looks: bool,
    ) -> Guess:
        return Guess([7], [0]) if chances[0] >= floor else Guess()


def forced_cursor() -> SimpleNamespace:
    caches = SimpleNamespace(guesses=Forced(), automaton=SimpleNamespace(start=1))
    habits = SimpleNamespace(learn_last=lambda *_: None)
    return SimpleNamespace(state=1, trail=None, repeats=None, habits=habits, caches=caches)


def steps(num_requests: int, rate: float, num_steps: int) -> list[bool]:
    """Whether one of as many requests has a draft, step by step, if drafts are right at that rate."""
    drafter = Drafter("verified", None, SimpleNamespace(), 8, "cpu")  # type: ignore[arg-type]
    request: Any = SimpleNamespace(
        cursor=forced_cursor(),
        rates=None,
        lookup=None,
        remaining_tokens=100,
        draft=[],
        guess=None,
        num_predicted=0,
        is_probe=False,
        thought=None,
    )
    drafter.begin(request)
    found, owed = [], 0.0
    for _ in range(num_steps):
        drafter.begin_step(num_requests, 0.0)
        drafter.draft(request)
        found.append(bool(request.draft))
        owed += rate if request.draft else 0.0
        is_right, owed = owed >= 1.0, owed % 1.0
        drafter.settle(request, len(request.draft), [7 if is_right else 8], 1)
    return found


@pytest.mark.parametrize(("num_requests", "rate", "drafts"), [(1, 0.5, True), (64, 0.5, False), (64, 1.0, True)])
def test_a_draft_is_made_where_it_is_right_often_enough_for_its_row(
    num_requests: int, rate: float, drafts: bool
) -> None:
    """Beside others a row costs as much as it may save; alone it is next to free."""
    found = steps(num_requests, rate, 200)[100:]
    assert (sum(found) > 95) == drafts and (sum(found) < 5) != drafts


def test_what_does_not_pay_is_tried_again() -> None:
    found = steps(64, 0.0, 4 * TRY_EVERY)
    assert 3 <= sum(found[TRY_EVERY // 2 :]) <= 4
