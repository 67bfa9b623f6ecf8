"""MXFP4 for the CPU's products: how a weight lies in memory, and the LLVM code that widens it in registers.

::

    panel p, group g of 32 inputs    16 bytes: scales of outputs 16p … 16p+15
                                     16 · 16 bytes: for each pair of inputs a byte of each of these outputs, the first
                                     input in its low half

A processor reads it from front to back, 17 bytes for 32 weights. Widening is exact, so products have the bits
of those with the same numbers in fp32. Knows no tiles and no sums.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from llvmlite import ir  # type: ignore[import-untyped]  # ships no types
from torch import Tensor

from .cpu_emit import emit_call
from .mxfp4 import BLOCK, MAGNITUDES

PANEL = 16
GROUP_BYTES = PANEL + PANEL * BLOCK // 2

_FLOAT, _INT, _BYTE = ir.FloatType(), ir.IntType(32), ir.IntType(8)
_VECTOR, _INTS = ir.VectorType(_FLOAT, PANEL), ir.VectorType(_INT, PANEL)


def lay_out(blocks: Tensor, scales: Tensor) -> Tensor:
    """blocks `[N, K / 32, 16]`, scales `[N, K / 32]` -> `[ceil(N / 16), K / 32, 272]`, all uint8."""
    missing, num_groups = -len(blocks) % PANEL, scales.shape[1]
    blocks = F.pad(blocks, (0, 0, 0, 0, 0, missing)).view(-1, PANEL, num_groups, BLOCK // 2)
    scales = F.pad(scales, (0, 0, 0, missing)).view(-1, PANEL, num_groups)
    return torch.cat([scales.transpose(1, 2), blocks.permute(0, 2, 3, 1).flatten(2)], 2).contiguous()


def take_apart(stored: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse of `lay_out`, with the outputs that fill the last panel up."""
    num_groups = stored.shape[1]
    blocks = stored[..., PANEL:].view(-1, num_groups, BLOCK // 2, PANEL).permute(0, 3, 1, 2)
    return blocks.reshape(-1, num_groups, BLOCK // 2), stored[..., :PANEL].transpose(1, 2).reshape(-1, num_groups)


def emit_scales(builder: Any, address: Any) -> Any:
    """The factors `<16 x float>` of a group at an address."""
    kind = ir.VectorType(_BYTE, PANEL)
    stored = builder.zext(builder.load(builder.inttoptr(address, kind.as_pointer()), align=1), _INTS)
    normal = builder.shl(stored, _all(23))
    is_zero = builder.icmp_unsigned("==", stored, _all(0))
    return builder.bitcast(builder.select(is_zero, _all(1 << 22), normal), _VECTOR)  # 2 ** -127 is subnormal


def emit_numbers(builder: Any, address: Any, *, has_avx512: bool) -> tuple[Any, Any]:
    """The numbers, `<16 x float>` each, of a pair of inputs at an address, without their scales."""
    kind = ir.VectorType(_BYTE, PANEL)
    pairs = builder.zext(builder.load(builder.inttoptr(address, kind.as_pointer()), align=1), _INTS)
    first, second = (_emit_number(builder, numbers, has_avx512) for numbers in (pairs, builder.lshr(pairs, _all(4))))
    return first, second


def _emit_number(builder: Any, numbers: Any, has_avx512: bool) -> Any:
    """Of the lowest four bits of each lane."""
    if has_avx512:  # a look-up in a register, by the lowest four bits
        table = ir.Constant(_VECTOR, [_FLOAT(x) for x in (*MAGNITUDES, *(-x for x in MAGNITUDES))])
        return emit_call(builder, "llvm.x86.avx512.permvar.sf.512", _VECTOR, table, numbers)
    # twice the number is a whole one: its mantissa, shifted by its exponent
    mantissa = builder.and_(numbers, _all(1))
    exponent = builder.and_(builder.lshr(numbers, _all(1)), _all(3))
    is_normal = builder.icmp_unsigned("!=", exponent, _all(0))
    leading = builder.or_(mantissa, builder.select(is_normal, _all(2), _all(0)))
    shift = builder.select(is_normal, builder.sub(exponent, _all(1)), _all(0))
    size = builder.fmul(
        builder.sitofp(builder.shl(leading, shift), _VECTOR), ir.Constant(_VECTOR, [_FLOAT(0.5)] * PANEL)
    )
    sign = builder.shl(builder.and_(numbers, _all(8)), _all(28))
    return builder.bitcast(builder.or_(builder.bitcast(size, _INTS), sign), _VECTOR)


def _all(number: int) -> Any:
    return ir.Constant(_INTS, [_INT(number)] * PANEL)
