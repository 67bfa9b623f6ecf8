"""A model that reads only the keys that it kept, and what it says when a policy lets go of the others."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

import numpy as np
import torch

from phloem.kernels import AttentionPlan
from phloem.kernels.plain import ops as reference
from phloem.runtime.engine.engine import Engine
from phloem.runtime.execute.kv_cache import KVCache
from phloem.runtime.kv_policies import DEFAULT_KV_POLICY, NUM_SINKS, POOL_WIDTH, WINDOW
from phloem.runtime.request import Completion, SamplingParams

from ..fakes import FakeDecoder, FakeModelConfig, fake_engine, logits_after

Token = tuple[int, int]  # id, position
SCALE, MIDDLE, FINE = 1 / 512, 128, 8192


class KeepingDecoder(FakeDecoder):
    """Answers from the ids and positions whose KV it finds.

    Its keys are ids and a little of their positions, so that no two are equal; a query is an id from the middle of all.
    """

    def __init__(self) -> None:
        super().__init__(FakeModelConfig(attention_scale=SCALE))
        self.num_watched = 0

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        kv_cache: KVCache,
        plan: AttentionPlan,
        slots: torch.Tensor,
        logits_rows: torch.Tensor | None,
        watch: Callable[[int, torch.Tensor], None] | None = None,
    ) -> torch.Tensor:
        if watch is None:
            logits = super().forward(token_ids + positions / FINE, positions, kv_cache, plan, slots, logits_rows)
            if plan.mass is not None:
                q, mass = token_ids.view(-1, 1, 1).float() - MIDDLE, plan.mass.layer(0)
                reference.attention(q, kv_cache.keys[0], kv_cache.values[0], plan, scale=SCALE, mass=mass)
            return logits
        assert (slots < 0).all()
        found = self._read(kv_cache, plan, 0, int(plan.context_lens[0]))[-2 * len(token_ids) :]
        assert found == [number for pair in zip(token_ids.tolist(), positions.tolist(), strict=True) for number in pair]
        self.num_watched += 1
        watch(0, token_ids.view(-1, 1, 1).float() - MIDDLE)
        return torch.empty(0, 257)

    def _read(self, kv_cache: KVCache, plan: AttentionPlan, request: int, end: int) -> list[int]:
        at = np.arange(end)
        blocks = plan.block_tables[request][at // kv_cache.block_size].astype(np.int64)
        slots = torch.from_numpy(blocks * kv_cache.block_size + at % kv_cache.block_size)
        stored = torch.stack([kv_cache.keys[0].view(-1)[slots], kv_cache.values[0].view(-1)[slots]], 1)
        return [int(number) for number in stored.flatten()]


def kept_by_snapkv(held: list[Token], budget: int) -> list[Token]:
    num_others = len(held) - WINDOW
    keys = np.array([token + position / FINE for token, position in held])
    queries = np.array([token - MIDDLE for token, _ in held])
    scores = np.zeros(len(held))
    for row in range(num_others, len(held)):
        weights = np.exp(keys[: row + 1] * queries[row] * SCALE)
        scores[: row + 1] += weights / weights.sum()
    reach = POOL_WIDTH // 2
    around = [scores[max(0, at - reach) : min(num_others, at + reach + 1)].max() for at in range(num_others)]
    order = sorted(range(num_others), key=lambda at: (-around[at], at))
    return [held[at] for at in sorted(order[: budget - WINDOW])] + held[num_others:]


def kept_by_sinks(held: list[Token], budget: int) -> list[Token]:
    return held[:NUM_SINKS] + held[len(held) - budget + NUM_SINKS :]


def kept_by_h2o(held: list[Token], received: list[float], budget: int) -> tuple[list[Token], list[float]]:
    order = sorted(range(len(held) - budget // 2), key=lambda at: (-received[at], at))
    kept = [*sorted(order[: budget - budget // 2]), *range(len(held) - budget // 2, len(held))]
    return [held[at] for at in kept], [received[at] for at in kept]


def attention_of_last(held: list[Token]) -> np.ndarray:
    keys, query = np.array([token + position / FINE for token, position in held]), held[-1][0] - MIDDLE
    weights: np.ndarray = np.exp(keys * query * SCALE)
    return weights / weights.sum()


Received = list[float]
KEPT: dict[str, Callable[[list[Token], Received, int], tuple[list[Token], Received]]] = {
    "snapkv": lambda held, received, budget: (kept_by_snapkv(held, budget), received[:budget]),
    "sinks": lambda held, received, budget: (kept_by_sinks(held, budget), received[:budget]),
    "h2o": kept_by_h2o,
}


@cache
def truth(prompt: tuple[int, ...], num_tokens: int, kv_budget: int | None, kv_policy: str) -> tuple[int, ...]:
    """The likeliest tokens, one by one."""
    token_ids, held, received = list(prompt), list[Token](), list[float]()
    full = None if kv_budget is None else kv_budget + max(64, kv_budget // 4)
    for position in range(len(prompt) + num_tokens - 1):
        if full is not None and kv_budget is not None and position >= len(prompt) and len(held) >= full:
            held, received = KEPT[kv_policy](held, received, kv_budget)
        held.append((token_ids[position], position))
        received.append(0.0)
        if kv_policy == "h2o" and position >= len(prompt) - WINDOW:
            received = [one + more for one, more in zip(received, attention_of_last(held), strict=True)]
        if position + 1 >= len(prompt):
            seen = [number for pair in held for number in pair]
            token_ids.append(int(np.argmax(logits_after(seen).astype(np.float32))))
    return tuple(token_ids[len(prompt) :])


def params_of(kv_budget: int | None, kv_policy: str, num_tokens: int = 150, **more: object) -> SamplingParams:
    kv_policy = kv_policy if kv_budget is not None else DEFAULT_KV_POLICY
    return SamplingParams(
        max_tokens=num_tokens, temperature=0.0, ignore_eos=True, kv_budget=kv_budget, kv_policy=kv_policy, **more
    )  # type: ignore[arg-type]


def keeping_engine(**options: object) -> Engine:
    return fake_engine(decoder=KeepingDecoder(), **options)


def prompt_of(length: int, seed: int = 0) -> tuple[int, ...]:
    """Prompts of one seed begin alike, and those of another begin with half as much of the same."""
    source = random.Random(length // 2 if seed else 0)
    trunk = random.Random(7)
    return tuple(
        trunk.randrange(256) if seed == 0 or at < length // 2 else source.randrange(256) for at in range(length)
    )


def some_prompt(length: int, seed: int = 1) -> list[int]:
    """For the bundled model, and those with as many tokens."""
    source = random.Random(seed)
    return [source.randrange(20, 1200) for _ in range(length)]


def scored(completion: Completion) -> list[tuple[int, float]]:
    return [(chosen.token_id, chosen.logprob) for chosen in completion.logprobs]
