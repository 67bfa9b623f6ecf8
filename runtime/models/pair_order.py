"""Where the two elements of a rotary pair stand in a head.

The kernels turn elements that are half of the rotary part apart; some checkpoints (GLM's) keep a pair side by side.
Their rows of queries and keys are put in order when they are read: q·k is the same for any order that both share.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .config import ModelConfig


def head_order(config: ModelConfig) -> Tensor | None:
    """Which stored row of a head becomes which, `[head_dim]` int64; None: they stand as the kernels need them.

    Latent heads have an order of their own (`latent.py`).
    """
    if config.latent is not None or not config.options.interleaved:
        return None
    stored, num_rotary = torch.arange(config.head_dim), config.ropes[0].rotary_dim
    return torch.cat([stored[:num_rotary:2], stored[1:num_rotary:2], stored[num_rotary:]])


def qkv_order(config: ModelConfig, index: int, device: torch.device) -> Tensor | None:
    """The same for a layer's rows of queries, keys and values together, and of gates, which come last: `[rows]`.

    A gate is stored after the query of its head; GPT-NeoX and Falcon store the rows of a KV head together.
    """
    order, rows = head_order(config), torch.arange(sum(config.qkv_rows(index))).view(-1, config.head_dim)
    if config.options.gated_attention:
        queries, rest = rows[: 2 * config.num_heads], rows[2 * config.num_heads :]
        rows = torch.cat([queries[::2], rest, queries[1::2]])
    elif config.options.rows_by_head:
        by_kv_head = rows.view(config.num_kv_heads, -1, config.head_dim)
        parts = by_kv_head[:, :-2].flatten(0, 1), by_kv_head[:, -2], by_kv_head[:, -1]
        rows = torch.cat(parts)
    elif order is None:
        return None
    turned = config.num_heads + config.num_kv_heads
    first = rows[:turned] if order is None else rows[:turned, order]
    return torch.cat([first, rows[turned:]]).flatten().to(device)
