"""A selective state space in place of attention (Mamba 2; Dao and Gu, arXiv 2405.21060), as Granite 4 has it::

    hidden ─ in ─┬ x, B, C ─ convolution, SiLU ─ state space ─┐
                 ├ steps ──────────────────────────┘          │
                 └ gate ─────────────────────────────── SiLU ─┴ · ─ norm of each group ─ out

Its state is the last inputs of the convolution, and a matrix per head. Knows no requests.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...kernels import Gate, LinearWeight, ops
from ...kernels.recurrent import convolve, scan_states
from ...kernels.state_rounds import StateRounds
from ..parallel.ranks import Ranks
from .part import Axis, Part
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
    norm: Tensor  # [heads · value_dim], of all ranks where they share a group
    eps: float
    ranks: Ranks
    own: Part  # of the norm

    def mix(self, normed: Tensor, states: tuple[Tensor, ...], plan: StateRounds, adapt: Adapt | None = None) -> Tensor:
        """Hidden states `[T, C]` -> `[T, heads · value_dim]`; changes states: the convolution's, and the heads'."""
        config, num_rows = self.config, len(normed)
        size, keys = config.attended_size, config.key_heads * config.key_dim
        projected = ops.linear(normed, self.into)
        if adapt is not None:
            adapt(projected)
        gate, made, steps = torch.split(projected, [size, config.channels, config.heads], dim=1)
        mixed = convolve(made, self.taps, self.bias, states[0], plan, silu=True)
        x, b, c = torch.split(mixed, [size, keys, keys], dim=1)
        heads = scan_states(
            c.view(num_rows, config.key_heads, config.key_dim),
            b.view(num_rows, config.key_heads, config.key_dim),
            x.view(num_rows, config.heads, config.value_dim),
            steps,
            self.rate,
            self.step_bias,
            self.skip,
            config.step_limits,
            states[1],
            plan,
        )
        gated = ops.gated(torch.cat([gate, heads.flatten(1)], dim=1), Gate("silu"))
        if len(self.norm) > size:
            return self.own.of(ops.rms_norm(torch.cat(self.ranks.gather(gated), 1), self.norm, self.eps), 1)
        if config.key_heads == 1:
            return ops.rms_norm(gated, self.norm, self.eps)
        groups = gated.view(num_rows * config.key_heads, -1)
        even = ops.rms_norm(groups, torch.ones_like(self.norm[: groups.shape[1]]), self.eps)
        return (even.view(num_rows, -1) * self.norm).to(normed.dtype)


def read_state_space(reader: Reader, base: str, config: RecurrentConfig) -> StateSpaceWeights:
    """The tensors below `base`; raises ModelError."""
    hidden, cut, whole = reader.config.hidden_size, reader.cut, reader.cut.whole_recurrent
    x, heads = cut.sections(whole.attended_size, whole.heads)
    channels, rows = cut.state_channels, cut.projected

    def numbers(name: str, size: Axis) -> Tensor:
        return reader.tensor([f"{base}{name}"], [size], []).float()

    taps = reader.tensor([f"{base}conv1d.weight"], [channels], [1, config.width])
    return StateSpaceWeights(
        config,
        into=reader.linear(base, tuple(rows), [*rows.values()], hidden, config.has_bias),
        taps=taps[:, 0].T.float().contiguous(),
        bias=numbers("conv1d.bias", channels) if config.has_conv_bias else None,
        rate=numbers("A_log", heads).exp(),
        step_bias=numbers("dt_bias", heads),
        skip=numbers("D", heads),
        norm=numbers("norm.weight", whole.attended_size if whole.key_heads == 1 else x),
        eps=reader.config.rms_norm_eps,
        ranks=cut.ranks,
        own=x,
    )
