"""int8, fp8 and int4 KV: every path stores the same bytes, and attention over them is right against float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from phloem.kernels import FP8, INT4, KV_FORMATS, bytes_per_head, scale_type, stored_dim
from phloem.kernels.kv_format import by_dtype
from phloem.kernels.ops import attention
from phloem.kernels.plain import ops as reference
from phloem.kernels.plain.rounding import quantise_heads, widen_heads

from . import lazy_triton as triton
from .paged_batch import make_batch
from .rounding import assert_within
from .test_elementwise import write_on

STORED = [form.dtype for form in KV_FORMATS.values()]
NAN_WORD = 0x7FC07FC0  # a scale and a middle that are none
SHAPES = {
    "decode": ([1, 1], [50, 17], (6, 2, 32), 16),
    "mixed": ([1, 20, 3], [200, 133, 65], (4, 2, 64), 16),
    "token blocks": ([1, 3], [40, 70], (2, 2, 32), 1),
    "padded head": ([2], [70], (2, 1, 96), 16),
}
TRITON_SHAPES = {name: SHAPES[name] for name in ("decode", "token blocks", "padded head")}


@pytest.fixture(params=STORED, ids=["int8", "fp8", "int4"])
def stored(request: pytest.FixtureRequest) -> torch.dtype:
    dtype: torch.dtype = request.param
    return dtype


def rounded(cache: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """(stored, scales, what they stand for) of a float cache; NaN slots become arbitrary bytes and NaN scales."""
    blocks, heads, block_size, head_dim = cache.shape
    flat = cache.nan_to_num(7.0).transpose(1, 2).reshape(-1, heads, head_dim)
    levels, scale = quantise_heads(flat, dtype)
    levels = levels.view(torch.int8).view(blocks, block_size, heads, -1).transpose(1, 2).contiguous().view(dtype)
    scales = scale.view(blocks, block_size, heads).transpose(1, 2).contiguous()
    scales.view(torch.int32)[cache.isnan().any(-1)] = NAN_WORD
    return levels, scales, widen_heads(levels, scales)


@pytest.mark.parametrize(("num_kv_heads", "head_dim", "block_size"), [(2, 32, 16), (3, 40, 1), (1, 96, 4)])
def test_every_path_stores_the_same_bytes_and_no_others(
    num_kv_heads: int, head_dim: int, block_size: int, path: str, stored: torch.dtype, place: torch.device
) -> None:
    fused = torch.randn(24, 2 * num_kv_heads * head_dim) * torch.logspace(-6, 6, 24)[:, None]
    fused[3] = 0.0
    fused[5, :head_dim] = torch.linspace(-448, 448, head_dim)
    fused[6, :head_dim] = torch.cat([torch.tensor([448.0]), torch.arange(head_dim - 1) * 2.0**-10])  # subnormals
    fused[7] = -fused[6]
    k, v = (x.unflatten(-1, (num_kv_heads, head_dim)) for x in fused.to(place).chunk(2, -1))
    slots = torch.randperm(48)[:24].to(place)
    slots[1] = -1
    shape = (48 // block_size, num_kv_heads, block_size, stored_dim(head_dim, stored))
    caches = [torch.full(shape, 77, dtype=torch.int8, device=place).view(stored) for _ in range(4)]
    scales = [torch.full(shape[:3], NAN_WORD, dtype=torch.int32, device=place) for _ in range(4)]
    scales = [words.view(scale_type(stored)) for words in scales]
    write_on(path, k, v, *caches[:2], slots, *scales[:2])
    reference.write_kv(k, v, *caches[2:], slots, *scales[2:])
    for i in (0, 1):
        assert torch.equal(caches[i].view(torch.int8), caches[i + 2].view(torch.int8))
        assert torch.equal(scales[i].view(torch.int32), scales[i + 2].view(torch.int32))
    assert int((scales[0].view(torch.int32) != NAN_WORD).sum()) == 23 * num_kv_heads


def test_a_stored_number_is_off_by_half_a_step_at_most(stored: torch.dtype) -> None:
    x = torch.randn(500, 3, 64) * torch.logspace(-8, 8, 500)[:, None, None]
    levels, scale = quantise_heads(x, stored)
    error = (widen_heads(levels, scale) - x).abs()
    if stored == INT4:  # scale and middle are rounded by a 256th, and the ends of the range with them
        most = x.abs().amax(-1, keepdim=True)
        assert (error <= 0.501 * (x.amax(-1) - x.amin(-1))[..., None] / 15 * (1 + 2**-8) + most * 2**-7).all()
        return
    step = scale[..., None].expand_as(x)
    if stored == FP8:  # eight steps to a power of two, and no finer than 2^-9
        step = step * torch.maximum(torch.exp2(torch.floor(torch.log2((x / step).abs())) - 3), torch.tensor(2.0**-9))
    assert (error <= 0.501 * step).all()


@pytest.mark.parametrize("options", [{}, {"window": 37, "soft_cap": 3.0}], ids=["plain", "window and cap"])
@pytest.mark.parametrize("shape", SHAPES)
def test_cpu_attention_agrees_with_float64(shape: str, options: dict[str, Any], stored: torch.dtype) -> None:
    batch = make_batch(*SHAPES[shape])
    k, k_scales, exact_k = rounded(batch.k_cache, stored)
    v, v_scales, exact_v = rounded(batch.v_cache, stored)
    given = {"scale": 0.2, **options}
    out = attention(batch.q, k, v, batch.plan(), k_scales=k_scales, v_scales=v_scales, **given)
    widened = replace(batch, k_cache=exact_k, v_cache=exact_v)
    twin = reference.attention(batch.q, k, v, batch.plan(), k_scales=k_scales, v_scales=v_scales, **given)
    for found in (out, twin):
        assert_within(found, widened.exact(**given), widened.bound(**given))
    # and what rounding the cache changes is bounded by the steps of its keys and values
    far = (out.double() - batch.exact(**given)).abs().max()
    assert far <= {torch.int8: 0.05, FP8: 0.25, INT4: 0.6}[stored]


def test_bits_do_not_depend_on_the_batch(stored: torch.dtype) -> None:
    batch = make_batch([1, 9, 1, 40], [300, 273, 170, 200], (6, 2, 32), shared=128)
    k, k_scales, _ = rounded(batch.k_cache, stored)
    v, v_scales, _ = rounded(batch.v_cache, stored)
    given: dict[str, Any] = {"scale": 0.2, "k_scales": k_scales, "v_scales": v_scales}
    out = attention(batch.q, k, v, batch.plan(), **given)
    assert torch.equal(attention(batch.q, k, v, batch.plan(share_prefixes=False), **given), out)
    for b in range(4):
        alone = batch.only(b)
        rows = slice(batch.query_starts[b], batch.query_starts[b + 1])
        assert torch.equal(attention(alone.q, k, v, alone.plan(), **given), out[rows])


@pytest.mark.parametrize("size", [1.0, 3e-4])
def test_small_values_keep_their_digits_in_fp16(
    size: float, stored: torch.dtype, device: torch.device, bfloat16: torch.dtype
) -> None:
    """Their scales are among the smallest numbers that fp16 has. Weights are rounded to bf16, the result to fp16."""
    batch = make_batch(*TRITON_SHAPES["decode"], device=device)
    batch = replace(batch, v_cache=batch.v_cache * size)
    k, k_scales, exact_k = rounded(batch.k_cache, stored)
    v, v_scales, exact_v = rounded(batch.v_cache, stored)
    q = batch.q.half()
    out = triton.attention.cuda_attention(batch.cuda_work(), q, k, v, scale=0.2, k_scales=k_scales, v_scales=v_scales)
    exact = replace(batch, q=q, k_cache=exact_k, v_cache=exact_v).exact(0.2)
    bound = (2**-9 + 2**-11 + 2**-12) * exact_v[~exact_v.isnan()].abs().max().item()
    assert_within(out, exact, bound)


@pytest.mark.parametrize("kind", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", TRITON_SHAPES)
def test_triton_attention_agrees_with_float64(
    shape: str, kind: str, stored: torch.dtype, device: torch.device, bfloat16: torch.dtype
) -> None:
    batch = make_batch(*TRITON_SHAPES[shape], device=device)
    k, k_scales, exact_k = rounded(batch.k_cache, stored)
    v, v_scales, exact_v = rounded(batch.v_cache, stored)
    dtype = bfloat16 if kind == "bf16" else torch.float32
    q = batch.q.to(dtype)
    out = triton.attention.cuda_attention(batch.cuda_work(), q, k, v, scale=0.2, k_scales=k_scales, v_scales=v_scales)
    widened = replace(batch, q=q, k_cache=exact_k, v_cache=exact_v)
    assert_within(out, widened.exact(0.2), widened.bound(0.2))


def test_a_token_takes_a_byte_or_half_a_number_and_a_scale(stored: torch.dtype) -> None:
    levels, scale = quantise_heads(torch.randn(1, 1, 64), stored)
    assert bytes_per_head(64, stored) == levels.nbytes + scale.nbytes == (36 if stored == INT4 else 68)
    assert bytes_per_head(64, torch.float32) == np.float32().nbytes * 64


def test_a_format_has_a_dtype_of_its_own() -> None:
    with pytest.raises(ValueError, match=r"int8.*int6"):
        by_dtype({**KV_FORMATS, "int6": replace(KV_FORMATS["int8"], limit=31.0)})
