"""Learned positions: the entries of GPT-2 and OPT, and their configurations in the words of the others.

::

    x₀ = embedding[token] + table[position + first row]        Vaswani et al., arXiv 1706.03762, section 3.5

The table is read and added in `vocabulary`; each rank of several has the whole of it. Queries and
keys are not turned, so what is cached stays at its position.
"""

from __future__ import annotations

from ...errors import ModelError
from .architecture import Architecture, LayerNames
from .json_file import MOST_WIDTH, Fields

_ALIASES = (
    ("n_embd", "hidden_size"),
    ("n_layer", "num_hidden_layers"),
    ("n_head", "num_attention_heads"),
    ("n_positions", "max_position_embeddings"),
    ("n_inner", "ffn_dim"),
    ("activation_function", "hidden_act"),
)
_ON = (
    ("scale_attn_weights", "scores that are not scaled"),
    ("do_layer_norm_before", "norms after attention and MLP"),  # OPT-350M
    ("layer_norm_elementwise_affine", "norms without weights"),
)


def adapt_learned(fields: Fields, options: Architecture) -> tuple[Fields, Architecture]:
    """The same configuration with the keys of the others. Raises ModelError: a form that is missing here, by key."""
    for key, what in _ON:
        if not fields.boolean(key, True):
            raise ModelError(f"{fields.place}: {key}: {what} are missing here")
    fields = fields.renamed(_ALIASES)
    hidden = fields.integer("hidden_size", at_most=MOST_WIDTH)
    if fields.integer("word_embed_proj_dim", hidden) != hidden:
        what = f"embeddings of another width than hidden_size ({hidden})"
        raise ModelError(f"{fields.place}: word_embed_proj_dim: {what} are missing here")
    values = {
        **fields.values,
        "intermediate_size": fields.integer("ffn_dim", 4 * hidden, at_most=MOST_WIDTH),
        "layer_norm_epsilon": fields.number("layer_norm_epsilon", 1e-5),  # OPT's configuration does not say it
    }
    return Fields(values, fields.place), options


_GPT2 = Architecture(
    names=LayerNames(
        input_norm="ln_1",
        qkv=("attn.c_attn",),
        o="attn.c_proj",
        mlp_norm="ln_2",
        gate_up=("mlp.c_fc",),
        down="mlp.c_proj",
    ),
    qkv_bias=True,
    o_bias=True,
    mlp_bias=True,
    norm="layer",
    gateless=True,
    tied=True,
    eps_key="layer_norm_epsilon",
    backbone="transformer",
    embedding="wte",
    positions="wpe",
    transposed=True,
    has_positions=False,
    final_norm="ln_f",
    layers="h",
    refused=(
        ("scale_attn_by_inverse_layer_idx", "attention scaled by the layer is missing here"),
        ("add_cross_attention", "attention to another model's states is missing here"),
    ),
    adapts=adapt_learned,
)
_OPT = Architecture(
    names=LayerNames(
        input_norm="self_attn_layer_norm",
        o="self_attn.out_proj",
        mlp_norm="final_layer_norm",
        gate_up=("fc1",),
        down="fc2",
    ),
    qkv_bias="enable_bias",
    o_bias="enable_bias",
    mlp_bias="enable_bias",
    biased=True,
    norm="layer",
    gateless=True,
    tied=True,
    eps_key="layer_norm_epsilon",
    backbone="model.decoder",
    positions="embed_positions",
    first_row=2,
    has_positions=False,
    final_norm="final_layer_norm",
    refused=(("_remove_final_layer_norm", "a decoder without a last norm is missing here"),),
    adapts=adapt_learned,
)
LEARNED = {"GPT2LMHeadModel": _GPT2, "OPTForCausalLM": _OPT}
