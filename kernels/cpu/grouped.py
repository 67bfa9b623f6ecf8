"""Grouped weights for the CPU's products: how one lies in memory.

::

    panel p    for each group   16 fp32, the scales of outputs 16p … 16p+15
                                then lines of 64 bytes: 16 words, one of each output, with 8 inputs (int4) or 4
               zeros            for each group 16 int8, filled up to whole lines
            or offsets          for each group 16 fp32

A word's first input lies in its lowest bits; int4 counts from 0 there, as uint4 does. So a line is loaded once for 8
inputs, and each of them costs a shift, a look-up in a register (AVX-512) and one multiply-add that subtracts the zero
and applies the scale. With scales of 16 bits that is exact, with others rounded once where there is no zero, and with
offsets rounded once, so that products have the bits of those with the same numbers in fp32. Where inputs are rounded
the same lines are read, and nothing is widened (`core/grouped.h` reads this layout). Knows no tiles and no sums.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ..grouped import BITS, Element, Grouped
from ..kv_format import FP8
from .panels import PANEL

LINE = 64
_AT_A_TIME = 64  # panels that are laid out together
FACTOR_BYTES, OFFSET_BYTES = 5, 8  # of a group of one output: scale and zero, or scale and offset
ELEMENTS: tuple[Element, ...] = ("int4", "int8", "e4m3")
FIRST_KIND, FIRST_ROUNDING = 3, 6  # of these in `LinearWeight.packing`, and of those that round inputs
# In the code of a packing: the flag for offsets, and the number of bits for the kind, below the size of a group.
HAS_OFFSETS, KIND_BITS = 8, 4
_MOST_INPUTS, _LEAST_INPUTS = 128, 32  # of a group that has one step for its inputs
_WIDEST_E4M3 = 2.0**7  # scales are stored 2 ** 120 times as large


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
    """Whether products may round its inputs: whole numbers, eight inputs at a time, steps that are not too wide."""
    size = size_for_rounding(weight.size)
    return weight.element != "e4m3" and size % 8 == 0 and size <= 8 * _MOST_INPUTS


def words_of(element: Element) -> int:
    """Inputs in a word of 32 bits."""
    return 32 // BITS[element]


def _end_bytes(num_groups: int, *, has_offsets: bool) -> int:
    """Bytes of the zeros or offsets after a panel's groups."""
    return num_groups * LINE if has_offsets else -(-num_groups * PANEL // LINE) * LINE


def panel_bytes(element: Element, size: int, num_inputs: int, *, has_offsets: bool) -> int:
    """Bytes of a panel of 16 outputs."""
    num_groups = num_inputs // size
    return num_groups * (LINE + size // words_of(element) * LINE) + _end_bytes(num_groups, has_offsets=has_offsets)


def lay_out(weight: Grouped) -> Tensor:
    """`[ceil(N / 16), 1, bytes of a panel]` uint8; needs little other memory."""
    num_outputs, num_inputs = weight.numbers.shape
    num_bytes = panel_bytes(weight.element, weight.size, num_inputs, has_offsets=weight.offsets is not None)
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
    if words_of(weight.element) == 8:
        numbers = numbers[..., ::2] | numbers[..., 1::2] << 4
    lines = numbers.view(len(numbers), PANEL, num_groups, weight.size // per_word, 4).permute(0, 2, 3, 1, 4)
    factor = 2.0**120 if weight.element == "e4m3" else 1.0
    scales = F.pad(weight.scales.float() * factor, (0, 0, 0, missing)).view(-1, PANEL, num_groups).transpose(1, 2)
    blobs = torch.cat([scales.contiguous().view(torch.uint8), lines.flatten(2)], 2).flatten(1)
    end = blobs.new_zeros(len(blobs), _end_bytes(num_groups, has_offsets=weight.offsets is not None))
    after = weight.zeros if weight.offsets is None else weight.offsets
    if after is not None:
        after = F.pad(after, (0, 0, 0, missing)).view(-1, PANEL, num_groups).transpose(1, 2)
        stored = after.flatten(1).contiguous().view(torch.uint8)
        end[:, : stored.shape[1]] = stored
    return torch.cat([blobs, end], 1)[:, None]


def take_apart(stored: Tensor, element: Element, size: int, num_inputs: int, *, has_offsets: bool = False) -> Grouped:
    """The inverse of `lay_out`, with the outputs that fill the last panel up, and without an order."""
    num_groups, per_word, num_panels = num_inputs // size, words_of(element), len(stored)
    num_bytes = num_groups * (LINE + size // per_word * LINE)
    blobs = stored[:, 0, :num_bytes].view(num_panels, num_groups, -1)
    factor = 2.0**-120 if element == "e4m3" else 1.0
    scales = blobs[..., :LINE].contiguous().view(torch.float32).transpose(1, 2).reshape(-1, num_groups) * factor
    lines = blobs[..., LINE:].view(num_panels, num_groups, size // per_word, PANEL, 4)
    numbers = lines.permute(0, 3, 1, 2, 4).reshape(num_panels * PANEL, -1)
    if per_word == 8:
        numbers = torch.stack([numbers & 15, numbers >> 4], -1).flatten(1) - (8 if element == "int4" else 0)
    kind = FP8 if element == "e4m3" else torch.int8
    after = stored[:, 0, num_bytes : num_bytes + num_groups * PANEL * (4 if has_offsets else 1)].contiguous()
    after = after.view(torch.float32 if has_offsets else torch.int8).view(num_panels, num_groups, PANEL)
    after = after.transpose(1, 2).reshape(-1, num_groups)
    whole = Grouped(element, numbers.view(torch.int8).view(kind), scales)
    return replace(whole, offsets=after) if has_offsets else replace(whole, zeros=after)
