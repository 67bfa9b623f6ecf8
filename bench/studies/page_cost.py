"""What the live page's polls cost the requests that a server answers.

    python bench/studies/page_cost.py [--view tree|now|requests|all] [--windows 240] [--seconds 4] [--streams 256]

A `phloem serve` of the bundled model answers `--streams` streamed chats at a time, without a pause: where one ends, the
next begins, and their lengths differ, so that their ends are spread. Meanwhile windows of `--seconds` come in turns in
which a client polls what an open view of the page polls every second (the tree by its generation and one of its nodes;
this moment; the latest requests; or all of them, as with a page for each view), and in which it does not. Four windows
are a block, in the order without, with, with, without, or the reverse, by lot: a slow drift falls out of a block's
ratio. Printed: output tokens per second of both and what the server's process spends on a token, in microseconds of CPU
time, by its own counter and `/proc`; then, of the blocks, the median of (with / without) and its 95 % interval (order
statistics), and whether that keeps to the bar: less than 2 % of the throughput lost. The report on other caches is made
in a 200th of the time at most, and here in the windows with polls alone, which are half of it: it counts twice. On a
machine with other work wall times say little, and the CPU time of a token more. The polls are also counted directly:
the CPU time of a second's polls without streams, where none is answered by "nothing has changed", and that of the
report.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cpu_decode import commit
from serving import Server, ask, build_bodies

KEY = "none"
EVERY = 1.0  # seconds between two polls of each view
BAR = 0.98
VIEWS = {"tree": ("/page/tree", "/page/tree/{node}"), "now": ("/page/now",), "requests": ("/page/requests",)}
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


async def poll(url: str, view: str, seen: dict[str, int]) -> None:
    """Does what a view does, or all of them do, until it is cancelled; `seen` counts answers and bytes."""
    generation, node = None, None
    while True:
        answers = [await fetch(url, f"/page/{one}") for one in ("now", "requests") if view in (one, "all")]
        packed = b""
        if view in ("tree", "all"):
            packed = await fetch(url, "/page/tree" + (f"?generation={generation}" if generation is not None else ""))
            answers.append(packed)
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


async def poll_seconds(url: str, pid: int, rounds: int) -> dict[str, float]:
    """CPU seconds of a poll of each view."""
    packed = await fetch(url, "/page/tree")
    start = 4 + int.from_bytes(packed[:4], "little")
    node = int.from_bytes(packed[start : start + 4], "little")
    found = {}
    for view, paths in VIEWS.items():
        begin = cpu_seconds(pid)
        for _ in range(rounds):
            for path in paths:
                await fetch(url, path.format(node=node))
        found[view] = (cpu_seconds(pid) - begin) / rounds
    return found


async def num_tokens(url: str) -> float:
    """Output tokens of the server since it began."""
    found = re.search(rb"^phloem_completion_tokens_total (\S+)$", await fetch(url, "/metrics"), re.MULTILINE)
    assert found is not None
    return float(found[1])


async def measure(url: str, pid: int, seconds: float, view: str | None, seen: dict[str, int]) -> tuple[float, float]:
    """(Output tokens per second, microseconds of CPU time for each) of one window, with polls if a view is given."""
    polling = asyncio.create_task(poll(url, view, seen)) if view is not None else None
    began, spent, told = time.perf_counter(), cpu_seconds(pid), await num_tokens(url)
    await asyncio.sleep(seconds)
    told = await num_tokens(url) - told
    took, spent = time.perf_counter() - began, cpu_seconds(pid) - spent
    if polling is not None:
        polling.cancel()
        failed = await asyncio.gather(polling, return_exceptions=True)
        if not isinstance(failed[0], asyncio.CancelledError):
            raise SystemExit(f"a poll failed: {failed[0]!r}")
    return told / took, 1e6 * spent / told


async def stream(url: str, bodies: list[dict[str, Any]], lot: random.Random) -> None:
    """One chat after the other, until it is cancelled."""
    while True:
        await ask(url, KEY, lot.choice(bodies) | {"max_tokens": lot.randrange(64, 257)})


async def blocks(
    url: str, pid: int, options: argparse.Namespace, bodies: list[dict[str, Any]], seen: dict[str, int]
) -> list[dict[bool, list[tuple[float, float]]]]:
    """Of each block the windows without polls and those with."""
    lot = random.Random(0)
    streams = [asyncio.create_task(stream(url, bodies, lot)) for _ in range(options.streams)]
    await measure(url, pid, 5 * options.seconds, options.view, {"answers": 0, "bytes": 0})
    found = []
    for _ in range(options.windows // 4):
        rows: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        first = lot.random() < 0.5
        for is_polled in (first, not first, not first, first):
            view = options.view if is_polled else None
            rows[is_polled].append(await measure(url, pid, options.seconds, view, seen))
        found.append(rows)
    for task in streams:
        task.cancel()
    for ended in await asyncio.gather(*streams, return_exceptions=True):
        if not isinstance(ended, asyncio.CancelledError):
            raise SystemExit(f"a stream failed: {ended!r}")
    return found


def interval(values: list[float]) -> tuple[float, float]:
    """The 95 % interval of the median, by order statistics."""
    ordered, num = sorted(values), len(values)
    low = max(0, math.floor(num / 2 - 0.98 * math.sqrt(num)))
    return ordered[low], ordered[num - 1 - low]


def show(found: list[dict[bool, list[tuple[float, float]]]]) -> None:
    """Prints both measures, and whether the bar is kept."""
    print("                       without       with   with / without  95 % interval")
    verdict = ""
    for at, title in enumerate(("tokens per second", "CPU us for a token")):
        sides = [[sum(row[at] for row in rows[kind]) / 2 for rows in found] for kind in (False, True)]
        ratios = [polled / without for without, polled in zip(*sides, strict=True)]
        middle, (low, high) = statistics.median(ratios), interval(ratios)
        print(
            f"{title:<20}{statistics.median(sides[0]):>10.1f} {statistics.median(sides[1]):>10.1f}"
            f" {middle:>14.4f}     {low:.4f} to {high:.4f}"
        )
        if not at:
            kept = "kept" if low >= BAR else "not kept" if high < BAR else "not decided by these windows"
            verdict = f"throughput lost: {100 * (1 - middle):.2f} %; the bar of 2 % is {kept}"
    print(verdict)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--view", choices=("tree", "now", "requests", "all"), default="all")
    parser.add_argument("--windows", type=int, default=240, help="a multiple of 4")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--prefix-tokens", type=int, default=200)
    options = parser.parse_args()
    bodies = build_bodies(options.streams, options.prefix_tokens, 256, False, "bench")
    seen = {"answers": 0, "bytes": 0}
    server = Server("nano", ["--page"])
    with server as url:
        pid = server._process.pid
        began = time.perf_counter()
        found = asyncio.run(blocks(url, pid, options, bodies, seen))
        took = time.perf_counter() - began
        time.sleep(IDLE)
        polls = asyncio.run(poll_seconds(url, pid, 100))
        begin = cpu_seconds(pid)
        asyncio.run(fetch(url, "/cache"))
        report = cpu_seconds(pid) - begin
    print(f"commit {commit()}; {len(found)} blocks of 4 windows of {options.seconds:g} s, {options.streams} streams")
    size = seen["bytes"] / max(1, seen["answers"]) / 1024
    print(f"view: {options.view}; {seen['answers']} polls were answered, {size:.1f} KiB each; {took:.0f} s in all")
    show(found)
    print(f"directly, in shares of one core; {1e3 * report:.0f} ms for the report, which is made for the view of now:")
    for view, spent in polls.items():
        share = spent / EVERY + (min(report / 30.0, 1 / REPORT_SHARE) if view == "now" else 0.0)
        print(f"  {view:<9} {1e3 * spent:.2f} ms for a poll, {100 * share:.2f} %")


if __name__ == "__main__":
    main()
