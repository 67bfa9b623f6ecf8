"""How much attention a few query rows pay to each key, and which keys get most (SnapKV): plain torch on all devices.

It runs once per request and layer, not once per token, so it has no kernel of its own. Knows no blocks.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def score_keys(q: Tensor, keys: Tensor, *, scale: float, soft_cap: float = 0.0) -> Tensor:
    """Attention weights of the last rows, summed over rows and over the query heads of each KV head: fp32 `[Hkv, n]`.

    q `[W, H, D]`, whose row i stands at key `n - W + i` and sees the keys up to its own; keys `[n, Hkv, D]`. They are
    weights among the keys: a learnt sink takes none. Memory: `4 · W · H · n` bytes, a few times.
    """
    num_rows, num_heads, head_dim = q.shape
    num_keys, num_kv_heads, _ = keys.shape
    group = num_heads // num_kv_heads
    rows = q.float().reshape(num_rows, num_kv_heads, group * head_dim).transpose(0, 1)
    rows = rows.reshape(num_kv_heads, num_rows * group, head_dim)
    scores = rows @ keys.float().permute(1, 2, 0) * scale
    if soft_cap:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    scores = scores.view(num_kv_heads, num_rows, group, num_keys)
    is_later = torch.ones(num_rows, num_rows, dtype=torch.bool, device=q.device).triu(1)
    scores[..., num_keys - num_rows :].masked_fill_(is_later[:, None], float("-inf"))
    return torch.softmax(scores, -1).sum((1, 2))


def best_keys(scores: Tensor, num_kept: int, num_last: int, width: int) -> Tensor:
    """The places of the keys with the highest scores, rising: scores `[..., n]` -> int64 `[..., num_kept]`.

    The last `num_last` are always among them. A key counts as much as the best of the `width` (odd) around it, so that
    the neighbours of an important key are kept with it; of equal ones the earlier is kept.
    """
    num_others = scores.shape[-1] - num_last
    others = F.max_pool1d(scores[..., :num_others].flatten(0, -2), width, 1, width // 2).view(*scores.shape[:-1], -1)
    order = others.sort(dim=-1, descending=True, stable=True).indices[..., : num_kept - num_last]
    last = torch.arange(num_others, scores.shape[-1], device=scores.device).expand(*scores.shape[:-1], num_last)
    return torch.cat([order.sort(dim=-1).values, last], -1)
