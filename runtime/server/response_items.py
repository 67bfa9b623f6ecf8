"""The output of a response, item by item, and the events of the wire that build it up. Knows no engine and no HTTP.

::

    Reasoning  ──►  {"type": "reasoning", "content": [{"type": "reasoning_text", "text": …}]}
    Content    ──►  {"type": "message", "content": [{"type": "output_text", "text": …}]}
    CallBegun, Arguments  ──►  {"type": "function_call", "call_id": …, "name": …, "arguments": …}

An event of another kind than the last, or the next call, ends one item and begins another.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from ..request import FinishReason
from .formats.events import Arguments, CallBegun, CallEnded, Content, Event, Finish, Reasoning

WireEvent = tuple[str, dict[str, Any]]  # its name after "response.", and its fields
_LOGPROBS: dict[str, Any] = {"logprobs": []}


class _Item:
    """One item: a message or reasoning, each with one part of text, or a call.

    Args:
        begun: the event that begins it.
    """

    def __init__(self, index: int, begun: Event) -> None:
        self.call = begun if isinstance(begun, CallBegun) else None
        self.kind = kind = _kind(begun)
        prefix = {"message": "msg", "reasoning": "rs", "function_call": "fc"}[kind]
        self._id = f"{prefix}_{uuid.uuid4().hex}"
        self._index = index
        self._name = {"message": "output_text", "reasoning": "reasoning_text"}.get(kind, "function_call_arguments")
        self._texts: list[str] = []
        self.is_whole = self.call is None  # whether the arguments of a call are complete

    def begin(self) -> list[WireEvent]:
        item = self.shown("in_progress") | ({"content": []} if self.call is None else {})
        begun: list[WireEvent] = [("output_item.added", {"output_index": self._index, "item": item})]
        if self.call is None:
            begun.append(("content_part.added", self._place() | {"part": self._part("")}))
        return begun

    def push(self, text: str) -> list[WireEvent]:
        self._texts.append(text)
        return [(f"{self._name}.delta", self._place() | {"delta": text} | self._logprobs())]

    def end(self, status: str) -> list[WireEvent]:
        item = self.shown(status)
        ended: list[WireEvent] = [("output_item.done", {"output_index": self._index, "item": item})]
        if self.call is not None:
            whole = {"name": self.call.name, "arguments": item["arguments"]}
            return [(f"{self._name}.done", self._place() | whole), *ended]
        [part] = item["content"]
        return [
            (f"{self._name}.done", self._place() | {"text": part["text"]} | self._logprobs()),
            ("content_part.done", self._place() | {"part": part}),
            *ended,
        ]

    def shown(self, status: str) -> dict[str, Any]:
        text = "".join(self._texts)
        item: dict[str, Any] = {"id": self._id, "type": self.kind, "status": status}
        if self.call is not None:
            return item | {"call_id": self.call.id, "name": self.call.name, "arguments": text}
        own: dict[str, Any] = {"role": "assistant"} if self.kind == "message" else {"summary": []}
        return item | own | {"content": [self._part(text)]}

    def _part(self, text: str) -> dict[str, Any]:
        own: dict[str, Any] = {"annotations": [], "logprobs": []} if self.kind == "message" else {}
        return {"type": self._name, "text": text, **own}

    def _logprobs(self) -> dict[str, Any]:
        return _LOGPROBS if self.kind == "message" else {}

    def _place(self) -> dict[str, Any]:
        part = {"content_index": 0} if self.call is None else {}
        return {"item_id": self._id, "output_index": self._index} | part


class ResponseItems:
    """Builds the items of one response.

    Attributes:
        items: those that have ended.
    """

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self._open: _Item | None = None

    def push(self, events: Sequence[Event]) -> list[WireEvent]:
        """What these events add. An answer of nothing is an empty message."""
        shown: list[WireEvent] = []
        for event in events:
            if isinstance(event, Finish):
                if self._open is None:
                    shown += self._begin(Content(""))
                shown += self._end(is_cut=event.reason is FinishReason.LENGTH)
            elif isinstance(event, CallEnded):
                assert self._open is not None
                self._open.is_whole = True
            else:
                if self._open is None or isinstance(event, CallBegun) or _kind(event) != self._open.kind:
                    shown += [*self._end(is_cut=False), *self._begin(event)]
                if isinstance(event, (Content, Reasoning, Arguments)):
                    assert self._open is not None
                    shown += self._open.push(event.text)
        return shown

    def _begin(self, event: Event) -> list[WireEvent]:
        assert not isinstance(event, Arguments), "arguments without a call"
        self._open = _Item(len(self.items), event)
        return self._open.begin()

    def _end(self, *, is_cut: bool) -> list[WireEvent]:
        """is_cut: the budget ended. A call is complete all the same if its arguments are."""
        item, self._open = self._open, None
        if item is None:
            return []
        is_cut = is_cut if item.call is None else not item.is_whole
        status = "incomplete" if is_cut else "completed"
        self.items.append(item.shown(status))
        return item.end(status)


def _kind(event: Event) -> str:
    if isinstance(event, (CallBegun, Arguments)):
        return "function_call"
    return "message" if isinstance(event, Content) else "reasoning"
