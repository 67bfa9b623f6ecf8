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
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

from .marks import num_held
from .tool_calls import Arguments, CallBegun, Content, JsonArguments, Piece, Reasoning, new_call_id

MARKS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>")  # a tokenizer that has them as special tokens speaks it
MESSAGE_END = "<|end|>"
_MESSAGE = "<|message|>"
_HEADERS = ("<|start|>", "<|channel|>", "<|constrain|>", _MESSAGE, "to=")  # what a header may begin with
_ENDS = ("<|start|>", "<|channel|>", MESSAGE_END, "<|call|>", "<|return|>")
_END = re.compile("|".join(map(re.escape, _ENDS)))
_RECIPIENT = re.compile(r"to=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_FUNCTIONS = "functions."

Kind = Literal["content", "reasoning", "call"]


def speaks_harmony(special_texts: Collection[str]) -> bool:
    """Whether a model with these special tokens answers so."""
    return all(mark in special_texts for mark in MARKS)


class HarmonyReader:
    """Reads one answer whose special tokens are shown.

    Args:
        names: the tools that the caller offered.
        is_inside: the prompt ends inside a message of the final channel, which the answer goes on with.
    """

    def __init__(self, names: Collection[str] = (), *, is_inside: bool = False) -> None:
        self._names = names
        self._buffer = ""
        self._kind: Kind | None = "content" if is_inside else None  # of the message; None: inside a header
        self._is_first = not is_inside
        self._num_calls = 0
        self._arguments = JsonArguments()  # of the last call
        self._ended: set[Kind] = set()  # kinds of which there was text in an earlier message

    @property
    def kind(self) -> Kind | None:
        """Of the message that the text ends in; None inside a header."""
        return self._kind

    @property
    def in_call(self) -> bool:
        return self._kind == "call" and not self._arguments.is_complete

    @property
    def in_text(self) -> bool:
        return self._kind in ("content", "reasoning") or (self._is_first and not self._may_be_header(is_last=False))

    def push(self, text: str, *, is_last: bool) -> list[Piece]:
        self._buffer += text
        pieces: list[Piece] = []
        while self._read_header(pieces, is_last) if self._kind is None else self._read_message(pieces, is_last):
            pass
        return pieces

    def _read_header(self, pieces: list[Piece], is_last: bool) -> bool:
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
            pieces.append(CallBegun(self._num_calls, new_call_id(), name))
            self._num_calls += 1
        else:
            is_shown = channel is None or channel[1] in ("final", "commentary")
            self._kind = "content" if is_shown and not recipient else "reasoning"
        return True

    def _may_be_header(self, *, is_last: bool) -> bool:
        begun = self._buffer.lstrip()
        return any(begun.startswith(h) or (h.startswith(begun) and not is_last) for h in _HEADERS)

    def _read_message(self, pieces: list[Piece], is_last: bool) -> bool:
        """Reads up to the end of the message; False if that is not there yet."""
        end = _END.search(self._buffer)
        certain = end.start() if end else len(self._buffer) - (0 if is_last else num_held(self._buffer, *_ENDS))
        self._say(self._buffer[:certain], pieces)
        if end is None:
            self._buffer = self._buffer[certain:]
            return False
        # a mark that begins the next header belongs to it
        self._buffer = self._buffer[end.start() if end[0] in _HEADERS else end.end() :]
        assert self._kind is not None
        self._ended.add(self._kind)
        self._kind = None
        return True

    def _say(self, text: str, pieces: list[Piece]) -> None:
        if not text:
            return
        if self._kind == "call":
            if self.in_call:
                self._arguments.read(text, is_last=False)
            pieces.append(Arguments(self._num_calls - 1, text))
            return
        kind: Kind = "content" if self._kind == "content" else "reasoning"
        if kind in self._ended:  # another message of the kind
            self._ended.remove(kind)
            text = f"\n\n{text}"
        pieces.append(Content(text) if kind == "content" else Reasoning(text))
