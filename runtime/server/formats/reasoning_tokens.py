"""How many tokens of a request's outputs are reasoning, for `reasoning_tokens` in its usage. Knows no format."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .events import NewReader, OutputReader

if TYPE_CHECKING:
    from ...tokenizer.tokenizer import Tokenizer


class ReasoningTokens:
    """Counts the tokens of reasoning, marks and headers included.

    Args:
        new_reader: makes a reader for each output; None: reasoning is not counted.

    Attributes:
        total: how many there are so far; those of a header join when it is known what it announces.
    """

    def __init__(self, new_reader: NewReader | None, tokenizer: Tokenizer) -> None:
        self.total = 0
        self._new_reader = new_reader
        self._tokenizer = tokenizer
        self._readers: dict[int, OutputReader] = {}
        self._num_pending: dict[int, int] = {}  # tokens of which it is not known yet

    def push(self, index: int, token_ids: Iterable[int]) -> None:
        """The next tokens of an output. Cost: the reader's, once more, for as long as a thought may come."""
        if self._new_reader is None:
            return
        if index not in self._readers:
            self._readers[index], self._num_pending[index] = self._new_reader(), 0
        reader = self._readers[index]
        for token_id in token_ids:
            if reader.in_thought is False and not reader.thinks_again:
                return
            if token_id not in self._tokenizer.eos_ids:
                self._count(index, reader, self._tokenizer.show([token_id]))

    def _count(self, index: int, reader: OutputReader, text: str) -> None:
        num_thoughts = reader.num_thoughts
        reader.push(text)
        self._num_pending[index] += 1
        is_thought = bool(reader.in_thought) or reader.num_thoughts > num_thoughts
        self.total += self._num_pending[index] * is_thought
        if is_thought or reader.in_thought is not None:
            self._num_pending[index] = 0
