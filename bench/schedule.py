"""Hit rates of the schedule against the best that any schedule could reach, over pools, seats and lengths of the queue.

    python bench/schedule.py [--scale 1] [--answer 8]

The prompts of two shapes, shuffled: `examples` (template x examples x question) and `thoughts` (all nodes of trees of
thoughts). They go through the real scheduler and the real tree over a model that computes nothing.

The first table has `queue` of them waiting at once, with the default settings, in pools from one that holds the longest
of them and nothing else up to one that holds a hundred; the second the same with answers that grow as prompts do.
The optimum is counted in tokens, and no schedule beats it in any pool or with any number of seats: each token of the
trie of all prompts is computed once at least, and so is the last of a prompt that comes again. The script fails if any
schedule is more than a point off.

In the third they come one by one, two for each that leaves until `queue` wait and then one for one, with a single seat
and several bounds on overtaking: 0 is the order of arrival, none is unfair. There the optimum, which knows all from the
start, is out of reach. The last column has the default bound on a server so slow that every request waits longer than
`max_wait_seconds`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from random import Random

import torch

from phloem.radix import common_prefix, pack
from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.engine import Engine
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.models import Decoder
from phloem.runtime.request import SamplingParams

BLOCK_SIZE = 16
SEATS = (1, 2, 3, 8, 64)
SIZES = (1, 1.1, 1.25, 1.5, 2, 3, 5, 20, 100)  # of pools, in longest prompts
QUEUES = (64, 400, 1000)
BOUNDS = {"0": 0, "64": 64, "256": 256, "default": None, "none": 10**9}
NOTHING = SamplingParams(max_tokens=0)


class BlankDecoder:
    """The bundled model's shape, and no computation."""

    def __init__(self, decoder: Decoder) -> None:
        self.config = decoder.config
        self.dtype = decoder.dtype

    def forward(self, token_ids: torch.Tensor, *_: object) -> torch.Tensor:
        return torch.zeros(len(token_ids), self.config.vocab_size)


def examples(random: Random, scale: float) -> Iterator[list[int]]:
    templates = [draw(random, 256) for _ in range(16)]
    shots = {(i, j): draw(random, 512) for i in range(16) for j in range(16)}
    for (i, _), shot in shots.items():
        for _ in range(max(1, int(4 * scale))):
            yield templates[i] + shot + draw(random, 64)


def thoughts(random: Random, scale: float) -> Iterator[list[int]]:
    level = [draw(random, 300) for _ in range(max(1, int(6 * scale)))]
    for width in (1, 5, 5, 5):
        level = [thought + draw(random, random.randrange(40, 80)) for thought in level for _ in range(width)]
        yield from level


SHAPES = {"examples": examples, "thoughts": thoughts}


def shuffled(prompts: Iterator[list[int]]) -> list[list[int]]:
    found = list(prompts)
    Random(1).shuffle(found)
    return found


def draw(random: Random, length: int) -> list[int]:
    return [random.randrange(1000) for _ in range(length)]


def pools(prompts: Sequence[list[int]], answer: int = 0) -> list[int]:
    """Blocks that hold the longest of the prompts, with its answer, up to a hundred times."""
    longest = -(-(max(map(len, prompts)) + answer) // BLOCK_SIZE)
    return [int(size * longest) for size in SIZES]


def optimum(prompts: Sequence[list[int]]) -> float:
    """The greatest share of their tokens that can be found in a cache."""
    packed = sorted(map(pack, prompts))
    pairs = zip(packed, [b"", *packed], strict=False)
    found = sum(min(common_prefix(prompt, before), len(prompt) - 4) for prompt, before in pairs)
    return found / sum(map(len, packed))


def at_once(engine: Engine, prompts: Sequence[list[int]], answer: int) -> float:
    params = SamplingParams(max_tokens=answer, ignore_eos=True, temperature=0.0)
    usages = [completion.usage for completion in engine.generate(prompts, params)]
    return sum(usage.cached_tokens for usage in usages) / sum(usage.prompt_tokens for usage in usages)


class Clock:
    """A clock that moves only when `now` is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def one_by_one(engine: Engine, prompts: Sequence[list[int]], queue: int, clock: Clock, seconds: float) -> float:
    """The hit rate if a step takes `seconds`."""
    coming = iter(prompts)
    num_left = len(prompts)
    while num_left:
        for _ in range(min(2, queue - engine.statistics().num_waiting)):
            prompt = next(coming, None)
            if prompt is not None:
                engine.core.add(prompt, NOTHING)
        clock.now += seconds
        num_left -= sum(delta.finish_reason is not None for delta in engine.core.step())
    return engine.statistics().hit_rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="size of the workloads")
    parser.add_argument("--answer", type=int, default=8, help="tokens of each answer in the second table")
    options = parser.parse_args()
    nano = load(EngineConfig(device="cpu"))
    blank = LoadedModel(BlankDecoder(nano.decoder), nano.tokenizer, nano.device, nano.dtype, nano.kv_dtype)  # type: ignore[arg-type]

    clock = Clock()

    def engine(**settings: int | None) -> Engine:
        config = EngineConfig(device="cpu", max_waiting_requests=10**6, **settings)  # type: ignore[arg-type]
        return Engine.from_loaded(config, blank, clock)

    workloads, larger = (
        {name: shuffled(make(Random(0), scale)) for name, make in SHAPES.items()}
        for scale in (options.scale, 3 * options.scale)
    )
    worst = 0.0
    for answer, queues in ((0, QUEUES), (options.answer, QUEUES[:1])):
        print(f"\nall at once, answers of {answer} tokens: points of hit rate off the optimum")
        print(header(["workload", "queue", "pool, blocks", "optimum, %"], [f"{seats} seats" for seats in SEATS]))
        for name, prompts in workloads.items():
            for queue in queues:
                waiting = prompts[:queue]
                best = optimum(waiting)
                for num_blocks in pools(waiting, answer):
                    rates = [
                        at_once(engine(num_blocks=num_blocks, max_running_requests=seats), waiting, answer)
                        for seats in SEATS
                    ]
                    worst = max(worst, best - min(rates))
                    cells = " | ".join(f"{100 * (best - rate):.2f}" for rate in rates)
                    print(f"| {name} | {len(waiting):,} | {num_blocks:,} | {100 * best:.1f} | {cells} |", flush=True)
    print(f"\nat most {100 * worst:.2f} points off")
    print("\none by one: hit rate in %, by the bound on overtaking")
    print(header(["workload", "requests", "queue", "pool, blocks", "optimum, %"], [*BOUNDS, "all too long"]))
    for name, prompts in larger.items():
        best = optimum(prompts)
        for queue in QUEUES:
            for num_blocks in pools(prompts)[-3:-1]:
                rates = [
                    one_by_one(
                        engine(num_blocks=num_blocks, max_running_requests=1, max_overtakes=bound),
                        prompts,
                        queue,
                        clock,
                        seconds,
                    )
                    for bound, seconds in [*((bound, 0.0) for bound in BOUNDS.values()), (None, 60 / queue)]
                ]
                cells = " | ".join(f"{100 * rate:.1f}" for rate in rates)
                print(
                    f"| {name} | {len(prompts):,} | {queue} | {num_blocks:,} | {100 * best:.1f} | {cells} |", flush=True
                )
    if worst > 0.01:
        raise SystemExit("more than a point off the optimum")


def header(names: Sequence[str], columns: Sequence[str]) -> str:
    return f"| {' | '.join([*names, *columns])} |\n|:--|" + "--:|" * (len(names) + len(columns) - 1)


if __name__ == "__main__":
    main()
