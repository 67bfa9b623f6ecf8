"""The output of a response, item by item, and the events that build it up. Knows pieces, no engine and no HTTP.

::

    Reasoning  ──►  {"type": "reasoning", "content": [{"type": "reasoning_text", "text": …}]}
    Content    ──►  {"type": "message", "content": [{"type": "output_text", "text": …}]}
    CallBegun, Arguments  ──►  {"type": "function_call", "call_id": …, "name": …, "arguments": …}

A piece of another kind than the last, or the next call, ends one item and begins another. Whole answers and streams
use the same builder: a whole answer is a stream whose events are not sent.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from .tool_calls import Arguments, CallBegun, Content, Piece

Event = tuple[str, dict[str, Any]]  # its name after "response.", and its fields


class TextItem:
    """A message, or reasoning, in one part."""

    def __init__(self, output_index: int, kind: str) -> None:
        self._id = f"{'msg' if kind == 'message' else 'rs'}_{uuid.uuid4().hex}"
        self._index = output_index
        self._kind = kind
        self._part = "output_text" if kind == "message" else "reasoning_text"
        self._logprobs: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
        self._texts: list[str] = []

    def takes(self, piece: Piece) -> bool:
        return not isinstance(piece, (CallBegun, Arguments)) and _kind(piece) == self._kind

    def begin(self) -> list[Event]:
        item = self.item("in_progress") | {"content": []}
        return [
            ("output_item.added", {"output_index": self._index, "item": item}),
            ("content_part.added", self._place() | {"part": self._shown("")}),
        ]

    def push(self, piece: Piece) -> list[Event]:
        self._texts.append(piece.text if not isinstance(piece, CallBegun) else "")
        return [(f"{self._part}.delta", self._place() | {"delta": self._texts[-1]} | self._logprobs)]

    def end(self, status: str) -> list[Event]:
        item = self.item(status)
        [part] = item["content"]
        return [
            (f"{self._part}.done", self._place() | {"text": part["text"]} | self._logprobs),
            ("content_part.done", self._place() | {"part": part}),
            ("output_item.done", {"output_index": self._index, "item": item}),
        ]

    def item(self, status: str) -> dict[str, Any]:
        own: dict[str, Any] = {"role": "assistant"} if self._kind == "message" else {"summary": []}
        content = [self._shown("".join(self._texts))]
        return {"id": self._id, "type": self._kind, "status": status, **own, "content": content}

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._id, "output_index": self._index, "content_index": 0}

    def _shown(self, text: str) -> dict[str, Any]:
        shown: dict[str, Any] = {"type": self._part, "text": text}
        return shown | ({"annotations": [], "logprobs": []} if self._kind == "message" else {})


class CallItem:
    """A call of a function."""

    def __init__(self, output_index: int, call: CallBegun) -> None:
        self._id = f"fc_{uuid.uuid4().hex}"
        self._index = output_index
        self._call = call
        self._arguments: list[str] = []

    def takes(self, piece: Piece) -> bool:
        return isinstance(piece, Arguments) and piece.index == self._call.index

    def begin(self) -> list[Event]:
        return [("output_item.added", {"output_index": self._index, "item": self.item("in_progress")})]

    def push(self, piece: Piece) -> list[Event]:
        if not isinstance(piece, Arguments):
            return []
        self._arguments.append(piece.text)
        return [("function_call_arguments.delta", self._place() | {"delta": piece.text})]

    def end(self, status: str) -> list[Event]:
        item = self.item(status)
        arguments = {"name": self._call.name, "arguments": item["arguments"]}
        return [
            ("function_call_arguments.done", self._place() | arguments),
            ("output_item.done", {"output_index": self._index, "item": item}),
        ]

    def item(self, status: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "function_call",
            "status": status,
            "call_id": self._call.id,
            "name": self._call.name,
            "arguments": "".join(self._arguments),
        }

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._id, "output_index": self._index}


class ResponseItems:
    """Builds the items of one response.

    Attributes:
        items: those that have ended.
    """

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self._open: TextItem | CallItem | None = None

    def push(self, pieces: Sequence[Piece]) -> list[Event]:
        """What these pieces add."""
        events: list[Event] = []
        for piece in pieces:
            if self._open is None or not self._open.takes(piece):
                events += self._end("completed")
                events += self._begin(piece)
            assert self._open is not None
            events += self._open.push(piece)
        return events

    def end(self, *, is_cut: bool, in_call: bool) -> list[Event]:
        """Nothing follows. `is_cut`: the budget ended; `in_call`: a call is not complete. An answer of nothing is an
        empty message."""
        events = self._begin(Content("")) if self._open is None else []
        is_cut = in_call if isinstance(self._open, CallItem) else is_cut
        return events + self._end("incomplete" if is_cut else "completed")

    def _begin(self, piece: Piece) -> list[Event]:
        index = len(self.items)
        assert not isinstance(piece, Arguments), "arguments without a call"
        self._open = CallItem(index, piece) if isinstance(piece, CallBegun) else TextItem(index, _kind(piece))
        return self._open.begin()

    def _end(self, status: str) -> list[Event]:
        if self._open is None:
            return []
        events = self._open.end(status)
        self.items.append(self._open.item(status))
        self._open = None
        return events


def _kind(piece: Piece) -> str:
    return "message" if isinstance(piece, Content) else "reasoning"
