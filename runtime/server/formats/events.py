"""What one output says, event by event, and the reader that every format's reader builds on. Knows no format, no wire.

::

    text ──► reader ──► Reasoning("Hm.")  Content("Let me see.")  CallBegun(0, "call_…", "weather")
                        Arguments(0, '{"city":')  Arguments(0, '"Oslo"}')  CallEnded(0)  Content("Done.")  Finish(…)

A reader is given the text piece by piece, and what it says does not depend on where the pieces end. It trusts nothing:
text that only looks like a call, or is cut short before the name is known, stays content.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from ...request import Delta, FinishReason


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
    """The next characters of a call's arguments, as the text of a JSON object."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The arguments of the call are complete. A call without this event is cut short."""

    index: int


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing follows.

    Attributes:
        stopped_by: the stop string or token that ended the output, if one did.
        has_called: whether there were calls, and all of them are complete.
    """

    reason: FinishReason
    stopped_by: str | int | None
    has_called: bool


Event = Content | Reasoning | CallBegun | Arguments | CallEnded | Finish


def num_held(text: str, *marks: str) -> int:
    """How much of the end of a text, in which none of the marks is whole, may be the beginning of one."""
    longest = min(max(map(len, marks)) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if any(mark.startswith(text[-n:]) for mark in marks)), 0)


class OutputReader:
    """Reads one output: all of it is content. Other formats override `_step`.

    Attributes:
        thinks_again: whether there may be a thought after content.
        num_thoughts: how many thoughts their closing mark has ended.
        num_calls: how many calls have begun.
    """

    thinks_again = False

    def __init__(self) -> None:
        self.num_thoughts = 0
        self.num_calls = 0
        self._buffer = ""  # what is not yet certain
        self._events: list[Event] = []

    @property
    def in_text(self) -> bool:
        """Whether the next character may be content or reasoning; otherwise it belongs to a call or a header."""
        return True

    @property
    def in_thought(self) -> bool | None:
        """Whether the text ends in a thought; None: what comes next will tell."""
        return False

    def push(self, text: str, *, is_last: bool = False) -> list[Event]:
        """What the next characters make certain."""
        self._buffer += text
        while self._step(is_last):
            pass
        events, self._events = self._events, []
        return events

    def _step(self, is_last: bool) -> bool:
        """One move through the buffer; False if it needs more text."""
        if text := self._take(len(self._buffer)):
            self._events.append(Content(text))
        return False

    def _take(self, end: int) -> str:
        """Cuts off the beginning of the buffer."""
        text, self._buffer = self._buffer[:end], self._buffer[end:]
        return text

    def _begin_call(self, name: str) -> None:
        self._events.append(CallBegun(self.num_calls, f"call_{uuid.uuid4().hex[:24]}", name))
        self.num_calls += 1

    def _say_arguments(self, text: str) -> None:
        if text:
            self._events.append(Arguments(self.num_calls - 1, text))

    def _end_call(self) -> None:
        self._events.append(CallEnded(self.num_calls - 1))


NewReader = Callable[[], OutputReader]


class OutputEvents:
    """The events of an output, as its deltas arrive."""

    def __init__(self, reader: OutputReader) -> None:
        self._reader = reader
        self._has_called = False

    def push(self, delta: Delta) -> list[Event]:
        """What the next delta makes certain, up to `Finish`."""
        events = self._reader.push(delta.text, is_last=delta.finish_reason is not None)
        for event in events:
            if isinstance(event, (CallBegun, CallEnded)):
                self._has_called = isinstance(event, CallEnded)
        if delta.finish_reason is not None:
            events.append(Finish(delta.finish_reason, delta.stopped_by, self._has_called))
        return events


class TextOnly:
    """A `StopGuard` over the reader of one output: where stop strings count in it.

    A call that was begun is finished, whatever it says: cut short, its arguments would not parse, and nothing would
    tell the caller. So a stop string counts where it begins in content or reasoning, the mark that opens a call
    included, and nowhere in the rest of a call or in the headers of messages.
    """

    def __init__(self, reader: OutputReader) -> None:
        self._reader = reader

    def push(self, text: str) -> bytes:
        """See `StopGuard`. Cost: the reader's, once more, a character at a time."""
        counts = bytearray()
        for character in text:
            counts.append(self._reader.in_text)
            self._reader.push(character)
        return bytes(counts)
