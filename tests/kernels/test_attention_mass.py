"""How much attention keys receive: every path against float64, and on the CPU to the bit however rows are cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from phloem.kernels import plan_mass
from phloem.kernels.attention_mass import AttentionMass
from phloem.kernels.ops import attention, latent_attention
from phloem.kernels.plain import ops as reference

from . import lazy_triton as triton
from .paged_batch import attention_case, make_batch
from .rounding import assert_within, gamma

Run = tuple[int, int, int]  # request, first and end among its rows

# q_lens, context_lens, (H, Hkv, D), block_size, keys that all share, attention options, plan options, runs
CASES: dict[str, tuple[Any, ...]] = {
    "decode": ([1, 1], [50, 17], (6, 2, 32), 16, 0, {}, {}, [(0, 0, 1), (1, 0, 1)]),
    "one of two": ([1, 1], [50, 17], (6, 2, 32), 16, 0, {}, {}, [(1, 0, 1)]),
    "cut into splits": ([1], [600], (4, 2, 32), 16, 0, {}, {}, [(0, 0, 1)]),
    "walks its splits": ([1], [600], (4, 2, 32), 16, 0, {}, {"num_processors": 1}, [(0, 0, 1)]),
    "end of a prompt and a draft": ([21, 4], [80, 70], (4, 1, 32), 16, 0, {}, {}, [(0, 9, 21), (1, 0, 1), (1, 2, 3)]),
    "shared prefix": ([1, 1, 2], [270, 300, 257], (4, 2, 32), 16, 256, {}, {}, [(0, 0, 1), (2, 0, 2)]),
    "token blocks, a cap and sinks": ([3], [70], (4, 2, 32), 1, 0, {"soft_cap": 3.0, "sinks": True}, {}, [(0, 1, 3)]),
    "window": ([2], [90], (2, 1, 32), 16, 0, {"window": 33}, {}, [(0, 0, 2)]),
}


def _runs(batch: Any, runs: list[Run]) -> list[Run]:
    """As `plan_mass` takes them."""
    found = []
    for request, first, end in runs:
        start, stop = (int(batch.query_starts[request + at]) for at in range(2))
        found.append((start + first, start + end, int(batch.context_lens[request]) - (stop - start) + end))
    return found


def _mass(batch: Any, runs: list[Run]) -> AttentionMass:
    num_kv_heads = batch.k_cache.shape[1]
    return plan_mass(_runs(batch, runs), num_layers=1, num_kv_heads=num_kv_heads, device=batch.q.device)


def _exact(batch: Any, run: Run, scale: float, window: int = 0, soft_cap: float = 0.0, sinks: Any = None) -> Tensor:
    """In float64, one row after another: `[num_kv_heads, num_keys]`."""
    request, first, end = run
    ((begin, _, num_keys),) = _runs(batch, [run])
    table = torch.from_numpy(batch.block_tables[request])
    keys = reference.gather_kv(batch.k_cache.cpu(), table, num_keys).double()
    num_heads, num_kv_heads = batch.q.shape[1], keys.shape[1]
    total = torch.zeros(num_kv_heads, num_keys, dtype=torch.float64)
    for row in range(end - first):
        seen = num_keys - (end - first) + row + 1
        for head in range(num_heads):
            own = head * num_kv_heads // num_heads
            scores = keys[:seen, own] @ batch.q[begin + row, head].cpu().double() * scale
            if soft_cap:
                scores = soft_cap * torch.tanh(scores / soft_cap)
            if window:
                scores[: max(0, seen - window)] = float("-inf")
            sink = [] if sinks is None else [sinks[head].cpu().double().view(1)]
            total[own, :seen] += torch.softmax(torch.cat([scores, *sink]), 0)[:seen]
    return total


def _bound(batch: Any, exact: Tensor, scale: float, soft_cap: float = 0.0, **_: Any) -> Tensor:
    """An error of a score is a relative one of its weight, above and below the fraction."""
    q, keys = batch.q.cpu().double(), batch.k_cache.cpu().double().nan_to_num()
    scores = gamma(q.shape[-1] + 16) * scale * q.norm(dim=-1).max() * keys.norm(dim=-1).max() + gamma(16) * soft_cap
    share = torch.expm1(2 * (scores + gamma(2 * exact.shape[-1] + 99)))
    return share * exact + torch.finfo(torch.float32).smallest_normal * 999


def _check(batch: Any, mass: AttentionMass, runs: list[Run], options: dict[str, Any]) -> None:
    for index, run in enumerate(runs):
        exact = _exact(batch, run, **options)
        assert_within(mass.of_run(index)[0], exact, _bound(batch, exact, **options))


@pytest.mark.parametrize("name", CASES)
def test_triton_agrees_with_float64(name: str, device: torch.device) -> None:
    *case, plan_options, runs = CASES[name]
    batch, options = attention_case(*case, device=device)
    work, caches, mass = batch.cuda_work(**plan_options), (batch.k_cache, batch.v_cache), _mass(batch, runs)
    out = triton.attention.cuda_attention(work, batch.q, *caches, mass=mass.layer(0), **options)
    _check(batch, mass, runs, options)
    assert torch.equal(out, triton.attention.cuda_attention(work, batch.q, *caches, **options))


@pytest.mark.parametrize("name", CASES)
def test_the_cpu_and_the_twin_agree_with_float64(name: str) -> None:
    *case, _, runs = CASES[name]
    batch, options = attention_case(*case)
    plan = batch.plan()
    for op in (attention, reference.attention):
        mass = _mass(batch, runs)
        out = op(batch.q, batch.k_cache, batch.v_cache, plan, mass=mass.layer(0), **options)
        _check(batch, mass, runs, options)
        assert torch.equal(out, op(batch.q, batch.k_cache, batch.v_cache, plan, **options))


def test_latents_on_all_paths(device: torch.device) -> None:
    batch, runs = make_batch([1, 5], [300, 40], (4, 1, 48), device=device), [(0, 0, 1), (1, 2, 5)]
    cache = batch.k_cache[:, 0].contiguous()
    mass = _mass(batch, runs)
    triton.latent.latent_attention(batch.cuda_work(), batch.q, cache, scale=0.2, rank=32, mass=mass.layer(0))
    _check(batch, mass, runs, {"scale": 0.2})
    on_cpu = replace(batch, q=batch.q.cpu(), k_cache=batch.k_cache.cpu())
    for op in (latent_attention, reference.latent_attention):
        mass = _mass(on_cpu, runs)
        op(on_cpu.q, cache.cpu(), batch.plan(), scale=0.2, rank=32, mass=mass.layer(0))
        _check(on_cpu, mass, runs, {"scale": 0.2})


def test_bits_on_the_cpu_depend_neither_on_the_batch_nor_on_how_rows_are_cut() -> None:
    batch = make_batch([9, 1, 70], [300, 273, 170], (6, 2, 32), shared=128)
    runs = [(0, 2, 9), (1, 0, 1), (2, 5, 70)]
    together = _mass(batch, runs)
    attention(batch.q, batch.k_cache, batch.v_cache, batch.plan(), scale=0.2, mass=together.layer(0))
    for index, (request, first, end) in enumerate(runs):
        before = torch.zeros(2, 0)
        for begin in range(first, end, 4):
            take = min(4, end - begin)
            part = batch.only(request, skip=begin, take=take)
            mass = _mass(part, [(0, 0, take)])
            mass.of_run(0)[0, :, : before.shape[-1]] = before
            attention(part.q, part.k_cache, part.v_cache, part.plan(), scale=0.2, mass=mass.layer(0))
            before = mass.of_run(0)[0]
        assert torch.equal(before, together.of_run(index)[0])
