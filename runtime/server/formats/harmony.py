"""Harmony, the form in which gpt-oss answers: messages on channels, marked by special tokens.

::

    <|channel|>analysis<|message|>They want …<|end|>                                          reasoning
    <|start|>assistant<|channel|>commentary<|message|>I shall look it up.<|end|>              content
    <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>    a call
    <|start|>assistant<|channel|>final<|message|>It rains.<|return|>                          content

The prompt ends with `<|start|>assistant`, so an answer begins inside a header. What goes to a tool that the caller did
not offer (`browser`, `python`) is reasoning. An answer that does not begin with a header is content as it stands.
Sources: OpenAI's "Harmony response format" (cookbook, August 2025). Knows texts only: a model that spells a mark out
in ordinary tokens is read as if it had meant it.

Under a constraint reasoning stays free, and one message holds what was asked for::

    ( analysis )*  final: the constraint's text                          with a constraint
    ( analysis | commentary )*  ( final: any text | one call )           with tools under "auto"
    ( analysis | commentary )*  one call                                 with a call that is required
    ( analysis )*  ( final: the constraint's text | one call )           with both under "auto"

Near the end of the budget the reasoning is closed while there is still room for the rest. A call's arguments obey the
tool's parameters; its end ends the answer, so there is one call at most. Its header may be written in either of the two
orders that harmony has for it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import partial
from typing import Literal

from ...constrain.spec import ConstraintSpec
from ..protocol import ChatRequest, Tool
from .arguments import JsonArguments
from .call_plan import parameters_of
from .events import Content, OutputReader, Reasoning, num_held
from .output_format import CallPlan, Reading
from .parts import Part, either, part_of, sequence, structural_tag, text, token

MARKS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>")  # a tokenizer that has them as special tokens speaks it
_MESSAGE_END = "<|end|>"
_MESSAGE = "<|message|>"
_HEADERS = ("<|start|>", "<|channel|>", "<|constrain|>", _MESSAGE, "to=")  # what a header may begin with
_ENDS = ("<|start|>", "<|channel|>", _MESSAGE_END, "<|call|>", "<|return|>")
_END = re.compile("|".join(map(re.escape, _ENDS)))
_RECIPIENT = re.compile(r"to=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_FUNCTIONS = "functions."
_ANY_TEXT: Part = {"type": "any_text"}

Kind = Literal["content", "reasoning", "call"]


def speaks_harmony(special_texts: Collection[str]) -> bool:
    """Whether a model with these special tokens answers so."""
    return all(mark in special_texts for mark in MARKS)


class HarmonyFormat:
    """An `OutputFormat`; special_texts: the tokenizer's."""

    def __init__(self, special_texts: Collection[str]) -> None:
        self._special_texts = special_texts

    def plan(self, body: ChatRequest, answer: ConstraintSpec | None) -> CallPlan | None:
        choice = body.tool_choice
        if not body.tools or choice.mode == "none" or body.continue_final_message:
            return None
        chosen = [tool for tool in body.tools if choice.allows(tool.function.name)]
        endings = [_call(tool, self._special_texts) for tool in chosen]
        if choice.mode == "auto":
            endings.append(_message("final", part_of(answer) if answer is not None else _ANY_TEXT))
        # flexible: this model writes JSON now with spaces and now without
        channels = ["analysis", "commentary"] if answer is None else ["analysis"]  # what is announced is content
        part = _after(either([_thought(channel) for channel in channels]), either(endings))
        names = frozenset(tool.function.name for tool in chosen)
        spec = structural_tag(part, "flexible")
        return CallPlan(spec, partial(HarmonyReader, names), choice.mode == "required", choice.is_named)

    def reading(
        self, body: ChatRequest, spec: ConstraintSpec | None, plan: CallPlan | None, prompt_ids: Sequence[int]
    ) -> Reading:
        """A final message that is continued under a constraint is read as it stands."""
        is_inside = body.continue_final_message
        if spec is not None and is_inside:
            return Reading(spec)
        new_reader = plan.new_reader if plan is not None else partial(HarmonyReader, is_inside=is_inside)
        if spec is not None and plan is None:
            part = _after(_thought("analysis"), _message("final", part_of(spec)))
            spec = structural_tag(part, spec.whitespace)
        return Reading(spec, new_reader, counts_thoughts=True, has_marks=True)


class HarmonyReader(OutputReader):
    """Reads one answer whose special tokens are shown.

    Args:
        names: the tools that the caller offered.
        is_inside: the prompt ends inside a message of the final channel, which the answer goes on with.
    """

    thinks_again = True

    def __init__(self, names: Collection[str] = (), *, is_inside: bool = False) -> None:
        super().__init__()
        self._names = names
        self._kind: Kind | None = "content" if is_inside else None  # of the message; None: inside a header
        self._is_first = not is_inside
        self._arguments = JsonArguments()  # of the last call
        self._ended: set[Kind] = set()  # kinds of which there was text in an earlier message

    @property
    def in_text(self) -> bool:
        return self._kind in ("content", "reasoning") or (self._is_first and not self._may_be_header(is_last=False))

    @property
    def in_thought(self) -> bool | None:
        return self._kind == "reasoning" if self._kind is not None else None

    def _step(self, is_last: bool) -> bool:
        return self._read_header(is_last) if self._kind is None else self._read_message(self._kind, is_last)

    def _read_header(self, is_last: bool) -> bool:
        """Moves into the message; False if the header is not whole yet."""
        if self._is_first and self._buffer.strip() and not self._may_be_header(is_last=is_last):
            self._is_first, self._kind = False, "content"
            return True
        header, mark, rest = self._buffer.partition(_MESSAGE)
        if not mark:
            return False
        self._is_first, self._buffer = False, rest
        recipient, channel = _RECIPIENT.search(header), _CHANNEL.search(header)
        name = recipient[1].removeprefix(_FUNCTIONS) if recipient else ""
        if name in self._names:
            self._kind, self._arguments = "call", JsonArguments()
            self._begin_call(name)
        else:
            is_shown = channel is None or channel[1] in ("final", "commentary")
            self._kind = "content" if is_shown and not recipient else "reasoning"
        return True

    def _may_be_header(self, *, is_last: bool) -> bool:
        begun = self._buffer.lstrip()
        return any(begun.startswith(h) or (h.startswith(begun) and not is_last) for h in _HEADERS)

    def _read_message(self, kind: Kind, is_last: bool) -> bool:
        """Reads up to the end of the message; False if that is not there yet."""
        end = _END.search(self._buffer)
        held = 0 if is_last or end else num_held(self._buffer, *_ENDS)
        self._say(self._take(end.start() if end else len(self._buffer) - held), kind)
        if end is None:
            return False
        if end[0] not in _HEADERS:  # a mark that begins the next header belongs to it
            self._buffer = self._buffer.removeprefix(end[0])
        if kind == "reasoning" and end[0] == _MESSAGE_END:
            self.num_thoughts += 1
        if kind == "call" and not self._arguments.is_complete:
            self._end_call()
        self._ended.add(kind)
        self._kind = None
        return True

    def _say(self, text: str, kind: Kind) -> None:
        if not text:
            return
        if kind == "call":
            self._say_arguments(text)
            if not self._arguments.is_complete:
                self._arguments.read(text, is_last=False)
                if self._arguments.is_complete:
                    self._end_call()
            return
        if kind in self._ended:  # another message of the kind
            self._ended.remove(kind)
            text = f"\n\n{text}"
        self._events.append(Content(text) if kind == "content" else Reasoning(text))


def _after(thoughts: Part, ending: Part) -> Part:
    return sequence({"type": "star", "content": thoughts}, ending)


def _thought(channel: str) -> Part:
    """A message before the last one, and the beginning of the next."""
    return sequence(_message(channel, _ANY_TEXT), token("<|end|>"), token("<|start|>"), text("assistant"))


def _message(channel: str, content: Part) -> Part:
    return sequence(token("<|channel|>"), text(channel), token("<|message|>"), content)


def _call(tool: Tool, special_texts: Collection[str]) -> Part:
    name, json_mark = f"to=functions.{tool.function.name}", [text("json")]
    if "<|constrain|>" in special_texts:
        json_mark.insert(0, token("<|constrain|>"))
    after = sequence(token("<|channel|>"), text(f"commentary {name} "), *json_mark)
    before = sequence(text(f" {name}"), token("<|channel|>"), text("commentary json"))
    arguments = {"type": "json_schema", "json_schema": parameters_of(tool), "extra_keys": "never"}
    return sequence(either([after, before]), token("<|message|>"), arguments)
