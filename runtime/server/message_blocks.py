"""The content of a message of `/v1/messages`, block by block, and the events that build it up. Knows pieces, no engine.

::

    Reasoning  ──►  {"type": "thinking", "thinking": …, "signature": ""}
    Content    ──►  {"type": "text", "text": …}
    CallBegun, Arguments  ──►  {"type": "tool_use", "id": …, "name": …, "input": {…}}

As `response_items`, in Anthropic's words. A call that was cut short has as much of its input as there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json

from .tool_calls import CallBegun, Content, Piece, Reasoning

Event = dict[str, Any]


class MessageBlocks:
    """Builds the blocks of one message.

    Attributes:
        blocks: those that have ended.
    """

    def __init__(self) -> None:
        self.blocks: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None  # the block as it begins
        self._texts: list[str] = []

    def push(self, pieces: Sequence[Piece]) -> list[Event]:
        """What these pieces add."""
        events: list[Event] = []
        for piece in pieces:
            begin, delta = _shown(piece)
            if begin is not None and (self._open is None or begin["type"] == "tool_use" or begin != self._open):
                events += self.end()
                self._open = begin
                events.append({"type": "content_block_start", "index": len(self.blocks), "content_block": begin})
            if delta is not None:
                [text] = [value for key, value in delta.items() if key != "type"]
                self._texts.append(text)
                events.append({"type": "content_block_delta", "index": len(self.blocks), "delta": delta})
        return events

    def end(self) -> list[Event]:
        """The open block ends, if there is one."""
        if self._open is None:
            return []
        text, block = "".join(self._texts), dict(self._open)
        if block["type"] == "tool_use":
            found = from_json(text, allow_partial=True) if text.strip() else {}
            block["input"] = found if isinstance(found, dict) else {}
        else:
            block[block["type"]] = text
        index = len(self.blocks)
        self.blocks.append(block)
        self._open, self._texts = None, []
        return [{"type": "content_block_stop", "index": index}]


def _shown(piece: Piece) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The block that a piece belongs to, as it begins (None: the open one), and what it adds to it."""
    if isinstance(piece, Content):
        return {"type": "text", "text": ""}, {"type": "text_delta", "text": piece.text}
    if isinstance(piece, Reasoning):
        begin = {"type": "thinking", "thinking": "", "signature": ""}
        return begin, {"type": "thinking_delta", "thinking": piece.text}
    if isinstance(piece, CallBegun):
        return {"type": "tool_use", "id": piece.id, "name": piece.name, "input": {}}, None
    return None, {"type": "input_json_delta", "partial_json": piece.text}
