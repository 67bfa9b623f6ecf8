"""The unread rest of a body, on a clock of its own: for how long, and for how many bytes, it is dropped."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from phloem.runtime.server.unread import IDLE_TIMEOUT, MAX_DISCARDED_BYTES, UnreadBody

SECONDS = 20.1  # never when a piece arrives
HALF = MAX_DISCARDED_BYTES // 2


class Skipping(selectors.DefaultSelector):
    """Waits for nothing: the time that a loop would wait passes at once."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "it waits for ever"
        self.now += max(timeout, 0)
        return super().select(0)


def played(headers: dict[str, str], pieces: list[tuple[float, int]], last: str) -> list[tuple[float, bool]]:
    """When each part of an answer was sent, and whether more was to follow.

    pieces: seconds until each comes, and its bytes; last: how the body goes on after them, "end", "leaves" or
    "silence".
    """
    clock, sent = Skipping(), []
    coming = iter(pieces)

    async def receive() -> dict[str, Any]:
        for seconds, size in coming:
            await asyncio.sleep(seconds)
            return {"type": "http.request", "body": range(size), "more_body": True}
        if last == "silence":
            await asyncio.Event().wait()
        return {"type": "http.request" if last == "end" else "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append((clock.now, message["more_body"]))

    async def answer() -> None:
        body = UnreadBody(Headers(headers), receive, SECONDS)
        await body.send_last({"type": "http.response.body", "body": b"no", "more_body": False}, send)

    def loop() -> asyncio.AbstractEventLoop:
        made = asyncio.SelectorEventLoop(clock)
        made.time = lambda: clock.now  # type: ignore[method-assign]
        return made

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(answer())
    return sent


def end_of(pieces: list[tuple[float, int]], last: str) -> float:
    """When the body has ended, or is given up."""
    now, size = 0.0, 0
    for seconds, more in pieces:
        if size > MAX_DISCARDED_BYTES:
            return now
        until = min(now + IDLE_TIMEOUT, SECONDS)
        if now + seconds > until:
            return until
        now, size = now + seconds, size + more
    waits = last == "silence" and size <= MAX_DISCARDED_BYTES
    return min(now + IDLE_TIMEOUT, SECONDS) if waits else now


GAPS = st.integers(0, 6).map(lambda number: number + 0.25)  # seconds; never exactly a bound
SIZES = st.sampled_from([1, HALF - 1, HALF, HALF + 1, MAX_DISCARDED_BYTES + 1])


@given(st.lists(st.tuples(GAPS, SIZES | st.just(1)), max_size=20), st.sampled_from(["end", "leaves", "silence"]))
def test_an_answer_ends_with_the_body_or_when_that_is_given_up(pieces: list[tuple[float, int]], last: str) -> None:
    sent = played({"transfer-encoding": "chunked"}, pieces, last)
    assert sent == [(0.0, True), (pytest.approx(end_of(pieces, last)), False)]


@pytest.mark.parametrize(
    ("pieces", "seconds"),
    [
        ([], IDLE_TIMEOUT),
        ([(1.0, 1)] * 9, 9 + IDLE_TIMEOUT),
        ([(1.0, 1)] * 99, SECONDS),
        ([(1.0, HALF)] * 9, 3.0),
    ],
    ids=["silence at once", "silence later", "too long", "too much"],
)
def test_each_bound_holds(pieces: list[tuple[float, int]], seconds: float) -> None:
    assert played({"content-length": "99"}, pieces, "silence") == [(0.0, True), (pytest.approx(seconds), False)]


def test_where_there_is_no_body_the_answer_is_sent_as_it_is() -> None:
    for headers in ({}, {"content-length": "0"}, {"content-length": "00"}):
        assert played(headers, [], "silence") == [(0.0, False)]
