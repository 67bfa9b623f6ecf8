"""How many tokens of an output are its thought, for `reasoning_tokens` in its usage. Knows no engine."""

from __future__ import annotations

from collections.abc import Iterable

from .think import BEGIN, END, ThinkingTokenizer, Thought


class ThoughtTokens:
    """Counts the tokens of one output up to the end of its thought, the mark included.

    Attributes:
        count: how many there are so far.
    """

    def __init__(self, thought: Thought, tokenizer: ThinkingTokenizer) -> None:
        self.count = 0
        self._tokenizer = tokenizer
        self._num_blank = 0  # tokens in front of a thought, if there is one
        self._has_begun = thought == "open"
        self._is_over = thought == "closed"
        self._text = ""  # as much of it as may be part of a mark

    def push(self, token_ids: Iterable[int]) -> None:
        for token_id in token_ids:
            if self._is_over:
                return
            if token_id not in self._tokenizer.eos_ids:
                self._count(self._tokenizer.show([token_id]))

    def _count(self, text: str) -> None:
        self._text += text
        self._num_blank += not self._has_begun
        self.count += self._has_begun
        if not self._has_begun:
            begun = self._text.lstrip()
            self._has_begun = begun.startswith(BEGIN)
            self._is_over = not self._has_begun and not BEGIN.startswith(begun)
            if not self._has_begun:
                return
            self.count = self._num_blank
        self._is_over = END in self._text
        self._text = self._text[-len(END) :]


class ReasoningTokens:
    """Counts the tokens of thoughts in the outputs of one request; `thought` None: nobody looks for thoughts."""

    def __init__(self, thought: Thought | None, tokenizer: ThinkingTokenizer) -> None:
        self._thought: Thought = thought if thought is not None else "closed"
        self._tokenizer = tokenizer
        self._outputs: dict[int, ThoughtTokens] = {}

    def push(self, index: int, token_ids: Iterable[int]) -> None:
        if index not in self._outputs:
            self._outputs[index] = ThoughtTokens(self._thought, self._tokenizer)
        self._outputs[index].push(token_ids)

    @property
    def total(self) -> int:
        return sum(output.count for output in self._outputs.values())
