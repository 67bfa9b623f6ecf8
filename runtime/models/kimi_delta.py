"""Kimi Delta Attention in place of attention (Kimi Linear, arXiv 2510.26692)::

    hidden ─┬ queries, keys, values ─ convolution, SiLU ─ delta rule ─ norm of each head ─┐
            ├ f_a ─ f_b: how much of each key is forgotten ──┤                            │
            ├ b: how much is learnt ─────────────────────────┘                            │
            └ g_a ─ g_b ────────────────────────────────────────────────────── sigmoid ───┴ · ─ out

Its state is the last inputs of the convolution, and a matrix per head. Knows no requests.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...kernels import LinearWeight, ops
from ...kernels.recurrent import HeadInputs, advance_heads, convolve
from ...kernels.state_rounds import StateRounds
from .reader import Reader
from .recurrent_config import RecurrentConfig


@dataclass(frozen=True, slots=True)
class KimiDeltaWeights:
    """One layer's weights, but for the output's; taps, rate, step_bias and norm are fp32."""

    config: RecurrentConfig
    into: LinearWeight  # hidden_size -> queries, keys, values
    learns: LinearWeight  # hidden_size -> heads
    narrow: LinearWeight  # hidden_size -> what decays are made of, and gates: 2 · value_dim
    decays: LinearWeight  # value_dim -> heads · key_dim
    gates: LinearWeight  # value_dim -> heads · value_dim
    taps: Tensor  # [width, channels]
    rate: Tensor  # [heads]
    step_bias: Tensor  # [heads, key_dim]
    norm: Tensor  # [value_dim]
    eps: float

    def mix(self, normed: Tensor, states: tuple[Tensor, ...], plan: StateRounds) -> Tensor:
        """Hidden states `[T, C]` -> `[T, heads · value_dim]`; changes states: the convolution's, and the heads'."""
        config, shape = self.config, (len(normed), self.config.heads, self.config.key_dim)
        mixed = convolve(ops.linear(normed, self.into), self.taps, None, states[0], plan, silu=True)
        q, k, v = (part.view(shape) for part in mixed.chunk(3, dim=1))
        of_decays, of_gates = (part.contiguous() for part in ops.linear(normed, self.narrow).chunk(2, dim=1))
        forgets = ops.linear(of_decays, self.decays).view(shape)
        learns = ops.linear(normed, self.learns)
        heads = advance_heads(HeadInputs(q, k, v, forgets, self.rate, self.step_bias, learns), states[1], plan)
        even = ops.rms_norm(heads.view(-1, config.value_dim), self.norm, self.eps).view(len(normed), -1)
        return even * ops.sigmoid(ops.linear(of_gates, self.gates))


def read_kimi_delta(reader: Reader, base: str, config: RecurrentConfig) -> KimiDeltaWeights:
    """The tensors below `base`; raises ModelError."""
    hidden, whole, dim = reader.config.hidden_size, reader.cut.whole_recurrent, config.value_dim
    size, heads = reader.cut.sections(whole.attended_size, whole.heads)
    taps = reader.tensor([f"{base}{part}_conv1d.weight" for part in "qkv"], [size] * 3, [1, config.width])
    return KimiDeltaWeights(
        config,
        into=reader.linear(base, ("q_proj", "k_proj", "v_proj"), [size] * 3, hidden, False),
        learns=reader.linear(base, ("b_proj",), [heads], hidden, False),
        narrow=reader.linear(base, ("f_a_proj", "g_a_proj"), [dim, dim], hidden, False),
        decays=reader.linear(base, ("f_b_proj",), [size], dim, False),
        gates=reader.linear(base, ("g_b_proj",), [size], dim, False),
        taps=taps[:, 0].T.float().contiguous(),
        rate=reader.rates(f"{base}A_log", 1, 1, heads, 1).flatten(),
        step_bias=reader.tensor([f"{base}dt_bias"], [size], []).float().view(-1, config.key_dim),
        norm=reader.tensor([f"{base}o_norm.weight"], [dim], []).float(),
        eps=reader.config.rms_norm_eps,
    )
