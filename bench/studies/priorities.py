"""Two classes of traffic over HTTP: what a priority brings the requests that have it, and what it costs the others.

    python bench/studies/priorities.py [--bulk 80] [--interactive 20] [--running 4]

Starts `phloem serve` with few seats. Bulk requests come all at once and keep the queue full; interactive ones come one
after the other, at fixed intervals, while the bulk is worked off. The same traffic is sent three times: all alike, the
interactive ones with `"priority": 10`, and so again with `max_wait_seconds` at 0.5, which then counts more than a
priority. Printed are seconds from sending a request to its first token.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from serving import Sample, Server, ask, build_bodies


async def traffic(
    url: str, bulk: list[dict[str, object]], interactive: list[dict[str, object]], interval: float
) -> tuple[list[Sample], list[Sample], float]:
    """Both classes' samples, and the seconds until all had ended."""
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    flood = [asyncio.ensure_future(ask(url, "none", body)) for body in bulk]
    calls = []
    for body in interactive:
        await asyncio.sleep(interval)
        calls.append(asyncio.ensure_future(ask(url, "none", body)))
    slow, quick = await asyncio.gather(*flood), await asyncio.gather(*calls)
    return slow, quick, loop.time() - started_at


def waiting_times(samples: list[Sample]) -> str:
    times = sorted(sample.ttft for sample in samples)
    return f"{statistics.median(times):.2f} | {times[int(0.9 * len(times))]:.2f} | {times[-1]:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bulk", type=int, default=80)
    parser.add_argument("--interactive", type=int, default=20)
    parser.add_argument("--running", type=int, default=4, help="seats in the batch")
    parser.add_argument("--interval", type=float, default=0.15, help="seconds between two interactive requests")
    options = parser.parse_args()
    bodies = build_bodies(options.bulk + options.interactive, 300, 100, False, "bench")
    bulk, interactive = bodies[: options.bulk], [{**body, "max_tokens": 20} for body in bodies[options.bulk :]]
    seats = ["--max-running-requests", str(options.running)]
    print("| interactive requests | server | class | median, s | p90, s | longest, s | all done, s |")
    print("|:--|:--|:--|--:|--:|--:|--:|")
    for priority, arguments in ((0, []), (10, []), (10, ["--max-wait-seconds", "0.5"])):
        with Server("nano", [*seats, *arguments]) as url:
            asyncio.run(traffic(url, bulk[:4], interactive[:2], 0.0))  # warm
            wanted = [{**body, "priority": priority} for body in interactive]
            slow, quick, seconds = asyncio.run(traffic(url, bulk, wanted, options.interval))
        how = f"priority {priority} | {' '.join(arguments) or 'default'}"
        print(f"| {how} | interactive | {waiting_times(quick)} | |")
        print(f"| {how} | bulk | {waiting_times(slow)} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
