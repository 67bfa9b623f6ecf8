"""Attention over latents (MLA): every path against float64, and against plain attention with unabsorbed heads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from phloem.kernels import WorkBuffers, plan_attention
from phloem.kernels.ops import latent_attention, write_latents
from phloem.kernels.plain import ops as reference

from . import lazy_triton as triton
from .paged_batch import make_batch
from .rounding import assert_within, gamma

# q_lens, context_lens, heads, rank, rotary, block_size, keys that all share, plan options
CASES: dict[str, tuple[Any, ...]] = {
    "decode": ([1, 1], [50, 17], 6, 32, 16, 16, 0, {}),
    "one token, one head": ([1], [1], 1, 16, 16, 16, 0, {}),
    "cut into splits": ([1], [600], 4, 32, 16, 16, 0, {}),
    "walks its splits": ([1], [600], 4, 32, 16, 64, 0, {"num_processors": 1}),
    "prefill": ([40], [40], 5, 32, 16, 16, 0, {}),
    "wide tiles walk without folding": ([70], [330], 2, 32, 16, 16, 0, {"num_processors": 1}),
    "more heads than a tile": ([1, 2], [20, 40], 129, 16, 16, 16, 0, {}),
    "token blocks": ([1, 3], [40, 70], 4, 32, 16, 1, 0, {}),
    "shared prefix": ([1, 1, 2], [270, 300, 257], 4, 32, 16, 16, 256, {}),
    "full size": ([1], [40], 16, 512, 64, 16, 0, {}),
    "one tile class": ([1, 30], [270, 40], 4, 32, 16, 16, 0, {"deterministic": True}),
}


def _case(name: str, dtype: torch.dtype, device: torch.device) -> tuple[Any, int, dict[str, Any]]:
    q_lens, context_lens, heads, rank, rotary, block_size, shared, options = CASES[name]
    shape = (heads, 1, rank + rotary)
    batch = make_batch(q_lens, context_lens, shape, block_size, shared=shared, dtype=dtype, device=device)
    return batch, rank, options


def _exact(batch: Any, scale: float, rank: int) -> Tensor:
    """In float64: one KV head whose values are its keys."""
    stored = batch.k_cache.cpu()
    plan = batch.plan()
    return reference.attention_in(torch.float64, batch.q.cpu(), stored, stored, plan, scale=scale)[..., :rank]


def _bound(batch: Any, scale: float, rank: int) -> Tensor:
    stored = batch.k_cache
    bound: Tensor = replace(batch, v_cache=stored).bound(scale)
    return bound[..., :rank]


def _latents(batch: Any) -> Tensor:
    cache: Tensor = batch.k_cache[:, 0].contiguous()
    return cache


@pytest.mark.parametrize("name", CASES)
def test_triton_agrees_with_float64(name: str, device: torch.device) -> None:
    batch, rank, options = _case(name, torch.float32, device)
    work = batch.cuda_work(**options)
    out = triton.latent.latent_attention(work, batch.q, _latents(batch), scale=0.2, rank=rank)
    assert_within(out, _exact(batch, 0.2, rank), _bound(batch, 0.2, rank))


@pytest.mark.parametrize("kind", ["fp16", "bf16"])
@pytest.mark.parametrize("name", ["decode", "cut into splits", "prefill"])
def test_half_types_agree_to_their_rounding(name: str, kind: str, device: torch.device, bfloat16: torch.dtype) -> None:
    dtype = torch.float16 if kind == "fp16" else bfloat16
    batch, rank, options = _case(name, dtype, device)
    out = triton.latent.latent_attention(batch.cuda_work(**options), batch.q, _latents(batch), scale=0.15, rank=rank)
    assert_within(out, _exact(batch, 0.15, rank), _bound(batch, 0.15, rank))


@pytest.mark.parametrize("name", CASES)
def test_the_cpu_and_the_twin_agree_with_float64(name: str) -> None:
    batch, rank, options = _case(name, torch.float32, torch.device("cpu"))
    plan = batch.plan(deterministic=options.get("deterministic", False))
    exact, bound = _exact(batch, 0.2, rank), _bound(batch, 0.2, rank)
    for op in (latent_attention, reference.latent_attention):
        out = op(batch.q, _latents(batch), plan, scale=0.2, rank=rank)
        assert_within(out, exact, bound)


def test_bits_on_the_cpu_do_not_depend_on_the_batch() -> None:
    batch = make_batch([1, 9, 1], [300, 273, 170], (6, 1, 48), shared=128)
    cache = _latents(batch)
    out = latent_attention(batch.q, cache, batch.plan(), scale=0.2, rank=32)
    for b in range(3):
        alone = batch.only(b)
        rows = slice(batch.query_starts[b], batch.query_starts[b + 1])
        assert torch.equal(latent_attention(alone.q, cache, alone.plan(), scale=0.2, rank=32), out[rows])


def test_launches_of_one_step_compute_the_next(device: torch.device) -> None:
    before, batch = (make_batch([1, 1], lens, (4, 1, 48), device=device) for lens in ([90, 600], [280, 800]))
    buffers = WorkBuffers(device, num_processors=2)
    work = before.cuda_work(buffers=buffers, num_tokens=4)
    assert batch.cuda_work(buffers=buffers, num_tokens=4).signature == work.signature
    out = triton.latent.latent_attention(work, batch.q, _latents(batch), scale=0.2, rank=32)
    assert_within(out, _exact(batch, 0.2, 32), _bound(batch, 0.2, 32))


def test_absorbed_projections_give_what_heads_of_their_own_give() -> None:
    """Keys and values of every head, computed from the latents, through plain attention: the definition of MLA."""
    num_heads, rank, rotary, nope, value_dim, num_tokens = 3, 16, 8, 12, 10, 30
    latents, rotary_keys = torch.randn(num_tokens, rank).double(), torch.randn(num_tokens, rotary).double()
    w_k, w_v = torch.randn(num_heads, nope, rank).double(), torch.randn(num_heads, value_dim, rank).double()
    q_nope, q_rotary = (torch.randn(num_tokens, num_heads, n).double() for n in (nope, rotary))
    keys = torch.cat(
        [torch.einsum("hnr,tr->thn", w_k, latents), rotary_keys[:, None].expand(-1, num_heads, -1)], dim=-1
    )
    values = torch.einsum("hvr,tr->thv", w_v, latents)
    scores = torch.einsum("thd,nhd->htn", torch.cat([q_nope, q_rotary], -1), keys) * 0.3
    scores = scores.masked_fill(torch.ones(num_tokens, num_tokens).triu(1).bool(), -torch.inf)
    weights = scores.softmax(-1)
    expected = torch.einsum("htn,nhv->thv", weights, values)

    q = torch.cat([torch.einsum("thn,hnr->thr", q_nope, w_k), q_rotary], -1).float()
    cache = torch.full((4, 16, rank + rotary), torch.nan)
    slots = torch.arange(num_tokens) + 16
    write_latents(torch.cat([latents, rotary_keys], -1).float(), cache, slots)
    plan = plan_attention(
        np.array([0, num_tokens], np.int32),
        np.array([num_tokens], np.int32),
        np.array([[1, 2]], np.int32),
        num_heads=num_heads,
        num_kv_heads=1,
        head_dim=rank + rotary,
        block_size=16,
    )
    found = latent_attention(q, cache, plan, scale=0.3, rank=rank).double()
    # of the latents, whose queries and stored vectors were rounded to fp32 before; then through the values' map
    most = 0.3 * q.double().norm(dim=-1).max() * cache.double().nan_to_num().norm(dim=-1).max()
    size = torch.einsum("htn,nr->thr", weights, latents.abs())
    off = torch.expm1(2 * (gamma(rank + rotary + 16) * most + gamma(2 * num_tokens + 64))) * size
    bound = torch.einsum("hvr,thr->thv", w_v.abs(), off)
    assert_within(torch.einsum("hvr,thr->thv", w_v, found), expected, bound)


def test_latents_are_written_where_they_belong_and_nowhere_else(path: str, place: torch.device) -> None:
    latents = torch.randn(7, 60, device=place)[:, :48]
    slots = torch.tensor([3, 40, -1, 17, 0, 63, 31], device=place)
    caches = [torch.full((4, 16, 48), torch.nan, device=place) for _ in range(2)]
    write = triton.latent.write_latents if path == "triton" else write_latents
    write(latents, caches[0], slots)
    reference.write_latents(latents, caches[1], slots)
    assert torch.equal(caches[0].nan_to_num(7.0), caches[1].nan_to_num(7.0))
    assert int((~caches[0].isnan()).sum()) == 6 * 48
