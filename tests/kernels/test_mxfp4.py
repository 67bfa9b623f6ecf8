"""MXFP4: what four bits and a scale mean, number by number."""

from __future__ import annotations

import math

import pytest
import torch

from phloem.kernels.mxfp4 import widen

SPELT = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_number_under_every_scale_is_exact(dtype: torch.dtype) -> None:
    low, high = torch.arange(16, dtype=torch.uint8), torch.arange(16, dtype=torch.uint8).flip(0)
    blocks = (low | high << 4).expand(255, 1, 1, 16)
    scales = torch.arange(255, dtype=torch.uint8).view(255, 1, 1)
    found = widen(blocks, scales, dtype)
    assert found.shape == (255, 1, 32)
    numbers = [*SPELT, *(-x for x in SPELT)]
    for scale in range(255):
        expected = [math.ldexp(numbers[n], scale - 127) for i in range(16) for n in (i, 15 - i)]
        limit = torch.finfo(dtype).max
        expected = [x if abs(x) <= limit else math.copysign(math.inf, x) for x in expected]
        assert found[scale, 0].tolist() == expected


def test_a_scale_that_is_no_number_makes_none() -> None:
    blocks, scales = torch.full((1, 2, 16), 0x22, dtype=torch.uint8), torch.tensor([[255, 127]], dtype=torch.uint8)
    found = widen(blocks, scales, torch.float32)
    assert found[0, :32].isnan().all()
    assert (found[0, 32:] == 1).all()
