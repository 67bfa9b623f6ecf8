"""Vocabularies that the tests of `fsm` share, and the slow truth about masks."""

from __future__ import annotations

import itertools
import random

import numpy as np
import numpy.typing as npt

from phloem.fsm import Compiler, Constraint, Vocabulary
from phloem.fsm.network.expression import Grammar

BYTES = Vocabulary([bytes([byte]) for byte in range(256)] + [b""], [256])


def small_vocabulary(pieces: list[bytes]) -> Vocabulary:
    """Every byte, the pieces (repeated ones too), two special tokens and EOS, in this order."""
    tokens = [bytes([byte]) for byte in range(256)] + pieces + [b"", b"", b""]
    return Vocabulary(tokens, [len(tokens) - 1])


def mixed_vocabulary(num_tokens: int, seed: int) -> Vocabulary:
    """Words, numbers, punctuation, JSON pieces, other scripts, cut and malformed UTF-8; with sub-trees to skip."""
    rng = random.Random(seed)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    pieces: set[bytes] = set()
    while len(pieces) < num_tokens:
        word = "".join(rng.choice(letters[: rng.randint(3, 26)]) for _ in range(rng.randint(1, 9)))
        kind = rng.randrange(12)
        if kind == 0:
            word = " " + word.capitalize()
        elif kind == 1:
            word = str(rng.randrange(10 ** rng.randint(1, 6)))
        elif kind == 2:
            word = "".join(rng.choice('{}[]",:.\\/ \n\t-_@#') for _ in range(rng.randint(1, 4)))
        elif kind == 3:
            word += rng.choice(['"', '",', '":', "\\", "\\n", "\x01", ".", "-"]) + word[:2]
        elif kind == 4:
            word = "".join(
                rng.choice("йцукенгшщзхъéèüßñ中文日本語한국😀\u2028\u2029\x7f") for _ in range(rng.randint(1, 5))
            )
        elif kind == 5:
            word = " " * rng.randint(1, 40)
        data = (" " + word if kind > 8 else word).encode()
        if kind == 6:
            data = bytes(rng.randrange(256) for _ in range(rng.randint(1, 4)))
        elif kind == 4 and rng.random() < 0.4:
            data = data[rng.randint(0, 2) : len(data) - rng.randint(0, 2)]
        pieces.add(data)
    return small_vocabulary(sorted(pieces - {b""}))


def brute_force(constraint: Constraint, state: int) -> npt.NDArray[np.int32]:
    """The row of a state, every token tried byte by byte."""
    vocabulary, automaton = constraint.vocabulary, constraint.automaton
    allowed = [i for i, token in enumerate(vocabulary.tokens) if token and automaton.advance_bytes(state, token)]
    if automaton.is_accepting(state):
        allowed += vocabulary.eos_ids
    flags = np.zeros(vocabulary.num_words * 32, np.bool_)
    flags[allowed] = True
    return np.packbits(flags, bitorder="little").view(np.int32)


def allowed_ids(row: npt.NDArray[np.int32]) -> list[int]:
    """The token ids whose bits are set."""
    ids: list[int] = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()
    return ids


def accepts(constraint: Constraint, text: str) -> bool:
    """Whether a cursor takes a text byte by byte, and then it may end. The first tokens are the bytes."""
    cursor = constraint.cursor()
    return all(cursor.advance(byte) for byte in text.encode()) and cursor.is_accepting


def words(alphabet: str, longest: int) -> list[str]:
    """All texts of some letters, up to a length."""
    return ["".join(word) for n in range(longest + 1) for word in itertools.product(alphabet, repeat=n)]


def constraint_of(grammar: Grammar, vocabulary: Vocabulary) -> Constraint:
    return Compiler(vocabulary).from_grammar(grammar)


def random_walk(constraint: Constraint, rng: random.Random, max_tokens: int, budget: bool = True) -> tuple[bytes, bool]:
    """A text made of random allowed tokens, and whether it ended with EOS. With a budget it always does."""
    cursor = constraint.cursor()
    text = b""
    for used in range(max_tokens):
        choices = allowed_ids(cursor.row_within(max_tokens - used) if budget else cursor.row())
        assert choices, f"no token is allowed after {text!r}"
        token_id = rng.choice(choices)
        assert cursor.advance(token_id)
        if cursor.is_finished:
            return text, True
        text += constraint.vocabulary.tokens[token_id]
    return text, cursor.is_accepting
