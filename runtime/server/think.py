"""`<think> … </think>`: a thought before the answer, as Qwen 3, QwQ, DeepSeek-R1, SmolLM3 and GLM write it.

::

    prompt ends with     the answer                                     the thought is
    <assistant>          <think>⏎They greet.⏎</think>⏎⏎Hello!            "unsaid": the model opens it, or does not think
    <think>⏎             They greet.⏎</think>⏎⏎Hello!                    "open"
    </think>⏎⏎           Hello!                                         "closed"

What the template has done is seen at the end of the rendered prompt. Blank lines next to a mark belong to neither side.
A thought that is never closed (the budget ended) is a thought to its end, and an answer that does not begin with one is
content as it stands. Knows texts only: a model that spells a mark out in ordinary tokens is read as if it had meant it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Literal, Protocol

from ...errors import RequestError
from ..sample.thought_limit import ThoughtLimit
from .marks import num_held
from .tool_calls import Content, Piece, Reader, Reasoning

BEGIN, END = "<think>", "</think>"
GAP = "\n\n"  # what stands between a thought and most constraints after it
_NUM_TAIL = 64  # tokens of a prompt's end, more than a mark and blank lines can take
_BLANK_LINES = re.compile(r"(?:[^\S\n]*\n)*")

Thought = Literal["unsaid", "open", "closed"]
ReasoningFormat = Literal["auto", "none", "think"]


class Template(Protocol):
    """What is read of a chat template."""

    @property
    def source(self) -> str: ...

    @property
    def is_default(self) -> bool: ...


class ThinkingTokenizer(Protocol):
    """What is read of a tokenizer."""

    @property
    def chat_template(self) -> Template: ...

    @property
    def eos_ids(self) -> Collection[int]: ...

    @property
    def special_ids(self) -> Mapping[str, int]: ...

    def encode(self, text: str) -> list[int]: ...

    def show(self, token_ids: Sequence[int]) -> str: ...


def thinks(tokenizer: ThinkingTokenizer, wanted: ReasoningFormat) -> bool:
    """Whether this model's answers are read so. "auto": its chat template knows one of the marks; where it has no
    template of its own, both are tokens. (Tokens alone say little: models that do not think share vocabularies with
    those that do.)"""
    if wanted != "auto":
        return wanted == "think"
    template = tokenizer.chat_template
    if template.is_default:
        with suppress(RequestError):  # a mark that the tokenizer cannot read is no token of it
            return all(mark in tokenizer.special_ids or len(tokenizer.encode(mark)) == 1 for mark in (BEGIN, END))
        return False
    return BEGIN in template.source or END in template.source


def thought_at_end(tokenizer: ThinkingTokenizer, prompt_ids: Sequence[int]) -> Thought:
    """What a prompt that ends with the beginning of an answer says about its thought."""
    end = tokenizer.show(prompt_ids[-_NUM_TAIL:]).rstrip()
    if end.endswith(END):
        return "closed"
    return "open" if end.endswith(BEGIN) else "unsaid"


def thought_limit(tokenizer: ThinkingTokenizer, budget: int, thought: Thought) -> Callable[[], ThoughtLimit]:
    """Makes the limit of a thought of at most `budget` tokens, for each output."""
    closing = [tokenizer.special_ids[END]] if END in tokenizer.special_ids else tokenizer.encode(END)
    is_open, show = thought == "open", tokenizer.show
    return lambda: ThoughtLimit(budget, BEGIN, END, closing, is_open=is_open, show=show)


def is_inside_thought(beginning: str) -> bool:
    """Whether an answer whose beginning is given goes on inside a thought."""
    return beginning.rfind(BEGIN) > beginning.rfind(END)


class ThinkReader:
    """Reads one answer.

    Args:
        answer: reads what comes after the thought; None: it is content.
        has_gap: exactly `GAP` stands after the thought, and what follows is shown as it stands; else blank lines may.
    """

    def __init__(self, thought: Thought, answer: Reader | None = None, *, has_gap: bool = False) -> None:
        self._answer = answer
        self._has_gap = has_gap
        self._is_open = thought == "open"
        self._buffer = ""
        self._has_reasoned = False
        self._step: Callable[[list[Piece], bool], bool] = self._skip_gap if thought == "closed" else self._begin

    @property
    def in_call(self) -> bool:
        return self._answer is not None and self._answer.in_call

    @property
    def in_text(self) -> bool:
        return self._answer is None or self._step != self._say or self._answer.in_text

    def push(self, text: str, *, is_last: bool) -> list[Piece]:
        self._buffer += text
        pieces: list[Piece] = []
        while self._step(pieces, is_last):
            pass
        return pieces

    def _begin(self, pieces: list[Piece], is_last: bool) -> bool:
        """Finds out whether there is a thought. Some models open it once more where the prompt has done so."""
        begun = self._buffer.lstrip()
        if BEGIN.startswith(begun) and begun != BEGIN and not is_last:
            return False
        if begun.startswith(BEGIN):
            self._buffer = begun.removeprefix(BEGIN)
            self._step = self._think
        else:
            self._step = self._think if self._is_open else self._say
        return True

    def _think(self, pieces: list[Piece], is_last: bool) -> bool:
        at = self._buffer.find(END)
        certain = at if at >= 0 else len(self._buffer) - (0 if is_last else num_held(self._buffer, END))
        text = self._buffer[:certain].rstrip()
        self._buffer = self._buffer[len(text) :]  # blanks may yet be the last ones
        if text and not self._has_reasoned:
            text = _without_blank_lines(text)
            self._has_reasoned = True
        if text:
            pieces.append(Reasoning(text))
        if at < 0:
            return False
        self._buffer = self._buffer.lstrip().removeprefix(END)
        self._step = self._skip_gap
        return True

    def _skip_gap(self, pieces: list[Piece], is_last: bool) -> bool:
        if self._has_gap:
            if GAP.startswith(self._buffer) and self._buffer != GAP and not is_last:
                return False
            is_cut_short = GAP.startswith(self._buffer)
            self._buffer = "" if is_cut_short else self._buffer.removeprefix(GAP)
        else:
            if not self._buffer.strip() and not is_last:
                return False
            self._buffer = _without_blank_lines(self._buffer) if self._buffer.strip() else ""
        self._step = self._say
        return True

    def _say(self, pieces: list[Piece], is_last: bool) -> bool:
        text, self._buffer = self._buffer, ""
        if self._answer is not None:
            pieces += self._answer.push(text, is_last=is_last)
        elif text:
            pieces.append(Content(text))
        return False


def _without_blank_lines(text: str) -> str:
    blank = _BLANK_LINES.match(text)
    return text[blank.end() :] if blank is not None else text
