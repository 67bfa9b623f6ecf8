"""Judging lists whose items must differ: masks bit for bit, and walks within every budget, against what is valid."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jsonschema
import numpy as np

from phloem.fsm import Constraint

from ..vocabularies import allowed_ids


def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ."""
    if len({key for key, _ in found}) < len(found):
        raise ValueError("a key comes twice")
    return dict(found)


@dataclass
class Judge:
    """What can become of texts.

    Attributes:
        tokens: of the vocabulary, the last one ends the text.
        alphabet: bytes that completions are looked for in.
        repeating: texts in which items may come twice, since they can be read in another way.
        repeats: whether a text that has begun repeats something.
        spare: bytes by which a completion may be longer than the shortest.
    """

    constraint: Constraint
    schema: Any
    tokens: Sequence[bytes]
    alphabet: bytes
    repeating: Sequence[bytes]
    repeats: Callable[[bytes], bool]
    spare: int
    _known: dict[bytes, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.end = len(self.tokens) - 1
        self.known_tokens = [i for i in range(self.end) if i >= 256 or i < 128]  # others begin characters
        self._validator = jsonschema.Draft202012Validator(self.schema)

    def is_valid(self, text: bytes) -> bool:
        try:
            return bool(self._validator.is_valid(json.loads(text, object_pairs_hook=pairs)))
        except ValueError:
            return False

    def can_be_completed(self, text: bytes) -> bool:
        if text not in self._known:
            self._known[text] = any(whole.startswith(text) for whole in self.repeating) or self._search(text)
        return self._known[text]

    def _search(self, text: bytes) -> bool:
        automaton = self.constraint.automaton
        state = automaton.advance_bytes(automaton.start, text)
        pending = [(text, state, automaton.min_bytes(state) + self.spare)] if state else []
        while pending:
            text, state, left = pending.pop()
            if self.repeats(text):
                continue
            if automaton.is_accepting(state) and self.is_valid(text):
                return True
            found = []
            for byte in self.alphabet:
                after = automaton.advance_bytes(state, bytes([byte]))
                if after and automaton.min_bytes(after) < left:
                    found.append((automaton.min_bytes(after), text + bytes([byte]), after, left - 1))
            pending += [entry[1:] for entry in sorted(found, reverse=True)]
        return False

    def expected(self, text: bytes) -> list[int]:
        found = [i for i in self.known_tokens if self.can_be_completed(text + self.tokens[i])]
        automaton = self.constraint.automaton
        may_end = automaton.is_accepting(automaton.advance_bytes(automaton.start, text)) and self.is_valid(text)
        return found + [self.end] * may_end

    def liked(self, token_ids: list[int]) -> list[int]:
        """Those that are more than a byte, or in the alphabet."""
        return [i for i in token_ids if i >= 256 or i in self.alphabet] or token_ids

    def check_masks(self, num_walks: int, num_tokens: int) -> None:
        """Masks are those of texts that can become valid."""
        wanted = {*self.known_tokens, self.end}
        for seed in range(num_walks):
            chance, cursor, text = random.Random(seed), self.constraint.cursor(), b""
            for _ in range(num_tokens):
                found = sorted(set(allowed_ids(cursor.row())) & wanted)
                assert [self.tokens[i] for i in found] == [self.tokens[i] for i in self.expected(text)], text
                token_id = chance.choice(self.liked([i for i in found if i != self.end] or found))
                if token_id == self.end:
                    break
                assert cursor.advance(token_id)
                text += self.tokens[token_id]

    def check_walk(self, chance: random.Random, spare: int) -> bytes:
        """A text within a budget of that many tokens above the least ends, and is valid."""
        cursor, text = self.constraint.cursor(), b""
        for remaining in range(self.constraint.min_tokens() + spare, -1, -1):
            assert cursor.min_tokens_to_accept() <= remaining, text
            found = allowed_ids(cursor.row_within(remaining))
            assert found or remaining == 0, text
            assert set(found) <= set(allowed_ids(cursor.row()))
            found = [token_id for token_id in found if token_id != self.end or chance.random() < 0.1] or found
            token_id = chance.choice(self.liked(found)) if remaining else self.end
            assert cursor.advance(token_id), (text, token_id)
            if token_id == self.end:
                break
            text += self.tokens[token_id]
        assert cursor.is_finished, text
        assert self.is_valid(text), text
        assert self.constraint.accepts(text)
        return text

    def check_budgets(self, num_walks: int) -> None:
        """Walks within several budgets."""
        for seed in range(num_walks):
            self.check_walk(random.Random(seed), seed % 7 + seed // 10 * 14)

    def check_going_back(self, num_turns: int) -> None:
        """A cursor that went back is like one that has never gone further, whatever its forks did."""
        constraint, chance = self.constraint, random.Random(3)
        cursor, taken = constraint.cursor(), list[int]()
        for turn in range(num_turns):
            again = constraint.cursor()
            assert all(again.advance(token_id) for token_id in taken)
            assert np.array_equal(cursor.row(), again.row())
            token_ids = [i for i in self.liked(allowed_ids(cursor.row())) if i != self.end]
            if taken and (not token_ids or chance.random() < 0.25):
                count = chance.randrange(1, min(len(taken), 12) + 1)
                cursor.rollback(count)
                del taken[len(taken) - count :]
            else:
                taken.append(chance.choice(token_ids))
                if turn % 3 == 0:
                    other = cursor.fork()
                    assert other.advance(chance.choice(token_ids))
                assert cursor.advance(taken[-1])
