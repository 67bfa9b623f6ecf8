"""Gated activations on the device (`gate.py`), one program per row and 1024 columns."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..gate import Gate

BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def gate_rows(
    gate_up_ptr: tl.tensor,
    out_ptr: tl.tensor,
    stride: tl.tensor,
    width: tl.tensor,
    alpha: tl.tensor,
    limit: tl.tensor,
    GELU: tl.constexpr,
    CLAMPED: tl.constexpr,
    SQUARED: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    mask = c < width
    x = tl.load(gate_up_ptr + row * stride + c, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + row * stride + width + c, mask=mask, other=0.0).to(tl.float32)
    if GELU:  # x/2 (1 + tanh(y)) = x / (1 + exp(-2 y)), y = sqrt(2/pi) (x + 0.044715 x^3)
        y = 0.7978845608028654 * x * (1.0 + 0.044715 * x * x)
        z = -2.0 * y
    elif CLAMPED:  # comparisons let NaN through
        x = tl.where(x > limit, limit, x)
        up = tl.where(up > limit, limit, tl.where(up < -limit, -limit, up)) + 1.0
        z = -alpha * x
    else:
        z = -x
    gated = tl.where(x < 0, 0.0, x * x) if SQUARED else x / (1.0 + tl.exp(tl.minimum(z, 87.0)))  # x * sigmoid(-z)
    tl.store(out_ptr + row * width + c, (gated * up).to(out_ptr.dtype.element_ty), mask=mask)


def gated(gate_up: Tensor, gate: Gate) -> Tensor:
    num_rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((num_rows, width), dtype=gate_up.dtype, device=gate_up.device)
    if num_rows:
        is_clamped = gate.kind == "clamped"
        gate_rows[(num_rows, triton.cdiv(width, BLOCK))](
            gate_up,
            out,
            gate_up.stride(0),
            width,
            gate.alpha,
            gate.limit if is_clamped else 0.0,
            GELU=gate.kind == "gelu_tanh",
            CLAMPED=is_clamped,
            SQUARED=gate.kind == "squared",
            COLUMNS=BLOCK,
            num_warps=4,
            enable_fp_fusion=False,
        )
    return out
