"""Kept constraints: never heavier than allowed, counted as they grow, the least recently used dropped first."""

from __future__ import annotations

import random

from phloem.fsm import Compiler, Constraint
from phloem.fsm.kept_constraints import SOON, KeptConstraints

from .vocabularies import BYTES


def grown(constraint: Constraint, depth: int) -> int:
    """Walks so deep into a constraint for JSON that it grows, and returns what it weighs then."""
    cursor = constraint.cursor()
    for _ in range(depth):
        cursor.advance(ord("["))
        cursor.row()
    return constraint.num_bytes


def weight(constraints: list[Constraint]) -> int:
    """What constraints weigh together, shared text automata once."""
    texts = {table for constraint in constraints for table in constraint.texts}
    return sum(constraint.num_bytes for constraint in constraints) + sum(table.num_bytes for table in texts)


def fresh() -> Constraint:
    return Compiler(BYTES).json_value()


def test_the_sum_is_that_of_everything_after_it_was_weighed_again() -> None:
    kept, model = KeptConstraints(1 << 30), {}
    choice = random.Random(5)
    for turn in range(60):
        key = choice.randrange(20)
        if choice.random() < 0.5 or key not in model:
            model[key] = fresh()
            kept.put(key, model[key])
        else:
            assert kept.find(key) is model[key]
        grown(model[choice.choice(list(model))], turn)
    assert len(kept) == len(model)
    assert kept.weigh() == weight(list(model.values())) == kept.num_bytes


def test_what_has_grown_in_use_is_weighed_soon_after() -> None:
    kept = KeptConstraints(1 << 30)
    for number in range(4 * SOON):
        kept.put(number, fresh())
    used = kept.find(3 * SOON)
    assert used is not None
    before, gain = kept.num_bytes, -used.num_bytes
    gain += grown(used, 400)
    for number in range(SOON):
        kept.put(-1 - number, fresh())
    added = SOON * fresh().num_bytes
    assert gain > 0 and abs(kept.num_bytes - before - added - gain) < gain // 4


def test_the_least_recently_used_are_dropped_and_the_newest_stays() -> None:
    one = weight([fresh()])
    own = fresh().num_bytes
    kept = KeptConstraints(one + 2 * own)
    for key in "abc":
        kept.put(key, fresh())
    assert kept.find("a") is not None
    kept.put("d", fresh())
    assert kept.find("b") is None and [kept.find(key) is not None for key in "acd"] == [True] * 3
    assert kept.num_bytes <= one + 2 * own
    tiny = KeptConstraints(1)
    for key in "ab":
        tiny.put(key, fresh())
    assert len(tiny) == 1 and tiny.find("b") is not None
    tiny.clear()
    assert len(tiny) == 0 and tiny.num_bytes == 0 == tiny.weigh()


def test_a_new_one_counts_for_what_it_weighs_before_it_is_used() -> None:
    kept, new = KeptConstraints(1 << 30), fresh()
    kept.put("new", new)
    assert kept.num_bytes == weight([new])
    assert new.num_bytes_unused == new.num_bytes
    grown(new, 400)
    assert new.num_bytes_unused < new.num_bytes
