"""Low-rank adapters on the CPU: for each segment of rows two small products (`core/lora.cpp`).

A row's bits depend on the row and its adapter, never on the other rows of the step, and a row without an adapter is not
touched. Cost for a row: reading A and B once for all rows of a segment, and 2 R (K + N) operations, R being the rank.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..._core import kernels as core
from ..lora import LoraPlan
from .threads import ONE_TEAM, num_cpu_threads

BLOCK_ROWS = 128  # that go through together, as in `core/lora.cpp`


def add_lora(out: Tensor, x: Tensor, plan: LoraPlan, layer: int, place: int) -> None:
    """`plain.ops.add_lora`; rows of other types than fp32 are widened, and rounded once at the end."""
    if out.dtype is not torch.float32:
        wide = out.float()
        add_lora(wide, x.float(), plan, layer, place)
        out.copy_(wide)
        return
    x = x if x.stride(1) == 1 else x.contiguous()
    num_rows = min(plan.most_rows, BLOCK_ROWS)
    hidden, delta = torch.empty(num_rows, plan.most_rank), torch.empty(num_rows, plan.most_outputs)
    core.add_loras(
        ONE_TEAM,
        num_cpu_threads(),
        num_rows * plan.most_rank * max(x.shape[1], plan.most_outputs),
        plan.table.ctypes.data,
        len(plan.table),
        layer,
        place,
        x.data_ptr(),
        x.stride(0),
        out.data_ptr(),
        out.stride(0),
        hidden.data_ptr(),
        delta.data_ptr(),
    )
