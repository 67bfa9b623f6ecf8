"""Reading calls, and reasoning, out of an answer as it arrives.

::

    text ──► reader ──► pieces     Content("Let me see.")  CallBegun(0, "call_…", "weather")
                                   Arguments(0, '{"city":')  Arguments(0, '"Oslo"}')  Content(" Done.")

A reader is given the text of one output piece by piece; whole answers and streams use the same one. It trusts
nothing: text that only looks like a call, or is cut short before the name is known, stays content. White space next to
a call belongs to neither.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .marks import num_held


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What the model thinks on its way, which is shown apart."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A call of the tool `name`; its arguments follow."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """The next characters of a call's arguments."""

    index: int
    text: str


Piece = Content | Reasoning | CallBegun | Arguments


class Reader(Protocol):
    """Reads one output.

    Attributes:
        in_call: whether a call has begun whose arguments are not complete.
        in_text: whether the next character may be content or reasoning; otherwise it belongs to a call or a mark.
    """

    @property
    def in_call(self) -> bool: ...

    @property
    def in_text(self) -> bool: ...

    def push(self, text: str, *, is_last: bool) -> list[Piece]:
        """What the next characters make certain."""


def new_call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


class ContentReader:
    """The whole output is content."""

    in_call = False
    in_text = True

    def push(self, text: str, *, is_last: bool) -> list[Piece]:
        return [Content(text)] if text else []


class ArgumentsReader:
    """The whole output is the arguments of one known tool."""

    in_text = False

    def __init__(self, name: str) -> None:
        self._name = name
        self._has_begun = False
        self._arguments = JsonArguments()

    @property
    def in_call(self) -> bool:
        return not self._arguments.is_complete

    def push(self, text: str, *, is_last: bool) -> list[Piece]:
        pieces: list[Piece] = []
        if not self._has_begun:
            self._has_begun = True
            pieces.append(CallBegun(0, new_call_id(), self._name))
        if self.in_call:
            self._arguments.read(text, is_last=is_last)
        return [*pieces, Arguments(0, text)] if text else pieces


class ObjectReader:
    """The whole output is `{"name": …, "arguments": …}`. Cut short, it keeps its text as the arguments."""

    in_text = False

    def __init__(self) -> None:
        self._text = ""
        self.in_call = True

    def push(self, text: str, *, is_last: bool) -> list[Piece]:
        self._text += text
        if not is_last:
            return []
        name, arguments = "", self._text
        try:
            value = json.loads(self._text)
            name = value["name"]
            arguments = json.dumps(value["arguments"], ensure_ascii=False, separators=(",", ":"))
            self.in_call = False
        except ValueError:
            pass
        return [CallBegun(0, new_call_id(), name), Arguments(0, arguments)]


class ArgumentsText(Protocol):
    """Reads the arguments of one call, however they are written, as the text of a JSON object.

    Attributes:
        is_complete: whether they have ended.
    """

    is_complete: bool

    def read(self, text: str, *, is_last: bool) -> tuple[str, str]:
        """What the next characters make certain of the object, and those that are to be read again with more."""


class TagReader:
    """Calls in free text.

    Args:
        trigger: what every call begins with.
        names: the tool's name by the text before its arguments.
        end: what follows the arguments.
        arguments: makes a reader for the arguments of a tool.
        openings: one of these follows the text before the arguments, or there is no call.
    """

    def __init__(
        self,
        trigger: str,
        names: Mapping[str, str],
        end: str,
        arguments: Callable[[str], ArgumentsText] = lambda name: JsonArguments(),
        openings: tuple[str, ...] = ("",),
    ) -> None:
        self._trigger = trigger
        self._begins = [(begin, opening, name) for begin, name in names.items() for opening in openings]
        self._end = end
        self._new_arguments = arguments
        self._buffer = ""
        self._num_calls = 0
        self._arguments: ArgumentsText | None = None  # set while inside the arguments
        self._is_after = False  # after the arguments, where `end` is due
        self._has_content_after_call = False

    @property
    def in_call(self) -> bool:
        return self._arguments is not None

    @property
    def in_text(self) -> bool:
        return self._arguments is None and not self._is_after and self._trigger not in self._buffer

    def push(self, text: str, *, is_last: bool) -> list[Piece]:
        self._buffer += text
        pieces: list[Piece] = []
        while self._step(pieces, is_last):
            pass
        return pieces

    def _step(self, pieces: list[Piece], is_last: bool) -> bool:
        """One move through the buffer; False if it needs more text."""
        if self._is_after:
            return self._skip_end(is_last)
        if self._arguments is not None:
            return self._read_arguments(self._arguments, pieces, is_last)
        at = self._buffer.find(self._trigger)
        if at < 0:
            self._read_content(pieces, len(self._buffer) if is_last else self._certain_len())
            return False
        space_begin = len(self._buffer[:at].rstrip())
        self._read_content(pieces, space_begin)
        return self._begin_call(pieces, at - space_begin, is_last)

    def _certain_len(self) -> int:
        """How much of the buffer is content whatever follows: not the beginning of a trigger, nor space before it."""
        return len(self._buffer[: len(self._buffer) - num_held(self._buffer, self._trigger)].rstrip())

    def _read_content(self, pieces: list[Piece], end: int) -> None:
        text, self._buffer = self._buffer[:end], self._buffer[end:]
        if self._num_calls and not self._has_content_after_call:
            text = text.lstrip()
        if text:
            self._has_content_after_call = True
            pieces.append(Content(text))

    def _begin_call(self, pieces: list[Piece], num_spaces: int, is_last: bool) -> bool:
        """Reads what stands before the arguments; the trigger is there, after some white space."""
        text = self._buffer[num_spaces:]
        for begin, opening, name in self._begins:
            if text.startswith(begin + opening):
                self._buffer = text[len(begin) :]
                self._arguments = self._new_arguments(name)
                pieces.append(CallBegun(self._num_calls, new_call_id(), name))
                self._num_calls += 1
                self._has_content_after_call = False
                return True
        if not is_last and any((begin + opening).startswith(text) for begin, opening, _ in self._begins):
            return False
        self._read_content(pieces, num_spaces + 1)
        return True

    def _read_arguments(self, arguments: ArgumentsText, pieces: list[Piece], is_last: bool) -> bool:
        text, self._buffer = arguments.read(self._buffer, is_last=is_last)
        if text:
            pieces.append(Arguments(self._num_calls - 1, text))
        if arguments.is_complete:
            self._arguments, self._is_after = None, True
        return arguments.is_complete

    def _skip_end(self, is_last: bool) -> bool:
        if self._end.startswith(self._buffer) and self._buffer != self._end and not is_last:
            return False
        cut_short = is_last and self._end.startswith(self._buffer)
        self._buffer = "" if cut_short else self._buffer.removeprefix(self._end)
        self._is_after = False
        return True


class FirstReader:
    """The whole output is calls if it begins with their trigger, else content, whatever is in it."""

    def __init__(self, trigger: str, calls: Reader) -> None:
        self._trigger = trigger
        self._calls = calls
        self._buffer = ""
        self._chosen: Reader | None = None

    @property
    def in_call(self) -> bool:
        return self._chosen is not None and self._chosen.in_call

    @property
    def in_text(self) -> bool:
        return self._chosen is None or self._chosen.in_text

    def push(self, text: str, *, is_last: bool) -> list[Piece]:
        if self._chosen is None:
            self._buffer += text
            text = self._buffer
            if text.startswith(self._trigger):
                self._chosen = self._calls
            elif is_last or not self._trigger.startswith(text):
                self._chosen = ContentReader()
            else:
                return []
        return self._chosen.push(text, is_last=is_last)


class JsonArguments:
    """Arguments that are JSON: an object or array (or a string), which arrives in parts."""

    def __init__(self) -> None:
        self.is_complete = False
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def read(self, text: str, *, is_last: bool) -> tuple[str, str]:
        """See `ArgumentsText`: the text up to the bracket or quote that closes the value, and what comes after it."""
        for index, character in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif character == "\\":
                self._escaped = self._in_string
            elif character == '"':
                self._in_string = not self._in_string
                self.is_complete = not self._in_string and self._depth == 0
            elif not self._in_string and character in "{[":
                self._depth += 1
            elif not self._in_string and character in "}]":
                self._depth -= 1
                self.is_complete = self._depth == 0
            if self.is_complete:
                return text[: index + 1], text[index + 1 :]
        return text, ""


@dataclass(slots=True)
class Calls:
    """The pieces of a whole output put together: its content, its calls as entries of `tool_calls`, its reasoning."""

    content: str
    calls: list[dict[str, Any]]
    reasoning: str = ""
    is_cut: bool = False


def gathered(reader: Reader, text: str) -> Calls:
    """A finished output."""
    found = Calls("", [])
    for piece in reader.push(text, is_last=True):
        if isinstance(piece, Content):
            found.content += piece.text
        elif isinstance(piece, Reasoning):
            found.reasoning += piece.text
        elif isinstance(piece, CallBegun):
            function = {"name": piece.name, "arguments": ""}
            found.calls.append({"id": piece.id, "type": "function", "function": function})
        else:
            found.calls[piece.index]["function"]["arguments"] += piece.text
    found.is_cut = reader.in_call
    return found


def deltas_of(pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    """The pieces as `delta` objects of chunks; a call that begins takes its first arguments along."""
    deltas: list[dict[str, Any]] = []
    begun: dict[str, Any] | None = None
    for piece in pieces:
        if isinstance(piece, Content):
            deltas.append({"content": piece.text})
        elif isinstance(piece, Reasoning):
            deltas.append({"reasoning_content": piece.text})
        elif isinstance(piece, CallBegun):
            begun = {"name": piece.name, "arguments": ""}
            call = {"index": piece.index, "id": piece.id, "type": "function", "function": begun}
            deltas.append({"tool_calls": [call]})
        elif begun is not None:
            begun["arguments"], begun = piece.text, None
        else:
            deltas.append({"tool_calls": [{"index": piece.index, "function": {"arguments": piece.text}}]})
    return deltas
