"""The order of a delta rule's value heads where llama.cpp stores them in turn (Qwen3.5).

::

    ours    k₀v₀ k₀v₁ k₀v₂ │ k₁v₀ k₁v₁ k₁v₂      the value heads of a key head, after each other
    file    k₀v₀ k₁v₀ │ k₀v₁ k₁v₁ │ k₀v₂ k₁v₂    the first of each key head, then the second of each

So are rows of whatever makes values and their gates, what each head has for itself, and the columns that values meet.
Knows no checkpoints.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ....kernels.grouped import Grouped
from ..recurrent_config import RecurrentConfig

_BY_HEAD = ("ssm_beta", "ssm_alpha", "ssm_a", "ssm_dt")
_BY_VALUE = ("attn_gate",)
_AFTER_KEYS = ("attn_qkv", "ssm_conv1d")
COLUMNS_BY_VALUE = "ssm_out"


def row_order(config: RecurrentConfig, module: str) -> Tensor | None:
    """Where each row of ours lies in a tensor of a recurrent layer; None: in its place."""
    if module in _BY_HEAD:
        return _heads(config)
    if module in _BY_VALUE:
        return _values(config)
    if module in _AFTER_KEYS:
        num_keys = 2 * config.key_heads * config.key_dim
        return torch.cat([torch.arange(num_keys), num_keys + _values(config)])
    return None


def in_column_order(config: RecurrentConfig, weight: Tensor) -> Tensor:
    """Plain numbers of `COLUMNS_BY_VALUE`, whose inputs come to stand as ours do."""
    return weight[:, _values(config)]


def in_group_order(config: RecurrentConfig, weight: Grouped) -> Grouped:
    """The same of few bits: groups move as they are, where a head has whole ones, and are cut where it has not."""
    fine = weight.regrouped(math.gcd(weight.size, config.value_dim))
    columns = _values(config)
    groups = columns[:: fine.size] // fine.size
    offsets = None if fine.offsets is None else fine.offsets[:, groups]
    return replace(fine, numbers=fine.numbers[:, columns], scales=fine.scales[:, groups], offsets=offsets)


def _heads(config: RecurrentConfig) -> Tensor:
    return torch.arange(config.heads).view(-1, config.key_heads).T.flatten()


def _values(config: RecurrentConfig) -> Tensor:
    return (_heads(config)[:, None] * config.value_dim + torch.arange(config.value_dim)).flatten()
