"""Gated DeltaNet in place of attention (Qwen3-Next and Qwen3.5; Yang et al., arXiv 2412.06464)::

    hidden ─┬ queries, keys, values ─ convolution, SiLU ─ delta rule ─ norm of each head ─┐
            ├ a, b: how much is forgotten and learnt ─────────┘                           │
            └ z ───────────────────────────────────────────────────────── SiLU ───────────┴ · ─ out

Its state is the last inputs of the convolution, and a matrix per head. Knows no requests.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...kernels import Gate, LinearWeight, ops
from ...kernels.recurrent import HeadInputs, advance_heads, convolve
from ...kernels.state_rounds import StateRounds
from .part import joined
from .reader import Reader
from .recurrent_config import RecurrentConfig
from .step import Adapt


@dataclass(frozen=True, slots=True)
class DeltaNetWeights:
    """One layer's weights, but for the output's; taps, rate, step_bias and norm are fp32."""

    config: RecurrentConfig
    into: LinearWeight  # hidden_size -> queries, keys, values (`channels`), z
    rates: LinearWeight  # hidden_size -> b, a: 2 · heads
    taps: Tensor  # [width, channels]
    rate: Tensor  # [heads]
    step_bias: Tensor  # [heads]
    norm: Tensor  # [value_dim]
    eps: float

    def mix(self, normed: Tensor, states: tuple[Tensor, ...], plan: StateRounds, adapt: Adapt | None = None) -> Tensor:
        """Hidden states `[T, C]` -> `[T, heads · value_dim]`; changes states: the convolution's, and the heads'."""
        config, num_rows = self.config, len(normed)
        made, rates = ops.linear(normed, self.into), ops.linear(normed, self.rates)
        if adapt is not None:
            adapt(both := torch.cat([made, rates], dim=1))
            made, rates = both[:, : made.shape[1]], both[:, made.shape[1] :]
        mixed = convolve(made[:, : config.channels], self.taps, None, states[0], plan, silu=True)
        key_size = config.key_heads * config.key_dim
        q, k, v = torch.split(mixed, [key_size, key_size, config.attended_size], dim=1)
        inputs = HeadInputs(
            q.view(num_rows, config.key_heads, config.key_dim),
            k.view(num_rows, config.key_heads, config.key_dim),
            v.view(num_rows, config.heads, config.value_dim),
            rates[:, config.heads :],
            self.rate,
            self.step_bias,
            rates[:, : config.heads],
        )
        heads = advance_heads(inputs, states[1], plan)
        even = ops.rms_norm(heads.view(-1, config.value_dim), self.norm, self.eps).view(num_rows, -1)
        return ops.gated(torch.cat([made[:, config.channels :], even], dim=1), Gate("silu"))


def read_delta_net(reader: Reader, base: str, config: RecurrentConfig) -> DeltaNetWeights:
    """The tensors below `base`; raises ModelError."""
    hidden, whole = reader.config.hidden_size, reader.cut.whole_recurrent
    rows, (heads,), keys = reader.cut.projected, reader.cut.sections(whole.heads), whole.key_heads * whole.key_dim
    names, parts = tuple(rows), [*rows.values()]
    num_made = 1 if config.options.is_fused else 2

    def ungrouped(name: str, order: Tensor) -> LinearWeight:
        return reader.packing.one(reader.wide([f"{base}{name}"], [rows[name]], hidden)[order.to(reader.device)])

    if config.options.is_fused:
        made = ungrouped(names[0], _ungrouped(config))
    else:
        made = reader.linear(base, names[:2], parts[:2], hidden, False)
    if config.options.fuses_rates:
        rated = ungrouped(names[-1], _ungrouped_rates(config))
    else:
        rated = reader.linear(base, names[num_made:], parts[num_made:], hidden, False)
    taps = reader.tensor(
        [f"{base}conv1d.weight"], [joined(reader.cut.sections(keys, keys, whole.attended_size))], [1, config.width]
    )
    return DeltaNetWeights(
        config,
        into=made,
        rates=rated,
        taps=taps[:, 0].T.float().contiguous(),
        rate=reader.rates(f"{base}A_log", heads),
        step_bias=reader.tensor([f"{base}dt_bias"], [heads], []).float(),
        norm=reader.tensor([f"{base}norm.weight"], [config.value_dim], []).float(),
        eps=reader.config.rms_norm_eps,
    )


def projected_order(config: RecurrentConfig) -> Tensor | None:
    """Of all rows that are made of hidden states, as they are stored, which become which; None: they stand so."""
    options, num_made = config.options, config.channels + config.attended_size
    if not options.is_fused and not options.fuses_rates:
        return None
    made = _ungrouped(config) if options.is_fused else torch.arange(num_made)
    return torch.cat(
        [made, num_made + (_ungrouped_rates(config) if options.fuses_rates else torch.arange(2 * config.heads))]
    )


def _ungrouped(config: RecurrentConfig) -> Tensor:
    """Rows of `in_proj_qkvz`, which stand key head by key head, so that all queries come first, keys, values, z."""
    each = config.heads // config.key_heads * config.value_dim
    sizes = [config.key_dim, config.key_dim, each, each]
    rows = torch.arange(config.channels + config.attended_size).view(config.key_heads, -1)
    return torch.cat([part.flatten() for part in torch.split(rows, sizes, dim=1)])


def _ungrouped_rates(config: RecurrentConfig) -> Tensor:
    """The same of `in_proj_ba`: all of b, then all of a."""
    each = config.heads // config.key_heads
    rows = torch.arange(2 * config.heads).view(config.key_heads, -1)
    return torch.cat([part.flatten() for part in torch.split(rows, [each, each], dim=1)])
