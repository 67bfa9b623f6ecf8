"""What publishing KV events costs an engine.

    OMP_NUM_THREADS=1 python bench/studies/kv_events.py [--pairs 150] [--requests 4]

One engine on the bundled model serves the same requests twice, once with its events published to a subscriber in
another process, and once as if they had not been asked for (the prefix cache reports nothing, no block has a key).
Which of the two comes first changes from pair to pair, and the cache is flushed in between. It is one engine, since two
differ by several per cent depending on where their memory is. CPU time of the process, so that other processes do not
count, but the publisher's thread does.

    prompts    new prompts of 512 tokens, one token each: most blocks for the work
    chats      four system prompts of 256 tokens with 64 of a user, 64 tokens each

The pool holds half of what `prompts` needs, so blocks are removed, too. `cost`: median over the pairs of (CPU time
with) / (CPU time without) - 1, and the 95 % interval of that median (order statistics); on a machine with other work
it says no more than that. Counted directly, as shares of the process's CPU time: `step`, what the step's thread spends
on keys and events (flushes included), and `thread`, the publisher's own thread.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cpu_decode import commit

import phloem as ph

SUBSCRIBER = """
import sys, zmq
socket = zmq.Context().socket(zmq.SUB)
socket.setsockopt(zmq.SUBSCRIBE, b"")
socket.connect(sys.argv[1])
count = 0
while True:
    socket.recv_multipart()
    if not count:
        print("heard", flush=True)
    count += 1
"""
BLOCK_SIZE = 16

Prompts = list[list[int]]


class Timed:
    """What follows the tree, with the CPU time that the step's thread spends in it."""

    def __init__(self, followers: Any) -> None:
        self._followers = followers
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._followers, name)
        if not callable(found):
            return found

        def timed(*arguments: Any, **options: Any) -> Any:
            begin = time.thread_time()
            try:
                return found(*arguments, **options)
            finally:
                self.seconds += time.thread_time() - begin

        return timed


def make_prompts(kind: str, count: int, random: Random) -> tuple[Prompts, int]:
    """Prompts, and how many tokens are to follow each."""

    def draw(length: int) -> list[int]:
        return [random.randrange(16, 700) for _ in range(length)]

    if kind == "chats":
        systems = [draw(256) for _ in range(4)]
        return [systems[number % 4] + draw(64) for number in range(count)], 64
    return [draw(512) for _ in range(count)], 1


def seconds_of(engine: ph.Engine, prompts: Prompts, num_tokens: int) -> float:
    """CPU time of the process for all of them at once."""
    sampling = ph.SamplingParams(max_tokens=num_tokens, temperature=0.0, ignore_eos=True)
    begin = time.process_time()
    engine.generate(prompts, sampling)
    return time.process_time() - begin


def thread_seconds() -> float:
    """CPU time of the publisher's thread so far."""
    (thread,) = (one for one in threading.enumerate() if one.name == "phloem-kv-events")
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def measure(kind: str, options: argparse.Namespace) -> str:
    num_blocks = max(64, options.requests * 512 // BLOCK_SIZE // 2)
    events = {"endpoint": "tcp://127.0.0.1:*"}
    settings: dict[str, Any] = {"block_size": BLOCK_SIZE, "max_model_len": 1024, "num_blocks": num_blocks}
    settings |= {"lookup_drafts": False, "jump": "off"}  # what is drafted depends on what was said before
    engine = ph.Engine("nano", kv_events_config=events, **settings)
    cache: Any = engine.prefix_cache
    timed = Timed(cache.followers)
    followers = {True: timed, False: None}
    child = subprocess.Popen(
        [sys.executable, "-c", SUBSCRIBER, cache.events.publisher.endpoint], stdout=subprocess.PIPE, text=True
    )
    seconds: dict[bool, list[float]] = {True: [], False: []}
    try:
        random = Random(0)
        heard = threading.Thread(target=lambda: child.stdout and child.stdout.readline())
        heard.start()
        while heard.is_alive():
            seconds_of(engine, *make_prompts(kind, 4, random))
        num_tokens, own, timed.seconds = 0, thread_seconds(), 0.0
        for pair in range(options.pairs):
            for publishes in (True, False) if pair % 2 else (False, True):
                prompts, num_outputs = make_prompts(kind, options.requests, random)
                num_tokens += sum(map(len, prompts)) + num_outputs * len(prompts)
                engine.flush_cache()
                cache.followers = followers[publishes]
                seconds[publishes].append(seconds_of(engine, prompts, num_outputs))
        own = thread_seconds() - own
        assert engine.statistics().num_dropped_event_batches == 0
    finally:
        child.kill()
        child.communicate()
        cache.followers = timed
        engine.close()
    costs = sorted(100 * (b / a - 1) for a, b in zip(seconds[False], seconds[True], strict=True))
    half = round(0.98 * len(costs) ** 0.5)  # ranks from the median to an end of its 95 % interval
    middle = len(costs) // 2
    low, high = costs[max(0, middle - half)], costs[min(len(costs) - 1, middle + half)]
    rates = [num_tokens / 2 / sum(seconds[publishes]) for publishes in (False, True)]
    return (
        f"{kind:8} {options.pairs:6} {rates[0]:12.0f} {rates[1]:12.0f} {statistics.median(costs):8.2f}   "
        f"{low:5.2f} to {high:5.2f} "
        f"{100 * timed.seconds / sum(seconds[True]):7.2f} {100 * own / sum(seconds[True]):8.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=150)
    parser.add_argument("--requests", type=int, default=4, help="in a round")
    options = parser.parse_args()
    print(f"python bench/studies/kv_events.py {' '.join(sys.argv[1:])}; commit {commit()}\n")
    print("          pairs   tokens per CPU-second     cost %  95 % interval   step % thread %")
    print("                      without         with")
    for kind in ("prompts", "chats"):
        print(measure(kind, options), flush=True)


if __name__ == "__main__":
    main()
