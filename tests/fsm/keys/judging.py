"""Judging texts whose keys and items must differ: masks bit for bit, walks within every budget, and going back."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import jsonschema
import numpy as np

from phloem.fsm import Constraint, Cursor

from ..vocabularies import allowed_ids


def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ."""
    if len({key for key, _ in found}) < len(found):
        raise ValueError("a key comes twice")
    return dict(found)


def common(text: bytes) -> str:
    """The same for all spellings of a value."""
    return json.dumps(
        json.loads(text, parse_int=Decimal, parse_float=Decimal),
        sort_keys=True,
        default=lambda number: ["a number", str((number + 0).normalize() if number else 0)],
    )


def repeats(text: bytes, must_differ: Callable[[int, bytes], bool] = lambda num_around, item: False) -> bool:
    """Whether an object of a text that has begun has a key twice, or a list an item, by reading it as JSON.

    Args:
        must_differ: whether an item counts, by the number of lists around its own, and its text.
    """
    open_parts: list[tuple[bytes, set[str], int]] = []  # bracket, items or keys, where the item begins
    position = 0
    while position < len(text):
        byte = text[position : position + 1]
        position += 1
        if byte == b'"':
            start = position - 1
            while position < len(text) and text[position : position + 1] != b'"':
                position += 2 if text[position : position + 1] == b"\\" else 1
            position += 1
            if position > len(text):
                return False
            if open_parts and open_parts[-1][0] == b"{" and text[:start].rstrip()[-1:] in (b"{", b","):
                key = text[start:position].decode()
                if key in open_parts[-1][1]:
                    return True
                open_parts[-1][1].add(key)
        elif byte in (b"{", b"["):
            open_parts.append((byte, set(), position))
        elif byte in (b",", b"]", b"}"):
            bracket, items, start = open_parts.pop()
            num_around, item = sum(bracket == b"[" for bracket, _, _ in open_parts), text[start : position - 1].strip()
            if bracket == b"[" and item and must_differ(num_around, item):
                value = common(item)
                if value in items:
                    return True
                items.add(value)
            if byte == b",":
                open_parts.append((bracket, items, position))
    return False


@dataclass
class Judge:
    """What can become of texts.

    Attributes:
        alphabet: bytes that completions are looked for in, and that walks like.
        repeating: texts in which items may come twice, since they can be read in another way.
        must_differ: see `repeats`.
        spare: bytes by which a completion may be longer than the shortest.
    """

    constraint: Constraint
    schema: Any
    alphabet: bytes
    repeating: Sequence[str] = ()
    must_differ: Callable[[int, bytes], bool] = lambda num_around, item: False
    spare: int = 5
    _known: dict[bytes, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tokens = self.constraint.vocabulary.tokens
        (self.end,) = self.constraint.vocabulary.eos_ids
        self._validator = jsonschema.Draft202012Validator(self.schema)

    def is_valid(self, text: bytes) -> bool:
        try:
            return bool(self._validator.is_valid(json.loads(text, object_pairs_hook=pairs)))
        except ValueError:
            return False

    def can_be_completed(self, text: bytes) -> bool:
        if text not in self._known:
            self._known[text] = any(whole.encode().startswith(text) for whole in self.repeating) or self._search(text)
        return self._known[text]

    def _search(self, text: bytes) -> bool:
        automaton = self.constraint.automaton
        state = automaton.advance_bytes(automaton.start, text)
        pending = [(text, state, automaton.min_bytes(state) + self.spare)] if state else []
        while pending:
            text, state, left = pending.pop()
            if repeats(text, self.must_differ):
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

    def liked(self, token_ids: list[int]) -> list[int]:
        """Those of the alphabet alone, if there are any."""
        return [i for i in token_ids if set(self.tokens[i]) <= set(self.alphabet)] or token_ids

    def places(self, seed: int, num_tokens: int) -> Iterator[tuple[Cursor, bytes]]:
        """Places on a random walk that likes to write the same again."""
        chance, cursor, text = random.Random(seed), self.constraint.cursor(), b""
        for _ in range(num_tokens):
            yield cursor, text
            token_ids = [i for i in self.liked(allowed_ids(cursor.row())) if i != self.end]
            if not token_ids:
                return
            token_id = chance.choice(token_ids)
            assert cursor.advance(token_id)
            text += self.tokens[token_id]

    def check_masks(self, num_walks: int, num_tokens: int) -> None:
        """Masks are those of texts that can become valid."""
        looked_at = [i for i in range(self.end) if i >= 256 or i < 128]  # others begin characters
        automaton = self.constraint.automaton
        for seed in range(num_walks):
            for cursor, text in self.places(seed, num_tokens):
                found = set(allowed_ids(cursor.row()))
                wanted = [i for i in looked_at if self.can_be_completed(text + self.tokens[i])]
                assert [self.tokens[i] for i in looked_at if i in found] == [self.tokens[i] for i in wanted], text
                may_end = automaton.is_accepting(automaton.advance_bytes(automaton.start, text))
                assert (self.end in found) == (may_end and self.is_valid(text)), text

    def check_walk(self, chance: random.Random, spare: int) -> None:
        """A text within a budget of that many tokens above the least ends, and is valid."""
        cursor, text = self.constraint.cursor(), b""
        for remaining in range(self.constraint.min_tokens() + spare, -1, -1):
            assert cursor.min_tokens_to_accept() <= remaining and cursor.is_within(remaining), text
            found = allowed_ids(cursor.row_within(remaining))
            assert set(found) <= set(allowed_ids(cursor.row())), text
            assert found or remaining == 0, text
            going_on = [token_id for token_id in found if token_id != self.end]
            if going_on:
                other = cursor.fork()
                assert other.advance(chance.choice(going_on)) and other.is_within(remaining - 1), text
            token_id = self.end
            if remaining and going_on and (self.end not in found or chance.random() < 0.9):
                token_id = chance.choice(going_on if chance.random() < 0.1 else self.liked(going_on))
            assert cursor.advance(token_id), (text, token_id)
            if token_id == self.end:
                break
            text += self.tokens[token_id]
        assert cursor.is_finished, text
        assert self.is_valid(text), text
        assert self.constraint.accepts(text)

    def check_budgets(self, num_walks: int) -> None:
        """Walks within several budgets."""
        for seed in range(num_walks):
            self.check_walk(random.Random(seed), seed % 7 + seed // 10 * 14)

    def check_going_back(self, num_turns: int) -> None:
        """Forks, and cursors that went back, are like those that have never gone anywhere else."""
        chance = random.Random(3)
        cursors: list[tuple[Cursor, list[int]]] = [(self.constraint.cursor(), [])]
        for _ in range(num_turns):
            cursor, taken = chance.choice(cursors)
            again = self.constraint.cursor()
            assert all(map(again.advance, taken)) and np.array_equal(cursor.row(), again.row())
            if taken and chance.random() < 0.3:
                count = chance.randrange(1, min(len(taken), 12) + 1)
                cursor.rollback(count)
                del taken[len(taken) - count :]
            elif chance.random() < 0.2:
                cursors.append((cursor.fork(), list(taken)))
            token_ids = [i for i in self.liked(allowed_ids(cursor.row())) if i != self.end]
            if token_ids:
                taken.append(chance.choice(token_ids))
                assert cursor.advance(taken[-1])
