"""Hit rates of the eviction policies against a clairvoyant one.

    python bench/studies/eviction.py [--scale 1] [--queue 64] [--policies lru,lfu,priority,cost]

Each workload is played in its order of arrival through the real tree, at three capacities. "queue" is the policy
`cost` that also knows the next `--queue` requests, as a scheduler knows its waiting ones, and spares what they need.
"clairvoyant" is Belady's policy, which knows all of the future: of the leaves it evicts the one whose next use is
farthest, the deepest first among equals. No order of eviction can do better by more than rounding; hits beyond
"unlimited" are out of reach for all.

Workloads: `chats` (many conversations that grow in turn, in random order), `examples` (template x examples x
question, shuffled), `thoughts` (trees of thoughts, level by level), `users` (many users who come back after long),
`documents` (hot system prompts, documents by Zipf's law, and a third of prompts that never return), `archive` (reports
of 500 to 60,000 tokens, some of them hot, and again prompts that never return).

A second table counts what a hit is worth: the share of the floating-point operations that was spared. Attention makes a
block dearer the deeper it is, the more so the smaller the model: one with the shape of Llama 3 8B, and the bundled
one. `cost, equal` is the policy that takes all blocks to be alike, `cost` the one that the engine runs.
"""

from __future__ import annotations

import argparse
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from random import Random

from phloem.radix import POLICIES, Visit, common_prefix, equal_cost, foresee, replay
from phloem.runtime.models import ModelConfig, resolve_model
from phloem.runtime.schedule.recompute_cost import recompute_cost

BLOCK_SIZE = 16


def tokens(random: Random, length: int) -> bytes:
    return random.randbytes(4 * length).translate(_POSITIVE)


_POSITIVE = bytes(byte & 0x7F for byte in range(256))  # token ids are not negative


def chats(random: Random, scale: float) -> Iterator[bytes]:
    sessions = [[b"", 20] for _ in range(int(100 * scale))]
    while sessions:
        session = random.choice(sessions)
        session[0] += tokens(random, random.randrange(30, 150)) + tokens(random, random.randrange(50, 300))  # type: ignore[operator]
        session[1] -= 1  # type: ignore[operator]
        if not session[1]:
            sessions.remove(session)
        yield session[0]  # type: ignore[misc]


def examples(random: Random, scale: float) -> Iterator[bytes]:
    templates = [tokens(random, 256) for _ in range(32)]
    shots = {(i, j): tokens(random, 512) for i in range(32) for j in range(32)}
    asked = [(i, j) for i in range(32) for j in range(32) for _ in range(int(5 * scale) or 1)]
    random.shuffle(asked)
    for i, j in asked:
        yield templates[i] + shots[i, j] + tokens(random, 64)


def thoughts(random: Random, scale: float) -> Iterator[bytes]:
    level = [tokens(random, 300) for _ in range(int(32 * scale))]
    for width in (1, 5, 5, 5):
        level = [thought for thought in level for _ in range(width)]
        random.shuffle(level)
        level = [thought + tokens(random, random.randrange(40, 80)) for thought in level]
        yield from level


def users(random: Random, scale: float) -> Iterator[bytes]:
    histories = [tokens(random, random.randrange(100, 250)) for _ in range(int(2000 * scale))]
    for _ in range(int(4000 * scale)):
        yield random.choice(histories) + tokens(random, random.randrange(50, 150))


def documents(random: Random, scale: float) -> Iterator[bytes]:
    systems = [tokens(random, 800) for _ in range(40)]
    papers = [tokens(random, 3000) for _ in range(300)]
    rank = [1 / (i + 1) for i in range(300)]
    for _ in range(int(3000 * scale)):
        kind = random.random()
        if kind < 0.3:
            yield tokens(random, 2000)
        elif kind < 0.65:
            yield random.choices(systems, rank[:40])[0] + tokens(random, 100)
        else:
            yield systems[0] + random.choices(papers, rank)[0] + tokens(random, 60)


def archive(random: Random, scale: float) -> Iterator[bytes]:
    reports = [tokens(random, int(500 * 120 ** random.random())) for _ in range(200)]
    rank = [1 / (i + 1) for i in range(200)]
    for _ in range(int(1500 * scale)):
        if random.random() < 0.4:
            yield tokens(random, int(500 * 120 ** random.random()))
        else:
            yield random.choices(reports, rank)[0] + tokens(random, 60)


WORKLOADS: dict[str, tuple[Callable[[Random, float], Iterator[bytes]], tuple[int, ...]]] = {
    "chats": (chats, (75_000, 37_000, 18_000)),
    "examples": (examples, (300_000, 75_000, 20_000)),
    "thoughts": (thoughts, (60_000, 30_000, 6_000)),
    "users": (users, (300_000, 100_000, 30_000)),
    "documents": (documents, (400_000, 100_000, 30_000)),
    "archive": (archive, (2_000_000, 500_000, 150_000)),
}
WORTH = ("chats", "documents", "archive")  # those of the second table


def shapes() -> dict[str, ModelConfig]:
    """The models of the second table."""
    nano = ModelConfig.from_folder(resolve_model("nano"))
    llama = replace(
        nano,
        hidden_size=4096,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        intermediate_size=14336,
        layers=32 * nano.layers[:1],
    )
    return {"8B": llama, "bundled": nano}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="size of the workloads")
    parser.add_argument("--queue", type=int, default=64, help="requests ahead that the column `queue` knows")
    parser.add_argument("--policies", default=",".join(POLICIES), help="columns")
    options = parser.parse_args()
    policies = options.policies.split(",")
    traffic = {
        name: [Visit("", tokens, len(tokens) // 4) for tokens in make(Random(0), options.scale)]
        for name, (make, _) in WORKLOADS.items()
    }
    print_hit_rates(traffic, policies, options)
    print()
    print_worth(traffic)


class Queue:
    """The next visits, as a scheduler knows them: `spare` says what they need."""

    def __init__(self, visits: list[Visit], length: int) -> None:
        self._visits, self._length = visits, length
        self._ahead: list[bytes] = []  # sorted: the nearest in order share most

    def __iter__(self) -> Iterator[Visit]:
        self._ahead = sorted(visit.tokens for visit in self._visits[: self._length])
        for index, visit in enumerate(self._visits):
            del self._ahead[bisect_left(self._ahead, visit.tokens)]
            if index + self._length < len(self._visits):
                insort(self._ahead, self._visits[index + self._length].tokens)
            yield visit

    def spare(self, namespace: str, path: bytes) -> int:
        at = bisect_left(self._ahead, path)
        around = self._ahead[max(0, at - 1) : at + 1]
        return max((common_prefix(path, tokens) >> 2 for tokens in around), default=0)


def share(hits: list[int], visits: list[Visit]) -> float:
    return sum(hits) / (sum(visit.num_asked_tokens for visit in visits) or 1)


def print_hit_rates(traffic: Mapping[str, list[Visit]], policies: list[str], options: argparse.Namespace) -> None:
    print(f"hit rate in %, block size {BLOCK_SIZE}, scale {options.scale}, queue {options.queue}")
    print("| workload | capacity, tokens | " + " | ".join(policies) + " | queue | clairvoyant | unlimited |")
    print("|:--|--:|" + "--:|" * (len(policies) + 3))
    for name, visits in traffic.items():
        unlimited = replay(visits, num_blocks=1 << 40, block_size=BLOCK_SIZE)
        for capacity in WORKLOADS[name][1]:
            pool = {"num_blocks": capacity // BLOCK_SIZE, "block_size": BLOCK_SIZE}
            queue = Queue(visits, options.queue)
            hits = [replay(visits, **pool, policy=policy) for policy in policies]
            hits += [replay(queue, **pool, policy="cost", spare=queue.spare), foresee(visits, **pool), unlimited]
            cells = [f"{100 * share(each, visits):.1f}" for each in hits]
            print(f"| {name} | {capacity:,} | " + " | ".join(cells) + " |", flush=True)


def print_worth(traffic: Mapping[str, list[Visit]]) -> None:
    print("floating-point operations of prompts that were spared, in % (hit rate in brackets)")
    print("| workload | model | capacity, tokens | lru | cost, equal | cost |")
    print("|:--|:--|--:|--:|--:|--:|")
    for name in WORTH:
        visits = traffic[name]
        for model, shape in shapes().items():
            cost = recompute_cost(shape, BLOCK_SIZE)
            longest = max(visit.num_asked_tokens for visit in visits) // BLOCK_SIZE
            worth = [0.0, *accumulate(cost(BLOCK_SIZE * (index + 1)) for index in range(longest))]
            asked = sum(worth[visit.num_asked_tokens // BLOCK_SIZE] for visit in visits)
            for capacity in WORKLOADS[name][1]:
                pool = {"num_blocks": capacity // BLOCK_SIZE, "block_size": BLOCK_SIZE}
                cells = []
                for policy, block_cost in (("lru", equal_cost), ("cost", equal_cost), ("cost", cost)):
                    hits = replay(visits, **pool, policy=policy, block_cost=block_cost)
                    spared = sum(worth[hit // BLOCK_SIZE] for hit in hits) / asked
                    cells.append(f"{100 * spared:.1f} ({100 * share(hits, visits):.1f})")
                print(f"| {name} | {model} | {capacity:,} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
