"""Load on the OpenAI-compatible server over loopback: time to first token, time between tokens, tokens per second.

    python bench/serving.py [--requests 64] [--concurrency 16] [--prefix-tokens 500] [--max-tokens 128] [--schema]

Starts `phloem serve` on a free port of 127.0.0.1, in a process of its own, sends chats that share a system prompt, and
stops it again; `--url` measures a server that runs already. The same chats are then given to an engine in this process,
without HTTP, so that the cost of serving is seen (`--no-compare` leaves that out). `--output FILE` writes JSON with the
field names of SGLang's `bench_serving`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from nano_text import SYSTEM_PROMPT, documents  # noqa: E402

STARTUP_SECONDS = 120


@dataclass
class Sample:
    """One request as the client saw it; times in seconds."""

    latency: float = 0.0
    ttft: float = 0.0
    gaps: list[float] = field(default_factory=list)
    text: str = ""
    usage: dict[str, Any] = field(default_factory=dict)


def build_bodies(count: int, prefix_tokens: int, max_tokens: int, schema: bool, model: str) -> list[dict[str, Any]]:
    """`count` chats under one system prompt of roughly `prefix_tokens` tokens (about three characters each)."""
    system = SYSTEM_PROMPT
    for document in documents(seed=1, count=10_000):
        if len(system) >= 3 * prefix_tokens:
            break
        system += "\n\n" + document.text
    bodies = []
    for document in documents(seed=2, count=count):
        question = f"{document.text}\n\nExtract the {document.kind.name} as JSON."
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": question}],
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if schema:
            body["json_schema"] = document.kind.schema
        else:
            body["ignore_eos"] = True
        bodies.append(body)
    return bodies


async def ask(url: str, key: str, body: dict[str, Any]) -> Sample:
    """One streamed chat over a connection of its own."""
    address = urlsplit(url)
    host, port = address.hostname or "127.0.0.1", address.port or 80
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {key}\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    started_at = time.perf_counter()
    reader, writer = await asyncio.open_connection(host, port)
    sample = Sample()
    last_at = 0.0
    try:
        writer.write(head.encode() + data)
        status = await reader.readline()
        if b" 200 " not in status:
            raise RuntimeError(f"{url} answered {status.decode().strip()}: {(await reader.read(2000)).decode()[-500:]}")
        while line := await reader.readline():
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise RuntimeError(f"{url}: {event['error']}")
            sample.usage = event.get("usage") or sample.usage
            text = event["choices"][0]["delta"].get("content") if event["choices"] else None
            if not text:
                continue
            now = time.perf_counter()
            if last_at:
                sample.gaps.append(now - last_at)
            else:
                sample.ttft = now - started_at
            last_at = now
            sample.text += text
        sample.latency = time.perf_counter() - started_at
        return sample
    finally:
        writer.close()


def flush(url: str, key: str) -> None:
    """Empties the prefix cache, where the server allows it (`--enable-admin`)."""
    request = urllib.request.Request(f"{url}/flush_cache", b"", {"Authorization": f"Bearer {key}"})
    try:
        urllib.request.urlopen(request, timeout=30).close()
    except urllib.error.HTTPError as error:
        error.close()


async def load(url: str, key: str, bodies: list[dict[str, Any]], concurrency: int) -> tuple[float, list[Sample]]:
    """Sends all bodies, at most `concurrency` at a time; (seconds, samples in order)."""
    gate = asyncio.Semaphore(concurrency)

    async def one(body: dict[str, Any]) -> Sample:
        async with gate:
            return await ask(url, key, body)

    started_at = time.perf_counter()
    samples = await asyncio.gather(*(one(body) for body in bodies))
    return time.perf_counter() - started_at, samples


def summary(seconds: float, samples: list[Sample]) -> dict[str, Any]:
    """Figures under the names of SGLang's `bench_serving`."""
    usages = [sample.usage for sample in samples]
    output = sum(usage["completion_tokens"] for usage in usages)
    prompt = sum(usage["prompt_tokens"] for usage in usages)
    tpots = [
        (sample.latency - sample.ttft) / (sample.usage["completion_tokens"] - 1)
        for sample in samples
        if sample.usage["completion_tokens"] > 1
    ]
    return {
        "completed": len(samples),
        "duration": round(seconds, 4),
        "total_input_tokens": prompt,
        "total_cached_tokens": sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages),
        "total_output_tokens": output,
        "total_jumped_tokens": sum(usage["completion_tokens_details"]["jumped_tokens"] for usage in usages),
        "request_throughput": round(len(samples) / seconds, 2),
        "input_throughput": round(prompt / seconds, 1),
        "output_throughput": round(output / seconds, 1),
        **spread("ttft", [sample.ttft for sample in samples]),
        **spread("tpot", tpots),
        **spread("itl", [gap for sample in samples for gap in sample.gaps]),
        **spread("e2e_latency", [sample.latency for sample in samples]),
    }


def spread(name: str, seconds: list[float]) -> dict[str, float]:
    """Mean, median and 99th percentile in milliseconds."""
    values = sorted(seconds) or [0.0]
    p99 = values[min(len(values) - 1, round(0.99 * (len(values) - 1)))]
    numbers = {"mean": statistics.fmean(values), "median": statistics.median(values), "p99": p99}
    return {f"{kind}_{name}_ms": round(1000 * number, 3) for kind, number in numbers.items()}


def table(figures: dict[str, Any]) -> str:
    lines = [
        f"{figures['completed']} requests in {figures['duration']:.2f} s: {figures['request_throughput']} requests/s,"
        f" {figures['output_throughput']} output tokens/s, {figures['input_throughput']} prompt tokens/s",
        f"{figures['total_input_tokens']} prompt tokens ({figures['total_cached_tokens']} cached),"
        f" {figures['total_output_tokens']} output tokens ({figures['total_jumped_tokens']} jumped)",
        f"{'milliseconds':<28}{'mean':>10}{'median':>10}{'p99':>10}",
    ]
    titles = ("to the first token", "between two chunks", "per output token", "whole")
    for name, title in zip(("ttft", "itl", "tpot", "e2e_latency"), titles, strict=True):
        cells = "".join(f"{figures[f'{kind}_{name}_ms']:>10.2f}" for kind in ("mean", "median", "p99"))
        lines.append(f"{title:<28}{cells}")
    return "\n".join(lines)


class Server:
    """`phloem serve` on a free loopback port."""

    def __init__(self, model: str, arguments: list[str]) -> None:
        code = "from phloem.runtime.cli import main; main()"
        command = [sys.executable, "-c", code, "serve", model, "--port", "0", "--served-model-name", "bench"]
        self._process = subprocess.Popen(
            [*command, "--log-level", "warning", "--enable-admin", *arguments], stderr=subprocess.PIPE, text=True
        )
        assert self._process.stderr is not None
        seen = ""
        for line in self._process.stderr:
            seen += line
            found = re.search(r"http://[^/\s]+", line)
            if found:
                self.url = found[0]
                return
        raise SystemExit(f"the server did not start:\n{seen}")

    def __enter__(self) -> str:
        return self.url

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=60)


def in_process(model: str, bodies: list[dict[str, Any]], concurrency: int) -> tuple[float, int]:
    """The same chats without HTTP, at most `concurrency` in a batch: (seconds, output tokens)."""
    import phloem as ph

    engine = ph.Engine(model, max_running_requests=concurrency)
    tokenizer = engine.tokenizer

    def submit(body: dict[str, Any]) -> None:
        sampling = ph.SamplingParams(
            max_tokens=body["max_tokens"], temperature=0.0, ignore_eos=body.get("ignore_eos", False)
        )
        constraint = ph.json_schema(body["json_schema"]) if "json_schema" in body else None
        engine.core.add(tokenizer.apply_chat_template(body["messages"]), sampling, constraint)

    def run(wanted: list[dict[str, Any]]) -> int:
        for body in wanted:
            submit(body)
        num_tokens = 0
        while engine.core.has_work:
            num_tokens += sum(len(delta.token_ids) for delta in engine.core.step())
        return num_tokens

    run(bodies[:8])  # compiles the schemas, warms up
    engine.flush_cache()
    started_at = time.perf_counter()
    num_tokens = run(bodies)
    seconds = time.perf_counter() - started_at
    engine.close()
    return seconds, num_tokens


def measure(url: str, key: str, bodies: list[dict[str, Any]], concurrency: int, rounds: int) -> dict[str, Any]:
    """The median round by output tokens per second, after a short warm-up; each starts with an empty cache."""
    asyncio.run(load(url, key, bodies[:8], concurrency))
    figures = []
    for _ in range(rounds):
        flush(url, key)
        figures.append(summary(*asyncio.run(load(url, key, bodies, concurrency))))
    return sorted(figures, key=lambda row: row["output_throughput"])[len(figures) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="nano", help="what to serve (default: the bundled model)")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=16, help="requests at a time")
    parser.add_argument("--prefix-tokens", type=int, default=500, help="length of the shared system prompt")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--schema", action="store_true", help="constrain the answers by JSON Schemas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--url", help="a running server instead of one of its own")
    parser.add_argument("--api-key", default="none")
    parser.add_argument("--served-model-name", default="bench", help="model name to send (with --url)")
    parser.add_argument("--no-compare", action="store_true", help="leave the engine in this process out")
    parser.add_argument("--output", type=Path, help="write the figures as JSON")
    options, server_arguments = parser.parse_known_args()
    name = options.served_model_name
    bodies = build_bodies(options.requests, options.prefix_tokens, options.max_tokens, options.schema, name)
    if options.url:
        figures = measure(options.url, options.api_key, bodies, options.concurrency, options.rounds)
    else:
        with Server(options.model, server_arguments) as url:
            figures = measure(url, options.api_key, bodies, options.concurrency, options.rounds)
    print(table(figures))
    if not options.no_compare:
        runs = [in_process(options.model, bodies, options.concurrency) for _ in range(options.rounds)]
        seconds, num_tokens = sorted(runs)[len(runs) // 2]
        figures["in_process_output_throughput"] = round(num_tokens / seconds, 1)
        share = figures["output_throughput"] / figures["in_process_output_throughput"]
        print(
            f"the engine alone, without HTTP: {num_tokens / seconds:.1f} output tokens/s; over HTTP {share:.0%} of it"
        )
    if options.output:
        options.output.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
