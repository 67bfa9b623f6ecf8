"""Gemma 4's configuration in the words of the others: heads by kind of layer, and which of its blocks there are.

::

    layers with a window     head_dim, num_key_value_heads
    layers without one       global_head_dim; with attention_k_eq_v num_global_key_value_heads, and no value projection
                             (or what per_layer_config says, as transformers 5.24 saves it)

Knows no tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import ModelError
from .architecture import Architecture
from .json_file import MOST_WIDTH, Fields
from .kv_shape import KVShape
from .layer_kinds import MOST_LAYERS

_GLOBAL_HEAD_DIM, _WINDOW, _PATTERN = 512, 512, 6  # transformers' defaults
_ROPES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
}


def adapt_gemma4(fields: Fields, options: Architecture) -> tuple[Fields, Architecture]:
    """The same configuration with the keys of the others, and the options of its size.

    Raises:
        ModelError: a key is odd, or asks for what is not run.
    """
    if fields.values.get("use_bidirectional_attention") == "all":
        raise ModelError(f"{fields.place}: use_bidirectional_attention: tokens that see later ones are not supported")
    num_layers = fields.integer("num_hidden_layers", at_most=MOST_LAYERS)
    kinds = fields.values.get("layer_types")
    if kinds is None:
        kinds = [
            "full_attention" if (index + 1) % _PATTERN == 0 else "sliding_attention" for index in range(num_layers)
        ]
    if isinstance(kinds, list) and len(kinds) == num_layers:
        kinds = [*kinds[:-1], "full_attention"]
    reuses_keys = fields.boolean("attention_k_eq_v", False)
    values: dict[str, Any] = {
        **fields.values,
        "sliding_window": fields.integer("sliding_window", _WINDOW),
        "layer_types": kinds,
        "rope_parameters": fields.values.get("rope_parameters") or _ROPES,
        "query_pre_attn_scalar": 1.0,
    }
    if not fields.boolean("enable_moe_block", False):
        options = replace(options, experts=None)
    is_wide = fields.boolean("use_double_wide_mlp", False)
    return Fields(values, fields.place), replace(options, reuses_keys=reuses_keys, widens_shared=is_wide)


def full_shape(fields: Fields, kinds: list[bool], windowed: KVShape, num_heads: int) -> KVShape:
    """What layers without a window keep. kinds: by layer, whether it has one; windowed: what layers with one keep.

    Raises:
        ModelError: a number is odd, or layers of one kind differ.
    """
    own = fields.values.get("per_layer_config")
    if own is not None:
        return _listed_shape(fields, own, kinds, windowed, num_heads)
    head_dim = fields.integer("global_head_dim", _GLOBAL_HEAD_DIM, at_most=MOST_WIDTH)
    num_kv_heads = windowed.num_heads
    if fields.boolean("attention_k_eq_v", False) and "num_global_key_value_heads" in fields:
        num_kv_heads = fields.integer("num_global_key_value_heads")
    if num_heads % num_kv_heads:
        raise fields.odd("num_global_key_value_heads", f"a divisor of num_attention_heads ({num_heads})")
    return KVShape(num_kv_heads, head_dim)


def _listed_shape(fields: Fields, own: object, kinds: list[bool], windowed: KVShape, num_heads: int) -> KVShape:
    """Of the layers that `per_layer_config` lists by their numbers."""
    full = [str(index) for index, has_window in enumerate(kinds) if not has_window]
    expected = f"head_dim and num_key_value_heads of layers {', '.join(full)}, the same of each"
    if not isinstance(own, Mapping) or not all(isinstance(one, Mapping) for one in own.values()):
        raise fields.odd("per_layer_config", expected)
    sections = [Fields(own.get(index, {}), f"{fields.place}: per_layer_config: {index}") for index in full]
    found = {
        KVShape(
            section.integer("num_key_value_heads", windowed.num_heads),
            section.integer("head_dim", windowed.head_dim, at_most=MOST_WIDTH),
        )
        for section in sections
    }
    named = {key for one in own.values() for key in one}
    if len(found) != 1 or own.keys() - set(full) or named - {"head_dim", "num_key_value_heads"}:
        raise fields.odd("per_layer_config", expected)
    (shape,) = found
    if num_heads % shape.num_heads:
        raise fields.odd("per_layer_config", f"KV heads that divide num_attention_heads ({num_heads})")
    return shape
