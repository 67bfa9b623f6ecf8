"""The shape of multi-head latent attention, from `config.json` (MLA, DeepSeek-V2, arXiv 2405.04434).

Of a token the cache keeps a *latent* that keys and values of all heads are projections of, and a *rotary key* that all
heads share. Knows no tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .json_file import MOST_WIDTH, Fields


@dataclass(frozen=True, slots=True)
class LatentConfig:
    """Widths of multi-head latent attention.

    Attributes:
        rank: numbers in a latent.
        query_rank: numbers in the latent of the queries; 0: queries are projected from the hidden state at once.
        plain_dim, rotary_dim: elements of a query or key head without and with positions.
        value_dim: elements of a value head.
        is_interleaved: pairs that turn together are neighbours in the checkpoint, instead of half a head apart.
        has_bias: whether the projections down to latents add a bias.
    """

    rank: int
    query_rank: int
    plain_dim: int
    rotary_dim: int
    value_dim: int
    is_interleaved: bool
    has_bias: bool

    @staticmethod
    def from_fields(fields: Fields, *, value_dim: int, is_interleaved: bool, has_bias: bool) -> LatentConfig:
        """`value_dim` and `is_interleaved` are what absent entries mean.

        Raises:
            ModelError: a width that is missing or odd.
        """
        rotary_dim = fields.integer("qk_rope_head_dim", at_most=MOST_WIDTH)
        if rotary_dim % 2:
            raise fields.odd("qk_rope_head_dim", "an even number")
        return LatentConfig(
            rank=fields.integer("kv_lora_rank", at_most=MOST_WIDTH),
            query_rank=fields.integer("q_lora_rank", 0, at_least=0, at_most=MOST_WIDTH),
            plain_dim=fields.integer("qk_nope_head_dim", at_most=MOST_WIDTH),
            rotary_dim=rotary_dim,
            value_dim=fields.integer("v_head_dim", value_dim, at_most=MOST_WIDTH),
            is_interleaved=fields.boolean("rope_interleave", is_interleaved),
            has_bias=has_bias,
        )

    @property
    def width(self) -> int:
        """Numbers that the cache keeps of a token and layer: latent and rotary key."""
        return self.rank + self.rotary_dim

    @property
    def query_dim(self) -> int:
        """Elements of one query head."""
        return self.plain_dim + self.rotary_dim

    @property
    def num_norms(self) -> int:
        """Numbers in the norms of the latents."""
        return self.rank + self.query_rank

    def num_biases(self, num_heads: int) -> int:
        """Numbers in the bias of the projections down, which queries that are projected at once share."""
        return (self.width + (self.query_rank or num_heads * self.query_dim)) * self.has_bias


def attention_scale(latent: LatentConfig, scaling: Fields) -> float:
    """Factor on q·k: of the whole query head, and YaRN's temperature where `mscale_all_dim` asks for it.

    `scaling` is `rope_parameters` or `rope_scaling`.
    """
    scale = 1.0 / math.sqrt(latent.query_dim)
    weight = scaling.number("mscale_all_dim", 0.0, above=-1.0)
    is_scaled = scaling.text("rope_type", scaling.text("type", "default")) != "default"
    if not is_scaled or not weight:
        return scale
    factor = scaling.number("factor", 1.0)
    temperature = 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0
    return scale * temperature * temperature
