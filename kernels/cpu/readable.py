"""What the compiled loops of the CPU can read: types and layouts; `ops` takes plain torch for all else."""

from __future__ import annotations

import torch
from torch import Tensor

from ..kv_format import is_quantised, stored_dim


def is_plain(*tensors: Tensor) -> bool:
    """What the compiled CPU loops read: fp32, rows of whole vectors, dense last axis."""
    for tensor in tensors:  # asked hundreds of times a step, where a generator costs twice as much
        if tensor.dtype is not torch.float32 or tensor.shape[-1] % 8:
            return False
        if not tensor.is_contiguous() and tensor.stride(-1) != 1:
            return False
    return True


def has_bytes(k_cache: Tensor, v_cache: Tensor, k_scales: Tensor, v_scales: Tensor) -> bool:
    """Whether these are int8, fp8 or int4 caches as the compiled CPU loops read them, with dense scales."""
    caches = (k_cache, v_cache)
    return (
        all(is_quantised(c.dtype) and c.stride(-1) == 1 and c.shape[-1] % stored_dim(8, c.dtype) == 0 for c in caches)
        and k_scales.is_contiguous()
        and v_scales.is_contiguous()
    )
