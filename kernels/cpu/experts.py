"""A mixture of experts on the CPU: rows that chose the same expert go through it together.

::

    rows      0: experts 3, 1    1: experts 1, 2    2: experts 3, 0
    sorted    expert 0: row 2    1: rows 0, 1    2: row 1    3: rows 0, 2        each expert's weights are read once
    back      row 0: share · (of 3) + share · (of 1)                              in the order in which it chose them

A row's sum is taken in its own order, one product and one addition after the other, so that its bits are as independent
of the other rows as those of the linear maps are. Knows no activation and no weights.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor


def mix_by_expert(
    x: Tensor, chosen: Tensor, shares: Tensor, num_experts: int, run: Callable[[int, Tensor], Tensor]
) -> Tensor:
    """`[T, C]`; `run(expert, rows [R, C])` computes an expert. chosen `[T, k]` int64, shares `[T, k]` fp32.

    Rows that chose num_experts, which is none, come out as zeros.
    """
    num_rows, num_chosen = chosen.shape
    experts = chosen.flatten().numpy()
    order = np.argsort(experts, kind="stable")
    begins = np.flatnonzero(np.diff(experts[order], prepend=-1)).tolist()
    results = torch.zeros(num_rows * num_chosen, x.shape[1], dtype=x.dtype)
    for begin, end in pairwise([*begins, len(order)]):
        pairs = order[begin:end]
        expert = int(experts[pairs[0]])
        if expert < num_experts:
            results[torch.from_numpy(pairs)] = run(expert, x[torch.from_numpy(pairs // num_chosen)])
    parts = results.view(num_rows, num_chosen, x.shape[1]).float() * shares[:, :, None]
    total = parts[:, 0]
    for index in range(1, num_chosen):
        total = total + parts[:, index]
    return total.to(x.dtype)
