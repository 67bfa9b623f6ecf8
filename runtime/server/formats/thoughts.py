"""`<think> … </think>`: a thought before the answer, as Qwen 3, QwQ, DeepSeek-R1, SmolLM3 and GLM write it.

::

    prompt ends with     the answer                                     the thought is
    <assistant>          <think>⏎They greet.⏎</think>⏎⏎Hello!            "unsaid": the model opens it, or does not think
    <think>⏎             They greet.⏎</think>⏎⏎Hello!                    "open"
    </think>⏎⏎           Hello!                                         "closed"

What the template has done is seen at the end of the rendered prompt. Blank lines next to a mark belong to neither side.
A thought that is never closed (the budget ended) is a thought to its end, and an answer that does not begin with one is
content as it stands. Knows texts only: a model that spells a mark out in ordinary tokens is read as if it had meant it.

Under a constraint the thought is free, and the rest as asked::

    thought </think> gap constraint                  the prompt has opened the thought
    ( ⏎? <think> thought </think> gap )? constraint  the model opens it, or does not think

The gap is up to two line breaks, as the model likes (Qwen writes two, GLM and SmolLM3 one), where the constraint cannot
begin with a line break itself; elsewhere it is two, so that a reader knows what of them obeys the constraint. Near the
end of the budget the thought is closed while there is still room for the rest. Marks that are special tokens are
written as those tokens; others are written as text, for which a model may use a token of its own just as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ....errors import RequestError
from ...constrain.spec import ConstraintSpec
from ...sample.thought_limit import ThoughtLimit
from ..settings import ReasoningFormat
from .events import OutputReader, Reasoning, num_held
from .output_format import Thought
from .parts import Part, either, part_of, sequence, special_or_text, structural_tag, text, token

if TYPE_CHECKING:
    from ...tokenizer.tokenizer import Tokenizer

BEGIN, END = "<think>", "</think>"
GAP = "\n\n"  # what stands between a thought and most constraints after it
_NUM_TAIL = 64  # tokens of a prompt's end, more than a mark and blank lines can take
_BLANK_LINES = re.compile(r"(?:[^\S\n]*\n)*")


def thinks(tokenizer: Tokenizer, wanted: ReasoningFormat) -> bool:
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


def thought_at_end(tokenizer: Tokenizer, prompt_ids: Sequence[int]) -> Thought:
    """What a prompt that ends with the beginning of an answer says about its thought."""
    end = tokenizer.show(prompt_ids[-_NUM_TAIL:]).rstrip()
    if end.endswith(END):
        return "closed"
    return "open" if end.endswith(BEGIN) else "unsaid"


def is_inside_thought(beginning: str) -> bool:
    """Whether an answer whose beginning is given goes on inside a thought."""
    return beginning.rfind(BEGIN) > beginning.rfind(END)


def thought_limit(tokenizer: Tokenizer, budget: int, thought: Thought) -> Callable[[], ThoughtLimit]:
    """What ends a thought of more than `budget` tokens, for each output."""
    closing = [tokenizer.special_ids[END]] if END in tokenizer.special_ids else tokenizer.encode(END)
    is_open, show = thought == "open", tokenizer.show
    return lambda: ThoughtLimit(budget, BEGIN, END, closing, is_open=is_open, show=show)


class ThoughtReader(OutputReader):
    """Reads one answer.

    Args:
        answer: reads what comes after the thought; None: it is content.
        has_gap: exactly `GAP` stands after the thought, and what follows is shown as it stands; else blank lines may.
    """

    def __init__(self, thought: Thought, answer: OutputReader | None = None, *, has_gap: bool = False) -> None:
        super().__init__()
        self._answer = answer or OutputReader()
        self._has_gap = has_gap
        self._is_open = thought == "open"
        self._has_reasoned = False
        self._move: Callable[[bool], bool] = self._skip_gap if thought == "closed" else self._begin

    @property
    def in_text(self) -> bool:
        return self._move != self._say or self._answer.in_text

    @property
    def in_thought(self) -> bool | None:
        if self._move == self._begin:
            return True if self._is_open else None
        return self._move == self._think

    def _step(self, is_last: bool) -> bool:
        return self._move(is_last)

    def _begin(self, is_last: bool) -> bool:
        """Finds out whether there is a thought. Some models open it once more where the prompt has done so."""
        begun = self._buffer.lstrip()
        if BEGIN.startswith(begun) and begun != BEGIN and not is_last:
            return False
        if begun.startswith(BEGIN):
            self._buffer = begun.removeprefix(BEGIN)
            self._move = self._think
        else:
            self._move = self._think if self._is_open else self._say
        return True

    def _think(self, is_last: bool) -> bool:
        at = self._buffer.find(END)
        certain = at if at >= 0 else len(self._buffer) - (0 if is_last else num_held(self._buffer, END))
        text = self._take(len(self._buffer[:certain].rstrip()))  # blanks may yet be the last ones
        if text and not self._has_reasoned:
            text = _without_blank_lines(text)
            self._has_reasoned = True
        if text:
            self._events.append(Reasoning(text))
        if at < 0:
            return False
        self._buffer = self._buffer.lstrip().removeprefix(END)
        self.num_thoughts += 1
        self._move = self._skip_gap
        return True

    def _skip_gap(self, is_last: bool) -> bool:
        if self._has_gap:
            is_begun = GAP.startswith(self._buffer)
            if is_begun and self._buffer != GAP and not is_last:
                return False
            self._buffer = "" if is_begun else self._buffer.removeprefix(GAP)
        else:
            if not self._buffer.strip() and not is_last:
                return False
            self._buffer = _without_blank_lines(self._buffer) if self._buffer.strip() else ""
        self._move = self._say
        return True

    def _say(self, is_last: bool) -> bool:
        self._events += self._answer.push(self._take(len(self._buffer)), is_last=is_last)
        return False


def _without_blank_lines(text: str) -> str:
    blank = _BLANK_LINES.match(text)
    return text[blank.end() :] if blank is not None else text


def has_fixed_gap(spec: ConstraintSpec) -> bool:
    """Whether exactly `GAP` stands between a thought and this constraint. JSON never begins with it."""
    return spec.kind not in ("json_schema", "json_object")


def after_thought(spec: ConstraintSpec, thought: Thought, special_texts: Collection[str]) -> ConstraintSpec:
    """The constraint on what comes after the thought.

    Where the model may leave its thought out, a constraint that allows a text beginning with `<think>` is ambiguous.
    """
    gap = text(GAP) if has_fixed_gap(spec) else {"type": "regex", "pattern": "\\n{0,2}"}
    before = sequence(_thought_part(thought, special_texts), gap)
    if thought == "unsaid":
        before = {"type": "optional", "content": before}
    return structural_tag(sequence(before, part_of(spec)), spec.whitespace)


def tags_after_thought(spec: ConstraintSpec, thought: Thought, special_texts: Collection[str]) -> ConstraintSpec:
    """Free text with tags in it (`triggered_tags`, `token_triggered_tags`), none of which is in the thought."""
    tags = part_of(spec)
    part = sequence(_thought_part(thought, special_texts), tags)
    if thought == "unsaid":  # text without a thought does not begin one, or a call in a thought might be read as one
        part = either([part, {**tags, "excludes": [*tags.get("excludes", ()), BEGIN]}])
    return structural_tag(part, spec.whitespace)


def _thought_part(thought: Thought, special_texts: Collection[str]) -> Part:
    """From where the prompt ends to the closing mark, which occurs nowhere else in it."""
    elements = []
    if thought == "unsaid":  # GLM breaks the line first
        elements = [{"type": "optional", "content": text("\n")}, special_or_text(BEGIN, special_texts)]
    if END in special_texts:
        elements += [{"type": "any_text", "excludes": [END]}, token(END)]
    else:
        elements.append({"type": "tag", "begin": "", "content": {"type": "any_text"}, "end": END})
    return sequence(*elements)
