"""Engines with tiers below a pool of twelve blocks, and what they are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from phloem.runtime.engine.engine import Engine
from phloem.runtime.request import SamplingParams

from ..fakes import fake_engine, greedy_truth

GREEDY = SamplingParams(max_tokens=5, temperature=0.0)
BLOCK_SIZE = 4
ROOTS = [[*range(9)], [*range(5), *range(50, 64)], [*range(100, 117)]]
LONG = list(range(1, 42))  # ten whole blocks


def tiered_engine(checkpoint: Path, disk: Path | None = None, host_blocks: int = 0, **options: Any) -> Engine:
    options = {"num_blocks": 12, "block_size": BLOCK_SIZE, **options}
    if disk is not None:
        options["disk_cache"] = str(disk)
    if host_blocks:
        options["host_memory_bytes"] = host_blocks * BLOCK_SIZE * 16  # keys and values of one float64 each
    return fake_engine(folder=checkpoint, **options)


def settle(engine: Engine) -> None:
    assert engine.prefix_cache.tiers is not None and engine.prefix_cache.tiers.settle()


def say(engine: Engine, prompt: list[int], namespace: str = "") -> tuple[list[int], int, int]:
    """The answer, which is checked; tokens cached, and loaded."""
    done = engine.generate(prompt, GREEDY, namespace=namespace)
    assert list(done.token_ids) == greedy_truth(prompt, 5)
    return list(done.token_ids), done.usage.cached_tokens, done.usage.loaded_tokens


def crowd_out(engine: Engine) -> None:
    """Others take all of the pool."""
    for start in range(3):
        engine.generate([200 - 7 * start - i % 30 for i in range(40)], GREEDY, namespace="others")
