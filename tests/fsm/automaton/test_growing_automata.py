"""What the mask allows and what `advance` takes are the same while an automaton outgrows its memory again and again.

The patterns have enough states that every walk meets new ones; masks are made in small parts, as an engine makes
them that has others to serve.
"""

from __future__ import annotations

import random
import threading

import pytest

from phloem.fsm import Compiler, Constraint

from ..vocabularies import allowed_ids, small_vocabulary

LETTERS = ["a", "b", "c"]
VOCABULARY = small_vocabulary(
    [(x + y + z).encode() for x in LETTERS for y in LETTERS for z in (*LETTERS, "")] + [b"abababab", b"\xc3\xa9", b"aa"]
)
BOMBS = [
    "[ab]*a[ab]{30}",
    "([ab]{0,50}){0,50}c",
    "(.{1,20}b?){1,20}",
    "(a|b|ab|ba)*a(a|b|ab){10,100}c",
    "[ab]*a[ab]{100,300}",
]


def differences(constraint: Constraint, rng: random.Random, num_tokens: int) -> list[tuple[int, int]]:
    """(place, token id) wherever the mask and `advance` disagree on a random walk, all tokens tried at every place."""
    cursor = constraint.cursor()
    found = []
    for place in range(num_tokens):
        row = None
        while row is None:
            row = cursor.row_soon(1 << 20, 200)
        allowed = set(allowed_ids(row))
        for token_id in range(constraint.vocabulary.size):
            if cursor.fork().advance(token_id) != (token_id in allowed):
                found.append((place, token_id))
        going_on = sorted(allowed - set(constraint.vocabulary.eos_ids))
        if not going_on:
            break
        cursor.advance(rng.choice(going_on))
    return found


@pytest.mark.parametrize("seed", range(2))
def test_masks_agree_with_advance_on_walks_through_several_bombs(seed: int) -> None:
    compiler, rng = Compiler(VOCABULARY), random.Random(seed)
    for pattern in BOMBS:
        assert differences(compiler.regex(pattern), rng, 40) == []


@pytest.mark.parametrize("pattern", BOMBS)
def test_masks_agree_with_advance_while_other_threads_make_the_automaton_grow(
    pattern: str, hasty_interpreter: None
) -> None:
    constraint = Compiler(VOCABULARY).regex(pattern)
    found: list[object] = []

    def walk(seed: int) -> None:
        try:
            found.extend(differences(constraint, random.Random(seed), 150))
        except Exception as error:
            found.append(error)

    threads = [threading.Thread(target=walk, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == []
