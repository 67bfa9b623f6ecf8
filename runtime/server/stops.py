"""Where stop strings count in an answer with calls: in its text. Knows readers, no engine.

A call that was begun is finished, whatever it says: cut short, its arguments would not parse, and nothing would tell
the caller. So a stop string counts where it begins in content or reasoning, the mark that opens a call included, and
nowhere in the rest of a call or in the headers of messages.
"""

from __future__ import annotations

from .tool_calls import Reader


class TextOnly:
    """A `StopGuard` over the reader of one output."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def push(self, text: str) -> bytes:
        """See `StopGuard`. Cost: the reader's, once more, a character at a time."""
        counts = bytearray()
        for character in text:
            counts.append(self._reader.in_text)
            self._reader.push(character, is_last=False)
        return bytes(counts)
