"""Alternating updates as `config.json` has them (`altup.py`), and Gemma 3n's keys in the words of the others.

Knows no tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import ModelError
from .architecture import Architecture
from .json_file import MOST_WIDTH, Fields
from .layer_kinds import MOST_LAYERS

MOST_STREAMS = 64


@dataclass(frozen=True, slots=True)
class AltUpConfig:
    """Several streams of hidden states, of which each layer computes one.

    Attributes:
        num_streams: how many.
        active: the one that a layer computes.
        scales: whether it is scaled before the layer's own input is added to the others.
        rank: of the products that are added to it besides attention (LAuReL, arXiv 2411.07501).
    """

    num_streams: int
    active: int
    scales: bool
    rank: int

    @staticmethod
    def from_fields(fields: Fields) -> AltUpConfig:
        """Raises ModelError: one is odd."""
        num_streams = fields.integer("altup_num_inputs", 4, at_least=2, at_most=MOST_STREAMS)
        return AltUpConfig(
            num_streams,
            fields.integer("altup_active_idx", 0, at_least=0, at_most=num_streams - 1),
            fields.boolean("altup_correct_scale", True),
            fields.integer("laurel_rank", 64, at_most=MOST_WIDTH),
        )

    def layer_shapes(self, hidden: int) -> Iterator[tuple[int, int, str]]:
        """(Outputs, inputs, module) of a layer's matrices but routers."""
        yield self.rank, hidden, "laurel.linear_left"
        yield hidden, self.rank, "laurel.linear_right"

    def shapes(self, hidden: int) -> Iterator[tuple[int, int, str]]:
        """(Outputs, inputs, module) of those that begin and end the streams."""
        for kind in ("altup_projections", "altup_unembed_projections"):
            for index in range(self.num_streams - 1):
                yield hidden, hidden, f"{kind}.{index}"

    @property
    def num_mixed(self) -> int:
        """Numbers of a layer that make shares of streams of what its router says."""
        return self.num_streams**2 + self.num_streams**3


def adapt_gemma3n(fields: Fields, options: Architecture) -> tuple[Fields, Architecture]:
    """The same configuration, with what transformers' own defaults say of absent keys.

    Raises:
        ModelError: MLPs of different widths, or a key that is odd.
    """
    num_layers, values = fields.integer("num_hidden_layers", at_most=MOST_LAYERS), dict(fields.values)
    width = values.get("intermediate_size")
    if isinstance(width, list):
        if not width or len(set(map(str, width))) > 1:
            raise ModelError(f"{fields.place}: intermediate_size: layers of different widths are missing here")
        values["intermediate_size"] = width[0]
    sparse = 10 if num_layers > 10 else 0
    if values.get("activation_sparsity_pattern") is None:
        values["activation_sparsity_pattern"] = [0.95] * sparse + [0.0] * (num_layers - sparse)
    defaults = {"rope_theta": 1e6, "sliding_window": 512, "num_kv_shared_layers": 15, "final_logit_softcapping": 30.0}
    # published configurations name a scale of queries that is not used, since their norms hold it
    values = {**defaults, **values, "query_pre_attn_scalar": 1.0, "attn_logit_softcapping": None}
    return Fields(values, fields.place), options
