"""A selective state space in place of attention or beside it (Mamba 2; Dao and Gu, arXiv 2405.21060)::

    hidden ─ in ─┬ x, B, C ─ convolution, SiLU ─ state space ─┐
                 ├ steps ──────────────────────────┘          │
                 └ gate ─────────────────────────────── SiLU ─┴ · ─ norm of each group ─ out

The norm may come before the gate, or not at all (Falcon-H1).
Its state is the last inputs of the convolution, and a matrix per head. Knows no requests.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...kernels import Gate, LinearWeight, ops
from ...kernels.recurrent import HeadInputs, advance_heads, convolve
from ...kernels.state_rounds import StateRounds
from ..parallel.ranks import Ranks
from .part import Axis, Part, joined
from .reader import Reader
from .recurrent_config import RecurrentConfig
from .step import Adapt


@dataclass(frozen=True, slots=True)
class StateSpaceWeights:
    """One layer's weights, but for the output's; all but `into` are fp32."""

    config: RecurrentConfig
    into: LinearWeight  # hidden_size -> gate, x, B, C (`channels`), steps
    taps: Tensor  # [width, channels]
    bias: Tensor | None  # [channels]
    rate: Tensor  # [heads]
    step_bias: Tensor  # [heads]
    skip: Tensor  # [heads]
    norm: Tensor | None  # [heads · value_dim], of all ranks where they share a group
    eps: float
    ranks: Ranks
    own: Part  # of the norm
    factor: float  # on the hidden states
    gate_factor: float
    step_factor: float

    def mix(self, normed: Tensor, states: tuple[Tensor, ...], plan: StateRounds, adapt: Adapt | None = None) -> Tensor:
        """Hidden states `[T, C]` -> `[T, heads · value_dim]`; changes states: the convolution's, and the heads'."""
        config, num_rows = self.config, len(normed)
        size, keys = config.attended_size, config.key_heads * config.key_dim
        scaled = normed if self.factor == 1.0 else normed * self.factor
        projected = ops.linear(scaled, self.into)
        if adapt is not None:
            adapt(projected)
        gate, made, steps = torch.split(projected, [size, config.channels, config.heads], dim=1)
        gate = gate if self.gate_factor == 1.0 else gate * self.gate_factor
        steps = steps if self.step_factor == 1.0 else steps * self.step_factor
        mixed = convolve(made, self.taps, self.bias, states[0], plan, silu=True)
        x, b, c = torch.split(mixed, [size, keys, keys], dim=1)
        inputs = HeadInputs(
            c.view(num_rows, config.key_heads, config.key_dim),
            b.view(num_rows, config.key_heads, config.key_dim),
            x.view(num_rows, config.heads, config.value_dim),
            steps,
            self.rate,
            self.step_bias,
            skip=self.skip,
            limits=config.step_limits,
        )
        mixed = advance_heads(inputs, states[1], plan).flatten(1)
        if config.norm == "before gate":
            mixed = self._even(mixed)
        gated = ops.gated(torch.cat([gate, mixed], dim=1), Gate("silu"))
        return self._even(gated) if config.norm == "after gate" else gated

    def _even(self, x: Tensor) -> Tensor:
        """The norm of each group, `[T, heads · value_dim]`."""
        assert self.norm is not None
        if len(self.norm) > x.shape[1]:
            return self.own.of(ops.rms_norm(torch.cat(self.ranks.gather(x), 1), self.norm, self.eps), 1)
        if self.config.key_heads == 1:
            return ops.rms_norm(x, self.norm, self.eps)
        groups = x.view(len(x) * self.config.key_heads, -1)
        even = ops.rms_norm(groups, torch.ones_like(self.norm[: groups.shape[1]]), self.eps)
        return (even.view(len(x), -1) * self.norm).to(x.dtype)


def read_state_space(reader: Reader, base: str, config: RecurrentConfig) -> StateSpaceWeights:
    """The tensors below `base`; raises ModelError."""
    hidden, cut, whole = reader.config.hidden_size, reader.cut, reader.cut.whole_recurrent
    x, heads = cut.sections(whole.attended_size, whole.heads)
    keys, rows = cut.groups(whole.key_heads * whole.key_dim), cut.projected
    channels = joined([x, keys, keys])

    def numbers(name: str, size: Axis) -> Tensor:
        return reader.tensor([f"{base}{name}"], [size], []).float()

    is_one, (gate_factor, *factors, step_factor) = whole.key_heads == 1, reader.config.factors.sections
    taps = reader.tensor([f"{base}conv1d.weight"], [channels], [1, config.width])[:, 0].float()
    if factors != [1.0] * 3:
        taps *= torch.tensor(factors, device=taps.device).repeat_interleave(
            torch.tensor([part.count for part in (x, keys, keys)], device=taps.device)
        )[:, None]
    return StateSpaceWeights(
        config,
        into=reader.linear(base, tuple(rows), [*rows.values()], hidden, config.has_bias),
        taps=taps.T.contiguous(),
        bias=numbers("conv1d.bias", channels) if config.has_conv_bias else None,
        rate=reader.rates(f"{base}A_log", heads),
        step_bias=numbers("dt_bias", heads),
        skip=numbers("D", heads),
        norm=None if whole.norm == "none" else numbers("norm.weight", whole.attended_size if is_one else x),
        eps=reader.config.rms_norm_eps,
        ranks=cut.ranks,
        own=x,
        factor=reader.config.factors.recurrent_in,
        gate_factor=gate_factor,
        step_factor=step_factor,
    )
