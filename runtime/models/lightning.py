"""Lightning attention in place of attention (MiniMax-Text-01, arXiv 2501.08313): linear, with a fixed decay per head::

    hidden ─┬ queries, keys, values ─ SiLU ─ S = exp(-rate) S + k (x) v, S^T q ─ norm over all heads ─┐
            └ gate ──────────────────────────────────────────────────────────────────────── sigmoid ──┴ · ─ out

It is a state space whose steps are all 1. Its state is a matrix per head. Knows no requests.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...kernels import LinearWeight, ops
from ...kernels.recurrent import HeadInputs, advance_heads
from ...kernels.state_rounds import StateRounds
from ..parallel.ranks import Ranks
from .gateless import bend
from .part import Part
from .reader import Reader
from .recurrent_config import RecurrentConfig

NORM_EPS = 1e-6  # whatever the configuration says of the others


@dataclass(frozen=True, slots=True)
class LightningWeights:
    """One layer's weights, but for the output's; rate, zeros and norm are fp32."""

    config: RecurrentConfig
    into: LinearWeight  # hidden_size -> queries, keys, values
    gates: LinearWeight  # hidden_size -> heads · value_dim
    rate: Tensor  # [heads]
    zeros: Tensor  # [heads]
    norm: Tensor  # [heads · value_dim] of all ranks
    ranks: Ranks
    own: Part  # of the norm

    def mix(self, normed: Tensor, states: tuple[Tensor, ...], plan: StateRounds) -> Tensor:
        """Hidden states `[T, C]` -> `[T, heads · value_dim]`; changes states: the heads'."""
        config, num_rows = self.config, len(normed)
        made = bend(ops.linear(normed, self.into), "silu", None)
        q, k, v = (part.view(num_rows, config.heads, config.value_dim) for part in made.chunk(3, dim=1))
        steps = torch.zeros(num_rows, config.heads, dtype=normed.dtype, device=normed.device)
        inputs = HeadInputs(q, k, v, steps, self.rate, self.zeros, skip=self.zeros, limits=(1.0, 1.0))
        mixed = advance_heads(inputs, states[0], plan).flatten(1)
        if self.ranks.size > 1:
            mixed = torch.cat(self.ranks.gather(mixed), 1)
        even = self.own.of(ops.rms_norm(mixed, self.norm, NORM_EPS), 1)
        return even * ops.sigmoid(ops.linear(normed, self.gates))


def read_lightning(reader: Reader, base: str, config: RecurrentConfig, index: int) -> LightningWeights:
    """The tensors below `base`, of the layer of that index; raises ModelError."""
    hidden, whole = reader.config.hidden_size, reader.cut.whole_recurrent
    by_head, size, heads = reader.cut.sections(3 * whole.attended_size, whole.attended_size, whole.heads)
    rows = torch.arange(by_head.count, device=reader.device).view(config.heads, 3, -1).transpose(0, 1).flatten()
    share = 1 - index / (reader.config.num_layers - 1 + 1e-5) + 1e-5
    rates = share * (2.0 ** (-8 / whole.heads)) ** (torch.arange(whole.heads, device=reader.device) + 1)
    for name in ("slope_rate", "query_decay", "key_decay", "diagonal_decay"):  # all of them are made of the rates
        reader.checkpoint.leave(f"{base}{name}")
    return LightningWeights(
        config,
        into=reader.linear(base, ("qkv_proj",), [by_head], hidden, False, rows),
        gates=reader.linear(base, ("output_gate",), [size], hidden, False),
        rate=heads.of(rates.float(), 0).contiguous(),
        zeros=torch.zeros(heads.count, device=reader.device),
        norm=reader.tensor([f"{base}norm.weight"], [whole.attended_size], []).float(),
        ranks=reader.cut.ranks,
        own=size,
    )
