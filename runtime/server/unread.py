"""The unread rest of a request's body: a client that is still sending when its answer is ready gets to see the answer.

::

    refused (401, 404, 413 …) ──► the whole answer goes out ──► the rest of the body is read and dropped ──► the end

If a connection is closed while bytes arrive, the system resets it, and most clients then lose the answer, which they
read after they have sent all. So the end of an answer waits until the body has ended too (RFC 9112, section 9.6), as
long as the client goes on sending: within bounds of silence, of time and of bytes.
"""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Send

MAX_DISCARDED_BYTES = 1 << 28
IDLE_TIMEOUT = 5.0  # seconds


class UnreadBody:
    """One request's body: notes how far it has been read.

    Args:
        headers: say whether there is one.
        seconds: in which it must have ended.
    """

    def __init__(self, headers: Headers, receive: Receive, seconds: float) -> None:
        declared = headers.get("content-length", "0")
        self._is_open = "transfer-encoding" in headers or declared.strip("0") != ""
        self._receive = receive
        self._seconds = seconds

    async def receive(self) -> Message:
        """What the application gets."""
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._is_open = False
        return message

    async def send_last(self, message: Message, send: Send) -> None:
        """Sends the last part of an answer, and its end when the body has ended."""
        if self._is_open:
            await send({**message, "more_body": True})
            message = {"type": "http.response.body", "body": b"", "more_body": False}
            await self._discard()
        await send(message)

    async def _discard(self) -> None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._seconds
        num_bytes = 0
        try:
            while self._is_open and num_bytes <= MAX_DISCARDED_BYTES:
                async with asyncio.timeout(min(IDLE_TIMEOUT, deadline - clock())):
                    num_bytes += len((await self.receive()).get("body", b""))
        except TimeoutError:
            pass
