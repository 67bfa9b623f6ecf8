"""Several streams of deltas as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from ..request import Delta


async def merged(streams: Sequence[AsyncGenerator[Delta]]) -> AsyncGenerator[tuple[int, Delta]]:
    """What each yields, as it comes, with its index. Closing it closes them all, and so does the first error."""
    if len(streams) == 1:
        async with aclosing(streams[0]) as deltas:
            async for delta in deltas:
                yield 0, delta
        return
    arrivals: asyncio.Queue[tuple[int, Delta | Exception | None]] = asyncio.Queue()

    async def pump(index: int, stream: AsyncGenerator[Delta]) -> None:
        try:
            async with aclosing(stream):
                async for delta in stream:
                    arrivals.put_nowait((index, delta))
            arrivals.put_nowait((index, None))
        except Exception as error:
            arrivals.put_nowait((index, error))

    pumps = [asyncio.ensure_future(pump(index, stream)) for index, stream in enumerate(streams)]
    try:
        num_open = len(pumps)
        while num_open:
            index, arrival = await arrivals.get()
            if isinstance(arrival, Exception):
                raise arrival
            if arrival is None:
                num_open -= 1
            else:
                yield index, arrival
    finally:
        for each in pumps:
            each.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
