"""Rotary position embeddings: from a checkpoint's description to a table of cosines and sines.

Every kind of scaling is a choice of inverse frequencies (one per pair of elements) and one factor on the table;
nothing of it is left at run time. Two kinds depend on how long a sequence is: `dynamic` and `longrope` change
frequencies beyond the original context. `dynamic` has other ones for every length; the choice is made once, from the
longest position the engine will serve, so that a token's key never depends on how long its sequence became, as the
prefix cache needs. `longrope` has two sets, and where both are served a table has two parts, one for the positions of
each: a sequence is in one or the other, and so are its keys (`schedule.rope_switch`).

Sources: RoPE arXiv 2104.09864; position interpolation 2306.15595; YaRN 2309.00071; LongRoPE 2402.13753; the `llama3`
rule from the Llama 3.1 report, 2407.21783.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...errors import ModelError
from .layer_config import QueryGrowth
from .rope_config import RopeConfig

if TYPE_CHECKING:
    from .config import ModelConfig

MOST_NUMBERS = 1 << 30  # of a table; it takes 4 GiB


def inverse_frequencies(rope: RopeConfig, max_positions: int) -> tuple[Tensor, float]:
    """`[rotary_dim / 2]` fp32 radians per position of each pair, and the factor on cosines and sines.

    max_positions: one more than the largest position ever served; decides `dynamic` and `longrope`.
    """
    exponents = torch.arange(0, rope.rotary_dim, 2, dtype=torch.float32) / rope.rotary_dim
    theta = rope.theta
    if rope.rope_type == "dynamic" and max_positions > rope.original_max_positions:
        # NTK-aware: stretch the base until the slowest pair covers the longer context
        stretch = rope.factor * max_positions / rope.original_max_positions - (rope.factor - 1)
        theta *= stretch ** (rope.rotary_dim / (rope.rotary_dim - 2))
    plain = 1.0 / theta**exponents
    if rope.rope_type == "linear":
        return plain / rope.factor, 1.0
    if rope.rope_type == "proportional":
        return torch.where(torch.arange(len(plain)) < rope.num_turned, plain / rope.factor, 0.0), 1.0
    if rope.rope_type == "llama3":
        return _llama3(rope, plain), 1.0
    if rope.rope_type == "yarn":
        return _yarn(rope, plain), _yarn_attention_factor(rope)
    if rope.rope_type == "longrope":
        factors = rope.long_factor if rope.takes_long_factors(max_positions) else rope.short_factor
        return plain / torch.tensor(factors), _longrope_factor(rope)
    return plain, 1.0


def rope_table(rope: RopeConfig, max_positions: int) -> Tensor:
    """`[max_positions, rotary_dim]` fp32; row p = cos of every pair, then sin of every pair.

    Raises ModelError: it would have more than `MOST_NUMBERS`, or does not fit the memory.
    """
    said = f"max_position_embeddings: a table of {max_positions} positions by {rope.rotary_dim} numbers"
    if max_positions * rope.rotary_dim > MOST_NUMBERS:
        raise ModelError(f"{said} is too large; set max_model_len to {MOST_NUMBERS // rope.rotary_dim} or less")
    try:
        frequencies, factor = inverse_frequencies(rope, max_positions)
        angles = torch.arange(max_positions, dtype=torch.float32)[:, None] * frequencies
        return torch.cat([angles.cos() * factor, angles.sin() * factor], dim=-1)
    except (RuntimeError, MemoryError) as error:
        raise ModelError(f"{said} does not fit the memory; set max_model_len ({str(error)[:80]})") from None


def query_scales(growth: QueryGrowth, max_positions: int) -> Tensor:
    """`[max_positions]` fp32: what a query at each position is multiplied by."""
    turns = (torch.arange(max_positions) + growth.offset) // growth.step
    return 1 + growth.share * torch.log(1.0 + turns)


def table_by_length(rope: RopeConfig, max_positions: int, switches_at: int) -> Tensor:
    """`rope_table` of sequences of up to `switches_at` tokens, and below it that of longer ones."""
    return torch.cat([rope_table(rope, switches_at), rope_table(rope, max_positions)])


def can_turn_back(config: ModelConfig) -> bool:
    """Whether keys as they are cached can be turned to another position: all of them are turned by their position, as
    the last thing that is done to them, and nothing else of a step depends on it."""
    if not config.ropes or config.latent is not None or any(layer.rope < 0 for layer in config.layers):
        return False
    return not config.options.norms_after_rope and not config.query_growth and len(set(config.kv_shapes())) == 1


def turn_back(keys: Tensor, table: Tensor, num_positions: int) -> Tensor:
    """Keys `[..., head_dim]` fp32 that were turned by their positions, as if these were so much smaller.

    table: of `rope_table`; its factor stays on the keys.
    """
    half = table.shape[-1] // 2
    cos, sin = (part / table[0, :half] for part in (table[num_positions, :half], table[num_positions, half:]))
    low, high, rest = keys[..., :half], keys[..., half : 2 * half], keys[..., 2 * half :]
    return torch.cat([low * cos + high * sin, high * cos - low * sin, rest], -1)


def _llama3(rope: RopeConfig, plain: Tensor) -> Tensor:
    """Fast pairs stay, slow pairs are stretched by `factor`, those between are mixed linearly in turns."""
    turns = rope.original_max_positions * plain / (2 * math.pi)  # within the original context
    mix = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    mix = mix.clamp(0, 1)
    return (1 - mix) * plain / rope.factor + mix * plain


def _yarn(rope: RopeConfig, plain: Tensor) -> Tensor:
    """As llama3, but the mixing is linear in the index of the pair (YaRN, section 3.2)."""

    def pair_turning(times: float) -> float:
        length = rope.original_max_positions / (times * 2 * math.pi)
        return rope.rotary_dim * math.log(length) / (2 * math.log(rope.theta))

    low, high = pair_turning(rope.beta_fast), pair_turning(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.rotary_dim - 1)
    width = high - low if high != low else 0.001
    stretched = ((torch.arange(len(plain), dtype=torch.float32) - low) / width).clamp(0, 1)
    return plain / rope.factor * stretched + plain * (1 - stretched)


def _yarn_attention_factor(rope: RopeConfig) -> float:
    def scale(weight: float) -> float:
        return 0.1 * weight * math.log(rope.factor) + 1.0 if rope.factor > 1 else 1.0

    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return scale(rope.mscale) / scale(rope.mscale_all_dim)
    return scale(1.0)


def _longrope_factor(rope: RopeConfig) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.factor <= 1:
        return 1.0
    return math.sqrt(1 + math.log(rope.factor) / math.log(rope.original_max_positions))
