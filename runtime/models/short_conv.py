"""A gated short convolution in place of attention (LFM2)::

    hidden ─ in ─┬ B ┐
                 ├ x ┴ · ─ convolution over the last few tokens ─┐
                 └ C ────────────────────────────────────────────┴ · ─ out

Its state is the last `width - 1` products of B and x. Knows no requests.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...kernels import LinearWeight, ops
from ...kernels.recurrent import convolve
from ...kernels.state_rounds import StateRounds
from .reader import Reader
from .recurrent_config import RecurrentConfig
from .step import Adapt


@dataclass(frozen=True, slots=True)
class ShortConvWeights:
    """One layer's weights, but for the output's; taps and bias are fp32."""

    into: LinearWeight  # hidden_size -> 3 · channels
    taps: Tensor  # [width, channels]
    bias: Tensor | None  # [channels]

    def mix(self, normed: Tensor, states: tuple[Tensor, ...], plan: StateRounds, adapt: Adapt | None = None) -> Tensor:
        """Hidden states `[T, C]` -> `[T, C]`; changes states: `[N, width - 1, C]`."""
        made = ops.linear(normed, self.into)
        if adapt is not None:
            adapt(made)
        before, after, x = made.chunk(3, dim=1)
        return after * convolve(before * x, self.taps, self.bias, states[0], plan, silu=False)


def read_short_conv(reader: Reader, base: str, config: RecurrentConfig) -> ShortConvWeights:
    """The tensors below `base`; raises ModelError."""
    (channels,), rows = reader.cut.sections(reader.cut.whole_recurrent.channels), reader.cut.projected
    bias = reader.tensor([f"{base}conv.bias"], [channels], []).float() if config.has_conv_bias else None
    taps = reader.tensor([f"{base}conv.weight"], [channels], [1, config.width])
    return ShortConvWeights(
        into=reader.linear(base, tuple(rows), [*rows.values()], reader.config.hidden_size, config.has_bias),
        taps=taps[:, 0].T.float().contiguous(),
        bias=bias,
    )
