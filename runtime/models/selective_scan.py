"""A selective state space of each channel by itself (Mamba; Gu and Dao, arXiv 2312.00752), also in Jamba::

    hidden ─ in ─┬ x ─ convolution, SiLU ─┬───────────────────────────────────── scan ─┐
                 │                        └ x_proj ─┬ steps ─ (norm) ─ dt_proj ─┘      │
                 │                                  └ B, C ── (norms) ──────────┘      │
                 └ gate ──────────────────────────────────────────────────────── SiLU ─┴ · ─ out

Its state is the last inputs of the convolution, and a vector per channel. Knows no requests.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...kernels import Gate, LinearWeight, ops
from ...kernels.recurrent import convolve, scan_channels
from ...kernels.state_rounds import StateRounds
from ..parallel.ranks import Ranks
from .part import Axis, joined
from .partial_linear import partial_linear
from .reader import Reader
from .recurrent_config import RecurrentConfig


@dataclass(frozen=True, slots=True)
class SelectiveScanWeights:
    """One layer's weights, but for the output's; all but linear maps are fp32."""

    config: RecurrentConfig
    into: LinearWeight  # hidden_size -> x, gate
    choose: LinearWeight  # channels -> steps (`step_rank`), B, C: of several ranks a summand
    spread: LinearWeight  # step_rank -> channels
    taps: Tensor  # [width, channels]
    bias: Tensor | None  # [channels]
    rate: Tensor  # [key_dim, channels]
    step_bias: Tensor  # [channels]
    skip: Tensor  # [channels]
    norm: Tensor | None  # of steps, B and C, one after the other; None: there are none
    eps: float
    ranks: Ranks

    def mix(self, normed: Tensor, states: tuple[Tensor, ...], plan: StateRounds) -> Tensor:
        """Hidden states `[T, C]` -> `[T, channels]`; changes states: the convolution's, and the channels'."""
        config = self.config
        made, gate = ops.linear(normed, self.into).chunk(2, dim=1)
        x = convolve(made, self.taps, self.bias, states[0], plan, silu=True)
        sizes = [config.step_rank, config.key_dim, config.key_dim]
        chosen = torch.split(self.ranks.sum(partial_linear(x, self.choose, self.ranks)), sizes, dim=1)
        if self.norm is not None:
            pairs = zip(chosen, torch.split(self.norm, sizes), strict=True)
            chosen = tuple(ops.rms_norm(part.contiguous(), norm, self.eps) for part, norm in pairs)
        steps, b, c = chosen
        spread = ops.linear(steps.contiguous(), self.spread)
        state = states[1].view(-1, config.key_dim, config.channels)
        scanned = scan_channels(x, spread, b, c, self.rate, self.step_bias, self.skip, state, plan)
        return ops.gated(torch.cat([gate, scanned], dim=1), Gate("silu"))


def read_selective_scan(reader: Reader, base: str, config: RecurrentConfig) -> SelectiveScanWeights:
    """The tensors below `base`; raises ModelError."""
    (own,) = reader.cut.sections(reader.cut.whole_recurrent.channels)
    sizes = [config.step_rank, config.key_dim, config.key_dim]

    def numbers(name: str, size: Axis, *tail: Axis) -> Tensor:
        return reader.tensor([f"{base}{name}"], [size], tail).float()

    norm = None
    if config.options.norms == "weights":
        names = ("dt_layernorm", "b_layernorm", "c_layernorm")
        norm = torch.cat([numbers(f"{name}.weight", size) for name, size in zip(names, sizes, strict=True)])
    elif config.options.norms == "plain":
        norm = torch.ones(sum(sizes), device=reader.device)
    return SelectiveScanWeights(
        config,
        into=reader.linear(base, ("in_proj",), [joined([own, own])], reader.config.hidden_size, config.has_bias),
        choose=reader.summand(base, "x_proj", own, False, sum(sizes)),
        spread=reader.linear(base, ("dt_proj",), [own], config.step_rank, False),
        taps=numbers("conv1d.weight", own, 1, config.width)[:, 0].T.contiguous(),
        bias=numbers("conv1d.bias", own) if config.has_conv_bias else None,
        rate=reader.rates(f"{base}A_log", own, config.key_dim).T.contiguous(),
        step_bias=numbers("dt_proj.bias", own),
        skip=numbers("D", own),
        norm=norm,
        eps=config.norms_eps or reader.config.rms_norm_eps,
        ranks=reader.cut.ranks,
    )
