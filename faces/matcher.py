"""A constraint's place in one output, in XGrammar's words; masks are filled into memory that the caller owns.

The layout of a bitmask is XGrammar's: int32 `[batch, ceil(vocabulary / 32)]`, token t allowed iff bit t & 31 of word
t >> 5 is set. Knows no model. Not thread-safe: one output, one thread at a time; matchers of one constraint may be used
by several threads. Cost: a mask that was seen before is a copy, some microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError
from ..fsm import Constraint

Bitmask = npt.NDArray[np.int32]


def allocate_token_bitmask(batch_size: int, vocab_size: int) -> Bitmask:
    """int32 `[batch_size, ceil(vocab_size / 32)]`, everything allowed."""
    return np.full((batch_size, -(-vocab_size // 32)), -1, np.int32)


class GrammarMatcher:
    """Where one output is in a constraint.

    Args:
        max_tokens: with it only tokens are allowed after which the text can still be completed within so many tokens,
            the end token not counted: every output parses.

    Raises:
        ConfigError: no text is within `max_tokens`.
    """

    def __init__(self, constraint: Constraint, *, max_tokens: int | None = None) -> None:
        if not isinstance(constraint, Constraint):
            raise ConfigError(f"constraint: expected what Compiler makes, got {type(constraint).__name__}")
        if max_tokens is not None and not constraint.is_within(max_tokens):
            least = constraint.min_tokens()
            raise ConfigError(f"max_tokens: {max_tokens} is too little, the shortest text may need {least} tokens")
        self._cursor = constraint.cursor()
        self._num_vocabulary_tokens = constraint.vocabulary.size
        self._max_tokens = max_tokens

    @property
    def num_tokens(self) -> int:
        """Accepted so far."""
        return self._cursor.num_consumed

    def accept_token(self, token_id: int) -> bool:
        """Takes a token, an end token too; False, and nothing changes, if it is not allowed."""
        return self._cursor.advance(token_id)

    def fill_next_token_bitmask(self, bitmask: Any, index: int = 0) -> bool:
        """Writes which tokens may come next into row `index` of an int32 array or tensor on the CPU.

        Returns whether the row forbids anything, so that it has to be applied. Once terminated it forbids everything.

        Raises:
            ConfigError: the memory has another type or shape.
        """
        rows = _rows_of(bitmask)
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
        """Takes back the last tokens. Raises ValueError: there are fewer."""
        self._cursor.rollback(num_tokens)

    def find_jump_forward_string(self) -> str:
        """The text that must come next whatever is chosen, up to its last whole character; "" if there is none."""
        forced = self._cursor.forced_bytes()
        return forced[: _whole(forced)].decode()

    def find_jump_forward_tokens(self) -> list[int]:
        """The same in the tokenizer's own tokens, as far as no later text can merge into them."""
        return list(self._cursor.draft())

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
        twin = copy(self)
        twin._cursor = self._cursor.fork()
        return twin

    def _bits(self) -> Bitmask:
        if self._max_tokens is None or self._cursor.is_finished:
            return self._cursor.row()
        return self._cursor.row_within(self._max_tokens - self._cursor.num_consumed)


def fill_bitmasks(matchers: Sequence[GrammarMatcher], bitmask: Any) -> None:
    """Row i of `bitmask` from matcher i; see `GrammarMatcher.fill_next_token_bitmask`."""
    rows = _rows_of(bitmask)
    for index, matcher in enumerate(matchers):
        matcher.fill_next_token_bitmask(rows, index)


def _rows_of(bitmask: Any) -> Bitmask:
    rows = bitmask.numpy() if hasattr(bitmask, "numpy") and not isinstance(bitmask, np.ndarray) else bitmask
    if not isinstance(rows, np.ndarray) or rows.dtype != np.int32 or rows.ndim != 2:
        raise ConfigError("bitmask: expected int32 [batch, words], as an array or as a tensor on the CPU")
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
