"""Hit rates of the schedule against the best order there is, over pools, seats and the bound on overtaking.

    python bench/schedule.py [--scale 1]

The prompts of two shapes, shuffled: `examples` (template x examples x question) and `thoughts` (all nodes of trees of
thoughts). They go through the real scheduler and the real tree over a model that computes nothing.

The first table has all of them waiting at once, with the default settings; the optimum is the depth-first order served
one by one by an eviction that knows the future. The second has them come one by one, two for each that leaves until
`queue` wait and then one for one, with a single seat and several bounds on overtaking: 0 is the order of arrival, none
is unfair. There the optimum, which knows all from the start, is out of reach. The last column has the default bound on
a server so slow that everybody waits longer than `max_wait_seconds`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from random import Random

import torch

from phloem.radix import Visit, foresee, pack
from phloem.runtime.config import EngineConfig
from phloem.runtime.engine import Engine
from phloem.runtime.loading import LoadedModel, load
from phloem.runtime.models import Decoder
from phloem.runtime.request import SamplingParams

BLOCK_SIZE = 16
SEATS = (1, 3, 8, 64)
QUEUES = (64, 400, 1000)
BOUNDS = {"0": 0, "64": 64, "256": 256, "default": None, "none": 10**9}
NOTHING = SamplingParams(max_tokens=0)


class BlankDecoder:
    """The bundled model's shape, and no computation."""

    def __init__(self, decoder: Decoder) -> None:
        self.config = decoder.config

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


def with_pools(prompts: list[list[int]]) -> tuple[list[list[int]], list[int]]:
    """The prompts, shuffled, and pools that hold one of them up to a hundred."""
    Random(1).shuffle(prompts)
    return prompts, [share * -(-max(map(len, prompts)) // BLOCK_SIZE) for share in (1, 2, 5, 20, 100)]


def draw(random: Random, length: int) -> list[int]:
    return [random.randrange(1000) for _ in range(length)]


def optimum(prompts: Sequence[list[int]], num_blocks: int) -> float:
    visits = [Visit("", pack(prompt), len(prompt)) for prompt in sorted(prompts, key=pack)]
    return foresee(visits, num_blocks=num_blocks, block_size=BLOCK_SIZE)


def at_once(engine: Engine, prompts: Sequence[list[int]]) -> float:
    usages = [completion.usage for completion in engine.generate(prompts, NOTHING)]
    return sum(usage.cached_tokens for usage in usages) / sum(usage.prompt_tokens for usage in usages)


class Clock:
    """Seconds that pass when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def one_by_one(engine: Engine, prompts: Sequence[list[int]], queue: int, clock: Clock, seconds: float) -> float:
    """The hit rate if a step takes so many seconds."""
    coming = iter(prompts)
    num_left = len(prompts)
    while num_left:
        for _ in range(min(2, queue - engine.statistics().num_waiting)):
            prompt = next(coming, None)
            if prompt is not None:
                engine.add(prompt, NOTHING)
        clock.now += seconds
        num_left -= sum(delta.finish_reason is not None for delta in engine.step())
    return engine.statistics().hit_rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="size of the workloads")
    options = parser.parse_args()
    nano = load(EngineConfig(device="cpu"))
    blank = LoadedModel(BlankDecoder(nano.decoder), nano.tokenizer, nano.device, nano.dtype, nano.kv_dtype)  # type: ignore[arg-type]

    clock = Clock()

    def engine(**settings: int | None) -> Engine:
        config = EngineConfig(device="cpu", max_waiting_requests=10**6, **settings)  # type: ignore[arg-type]
        return Engine.from_loaded(config, blank, clock)

    workloads, larger = (
        {name: with_pools(list(make(Random(0), scale))) for name, make in SHAPES.items()}
        for scale in (options.scale, 3 * options.scale)
    )
    print(f"all at once, scale {options.scale}: points of hit rate off the optimum")
    print(
        "| workload | requests | pool, blocks | optimum, % | "
        + " | ".join(f"{n} seat{'s' * (n > 1)}" for n in SEATS)
        + " |"
    )
    print("|:--|--:|--:|--:|" + "--:|" * len(SEATS))
    for name, (prompts, pools) in workloads.items():
        for num_blocks in pools:
            best = optimum(prompts, num_blocks)
            rates = [at_once(engine(num_blocks=num_blocks, max_running_requests=seats), prompts) for seats in SEATS]
            cells = " | ".join(f"{100 * (best - rate):.2f}" for rate in rates)
            print(f"| {name} | {len(prompts):,} | {num_blocks:,} | {100 * best:.1f} | {cells} |", flush=True)
    print("\none by one: hit rate in %, by the bound on overtaking")
    print("| workload | requests | queue | pool, blocks | optimum, % | " + " | ".join(BOUNDS) + " | all too long |")
    print("|:--|--:|--:|--:|--:|" + "--:|" * (len(BOUNDS) + 1))
    for name, (prompts, pools) in larger.items():
        for queue in QUEUES:
            for num_blocks in pools[2:4]:
                best = optimum(prompts, num_blocks)
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


if __name__ == "__main__":
    main()
