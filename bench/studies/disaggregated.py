"""Time between tokens of streams while long prompts come in: prefill and decode apart, and together.

    python bench/studies/disaggregated.py [--streams 16] [--tokens 300] [--prompts 6] [--length 4000] [--rounds 3]

Two servers of the bundled model, each with one thread on a core of its own (`taskset`), in two ways that alternate over
the rounds, on the same requests:

    together   both do everything; streams and prompts go to them in turn
    apart      one with `--role prefill` computes the long prompts, one with `--role decode` answers everything; they
               share a folder (`--disk-cache`), and this script hands prompts on as vLLM's proxies do

The streams answer short prompts, a token a step (no drafts). When the first of them is so far, the next long prompt
arrives, which no request has had before, and asks for 4 tokens. Printed are milliseconds by the clock, over all rounds:
between two events of a stream (median, 99th percentile, worst), and from a long prompt's arrival to its first token.
This script runs on the same cores, and takes the same of them in both ways. Greedy tokens must be equal, or the script
says so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cpu_decode import commit

COMMAND = [sys.executable, "-c", "from phloem.runtime.cli import main; main()", "serve", "nano", "--port", "0"]
OPTIONS = ["--num-blocks", "4096", "--num-threads", "1", "--no-lookup-drafts", "--max-body-bytes", "4MiB"]
ASKED = {"do_remote_decode": True, "do_remote_prefill": False}
Body = dict[str, Any]
Said = list[list[int]]


@dataclass
class Timing:
    """Milliseconds by the clock."""

    gaps: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Work:
    """The prompts of a round, and how many tokens a stream generates."""

    short: Said
    long: Said
    num_tokens: int


class Server:
    """A server on one core.

    Attributes:
        port: where it listens, on loopback.
    """

    def __init__(self, core: int, *options: str) -> None:
        command = ["taskset", "-c", str(core), *COMMAND, *OPTIONS, *options]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        self.port = 0
        for line in self._process.stderr:
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            self.port = int(found[1]) if found else self.port
            if "startup complete" in line:
                break
        if not self.port or self._process.poll() is not None:
            sys.exit(f"a server did not start: {' '.join(command)}")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    async def ask(self, body: Body) -> AsyncIterator[Body]:
        """What it answers: the frames of a stream, or the one body."""
        data = json.dumps({"temperature": 0, "ignore_eos": True, "return_token_ids": True, **body}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)
        head = f"POST /v1/completions HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        writer.write(head.encode() + data)
        try:
            status = await reader.readline()
            assert b" 200 " in status, (status + await reader.read()).decode()
            while (await reader.readline()).strip():
                pass
            if not body.get("stream"):
                yield json.loads(await reader.read())
                return
            async for line in reader:
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])
        finally:
            writer.close()


async def play(servers: list[Server], prefill: Server | None, work: Work, timing: Timing) -> Said:
    """One run: the tokens of all requests in order, which go to the servers in turn."""
    said: Said = [[] for _ in range(len(work.short) + len(work.long))]
    arrivals = [asyncio.Event() for _ in work.long]
    every = work.num_tokens // (len(work.long) + 1)

    async def follow(number: int) -> None:
        last = 0.0
        body = {"prompt": work.short[number], "max_tokens": work.num_tokens, "stream": True}
        async for event in servers[number % len(servers)].ask(body):
            now = time.perf_counter()
            if event["choices"][0].get("token_ids"):
                said[number] += event["choices"][0]["token_ids"]
                if last:
                    timing.gaps.append(1e3 * (now - last))
                last = now
            if number == 0:
                for arrival in arrivals[: len(said[0]) // every]:
                    arrival.set()

    async def arrive(number: int) -> None:
        await arrivals[number].wait()
        begin = time.perf_counter()
        body: Body = {"prompt": work.long[number], "max_tokens": 4}
        if prefill is not None:
            async for answer in prefill.ask({**body, "max_tokens": 1, "kv_transfer_params": ASKED}):
                body["kv_transfer_params"] = answer["kv_transfer_params"]
        tokens = said[len(work.short) + number]
        async for event in servers[number % len(servers)].ask({**body, "stream": True}):
            if not tokens:
                timing.first.append(1e3 * (time.perf_counter() - begin))
            tokens += event["choices"][0].get("token_ids", ())

    async with asyncio.TaskGroup() as group:
        for number in range(len(work.short)):
            group.create_task(follow(number))
        for number in range(len(work.long)):
            group.create_task(arrive(number))
    return said


def row(name: str, timing: Timing) -> str:
    gaps = sorted(timing.gaps)
    figures = [statistics.median(gaps), percentile(gaps), gaps[-1], statistics.median(timing.first)]
    return f"| {name} | " + " | ".join(f"{figure:.1f}" for figure in figures) + " |"


def percentile(gaps: list[float]) -> float:
    return sorted(gaps)[int(0.99 * (len(gaps) - 1))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=300, help="tokens that each of them generates")
    parser.add_argument("--prompts", type=int, default=6, help="long prompts that come in")
    parser.add_argument("--length", type=int, default=4000, help="tokens of each")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2 or shutil.which("taskset") is None:
        sys.exit("it takes two cores, and taskset (util-linux)")
    timings = {"together": Timing(), "apart": Timing()}
    is_same = True
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())

        def start(core: int, *more: str) -> Server:
            server = Server(core, *more)
            stack.callback(server.close)
            return server

        both = [start(core) for core in cores]
        prefill = start(cores[0], "--role", "prefill", "--disk-cache", folder)
        decode = start(cores[1], "--role", "decode", "--disk-cache", folder)
        ways: dict[str, Callable[[Work], Any]] = {
            "together": lambda work: play(both, None, work, timings["together"]),
            "apart": lambda work: play([decode], prefill, work, timings["apart"]),
        }
        for number in range(options.rounds):
            random = Random(number)
            short = [[20 + stream] * 8 for stream in range(options.streams)]
            long = [[random.randrange(300, 1000) for _ in range(options.length)] for _ in range(options.prompts)]
            work = Work(short, long, options.tokens)
            said = [asyncio.run(ways[name](work)) for name in (list(ways) if number % 2 else list(ways)[::-1])]
            is_same = is_same and said[0] == said[1]
    print(f"commit {commit()}, {time.strftime('%Y-%m-%d')}, {platform.machine()}, cores {cores}, {vars(options)}")
    print("| | between tokens: median, ms | p99, ms | worst, ms | first token of a long prompt, ms |")
    print("|:--|--:|--:|--:|--:|")
    for name, timing in timings.items():
        print(row(name, timing))
    apart, together = timings["apart"], timings["together"]
    print(
        f"apart / together: p99 {percentile(apart.gaps) / percentile(together.gaps):.2f}, worst"
        f" {max(apart.gaps) / max(together.gaps):.2f}, first token"
        f" {statistics.median(apart.first) / statistics.median(together.first):.2f}"
    )
    print("same tokens" if is_same else "TOKENS DIFFER")


if __name__ == "__main__":
    main()
