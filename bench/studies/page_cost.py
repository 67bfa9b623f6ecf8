"""What the live page's polls cost the requests that a server answers.

    python bench/studies/page_cost.py [--pairs 8] [--streams 256] [--max-tokens 64] [--prefix-tokens 200]

A `phloem serve` of the bundled model answers `--streams` streamed chats at a time, once while a client polls what the
page's views poll (the tree by its generation, one of its nodes, this moment, the latest requests, each every second, as
if every view were open) and once without. The two come in turns, and which is first changes from pair to pair; each
starts with an empty cache. Printed: output tokens per second of both and what the server's process spends on a token,
in microseconds of CPU time; then, of the pairs, the median of (with / without) and its 95 % interval (order
statistics), and whether that keeps to the bar: less than 2 % of the throughput lost. On a machine with other work wall
times say little. So the polls are also counted directly: the CPU time of a second's polls without streams, where none
is answered by "nothing has changed", and that of the report on other caches, which is made every 30 seconds or in a
200th of the time, whichever is less often.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cpu_decode import commit
from serving import Server, build_bodies, flush, load

KEY = "none"
EVERY = 1.0  # seconds between two polls of each view
BAR = 0.98
IDLE = 6.0  # seconds until the server has forgotten what it was doing
REPORT_SHARE = 200  # see runtime/server/page/now.py


async def fetch(url: str, path: str) -> bytes:
    """The body of an answer; empty for one without."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n\r\n")[2]


async def poll(url: str, seen: dict[str, int]) -> None:
    """Does what the views do, until it is cancelled; `seen` counts answers and bytes."""
    generation, node = None, None
    while True:
        packed = await fetch(url, "/page/tree" + (f"?generation={generation}" if generation is not None else ""))
        answers = [packed, await fetch(url, "/page/now"), await fetch(url, "/page/requests")]
        if packed:
            length = int.from_bytes(packed[:4], "little")
            head = json.loads(packed[4 : 4 + length])
            generation = head["generation"]
            node = int.from_bytes(packed[4 + length : 8 + length], "little") if head["num_nodes"] else None
        if node is not None:
            answers.append(await fetch(url, f"/page/tree/{node}"))
        seen["answers"] += len(answers)
        seen["bytes"] += sum(map(len, answers))
        await asyncio.sleep(EVERY)


def cpu_seconds(pid: int) -> float:
    """Of a process with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def poll_seconds(url: str, pid: int, rounds: int) -> float:
    """CPU seconds of one round of polls."""
    begin = cpu_seconds(pid)
    for _ in range(rounds):
        packed = await fetch(url, "/page/tree")
        start = 4 + int.from_bytes(packed[:4], "little")
        node = int.from_bytes(packed[start : start + 4], "little")
        for path in ("/page/now", "/page/requests", f"/page/tree/{node}"):
            await fetch(url, path)
    return (cpu_seconds(pid) - begin) / rounds


async def run(
    url: str, pid: int, bodies: list[dict[str, Any]], streams: int, seen: dict[str, int] | None
) -> tuple[float, float]:
    """(Output tokens per second, microseconds of CPU time for each)."""
    polling = asyncio.create_task(poll(url, seen)) if seen is not None else None
    begin = cpu_seconds(pid)
    seconds, samples = await load(url, KEY, bodies, streams)
    spent = cpu_seconds(pid) - begin
    if polling is not None:
        polling.cancel()
        failed = await asyncio.gather(polling, return_exceptions=True)
        if not isinstance(failed[0], asyncio.CancelledError):
            raise SystemExit(f"a poll failed: {failed[0]!r}")
    num_tokens = sum(sample.usage["completion_tokens"] for sample in samples)
    return num_tokens / seconds, 1e6 * spent / num_tokens


def interval(values: list[float]) -> tuple[float, float]:
    """The 95 % interval of the median, by order statistics."""
    ordered, num = sorted(values), len(values)
    low = max(0, math.floor(num / 2 - 0.98 * math.sqrt(num)))
    return ordered[low], ordered[num - 1 - low]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--prefix-tokens", type=int, default=200)
    options = parser.parse_args()
    bodies = build_bodies(options.streams, options.prefix_tokens, options.max_tokens, False, "bench")
    for body in bodies:
        body["ignore_eos"] = True
    seen = {"answers": 0, "bytes": 0}
    rows: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    server = Server("nano", ["--page"])
    with server as url:
        pid = server._process.pid
        asyncio.run(run(url, pid, bodies, options.streams, {"answers": 0, "bytes": 0}))
        began = time.perf_counter()
        for pair in range(options.pairs):
            for is_polled in (True, False) if pair % 2 else (False, True):
                flush(url, KEY)
                rows[is_polled].append(asyncio.run(run(url, pid, bodies, options.streams, seen if is_polled else None)))
        took = time.perf_counter() - began
        time.sleep(IDLE)
        polls = asyncio.run(poll_seconds(url, pid, 100))
        begin = cpu_seconds(pid)
        asyncio.run(fetch(url, "/cache"))
        report = cpu_seconds(pid) - begin
    print(f"commit {commit()}; {options.pairs} pairs of {options.streams} streams of {options.max_tokens} tokens")
    size = seen["bytes"] / max(1, seen["answers"]) / 1024
    print(f"{seen['answers']} polls were answered, {size:.1f} KiB each; {took:.0f} s in all")
    print("                       without       with   with / without  95 % interval")
    for at, title in enumerate(("tokens per second", "CPU us for a token")):
        without, polled = ([row[at] for row in rows[kind]] for kind in (False, True))
        ratios = [b / a for a, b in zip(without, polled, strict=True)]
        low, high = interval(ratios)
        print(
            f"{title:<20}{statistics.median(without):>10.1f} {statistics.median(polled):>10.1f}"
            f" {statistics.median(ratios):>14.3f}     {low:.3f} to {high:.3f}"
        )
    ratios = [b[0] / a[0] for a, b in zip(rows[False], rows[True], strict=True)]
    low, high = interval(ratios)
    kept = "kept" if low >= BAR else "not kept" if high < BAR else "not decided by these pairs"
    print(f"throughput lost: {100 * (1 - statistics.median(ratios)):.1f} %; the bar of 2 % is {kept}")
    share = polls / EVERY + min(report / 30.0, 1 / REPORT_SHARE)
    print(f"directly: {1e3 * polls:.1f} ms of CPU time for a round of polls, {1e3 * report:.0f} ms for the report:")
    print(f"{100 * share:.2f} % of one core while every view is open")


if __name__ == "__main__":
    main()
