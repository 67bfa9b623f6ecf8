"""A constraint's place in one output, in XGrammar's words; masks are filled into memory that the caller owns.

The layout of a bitmask is XGrammar's: int32 `[batch, ceil(vocabulary / 32)]`, token t allowed iff bit t & 31 of word
t >> 5 is set. Knows no model. Not thread-safe: one output, one thread at a time; matchers of one constraint may be used
by several threads. Cost: a mask that was seen before is a copy, some microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError
from ..fsm import Constraint
from ..fsm.foresight import forced_bytes, forced_tokens
from .arguments import compiled, number

Bitmask = npt.NDArray[np.int32]


def allocate_token_bitmask(batch_size: int, vocab_size: int) -> Bitmask:
    """int32 `[batch_size, ceil(vocab_size / 32)]`, everything allowed. ConfigError: no such sizes."""
    rows = number("batch_size", batch_size, "a number of rows", 0)
    num_words = -(-number("vocab_size", vocab_size, "a number of tokens", 1) // 32)
    try:
        return np.full((rows, num_words), -1, np.int32)
    except ValueError:
        raise ConfigError(f"batch_size, vocab_size: {rows} rows of {num_words} words are too many") from None


class GrammarMatcher:
    """Where one output is in a constraint.

    Args:
        max_tokens: with it only tokens are allowed after which the text can still be completed within n tokens,
            the end token not counted: every output parses.

    Raises:
        ConfigError: no text is within `max_tokens`.
    """

    def __init__(self, constraint: Constraint, *, max_tokens: int | None = None) -> None:
        constraint = compiled("constraint", constraint)
        if max_tokens is not None:
            max_tokens = number("max_tokens", max_tokens, "a number of tokens")
        if max_tokens is not None and not constraint.is_within(max_tokens):
            least = constraint.min_tokens()
            raise ConfigError(f"max_tokens: {max_tokens} is too little for any text; give at least {least}")
        self._cursor = constraint.cursor()
        self._num_vocabulary_tokens = constraint.vocabulary.size
        self._max_tokens = max_tokens

    @property
    def num_tokens(self) -> int:
        """Accepted so far."""
        return self._cursor.num_consumed

    def accept_token(self, token_id: int) -> bool:
        """Takes a token, an end token too; False, and nothing changes, if it is not allowed.

        Raises:
            ConfigError: it is no whole number.
        """
        return self._cursor.advance(token_id if type(token_id) is int else number("token_id", token_id, "a token's id"))

    def fill_next_token_bitmask(self, bitmask: Any, index: int = 0) -> bool:
        """Writes which tokens may come next into row `index` of an int32 array or tensor on the CPU.

        Returns whether the row forbids anything, so that it has to be applied. Once terminated it forbids everything.

        Raises:
            ConfigError: the memory has another type or shape, cannot be written, or has no such row.
        """
        rows, index = _rows_of(bitmask), number("index", index, "the number of a row")
        if not -len(rows) <= index < len(rows):
            raise ConfigError(f"bitmask: {len(rows)} rows, and none with the index {index}")
        row = rows[index]
        bits = self._bits()
        if len(row) < len(bits):
            raise ConfigError(f"bitmask: rows of {len(row)} words; this vocabulary has {len(bits)}")
        row[: len(bits)] = bits
        row[len(bits) :] = 0
        words, rest = divmod(self._num_vocabulary_tokens, 32)
        allows_all = (bits[:words] == -1).all() and (rest == 0 or int(bits[words]) & (1 << rest) - 1 == (1 << rest) - 1)
        return not allows_all

    def rollback(self, num_tokens: int = 1) -> None:
        """Takes back the last tokens. ConfigError: there are fewer, or it is no whole number."""
        count = number("num_tokens", num_tokens, "how many tokens to take back", 0)
        if count > self.num_tokens:
            raise ConfigError(f"num_tokens: {count} cannot be taken back; {self.num_tokens} were accepted")
        self._cursor.rollback(count)

    def find_jump_forward_string(self) -> str:
        """The text that must come next whatever is chosen, up to its last whole character; "" if there is none."""
        forced = forced_bytes(self._cursor)
        return forced[: _whole(forced)].decode()

    def find_jump_forward_tokens(self) -> list[int]:
        """The same in the tokenizer's own tokens, as far as no later text can merge into them."""
        return list(forced_tokens(self._cursor))

    def is_accepting(self) -> bool:
        """Whether the text so far is complete."""
        return self._cursor.is_accepting

    def is_terminated(self) -> bool:
        """Whether an end token was accepted."""
        return self._cursor.is_finished

    def reset(self) -> None:
        """Goes back to the beginning."""
        self._cursor.rollback(self._cursor.num_consumed)

    def fork(self) -> GrammarMatcher:
        """An independent matcher at the same place. O(1)."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self), _cursor=self._cursor.fork())
        return twin

    __copy__ = fork

    def _bits(self) -> Bitmask:
        if self._max_tokens is None or self._cursor.is_finished:
            return self._cursor.row()
        return self._cursor.row_within(self._max_tokens - self._cursor.num_consumed)


def fill_bitmasks(matchers: Sequence[GrammarMatcher], bitmask: Any) -> None:
    """Row i of `bitmask` from matcher i; see `GrammarMatcher.fill_next_token_bitmask`.

    Raises:
        ConfigError: as that does; or something else is among the matchers. Then nothing is written.
    """
    rows = _rows_of(bitmask)
    listed = list(matchers) if isinstance(matchers, Iterable) else [matchers]
    if isinstance(matchers, GrammarMatcher) or not all(isinstance(one, GrammarMatcher) for one in listed):
        raise ConfigError("matchers: give a list of GrammarMatcher, one for each row")
    if len(listed) > len(rows):
        raise ConfigError(f"bitmask: {len(rows)} rows, and none with the index {len(rows)}")
    for index, matcher in enumerate(listed):
        matcher.fill_next_token_bitmask(rows, index)


def _rows_of(bitmask: Any) -> Bitmask:
    try:
        rows = bitmask.numpy() if hasattr(bitmask, "numpy") and not isinstance(bitmask, np.ndarray) else bitmask
    except (TypeError, RuntimeError):  # a tensor elsewhere, sparse, or with a gradient
        rows = None
    if not isinstance(rows, np.ndarray) or rows.dtype != np.int32 or rows.ndim != 2:
        raise ConfigError("bitmask: expected int32 [batch, words], as an array or as a tensor on the CPU")
    if not rows.flags.writeable:
        raise ConfigError("bitmask: it is read-only; give memory that can be written")
    return rows


def _whole(text: bytes) -> int:
    """Bytes up to the end of the last whole character."""
    for end in range(len(text), max(-1, len(text) - 4), -1):
        try:
            text[:end].decode()
            return end
        except UnicodeDecodeError:
            continue
    return 0
