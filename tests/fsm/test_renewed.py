"""An automaton that has grown is replaced by another one: texts go on as if room were unlimited."""

from __future__ import annotations

import gc
import json
import random
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from phloem.errors import ConstraintTooLarge
from phloem.fsm import Compiler, Constraint, Cursor, Limits
from phloem.fsm.automaton.automaton import Automaton
from phloem.fsm.foresight import forced_bytes, forced_tokens_within, guess_within
from phloem.fsm.kept_constraints import KeptConstraints

from .vocabularies import allowed_ids, mixed_vocabulary

VOCABULARY = mixed_vocabulary(1500, seed=3)
ROOM = 1 << 19
ITEM = {"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}, "required": ["name"]}
SCHEMAS: dict[str, Any] = {
    "objects that may have any keys": {"type": "array", "minItems": 60, "items": ITEM},
    "any values": {"type": "array", "minItems": 200},
}


def compiled(schema: Any, room: int) -> tuple[Compiler, Constraint]:
    compiler = Compiler(VOCABULARY, limits=Limits(max_automaton_bytes=room))
    return compiler, compiler.json_schema(schema, key_order="any")


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_text_goes_on_in_another_automaton_as_it_would_have_in_the_first(name: str) -> None:
    rng = random.Random(name)
    _, narrow = compiled(SCHEMAS[name], ROOM)
    _, wide = compiled(SCHEMAS[name], 64 << 20)
    cursor, model = narrow.cursor(), wide.cursor()
    rows, max_tokens, moves = [model.row()], wide.min_tokens() + 10, 0
    for used in range(max_tokens):
        if used % 100 == 70:
            with pytest.raises(ConstraintTooLarge):  # another request's text takes all the room
                cursor.constraint.automaton.advance_bytes(narrow.automaton.start, b'[{"x":' + b"[" * 40_000)
        before = cursor.constraint
        assert np.array_equal(cursor.row(), rows[-1])
        moves += cursor.constraint is not before
        token_id = rng.choice(allowed_ids(model.row_within(max_tokens - used)))
        assert cursor.advance(token_id)
        assert model.advance(token_id)
        rows.append(model.row())
    assert moves > 1
    assert cursor.constraint.automaton.lasting_bytes <= ROOM
    ahead = cursor.fork()
    for count in (1, 40, 100):
        cursor.rollback(count)
        del rows[-count:]
        assert np.array_equal(cursor.row(), rows[-1])
    assert ahead.num_consumed == model.num_consumed
    assert np.array_equal(ahead.row(), model.row())


# ---------------------------------------------------------------- what others do

WORDS: dict[str, Any] = SCHEMAS | {
    "lists whose items differ": {
        "type": "array",
        "minItems": 4,
        "uniqueItems": True,
        "items": {"type": "string"},
    },
    "lists of anything": {"type": "array", "uniqueItems": True},
}


def fill(cursor: Cursor) -> None:
    """What others may write meanwhile: as much as there is room for in the automaton of a cursor."""
    automaton = cursor.constraint.automaton
    with pytest.raises(ConstraintTooLarge):
        for beginning in (b'[{"x":', b"["):
            automaton.advance_bytes(automaton.start, beginning + b"[" * 60_000)


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_question_is_answered_however_full_the_automaton_is(name: str) -> None:
    rng = random.Random(name)
    narrow, wide = compiled(SCHEMAS[name], ROOM)[1], compiled(SCHEMAS[name], 64 << 20)[1]
    cursor, model = narrow.cursor(), wide.cursor()
    max_tokens, changes = wide.min_tokens() + 10, 0
    for used in range(300):
        before, remaining = cursor.constraint, max_tokens - used
        row, question = model.row_within(remaining), rng.randrange(9)
        token_id = rng.choice(allowed_ids(row))
        if used % 10 == 5:
            fill(cursor)
        if question == 0:
            assert np.array_equal(cursor.row(), model.row())
        elif question == 1:
            assert np.array_equal(cursor.row_within(remaining), row)
        elif question == 2:
            soon = cursor.row_soon(remaining, 1 << 30)
            assert soon is not None
            assert np.array_equal(soon, row)
        elif question == 3:
            assert cursor.min_tokens_to_accept() == model.min_tokens_to_accept()
        elif question == 4:
            assert cursor.is_within(remaining)
        elif question == 5:
            assert forced_bytes(cursor) == forced_bytes(model)
        elif question == 6:
            assert forced_tokens_within(cursor, remaining) == forced_tokens_within(model, remaining)
        elif question == 7:
            guess_within(cursor, remaining, 8)
        assert cursor.advance(token_id)
        assert model.advance(token_id)
        changes += cursor.constraint is not before
    assert changes >= 10
    assert cursor.trail.last_tokens(300) == model.trail.last_tokens(300)


def walked(constraint: Constraint, seed: int, max_extra: int) -> list[Any]:
    """[cursor, tokens left, random numbers] of a request that has not begun."""
    rng = random.Random(seed)
    return [constraint.cursor(), constraint.min_tokens() + rng.randrange(max_extra), rng]


def step(request: list[Any]) -> bool:
    """One token of a request; False once there are no tokens left."""
    cursor, remaining, rng = request
    if remaining == 0 or cursor.is_finished:
        return False
    choices = allowed_ids(cursor.row_within(remaining))
    assert choices
    assert cursor.advance(rng.choice(choices))
    request[1] -= 1
    return True


@pytest.mark.parametrize("name", WORDS)
def test_many_requests_side_by_side_in_little_room_all_end_well(name: str) -> None:
    constraint, rng = compiled(WORDS[name], ROOM)[1], random.Random(name)
    requests = [walked(constraint, seed, 40) for seed in range(12)]
    waiting = list(requests)
    while waiting:
        request = rng.choice(waiting)
        if name in SCHEMAS and rng.random() < 0.01:
            fill(request[0])
        for _ in range(rng.randrange(30)):
            if not step(request):
                waiting.remove(request)
                break
    for cursor, _, _ in requests:
        assert cursor.is_accepting
        text = b"".join([VOCABULARY.tokens[token_id] for token_id in cursor.trail.last_tokens(cursor.num_consumed)])
        Draft202012Validator(WORDS[name]).validate(json.loads(text))


def test_requests_in_threads_of_their_own_all_end_well() -> None:
    constraint = compiled(SCHEMAS["any values"], ROOM)[1]

    def served(seed: int) -> bool:
        request = walked(constraint, seed, 40)
        while step(request):
            if request[2].random() < 0.01:
                fill(request[0])
        return bool(request[0].is_accepting)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(served, range(8)))


def test_a_text_that_takes_all_the_room_itself_is_refused_and_others_go_on() -> None:
    constraint = compiled(True, ROOM)[1]
    other, cursor = constraint.cursor(), constraint.cursor()
    bracket = VOCABULARY.tokens.index(b"[")
    assert other.advance(bracket)
    with pytest.raises(ConstraintTooLarge):
        for _ in range(60_000):
            assert cursor.advance(bracket)
    for _ in range(20):
        other.row()
        assert other.advance(bracket)


# ---------------------------------------------------------------- what is kept


def test_of_all_that_came_after_one_another_the_first_and_the_newest_are_kept() -> None:
    compiler, constraint = compiled(True, ROOM)
    alive = []
    for _ in range(5):
        cursor = constraint.cursor()
        alive.append(weakref.ref(cursor.constraint))
        fill(cursor)
    del cursor
    newest = constraint.renewed()
    assert [made() is not None for made in alive] == [True, False, False, False, False]
    assert newest is not constraint
    assert constraint.num_bytes > newest.num_bytes
    idle = newest.cursor()
    fill(idle)
    others = constraint.renewed()
    assert others is not newest is idle.constraint
    assert idle.constraint.renewed() is others
    made = weakref.ref(others)
    del others
    gc.collect()
    assert made() is constraint.renewed()
    assert compiler.json_schema(True, key_order="any") is made()
    compiler.clear()
    del constraint, idle, newest
    assert made() is None


def test_what_takes_the_place_of_another_one_is_weighed_at_once() -> None:
    kept, (_, constraint) = KeptConstraints(1 << 30), compiled(True, ROOM)
    kept.put("any", constraint)
    fill(constraint.cursor())
    fill(constraint.cursor())
    renewed = constraint.renewed()
    cursor = renewed.cursor()
    for _ in range(400):
        cursor.advance(VOCABULARY.tokens.index(b"["))
    kept.put("any", renewed)
    before = kept.num_bytes
    assert kept.weigh() == before


# ---------------------------------------------------------------- work


def test_a_row_that_there_is_no_room_for_is_given_up_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in this automaton, nor in others: no call does much more than it is allowed, and there is an end to them."""
    made: list[Automaton] = []
    make = Automaton.__init__

    def noted(automaton: Automaton, *arguments: Any) -> None:
        make(automaton, *arguments)
        made.append(automaton)

    monkeypatch.setattr(Automaton, "__init__", noted)
    rules = "\n".join(f'r{n} ::= r{n + 1} r{n + 1} | "{n}"' for n in range(300))
    compiler = Compiler(VOCABULARY, limits=Limits(max_automaton_bytes=640 << 10))
    cursor = compiler.grammar(f'root ::= r0\n{rules}\nr300 ::= "z"').cursor()
    done = [found(made)]
    with pytest.raises(ConstraintTooLarge):
        for _ in range(2000):
            assert cursor.row_soon(60, WORK) is None
            done.append(found(made))
    done.append(found(made))
    assert max(after - before for before, after in pairwise(done)) <= 4 * WORK
    assert len(made) >= 3


WORK = 2_000


def found(made: list[Automaton]) -> int:
    """Stacks and configurations of states that were found so far."""
    return sum(automaton.num_stacks + automaton.num_configurations for automaton in made)
