"""Text as it comes, for threads and for event loops. Knows its source by the face `Source` only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from .variable import Shown


@dataclass(slots=True)
class Reader:
    """How far somebody has read, and what: the variable `name`, or with None the whole text.

    Attributes:
        shown: the text followed, once there is one; it stays the same if the variable is set anew.
    """

    name: str | None
    shown: Shown | None = None
    position: int = 0

    def take(self, chunks: list[str]) -> str:
        """What came since the last call."""
        fresh = chunks[self.position :]
        self.position = len(chunks)
        return "".join(fresh)


class Source(Protocol):
    """A growing text."""

    def take(self, reader: Reader, *, wait: bool) -> tuple[str, bool]:
        """Text that the reader has not had, and whether that was the last of it."""

    def listen(self, listener: Callable[[], None]) -> None:
        """Calls `listener` after every change, on any thread."""

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Undoes `listen`."""


def increments(source: Source, name: str | None) -> Iterator[str]:
    """New text until it is complete; blocks in between.

    Raises:
        KeyError: the program ended without setting the variable.
    """
    reader = Reader(name)
    done = False
    while not done:
        text, done = source.take(reader, wait=True)
        if text:
            yield text


async def async_increments(source: Source, name: str | None) -> AsyncIterator[str]:
    """`increments` for an event loop; no thread waits."""
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()

    def listener() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(woken.set)

    source.listen(listener)
    try:
        reader = Reader(name)
        done = False
        while not done:
            woken.clear()
            text, done = source.take(reader, wait=False)
            if text:
                yield text
            elif not done:
                await woken.wait()
    finally:
        source.unlisten(listener)
