"""Falcon's configuration in the words of the others: which heads and norms its three kinds have.

::

    7B          one KV head for all queries; attention and MLP beside each other, after one norm
    40B, 180B   KV heads for groups of queries (`new_decoder_architecture`); beside each other, each after its own norm
    11B         as these, after one norm

Knows no tensors.
"""

from __future__ import annotations

from dataclasses import replace

from .architecture import Architecture
from .json_file import Fields


def adapt_falcon(fields: Fields, options: Architecture) -> tuple[Fields, Architecture]:
    """The same configuration with the keys of the others, and the options of its kind.

    Raises:
        ModelError: a key is odd.
    """
    is_new, num_heads = fields.boolean("new_decoder_architecture", False), fields.integer("num_attention_heads")
    num_kv_heads = 1 if fields.boolean("multi_query", True) else num_heads
    if is_new:
        num_kv_heads = fields.integer("num_kv_heads", num_heads)
    is_parallel = is_new or fields.boolean("parallel_attn", True)
    has_two_norms = is_new and fields.integer("num_ln_in_parallel_attn", 2) == 2
    mlp_norm = "" if is_parallel else options.names.mlp_norm
    names = replace(options.names, mlp_norm=mlp_norm)
    if has_two_norms:
        names = replace(names, input_norm="ln_attn", mlp_norm="ln_mlp")
    values = {
        **fields.values,
        "num_key_value_heads": num_kv_heads,
        "intermediate_size": fields.integer("ffn_hidden_size", 4 * fields.integer("hidden_size")),
        "hidden_act": fields.text("activation", "gelu"),
        "max_position_embeddings": fields.integer("max_position_embeddings", 2048),
    }
    return Fields(values, fields.place), replace(options, names=names, parallel=is_parallel)
