"""Adapters of low rank on the CPU: for each segment of rows two small products, by the loops of `cpu_linear`.

::

    hidden = x · Aᵀ        one chain of multiply-adds for each number, in order of the inputs
    hidden = hidden · scale
    delta  = hidden · Bᵀ   as above
    y      = y + delta

So a row's bits depend on the row and its adapter, never on who else is in the step, how it is cut, or by how many
threads it is done; and a row without an adapter is not touched. Rows go through in blocks, so that what is between the
products stays in the cache.

Cost for a row: reading A and B once for all rows of a segment, and 2 R (K + N) operations, R being the rank.
"""

from __future__ import annotations

import torch
from numba import njit
from torch import Tensor

from . import lora, simd
from .compiled import compiled
from .cpu_linear import PANELS, all_panels
from .cpu_threads import WORTH_SHARING, thread_team
from .linear_weight import PANEL
from .lora import LoraPlan

BLOCK_ROWS = 128

_DOWN, _DOWN_PACKING, _DEPTH, _WIDTH, _ZEROS, _SCALES, _NUM_PARTS = (
    lora.DOWN, lora.DOWN_PACKING, lora.DEPTH, lora.WIDTH, lora.ZEROS, lora.SCALES, lora.NUM_PARTS
)  # fmt: skip
_PARTS, _PART_COLUMNS, _COLUMNS, _NUM_PLACES = lora.PARTS, lora.PART_COLUMNS, lora.COLUMNS, len(lora.PLACES)
_UP, _UP_PACKING, _RANK, _FIRST_RANK, _NUM_OUTPUTS, _FIRST_OUTPUT = range(_PART_COLUMNS)


def add_lora(out: Tensor, x: Tensor, plan: LoraPlan, layer: int, place: int) -> None:
    """`reference.add_lora`; rows of other types than fp32 are widened, and rounded once at the end."""
    if out.dtype is not torch.float32:
        wide = out.float()
        add_lora(wide, x.float(), plan, layer, place)
        out.copy_(wide)
        return
    x = x if x.stride(1) == 1 else x.contiguous()
    memory = scratch(plan)
    rows = (x.data_ptr(), 4 * x.stride(0), out.data_ptr(), 4 * out.stride(0))
    most = min(plan.most_rows, BLOCK_ROWS) * plan.most_rank * max(x.shape[1], plan.most_outputs)
    with thread_team(most) as team:
        _add_loras(team, PANELS.address, plan.table, layer, place, *rows, *(part.data_ptr() for part in memory))


def scratch(plan: LoraPlan) -> tuple[Tensor, Tensor]:
    """Memory for what is between the products, and for what they bring."""
    num_rows = min(plan.most_rows, BLOCK_ROWS)
    return torch.empty(num_rows, plan.most_rank), torch.empty(num_rows, plan.most_outputs)


@njit
def add_loras(team, task, segments, layer, place, x, x_stride, out, out_stride, hidden, delta):  # type: ignore[no-untyped-def]  # numba infers
    """What the segments' adapters add to `out`; task: the address of `PANELS`, strides in bytes."""
    for segment in range(len(segments)):
        begin, end = segments[segment, 0], segments[segment, 1]
        columns = segments[segment, 2] + 8 * _COLUMNS * (_NUM_PLACES * layer + place)
        if simd.load_int64(columns + 8 * _DOWN) != 0:
            for first in range(begin, end, BLOCK_ROWS):
                rows = x + first * x_stride, x_stride, out + first * out_stride, out_stride
                _add_block(team, task, columns, *rows, hidden, delta, min(BLOCK_ROWS, end - first))


@njit
def _add_block(team, task, columns, x, x_stride, out, out_stride, hidden, delta, num_rows):  # type: ignore[no-untyped-def]
    """The same for a block of rows of one adapter."""
    depth, width = simd.load_int64(columns + 8 * _DEPTH), simd.load_int64(columns + 8 * _WIDTH)
    zeros, scales = simd.load_int64(columns + 8 * _ZEROS), simd.load_int64(columns + 8 * _SCALES)
    down, packing = simd.load_int64(columns + 8 * _DOWN), simd.load_int64(columns + 8 * _DOWN_PACKING)
    ours = team if num_rows * depth * width >= WORTH_SHARING else 0
    all_panels(ours, task, x, x_stride, down, packing, zeros, hidden, num_rows, depth, width // PANEL)
    for row in range(num_rows):
        at = hidden + 4 * width * row
        for i in range(0, 4 * width, 32):
            simd.store(at + i, simd.mul(simd.load(at + i), simd.load(scales + i)))
    for part in range(simd.load_int64(columns + 8 * _NUM_PARTS)):
        own = columns + 8 * (_PARTS + _PART_COLUMNS * part)
        up, packing, rank = (
            simd.load_int64(own + 8 * _UP), simd.load_int64(own + 8 * _UP_PACKING), simd.load_int64(own + 8 * _RANK)
        )  # fmt: skip
        num_outputs = simd.load_int64(own + 8 * _NUM_OUTPUTS)
        num_panels = (num_outputs + PANEL - 1) // PANEL
        inputs = hidden + 4 * simd.load_int64(own + 8 * _FIRST_RANK)
        ours = team if num_rows * rank * num_panels * PANEL >= WORTH_SHARING else 0
        all_panels(ours, task, inputs, 4 * width, up, packing, zeros, delta, num_rows, rank, num_panels)
        target = out + 4 * simd.load_int64(own + 8 * _FIRST_OUTPUT)
        for row in range(num_rows):
            _add_row(target + row * out_stride, delta + 4 * PANEL * num_panels * row, num_outputs)


@njit
def _add_row(out, delta, num_outputs):  # type: ignore[no-untyped-def]
    whole = num_outputs // 8 * 8
    for i in range(0, 4 * whole, 32):
        simd.store(out + i, simd.add(simd.load(out + i), simd.load(delta + i)))
    for i in range(4 * whole, 4 * num_outputs, 4):
        simd.store_scalar(out + i, simd.load_scalar(out + i) + simd.load_scalar(delta + i))


@compiled()
def _add_loras(team, task, segments, layer, place, x, x_stride, out, out_stride, hidden, delta):  # type: ignore[no-untyped-def]
    add_loras(team, task, segments, layer, place, x, x_stride, out, out_stride, hidden, delta)
