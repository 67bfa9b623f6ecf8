"""Heads normed, turned and written in one call: the CPU's steps and the one Triton kernel against the twin."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from phloem.kernels import FP8, is_quantised, ops
from phloem.kernels.plain import ops as reference

from . import lazy_triton as triton
from .rounding import whole_numbers
from .test_elementwise import close


class Shape(NamedTuple):
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary: int  # numbers of a head that turn; 0: none do
    has_norms: bool


SHAPES = {
    "llama": Shape(8, 2, 64, 64, False),
    "qwen3": Shape(16, 8, 128, 128, True),
    "partial": Shape(4, 2, 96, 32, False),
    "normed, partial": Shape(3, 1, 96, 72, True),
    "more heads than a program has": Shape(17, 9, 32, 32, True),
    "no turn": Shape(6, 2, 40, 0, True),
    "as they are": Shape(2, 2, 64, 0, False),
}
STORED = {"kept": None, "int8": torch.int8, "fp8": FP8}


class Step:
    """Five tokens of one projection, one of them without a slot, and caches full of what may not be touched."""

    def __init__(self, shape: Shape, dtype: torch.dtype, stored: torch.dtype | None, device: torch.device) -> None:
        heads, kv_heads, head_dim, rotary, has_norms = shape
        torch.manual_seed(heads + head_dim)
        self.shape, self.device = shape, device
        self.fused = whole_numbers(5, (heads + 2 * kv_heads) * head_dim).to(dtype).to(device)
        self.positions = torch.tensor([0, 5, 499, 5, 77], device=device)
        self.slots = torch.tensor([5, 47, 40, -1, 0], device=device)
        angles = torch.rand(500, rotary // 2) * 6.3
        self.cos_sin = torch.cat([angles.cos(), angles.sin()], -1).to(device) if rotary else None
        self.norms = tuple(torch.randn(2, head_dim).to(device)) if has_norms else None
        self.dtype, self.stored = dtype, stored

    def run(self, place_heads: Any) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """(queries, caches as they are stored, scales)."""
        heads, kv_heads, head_dim, _, _ = self.shape
        self.heads = self.fused.clone().view(5, -1, head_dim)
        q, k, v = self.heads.split([heads, kv_heads, kv_heads], 1)
        shape, kind = (3, kv_heads, 16, head_dim), self.stored or self.dtype
        caches = [torch.full(shape, 77, dtype=torch.int8, device=self.device).to(kind) for _ in range(2)]
        scales: list[Any] = [None, None]
        if is_quantised(kind):
            scales = [torch.full(shape[:3], torch.nan, device=self.device) for _ in range(2)]
        out = place_heads(q, k, v, self.positions, self.cos_sin, self.norms, 1e-6, *caches, self.slots, *scales)
        return out, caches, [each for each in scales if each is not None]


def implementation(path: str) -> Any:
    return triton.heads.place_heads if path == "triton" else ops.place_heads


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_heads_are_those_of_the_twin(
    shape: Shape, dtype: torch.dtype, path: str, place: torch.device, bfloat16: torch.dtype
) -> None:
    step = Step(shape, dtype, None, place)
    (found, caches, _), (expected, written, _) = step.run(implementation(path)), step.run(reference.place_heads)
    close(found, expected)
    for cache, other in zip(caches, written, strict=True):
        close(cache, other)
        assert int((cache == 77).all(-1).sum()) == (48 - 4) * shape.num_kv_heads


@pytest.mark.parametrize("stored", [torch.int8, FP8], ids=str)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_one_byte_stands_for_the_same_heads(shape: Shape, stored: torch.dtype, path: str, place: torch.device) -> None:
    step = Step(shape, torch.float32, stored, place)
    found, caches, scales = step.run(implementation(path))
    expected, written, others = step.run(reference.place_heads)
    close(found, expected)
    for cache, other, scale, expected_scale in zip(caches, written, scales, others, strict=True):
        assert torch.equal(scale.isnan(), expected_scale.isnan())
        assert int((~scale.isnan()).sum()) == 4 * shape.num_kv_heads
        close(scale[..., None], expected_scale[..., None])
        steps = (cache.float() - other.float()).abs()  # a number on the edge may be rounded to the other side
        assert (steps > 0).float().mean() < 1e-3
        assert (steps <= (1 if stored == torch.int8 else 32)).all()


def test_a_kernel_leaves_what_a_projection_wrote_as_it_is(device: torch.device) -> None:
    """Numbers are read together with their partners while others of the head are under way."""
    step = Step(SHAPES["qwen3"], torch.float32, None, device)
    step.run(implementation("triton"))
    assert torch.equal(step.heads.flatten(1), step.fused)


def test_no_tokens_are_no_work(device: torch.device) -> None:
    step = Step(SHAPES["llama"], torch.float32, None, device)
    step.fused, step.positions, step.slots = step.fused[:0], step.positions[:0], step.slots[:0]
    out = implementation("triton")(
        *step.fused.view(0, 12, 64).split([8, 2, 2], 1),
        step.positions,
        step.cos_sin,
        None,
        1e-6,
        torch.zeros(3, 2, 16, 64),
        torch.zeros(3, 2, 16, 64),
        step.slots,
    )
    assert out.shape == (0, 8, 64)
