"""Text as it comes, for threads and for event loops. Knows its source by the protocol `Source` only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from .variable import Shown


@dataclass(slots=True, eq=False)
class TextReader:
    """How far a reader has come, and in what: the variable `name`, or with None the whole text.

    Attributes:
        listener: called after every change of the source, on any thread.
        shown: the text followed, once there is one; it stays the same if the variable is set anew.
    """

    name: str | None
    listener: Callable[[], None] | None = None
    shown: Shown | None = None
    position: int = 0

    def take(self, chunks: list[str]) -> str:
        """What came since the last call; more may come meanwhile."""
        fresh = chunks[self.position :]
        self.position += len(fresh)
        return "".join(fresh)


class Source(Protocol):
    """A growing text."""

    def take(self, reader: TextReader, *, wait: bool) -> tuple[str, bool]:
        """Text that the reader has not had, and whether that was the last of it."""

    def open(self, reader: TextReader) -> None:
        """The reader begins."""

    def close(self, reader: TextReader, *, complete: bool) -> None:
        """The reader ends, `complete` if it has read the last of the text; otherwise it may want no more of it."""


def increments(source: Source, name: str | None) -> Iterator[str]:
    """New text until it is complete; blocks in between.

    Raises:
        KeyError: the program ended without setting the variable.
    """
    reader = TextReader(name)
    done = False
    source.open(reader)
    try:
        while not done:
            text, done = source.take(reader, wait=True)
            if text:
                yield text
    finally:
        source.close(reader, complete=done)


async def async_increments(source: Source, name: str | None) -> AsyncGenerator[tuple[str, Any]]:
    """`increments` for an event loop, with what is known of the variable so far; no thread waits.

    The last one may have no text. When the loop is closed meanwhile, the reader ends at the next change.
    """
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()

    def listener() -> None:
        try:
            loop.call_soon_threadsafe(woken.set)
        except RuntimeError:  # it is closed
            source.close(reader, complete=False)

    reader = TextReader(name, listener)
    done = False
    source.open(reader)
    try:
        while not done:
            woken.clear()
            text, done = source.take(reader, wait=False)
            if text or done:
                yield text, reader.shown.meta_info if reader.shown is not None else None
            else:
                await woken.wait()
    finally:
        source.close(reader, complete=done)
