"""The Triton attention and merge kernels against float64: in the interpreter, or on a GPU if there is one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from .. import lazy_triton as triton
from ..paged_batch import attention_case, make_batch
from ..rounding import assert_within

# q_lens, context_lens, (H, Hkv, D), block_size, keys that all share, attention options, plan options
CASES: dict[str, tuple[Any, ...]] = {
    "nano decode": ([1, 1], [50, 17], (6, 2, 32), 16, 0, {}, {}),
    "one token": ([1], [1], (2, 1, 64), 16, 0, {}, {}),
    "decode cut into splits": ([1], [600], (4, 2, 64), 16, 0, {}, {}),
    "decode walks its splits": ([1], [600], (4, 2, 64), 16, 0, {}, {"num_processors": 1}),
    "prefill": ([40], [40], (3, 1, 64), 16, 0, {}, {}),
    "chunk over a cached prefix": ([21], [280], (4, 1, 64), 64, 0, {}, {"num_processors": 1}),
    "draft with decode": ([1, 5], [100, 70], (8, 2, 64), 16, 0, {}, {}),
    "token blocks": ([1, 3], [40, 70], (2, 2, 32), 1, 0, {}, {}),
    "padded head": ([2], [70], (2, 1, 96), 16, 0, {}, {}),
    "wide head": ([1], [70], (2, 1, 128), 64, 0, {}, {}),
    "head of 256": ([1], [40], (2, 1, 256), 16, 0, {}, {}),
    "mqa beyond a tile": ([1], [30], (71, 1, 32), 16, 0, {}, {}),
    "shared prefix": ([1, 1, 1, 2], [270, 300, 257, 530], (4, 2, 32), 16, 256, {}, {}),
    "shared by many rows": ([1] * 9, [260] * 9, (16, 2, 32), 16, 256, {}, {}),
    "window": ([1, 20], [300, 90], (2, 1, 32), 16, 0, {"window": 33}, {}),
    "window over a shared prefix": ([1, 1], [600, 560], (2, 1, 32), 16, 512, {"window": 100}, {}),
    "window in a walk": ([1], [600], (2, 1, 32), 16, 0, {"window": 300}, {"num_processors": 1}),
    "chunks": ([1, 20], [300, 90], (2, 1, 32), 16, 0, {"window": 72, "in_chunks": True}, {}),
    "chunks in a walk": ([1], [600], (2, 1, 32), 16, 0, {"window": 300, "in_chunks": True}, {"num_processors": 1}),
    "chunks, cut": ([3], [601], (2, 1, 32), 16, 0, {"window": 300, "in_chunks": True}, {}),
    "soft cap": ([1, 7], [60, 20], (2, 1, 32), 16, 0, {"soft_cap": 3.0}, {}),
    "sinks, direct": ([1, 7], [60, 20], (4, 2, 32), 16, 0, {"sinks": True}, {}),
    "sinks, merged": ([1], [600], (4, 2, 32), 16, 0, {"sinks": True}, {}),
    "one tile class": ([1, 30], [270, 40], (4, 2, 32), 16, 0, {}, {"deterministic": True}),
}


def _run(batch: Any, plan_options: dict[str, Any], **options: Any) -> Tensor:
    return triton.attention.cuda_attention(
        batch.cuda_work(**plan_options), batch.q, batch.k_cache, batch.v_cache, **options
    )


@pytest.mark.parametrize("name", CASES)
def test_fp32_agrees_with_float64(name: str, device: torch.device) -> None:
    *case, plan_options = CASES[name]
    batch, options = attention_case(*case, device=device)
    out = _run(batch, plan_options, **options)
    assert_within(out, batch.exact(**options), batch.bound(**options))


@pytest.mark.parametrize("name", [name for name in CASES if "window" in name])
def test_keys_that_no_window_shows_are_not_wanted(name: str, device: torch.device) -> None:
    *case, plan_options = CASES[name]
    batch, options = attention_case(*case, device=device)
    out = _run(batch.behind(options["window"]), plan_options, **options)
    assert_within(out, batch.exact(**options), batch.bound(**options))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nano decode", "fp16"),
        ("decode cut into splits", "bf16"),
        ("prefill", "fp16"),
        ("prefill", "bf16"),
        ("shared prefix", "bf16"),
        ("sinks, merged", "fp16"),
    ],
)
def test_half_types_agree_to_their_rounding(name: str, kind: str, device: torch.device, bfloat16: torch.dtype) -> None:
    dtype = torch.float16 if kind == "fp16" else bfloat16
    *case, plan_options = CASES[name]
    batch, options = attention_case(*case, dtype=dtype, device=device)
    out = _run(batch, plan_options, **options)
    assert out.dtype == dtype
    assert_within(out, batch.exact(**options), batch.bound(**options))


def test_cutting_and_walking_give_the_same_numbers(device: torch.device) -> None:
    batch = make_batch([1, 1], [600, 40], (2, 1, 32), device=device)
    cut = _run(batch, {"num_processors": 10_000}, scale=0.2)
    walked = _run(batch, {"num_processors": 1}, scale=0.2)
    assert_within(cut, walked, 2 * batch.bound(0.2))


def test_q_may_be_a_view_of_the_fused_projection(device: torch.device) -> None:
    batch = make_batch([5, 1], [50, 20], (6, 2, 32), device=device)
    fused = torch.randn(6, (6 + 2 + 2) * 32, device=device)
    q = fused[:, : 6 * 32].view(6, 6, 32)
    from dataclasses import replace

    viewed, plain = replace(batch, q=q), replace(batch, q=q.contiguous())
    assert torch.equal(_run(viewed, {}, scale=0.2), _run(plain, {}, scale=0.2))
