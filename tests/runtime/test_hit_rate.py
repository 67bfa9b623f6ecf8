"""The order of a waiting batch: its hit rate against that of the depth-first order, which is the best there is."""

from __future__ import annotations

import random

import pytest

from phloem.radix import Visit, foresee, pack
from phloem.runtime.request import SamplingParams

from .fakes import fake_engine

BLOCK_SIZE = 4
NOTHING = SamplingParams(max_tokens=0)


def few_shot_product() -> list[list[int]]:
    """Templates x examples x questions, in random order."""
    source = random.Random(1)

    def draw(count: int) -> list[int]:
        return [source.randrange(250) for _ in range(count)]

    templates = [draw(16) for _ in range(6)]
    shots = {(i, j): draw(24) for i in range(6) for j in range(5)}
    prompts = [templates[i] + shots[i, j] + draw(8) for i in range(6) for j in range(5) for _ in range(6)]
    source.shuffle(prompts)
    return prompts


def tree_of_thought() -> list[list[int]]:
    """Problems, each thought branching into three, three levels deep: all leaves, in random order."""
    source = random.Random(2)
    level = [[source.randrange(250) for _ in range(20)] for _ in range(7)]
    for _ in range(3):
        level = [[*thought, *(source.randrange(250) for _ in range(8))] for thought in level for _ in range(3)]
    source.shuffle(level)
    return level


def share(prompts: list[list[int]], num_blocks: int, *, ordered: bool) -> float:
    """The optimum's share of cached blocks for prompts in depth-first order, or in that in which they came."""
    order = sorted(prompts, key=pack) if ordered else prompts
    return foresee([Visit("", pack(p), len(p)) for p in order], num_blocks=num_blocks, block_size=BLOCK_SIZE)


@pytest.mark.parametrize("workload", [few_shot_product, tree_of_thought])
@pytest.mark.parametrize("queue", [30, 150])
@pytest.mark.parametrize("num_blocks", [40, 60, 120, 400])
@pytest.mark.parametrize(("seats", "points"), [(1, 1), (3, 3)])
def test_a_waiting_batch_hits_close_to_the_optimum(  # type: ignore[no-untyped-def]
    workload, queue: int, num_blocks: int, seats: int, points: int
) -> None:
    """Served one by one it is within a point. With more seats those behind a prefix that is being computed are passed
    by others, whose prefixes may have to go before their own turn comes: within three."""
    prompts = workload()[:queue]
    engine = fake_engine(
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        max_running_requests=seats,
        max_overtakes=10**6,
        check_invariants=False,
    )
    usages = [completion.usage for completion in engine.generate(prompts, NOTHING)]
    rate = sum(usage.cached_tokens for usage in usages) / sum(usage.prompt_tokens for usage in usages)
    assert rate >= share(prompts, num_blocks, ordered=True) - points / 100


def test_the_order_of_arrival_could_not_reach_it() -> None:
    """The counter-proof: in a small pool nobody, not even who knows the future, does as well without reordering."""
    for workload in (few_shot_product, tree_of_thought):
        prompts = workload()
        assert share(prompts, 40, ordered=False) < share(prompts, 40, ordered=True) - 0.1
