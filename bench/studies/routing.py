"""What routing by prefixes is worth with many replicas: simulated, with the class that routes on Ray Serve.

    python bench/studies/routing.py [--replicas 8 64 512] [--requests 40] [--seed 1]

Each replica computes one prompt after the other, 10,000 tokens a second, has room for 4,000 blocks of 16 tokens and
evicts what was used longest ago. Requests come at random, so that all replicas together would be busy for 80 % of the
time if there were no cache. Every so often one replica dies, with all that it had, and an empty one takes its place.
What a replica caches is reported when a prompt is done, as its events would.

Workloads: *prompts*, long ones that many requests begin with, some far more often than others, each with its own
question; *chats*, each turn of which has all turns before it; *forks*, eight requests at a time with the same prompt.

Ways to choose: round robin; power of two choices by tokens queued; consistent hashing of the first 32 blocks; the rule
of Ray's `PrefixCacheAffinityRouter` (the replica that was sent the longest equal prefix, if it is 10 % of the prompt
and the queues differ by at most 4 requests, else power of two choices); phloem's. `one cache` is what a single cache
without a bound, and without a death, would hit: nothing can be better.

Printed: tokens that were cached of those of prompts; the busiest replica's work as a multiple of the mean; how long
prompts wait and compute, mean and 99th percentile, in seconds; microseconds of CPU for a decision, the mean over all;
and the memory of index and queues.
"""

from __future__ import annotations

import argparse
import bisect
import hashlib
import heapq
import sys
import time
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from phloem.cluster.prefix_index import PrefixIndex
from phloem.cluster.routing_policy import Choice, RoutingPolicy

BLOCK = 16
TOKENS_PER_SECOND = 10_000
CACHE_BLOCKS = 4000
LOAD = 0.8
DEATHS = 6  # in one run


@dataclass(slots=True)
class Prompt:
    chain: list[int]
    num_tokens: int
    at: float = 0.0
    replica: str = ""
    choice: Choice | None = None


@dataclass(slots=True)
class Replica:
    """A queue, and a cache: the last blocks that were used."""

    name: str
    cache: OrderedDict[int, None] = field(default_factory=OrderedDict)
    queue: list[Prompt] = field(default_factory=list)
    is_alive: bool = True
    num_computed: int = 0

    def take_up(self, prompt: Prompt) -> int:
        """How many blocks of a prompt there are."""
        depth = 0
        while depth < len(prompt.chain) and prompt.chain[depth] in self.cache:
            depth += 1
        return depth

    def keep(self, chain: list[int]) -> tuple[list[int], list[int]]:
        """Caches a prompt; returns blocks that are new, and blocks that are gone. A prefix outlives what follows it."""
        new = [block for block in chain if block not in self.cache]
        for block in reversed(chain):
            self.cache[block] = None
            self.cache.move_to_end(block)
        gone = []
        while len(self.cache) > CACHE_BLOCKS:
            gone.append(self.cache.popitem(last=False)[0])
        return new, gone


class Way(Protocol):
    """Chooses a replica for each request, and learns what happens."""

    def choose(self, prompt: Prompt) -> str: ...
    def done(self, prompt: Prompt, new: list[int], gone: list[int]) -> None: ...
    def join(self, name: str) -> None: ...
    def leave(self, name: str) -> None: ...


class Phloem:
    def __init__(self, random: Random) -> None:
        self.routing = RoutingPolicy(PrefixIndex(), BLOCK, random)
        self.join, self.leave = self.routing.add, self.routing.forget

    def choose(self, prompt: Prompt) -> str:
        best = prompt.choice = self.routing.rank(prompt.chain, prompt.num_tokens)[0]
        self.routing.sent(best, prompt.chain)
        return best.replica

    def done(self, prompt: Prompt, new: list[int], gone: list[int]) -> None:
        self.routing.index.store(prompt.replica, "GPU", new)
        self.routing.index.remove(prompt.replica, "GPU", gone)
        assert prompt.choice is not None
        self.routing.answered(prompt.choice, prompt.chain)


class Plain:
    """Names, and how many requests and tokens are under way at each."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.names: list[str] = []
        self.tokens: dict[str, int] = {}
        self.requests: dict[str, int] = {}

    def join(self, name: str) -> None:
        self.names.append(name)
        self.tokens[name] = self.requests[name] = 0

    def leave(self, name: str) -> None:
        self.names.remove(name)
        del self.tokens[name], self.requests[name]

    def choose(self, prompt: Prompt) -> str:
        name = self.pick(prompt)
        self.tokens[name] += prompt.num_tokens
        self.requests[name] += 1
        return name

    def done(self, prompt: Prompt, new: list[int], gone: list[int]) -> None:
        if prompt.replica in self.tokens:
            self.tokens[prompt.replica] -= prompt.num_tokens
            self.requests[prompt.replica] -= 1

    def pick(self, prompt: Prompt) -> str:
        raise NotImplementedError

    def of_two(self) -> str:
        return min(self.random.sample(self.names, min(2, len(self.names))), key=self.tokens.__getitem__)


class RoundRobin(Plain):
    last = 0

    def pick(self, prompt: Prompt) -> str:
        self.last += 1
        return self.names[self.last % len(self.names)]


class TwoChoices(Plain):
    def pick(self, prompt: Prompt) -> str:
        return self.of_two()


class ConsistentHash(Plain):
    """A ring with 100 points for each replica."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.ring: list[tuple[int, str]] = []

    def join(self, name: str) -> None:
        super().join(name)
        for point in range(100):
            bisect.insort(self.ring, (_hashed(f"{name}/{point}"), name))

    def leave(self, name: str) -> None:
        super().leave(name)
        self.ring = [pair for pair in self.ring if pair[1] != name]

    def pick(self, prompt: Prompt) -> str:
        key = _hashed(str(prompt.chain[min(31, len(prompt.chain) - 1)]))
        return self.ring[bisect.bisect(self.ring, (key, "")) % len(self.ring)][1]


class RayAffinity(Plain):
    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.sent = PrefixIndex()

    def leave(self, name: str) -> None:
        super().leave(name)
        self.sent.forget(name)

    def join(self, name: str) -> None:
        super().join(name)
        self.sent.add(name)

    def pick(self, prompt: Prompt) -> str:
        name = ""
        if max(self.requests.values()) - min(self.requests.values()) <= 4:
            mask = sum(1 << number for number in self.sent.numbers.values())
            depth, equal = self.sent.matches(prompt.chain, mask)[0]
            if depth * BLOCK >= 0.1 * prompt.num_tokens:
                name = next(name for name, number in self.sent.numbers.items() if equal >> number & 1)
        name = name or self.of_two()
        self.sent.store(name, "sent", prompt.chain)
        return name


WAYS: dict[str, Callable[[Random], Way]] = {
    "round robin": RoundRobin,
    "two choices": TwoChoices,
    "consistent hashing": ConsistentHash,
    "Ray's affinity rule": RayAffinity,
    "phloem": Phloem,
}


def _hashed(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def prompts(rng: Random, num_replicas: int) -> Iterator[Prompt]:
    """Prompts of 500 to 4,000 tokens, eight for each replica, by Zipf's law; questions of 20 to 200."""
    shared = [[rng.getrandbits(64) for _ in range(rng.randint(31, 250))] for _ in range(8 * num_replicas)]
    weights = [1 / (rank + 1) for rank in range(len(shared))]
    while True:
        for chosen in rng.choices(shared, weights, k=100):
            own = rng.randint(20, 200)
            yield Prompt([*chosen, *(rng.getrandbits(64) for _ in range(own // BLOCK))], len(chosen) * BLOCK + own)


def chats(rng: Random, num_replicas: int) -> Iterator[Prompt]:
    """16 chats under way for each replica, with turns of 50 to 600 tokens; one that has 4,000 ends."""
    under_way: list[list[int]] = [[] for _ in range(16 * num_replicas)]
    while True:
        number = rng.randrange(len(under_way))
        chain = under_way[number] + [rng.getrandbits(64) for _ in range(rng.randint(3, 38))]
        under_way[number] = [] if len(chain) > 250 else chain
        yield Prompt(chain, len(chain) * BLOCK + rng.randint(1, BLOCK - 1))


def forks(rng: Random, num_replicas: int) -> Iterator[Prompt]:
    """Eight requests at a time with an equal prompt of 500 to 3,000 tokens, and something of their own."""
    while True:
        shared = [rng.getrandbits(64) for _ in range(rng.randint(31, 190))]
        for _ in range(8):
            own = rng.randint(10, 100)
            yield Prompt([*shared, *(rng.getrandbits(64) for _ in range(own // BLOCK))], len(shared) * BLOCK + own)


WORKLOADS = {"prompts": prompts, "chats": chats, "forks": forks}


def one_cache(asked: list[Prompt]) -> float:
    """Hit rate of a cache that keeps everything."""
    seen: set[int] = set()
    num_hit = 0
    for prompt in asked:
        depth = next((i for i, block in enumerate(prompt.chain) if block not in seen), len(prompt.chain))
        num_hit += depth * BLOCK
        seen.update(prompt.chain)
    return num_hit / sum(prompt.num_tokens for prompt in asked)


@dataclass(slots=True)
class Outcome:
    hit_rate: float
    imbalance: float
    mean_seconds: float
    p99_seconds: float
    decision_us: float


def simulate(way: Way, asked: list[Prompt], num_replicas: int, rng: Random) -> Outcome:
    replicas = {f"r{number}": Replica(f"r{number}") for number in range(num_replicas)}
    ever = list(replicas.values())
    for name in replicas:
        way.join(name)
    events: list[tuple[float, int, str, Any]] = []
    number = 0

    def push(at: float, kind: str, what: Any) -> None:
        nonlocal number
        number += 1
        heapq.heappush(events, (at, number, kind, what))

    def begin(replica: Replica, now: float) -> None:
        prompt = replica.queue[0]
        missing = prompt.num_tokens - replica.take_up(prompt) * BLOCK
        replica.num_computed += missing
        push(now + missing / TOKENS_PER_SECOND, "done", (replica, prompt, missing))

    end = asked[-1].at
    for prompt in asked:
        push(prompt.at, "ask", prompt)
    for death in range(DEATHS):
        push(end * (death + 1) / (DEATHS + 1), "death", None)
    num_hit, seconds, deciding, num_decisions = 0, [], 0.0, 0
    while events:
        now, _, kind, what = heapq.heappop(events)
        if kind == "death":
            dead = replicas.pop(rng.choice(sorted(replicas)))
            dead.is_alive = False
            way.leave(dead.name)
            fresh = Replica(f"r{len(ever)}")
            ever.append(fresh)
            replicas[fresh.name] = fresh
            way.join(fresh.name)
            for prompt in dead.queue:  # goes on elsewhere
                push(now, "again", prompt)
        elif kind == "done":
            replica, prompt, missing = what
            if not replica.is_alive:
                continue
            replica.queue.pop(0)
            way.done(prompt, *replica.keep(prompt.chain))
            num_hit += prompt.num_tokens - missing
            seconds.append(now - prompt.at)
            if replica.queue:
                begin(replica, now)
        else:
            prompt = what
            before = time.perf_counter()
            prompt.replica = way.choose(prompt)
            deciding += time.perf_counter() - before
            num_decisions += 1
            replica = replicas[prompt.replica]
            replica.queue.append(prompt)
            if len(replica.queue) == 1:
                begin(replica, now)
    seconds.sort()
    work = [replica.num_computed for replica in ever if replica.is_alive]
    return Outcome(
        num_hit / sum(prompt.num_tokens for prompt in asked),
        max(work) / (sum(work) / len(work)),
        sum(seconds) / len(seconds),
        seconds[int(len(seconds) * 0.99)],
        deciding / num_decisions * 1e6,
    )


def asked_for(workload: str, num_replicas: int, num_requests: int, seed: int) -> list[Prompt]:
    rng = Random(seed)
    source = WORKLOADS[workload](rng, num_replicas)
    asked = [next(source) for _ in range(num_requests)]
    mean = sum(prompt.num_tokens for prompt in asked) / len(asked)
    rate = LOAD * num_replicas * TOKENS_PER_SECOND / mean
    now = 0.0
    for prompt in asked:
        now += rng.expovariate(rate)
        prompt.at = now
    return asked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--requests", type=int, default=60, help="for each replica")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bar", type=float, default=50.0, help="microseconds of phloem's decision, at most")
    options = parser.parse_args()
    slowest = 0.0
    for workload in WORKLOADS:
        for num_replicas in options.replicas:
            asked = asked_for(workload, num_replicas, options.requests * num_replicas, options.seed)
            print(f"{workload}, {num_replicas} replicas, {len(asked)} requests; one cache {one_cache(asked):.3f}")
            print(f"  {'':20} {'hits':>6} {'busiest':>8} {'mean s':>7} {'p99 s':>7} {'µs each':>8}")
            for name, make in WAYS.items():
                way = make(Random(options.seed))
                found = simulate(way, asked, num_replicas, Random(options.seed))
                print(
                    f"  {name:20} {found.hit_rate:6.3f} {found.imbalance:8.2f} {found.mean_seconds:7.3f} "
                    f"{found.p99_seconds:7.3f} {found.decision_us:8.1f}",
                    flush=True,
                )
                if name == "phloem":
                    slowest = max(slowest, found.decision_us)
    print(f"memory of a full index: {index_bytes(512) / 1e6:.0f} MB for 512 replicas with {CACHE_BLOCKS} blocks each")
    print(f"phloem's slowest mean decision: {slowest:.1f} µs (bar {options.bar:g})")
    if slowest > options.bar:
        sys.exit("a decision takes too long")


def index_bytes(num_replicas: int) -> int:
    """Of an index in which every replica's cache is full, half of it with what others have, too."""
    rng = Random(0)
    shared = [rng.getrandbits(64) for _ in range(CACHE_BLOCKS // 2)]
    tracemalloc.start()
    index = PrefixIndex()
    for number in range(num_replicas):
        index.store(f"r{number}", "GPU", shared)
        index.store(f"r{number}", "GPU", [rng.getrandbits(64) for _ in range(CACHE_BLOCKS // 2)])
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used


if __name__ == "__main__":
    main()
