"""Replicas on Ray Serve for real: what routing by prefixes hits, and whether requests survive their replica.

    pip install '.[ray]'
    python bench/studies/ray_replicas.py routing [--replicas 2 4] [--requests 120]
    python bench/studies/ray_replicas.py deaths [--kills 10]

Both use the bundled model on this machine, and count; times on it say nothing.

`routing`: the application of `phloem serve --replicas N`, with three routers in turn: phloem's; Serve's own (power of
two choices by requests); and Serve's consistent hashing, here of a prompt's first two blocks, which stand for the
chat or the shared prompt as a session's name would (`hashed_prefix.py`).
Requests come from two clients for each replica (chats: four), each of which asks again when it has its answer.
Workloads, all of random tokens: *prompts*, eight for each replica that many requests begin with, by Zipf's law, each
with a question of its own; *chats* of six turns, each turn with all turns before it; *forks*, eight requests in turn
with the same prompt. Counted: tokens of prompts, those of them that were computed, and the share that was cached.
`one cache` is what a single cache without a bound would have cached of whole blocks.

`deaths`: 32 streams at once, sampled with seeds under a JSON schema, by two replicas, of which one gets SIGKILL in the
middle, at a random one of their frames. Every answer is compared with that of the same request undisturbed.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.request import Request, urlopen

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "tests")]

from cpu_decode import commit  # noqa: E402

BLOCK = 16
NUM_BLOCKS = 512  # of a replica
PORT = 8765
ROUTERS = {"Serve's own": None, "consistent hashing": "hashed_prefix.HashedPrefix", "phloem": "phloem"}
Prompt = list[int]


def draw(rng: Random, low: int, high: int) -> Prompt:
    return [rng.randrange(300, 1000) for _ in range(rng.randint(low, high))]


def prompts(rng: Random, num_replicas: int, count: int) -> Iterator[list[Prompt]]:
    shared = [draw(rng, 200, 900) for _ in range(8 * num_replicas)]
    weights = [1 / (rank + 1) for rank in range(len(shared))]
    for chosen in rng.choices(shared, weights, k=count):
        yield [chosen + draw(rng, 10, 60)]


def chats(rng: Random, num_replicas: int, count: int) -> Iterator[list[Prompt]]:
    for _ in range(max(1, count // 6)):
        turns, so_far = [], []
        for _ in range(6):
            so_far = so_far + draw(rng, 50, 200)
            turns.append(so_far)
        yield turns


def forks(rng: Random, num_replicas: int, count: int) -> Iterator[list[Prompt]]:
    for _ in range(count // 8):
        shared = draw(rng, 200, 900)
        for _ in range(8):
            yield [shared + draw(rng, 5, 40)]


WORKLOADS: dict[str, Callable[[Random, int, int], Iterator[list[Prompt]]]] = {
    "prompts": prompts,
    "chats": chats,
    "forks": forks,
}


def one_cache(lines: list[list[Prompt]]) -> float:
    seen: set[tuple[int, ...]] = set()
    num_cached = num_tokens = 0
    for line in lines:
        for prompt in line:
            ends = range(BLOCK, len(prompt) + 1, BLOCK)
            found = [tuple(prompt[:end]) in seen for end in ends]
            num_cached += BLOCK * (found.index(False) if False in found else len(found))
            num_tokens += len(prompt)
            seen.update(tuple(prompt[:end]) for end in ends)
    return num_cached / num_tokens


def ask(lines: list[list[Prompt]], num_clients: int) -> tuple[int, int]:
    """Tokens of all prompts, and those that were cached. As many lines as there are clients are under way at a time."""
    waiting: queue.SimpleQueue[list[Prompt]] = queue.SimpleQueue()
    for line in lines:
        waiting.put(line)
    totals: list[tuple[int, int]] = []

    def client() -> None:
        while True:
            try:
                line = waiting.get_nowait()
            except queue.Empty:
                return
            for prompt in line:
                body = {"prompt": prompt, "max_tokens": 2, "ignore_eos": True, "temperature": 0}
                request = Request(
                    f"http://127.0.0.1:{PORT}/v1/completions",
                    json.dumps(body).encode(),
                    {"content-type": "application/json"},
                )
                with urlopen(request, timeout=300) as answer:
                    usage = json.load(answer)["usage"]
                totals.append((usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]))

    threads = [threading.Thread(target=client) for _ in range(num_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(totals) == sum(map(len, lines)), "a request has failed"
    return sum(total for total, _ in totals), sum(cached for _, cached in totals)


@contextmanager
def served(num_replicas: int, router: str | None) -> Iterator[None]:
    """The application on Ray, which runs; with another router than its own unless that is "phloem"."""
    from ray import serve
    from ray.serve.config import RequestRouterConfig

    from phloem.cluster import application
    from phloem.runtime.server.settings import ServerSettings

    def config(**given: Any) -> RequestRouterConfig:
        if router is None:
            return RequestRouterConfig()
        return RequestRouterConfig(request_router_class=router)

    own = application._ray
    if router != "phloem":
        application._ray = lambda: (serve, config)
    try:
        app = application.application(
            {"model": "nano", "num_blocks": NUM_BLOCKS, "num_threads": 1},
            ServerSettings(),
            replicas=num_replicas,
            num_cpus=0,
            events_host="127.0.0.1",
        )
    finally:
        application._ray = own
    serve.run(app, name="phloem", route_prefix="/")
    try:
        yield
    finally:
        serve.delete("phloem")


def routing(options: argparse.Namespace) -> None:
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"}
    import ray
    from ray import serve

    ray.init(
        address="local",
        num_cpus=4,
        object_store_memory=100 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
    )
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": PORT})
    print("workload  replicas  router                 tokens   computed   cached  one cache", flush=True)
    for num_replicas in options.replicas:
        for name, router in ROUTERS.items():
            with served(num_replicas, router):
                ask([[draw(Random(0), 20, 20)]] * 4 * num_replicas, num_replicas)  # all are heard of
                for kind, make in WORKLOADS.items():
                    lines = list(make(Random(options.seed), num_replicas, options.requests * num_replicas // 2))
                    tokens, cached = ask(lines, 2 * num_replicas if kind != "chats" else 4 * num_replicas)
                    print(
                        f"{kind:9} {num_replicas:8}  {name:18} {tokens:10} {tokens - cached:10} "
                        f"{cached / tokens:8.1%} {one_cache(lines):10.1%}",
                        flush=True,
                    )
    serve.shutdown()
    ray.shutdown()


def deaths(options: argparse.Namespace) -> None:
    import jsonschema
    from cluster.served_cluster import SCHEMA, running_cluster, streams

    rng = Random(options.seed)
    print("kill  at frame  went on elsewhere  valid  equal", flush=True)
    with running_cluster(2) as cluster:
        truth = streams(cluster, None)
        for kill in range(options.kills):
            cluster.wait(cluster.is_whole)
            before = cluster.metric("phloem_retries_total")
            frame = rng.randrange(10, 200)
            found = streams(cluster, frame)
            num_moved = cluster.metric("phloem_retries_total") - before
            valid = [jsonschema.Draft202012Validator(SCHEMA).is_valid(json.loads(text)) for _, text in found]
            equal = [one == other for one, other in zip(found, truth, strict=True)]
            print(f"{kill + 1:4} {frame:9} {num_moved:18.0f} {sum(valid):6} {sum(equal):6}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["routing", "deaths"])
    parser.add_argument("--replicas", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--requests", type=int, default=120, help="of a workload, for two replicas")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(f"python bench/studies/ray_replicas.py {' '.join(sys.argv[1:])}; commit {commit()}\n")
    (routing if options.what == "routing" else deaths)(options)


if __name__ == "__main__":
    main()
