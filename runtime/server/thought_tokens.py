"""How many tokens of an output are reasoning, for `reasoning_tokens` in its usage. Knows no engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .harmony import MESSAGE_END, HarmonyReader
from .think import BEGIN, END, ThinkingTokenizer, Thought


class ThoughtTokens:
    """Counts the tokens of one output up to the end of its thought, the mark included.

    Attributes:
        count: how many there are so far.
    """

    def __init__(self, thought: Thought, tokenizer: ThinkingTokenizer) -> None:
        self.count = 0
        self._tokenizer = tokenizer
        self._num_blank = 0  # tokens before a thought, if there is one
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


class HarmonyTokens:
    """Counts the tokens of one output that are reasoning on harmony's channels, headers and marks included.

    Attributes:
        count: how many there are so far; those of a header join when it is known what it announces.
    """

    def __init__(self, reader: HarmonyReader, tokenizer: ThinkingTokenizer) -> None:
        self.count = 0
        self._reader = reader
        self._tokenizer = tokenizer
        self._num_pending = 0
        self._end = ""  # of the text, as much of it as may be a mark

    def push(self, token_ids: Iterable[int]) -> None:
        for token_id in token_ids:
            if token_id not in self._tokenizer.eos_ids:
                self._count(self._tokenizer.show([token_id]))

    def _count(self, text: str) -> None:
        self._end = (self._end + text)[-len(MESSAGE_END) :]
        was_reasoning = self._reader.kind == "reasoning"
        self._reader.push(text, is_last=False)
        self._num_pending += 1
        if self._reader.kind == "reasoning" or (was_reasoning and self._end == MESSAGE_END):
            self.count += self._num_pending
            self._num_pending = 0
        elif self._reader.kind is not None:
            self._num_pending = 0


TokenCounter = ThoughtTokens | HarmonyTokens


class ReasoningTokens:
    """Counts the tokens of reasoning in the outputs of one request; `new_counter` None: reasoning is not counted."""

    def __init__(self, new_counter: Callable[[], TokenCounter] | None) -> None:
        self._new_counter = new_counter
        self._outputs: dict[int, TokenCounter] = {}

    def push(self, index: int, token_ids: Iterable[int]) -> None:
        if self._new_counter is None:
            return
        if index not in self._outputs:
            self._outputs[index] = self._new_counter()
        self._outputs[index].push(token_ids)

    @property
    def total(self) -> int:
        return sum(output.count for output in self._outputs.values())
