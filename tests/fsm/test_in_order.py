"""Many texts in their order: as `sorted` has them, and the time is asked for on the way."""

from __future__ import annotations

import itertools
import random

import pytest

from phloem.errors import ConstraintTooLarge
from phloem.fsm import in_order as module
from phloem.fsm.compile_time import CompileTime
from phloem.fsm.in_order import in_order
from phloem.fsm.network.expression import Alternation, Grammar, Literal
from phloem.fsm.network.network import build_network


def test_texts_are_sorted_and_each_is_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(0)
    for _ in range(500):
        monkeypatch.setattr(module, "RUN", rng.randint(1, 9))
        texts = [bytes(rng.choices(b"ab\x00\xff", k=rng.randrange(4))) for _ in range(rng.randint(1, 40))]
        assert in_order(list(texts)) == sorted(set(texts))


@pytest.mark.parametrize("num_runs", [2, 7])
def test_the_time_is_asked_for_between_runs(monkeypatch: pytest.MonkeyPatch, num_runs: int) -> None:
    monkeypatch.setattr(module, "RUN", 10)
    options = tuple(Literal(f"{n}".encode()) for n in range(10 * num_runs))
    for num_questions in itertools.count(1):
        clock = itertools.count().__next__
        try:
            build_network(
                Grammar({"text": Alternation(options)}, "text"), CompileTime(num_questions, clock, wall=clock)
            )
            break
        except ConstraintTooLarge as error:
            assert "raise max_compile_seconds" in str(error)
    assert num_questions > 2 * num_runs
