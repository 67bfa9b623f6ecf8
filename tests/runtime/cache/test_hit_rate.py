"""The order of a waiting batch: its hit rate against the best that any order, pool or number of seats could reach."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.radix import Visit, foresee, pack
from phloem.runtime.request import SamplingParams

from ..fakes import BlankDecoder, fake_engine

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
    """The optimum's share of cached tokens for prompts in depth-first order, or in that in which they came."""
    order = sorted(prompts, key=pack) if ordered else prompts
    hits = foresee([Visit("", pack(p), len(p)) for p in order], num_blocks=num_blocks, block_size=BLOCK_SIZE)
    return sum(hits) / sum(map(len, prompts))


def optimum(prompts: list[list[int]]) -> float:
    """The greatest share of their tokens that can be found: each token of their trie is computed once at least, and the
    last of a prompt that comes again once more."""
    trie = {tuple(prompt[: end + 1]) for prompt in prompts for end in range(len(prompt))}
    num_again = len(prompts) - len(set(map(tuple, prompts)))
    return 1 - (len(trie) + num_again) / sum(map(len, prompts))


def served(prompts: list[list[int]], params: SamplingParams = NOTHING, **settings: object) -> float:
    """The share of prompt tokens that an engine finds cached when all wait together."""
    engine = fake_engine(decoder=BlankDecoder(), block_size=BLOCK_SIZE, check_invariants=False, **settings)
    usages = [completion.usage for completion in engine.generate(prompts, params)]
    return sum(usage.cached_tokens for usage in usages) / sum(usage.prompt_tokens for usage in usages)


@pytest.mark.parametrize("workload", [few_shot_product, tree_of_thought])
@pytest.mark.parametrize(("queue", "num_blocks"), [(30, 13), (30, 28), (30, 120), (180, 13), (180, 16), (180, 60)])
def test_a_waiting_batch_hits_within_a_point_of_the_optimum(workload, queue: int, num_blocks: int) -> None:  # type: ignore[no-untyped-def]
    """In pools that hold one request or many, with one seat or many; all other settings are the default ones."""
    prompts = workload()[:queue]
    best = optimum(prompts)
    for seats in (1, 2, 3, 8):
        rate = served(prompts, num_blocks=num_blocks, max_running_requests=seats)
        assert best - 0.01 <= rate <= best + 1e-9, f"{seats} seats"


@st.composite
def families(draw: st.DrawFn) -> list[list[int]]:
    """A dozen prompts that grow out of one another in whole blocks, each with a last token of its own."""
    prompts: list[list[int]] = []
    for number in range(draw(st.integers(2, 12))):
        root = draw(st.sampled_from([[], *(prompt[:-1] for prompt in prompts)]))
        root = root[: BLOCK_SIZE * draw(st.integers(0, 6))]
        own = [100 + number] * (BLOCK_SIZE * draw(st.integers(0, 3)))
        prompts.append([*root, *own, 200 + number])
    return draw(st.permutations(prompts))


@given(families(), st.integers(0, 8), st.integers(1, 8), st.sampled_from([0, 1, 6]))
@settings(deadline=None)
def test_in_no_pool_and_with_no_number_of_seats_a_block_is_computed_twice(
    prompts: list[list[int]], num_more: int, seats: int, num_answered: int
) -> None:
    """Not even in one that holds the longest request and nothing else."""
    num_blocks = -(-(max(map(len, prompts)) + num_answered) // BLOCK_SIZE) + num_more
    params = SamplingParams(max_tokens=num_answered, ignore_eos=True, temperature=0.0)
    rate = served(prompts, params, num_blocks=num_blocks, max_running_requests=seats)
    assert rate == pytest.approx(optimum(prompts))


def test_samples_of_a_prompt_shorter_than_a_block_wait_for_one_of_them_to_compute_it() -> None:
    engine = fake_engine(decoder=BlankDecoder(), block_size=16)
    engine.generate([1, 2, 3, 4, 5], SamplingParams(max_tokens=1, n=6))
    assert engine.statistics().num_computed_tokens == 5 + 5  # the last token of each is computed for its logits


def test_a_batch_longer_than_the_queue_still_gains_from_the_order() -> None:
    """It comes in as the queue has room. What comes later overtakes; those that came first and are due are then served
    together in their order, not one by one."""
    prompts = few_shot_product()
    arrival = share(prompts, 40, ordered=False)
    assert served(prompts, num_blocks=40, max_waiting_requests=90, max_overtakes=45) > arrival + 0.2


def test_requests_that_come_one_by_one_hit_as_if_overtaking_had_no_bound_in_a_queue_of_any_length() -> None:
    """The queue is longer than 256. Where no more than 256 may overtake, nearly all are due and go as they came."""
    source = random.Random(3)
    families = [[source.randrange(250) for _ in range(24)] for _ in range(120)]
    prompts = [[*source.choice(families), *(source.randrange(250) for _ in range(4))] for _ in range(1000)]
    rates = {}
    for bound in (None, 10**9, 64):
        engine = fake_engine(
            decoder=BlankDecoder(),
            block_size=BLOCK_SIZE,
            num_blocks=40,
            max_running_requests=1,
            max_overtakes=bound,
            check_invariants=False,
        )
        coming = iter(prompts)
        num_left = len(prompts)
        while num_left:
            for _ in range(min(2, 450 - engine.statistics().num_waiting)):
                if prompt := next(coming, None):
                    engine.add(prompt, NOTHING)
            num_left -= len(engine.step())
        rates[bound] = engine.statistics().hit_rate
    assert rates[None] > rates[10**9] - 0.01
    assert rates[None] > rates[64] + 0.2


def test_the_order_of_arrival_could_not_reach_it() -> None:
    """The counter-proof: in a small pool no policy, not even one that knows the future, does as well without
    reordering.
    """
    for workload in (few_shot_product, tree_of_thought):
        prompts = workload()
        assert share(prompts, 40, ordered=False) < share(prompts, 40, ordered=True) - 0.1
