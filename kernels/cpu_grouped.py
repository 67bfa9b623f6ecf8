"""Grouped weights for the CPU's products: how one lies in memory, and the LLVM code that widens it in registers.

::

    panel p    for each group   16 fp32, the scales of outputs 16p … 16p+15
                                then lines of 64 bytes: 16 words, one of each output, with 8 inputs (int4) or 4
               zeros            for each group 16 int8, filled up to whole lines

A word's first input lies in its lowest bits. So a line is loaded once for 8 inputs, and each of them costs a shift, a
look-up in a register (AVX-512) and one multiply-add that subtracts the zero and applies the scale. With scales of 16
bits that is exact, with others rounded once where there is no zero, so that products have the bits of those with the
same numbers in fp32. `cpu_linear_grouped` reads the same lines, and widens nothing. Knows no tiles and no sums.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from llvmlite import ir  # type: ignore[import-untyped]  # ships no types
from torch import Tensor

from .cpu_emit import emit_call
from .cpu_mxfp4 import PANEL
from .grouped import BITS, Element, Grouped
from .kv_format import FP8

LINE = 64
_AT_A_TIME = 64  # panels that are laid out together
FACTOR_BYTES = 5  # of a group of one output: scale and zero
ELEMENTS: tuple[Element, ...] = ("int4", "int8", "e4m3")
FIRST_KIND, FIRST_ROUNDING = 3, 6  # of these in `LinearWeight.packing`, and of those that round inputs
_MOST_INPUTS, _LEAST_INPUTS = 128, 32  # of a group that has one step for its inputs
_WIDEST_E4M3 = 2.0**7  # scales are stored 2 ** 120 times as large

_FLOAT, _INT, _BYTE, _LONG = ir.FloatType(), ir.IntType(32), ir.IntType(8), ir.IntType(64)
_VECTOR, _INTS, _BYTES = (ir.VectorType(kind, PANEL) for kind in (_FLOAT, _INT, _BYTE))


def fits(weight: Grouped) -> bool:
    """Whether the loops can read it: groups of whole words, and scales that they can apply."""
    if weight.size % words_of(weight.element):
        return False
    return weight.element != "e4m3" or bool((weight.scales.abs() < _WIDEST_E4M3).all())


def size_for_rounding(size: int) -> int:
    """Inputs of a group where inputs are rounded by groups: wide ones are cut, for their largest input's sake."""
    part = math.gcd(size, _MOST_INPUTS)
    return part if size > _MOST_INPUTS and part >= _LEAST_INPUTS else size


def may_round(weight: Grouped) -> bool:
    """Whether `cpu_linear_grouped` can read it: whole numbers, eight inputs at a time, steps that are not too wide."""
    size = size_for_rounding(weight.size)
    return weight.element != "e4m3" and size % 8 == 0 and size <= 8 * _MOST_INPUTS


def words_of(element: Element) -> int:
    """Inputs in a word of 32 bits."""
    return 32 // BITS[element]


def panel_bytes(element: Element, size: int, num_inputs: int) -> int:
    """Bytes of a panel of 16 outputs."""
    num_groups = num_inputs // size
    return num_groups * (LINE + size // words_of(element) * LINE) + -(-num_groups * PANEL // LINE) * LINE


def lay_out(weight: Grouped) -> Tensor:
    """`[ceil(N / 16), 1, bytes of a panel]` uint8; takes little memory beside that."""
    num_outputs, num_inputs = weight.numbers.shape
    num_bytes = panel_bytes(weight.element, weight.size, num_inputs)
    stored = torch.empty((-(-num_outputs // PANEL), 1, num_bytes), dtype=torch.uint8)
    for panel in range(0, len(stored), _AT_A_TIME):
        stored[panel : panel + _AT_A_TIME] = _panels(weight[slice(PANEL * panel, PANEL * (panel + _AT_A_TIME))])
    return stored


def _panels(weight: Grouped) -> Tensor:
    num_outputs, num_inputs = weight.numbers.shape
    per_word, num_groups, missing = words_of(weight.element), weight.scales.shape[1], -num_outputs % PANEL
    numbers = F.pad(weight.numbers.view(torch.uint8), (0, 0, 0, missing)).view(-1, PANEL, num_inputs)
    if weight.element == "int4":
        numbers = (numbers + 8) & 15  # the look-up counts from 0
        numbers = numbers[..., ::2] | numbers[..., 1::2] << 4
    lines = numbers.view(len(numbers), PANEL, num_groups, weight.size // per_word, 4).permute(0, 2, 3, 1, 4)
    factor = 2.0**120 if weight.element == "e4m3" else 1.0
    scales = F.pad(weight.scales.float() * factor, (0, 0, 0, missing)).view(-1, PANEL, num_groups).transpose(1, 2)
    blobs = torch.cat([scales.contiguous().view(torch.uint8), lines.flatten(2)], 2).flatten(1)
    end = blobs.new_zeros(len(blobs), -(-num_groups * PANEL // LINE) * LINE)
    if weight.zeros is not None:
        zeros = F.pad(weight.zeros, (0, 0, 0, missing)).view(-1, PANEL, num_groups).transpose(1, 2)
        end[:, : num_groups * PANEL] = zeros.flatten(1).view(torch.uint8)
    return torch.cat([blobs, end], 1)[:, None]


def take_apart(stored: Tensor, element: Element, size: int, num_inputs: int) -> Grouped:
    """The inverse of `lay_out`, with the outputs that fill the last panel up, and without an order."""
    num_groups, per_word, num_panels = num_inputs // size, words_of(element), len(stored)
    num_bytes = num_groups * (LINE + size // per_word * LINE)
    blobs = stored[:, 0, :num_bytes].view(num_panels, num_groups, -1)
    factor = 2.0**-120 if element == "e4m3" else 1.0
    scales = blobs[..., :LINE].contiguous().view(torch.float32).transpose(1, 2).reshape(-1, num_groups) * factor
    lines = blobs[..., LINE:].view(num_panels, num_groups, size // per_word, PANEL, 4)
    numbers = lines.permute(0, 3, 1, 2, 4).reshape(num_panels * PANEL, -1)
    if element == "int4":
        numbers = torch.stack([numbers & 15, numbers >> 4], -1).flatten(1) - 8
    zeros = stored[:, 0, num_bytes : num_bytes + num_groups * PANEL].view(num_panels, num_groups, PANEL)
    kind = FP8 if element == "e4m3" else torch.int8
    return Grouped(
        element,
        numbers.view(torch.int8).view(kind),
        scales,
        zeros.transpose(1, 2).reshape(-1, num_groups).view(torch.int8),
    )


def emit_factors(builder: Any, scales_at: Any, zeros_at: Any) -> tuple[Any, Any]:
    """Scale and offset, `<16 x float>` each, of a group: a weight is its number times the scale, plus the offset."""
    scale = builder.load(builder.inttoptr(scales_at, _VECTOR.as_pointer()), align=4)
    zeros = builder.load(builder.inttoptr(zeros_at, _BYTES.as_pointer()), align=1)
    zero = builder.sitofp(builder.sext(zeros, _INTS), _VECTOR)
    return scale, builder.fmul(builder.fsub(ir.Constant(_VECTOR, [_FLOAT(-0.0)] * PANEL), zero), scale)


def emit_line(builder: Any, address: Any) -> Any:
    """The words `<16 x i32>` at an address."""
    return builder.load(builder.inttoptr(address, _INTS.as_pointer()), align=4)


def emit_numbers(builder: Any, element: Element, words: Any, index: int, *, has_avx512: bool) -> Any:
    """Input `index` of each word as `<16 x float>`; e4m3 times 2 ** -120."""
    if element == "int4":
        shifted = builder.lshr(words, _all(4 * index))
        if has_avx512:  # the look-up takes the lowest four bits
            table = ir.Constant(_VECTOR, [_FLOAT(float(number)) for number in range(-8, 8)])
            return emit_call(builder, "llvm.x86.avx512.permvar.sf.512", _VECTOR, table, shifted)
        return builder.sitofp(builder.sub(builder.and_(shifted, _all(15)), _all(8)), _VECTOR)
    top = builder.shl(words, _all(24 - 8 * index))
    if element == "int8":
        return builder.sitofp(builder.ashr(top, _all(24)), _VECTOR)
    # the fields of e4m3 in those of fp32, whose exponents count from 120 further down; subnormals come out as well
    sign, size = builder.and_(top, _all(1 << 31)), builder.and_(builder.lshr(top, _all(4)), _all(0x07F00000))
    return builder.bitcast(builder.or_(sign, size), _VECTOR)


def _all(number: int) -> Any:
    return ir.Constant(_INTS, [_INT(number)] * PANEL)
