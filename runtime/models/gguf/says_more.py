"""What the files of single architectures say besides what those of all say, in the words of a `config.json`.

Falcon, GPT-NeoX, BitNet, GPT-2, Llama 4, Ministral 3, MiniCPM3. Knows no tensors but their names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..json_file import Fields
from .file import GgufFile

Values = dict[str, Any]


def _falcon(file: GgufFile, fields: Fields, values: Values) -> Values:
    """Attention and MLP side by side, after one norm or two; of the smallest one KV head is a group of all queries."""
    return {
        "new_decoder_architecture": True,
        "num_kv_heads": values["num_key_value_heads"],
        "num_ln_in_parallel_attn": 1 + ("blk.0.attn_norm_2.weight" in file.tensors),
        "ffn_hidden_size": values["intermediate_size"],
        "activation": values["hidden_act"],
    }


def _gpt_neox(file: GgufFile, fields: Fields, values: Values) -> Values:
    return {"use_parallel_residual": fields.boolean("use_parallel_residual", True)}


def _bitnet(file: GgufFile, fields: Fields, values: Values) -> Values:
    """The gate is SiLU where nothing is said, as in the first of these models."""
    return {"hidden_act": fields.text("hidden_activation", "silu")}


def _gpt2(file: GgufFile, fields: Fields, values: Values) -> Values:
    return {"n_inner": values["intermediate_size"]}


def _llama4(file: GgufFile, fields: Fields, values: Values) -> Values:
    """Chunks are of one size in all of them; the one of 128 experts has no norms of heads."""
    return {"attention_chunk_size": 8192, "use_qk_norm": fields.integer("expert_count") != 128}


def _ministral3(file: GgufFile, fields: Fields, values: Values) -> Values:
    """How queries grow with the position, and the two factors of YaRN, which here is said of the second alone."""
    scaling = dict(values.get("rope_scaling", {}))
    if scaling.get("rope_type") == "yarn" and "mscale" in scaling:
        weight = fields.number("rope.scaling.yarn_log_multiplier")
        scaling |= {"mscale": 1.0, "mscale_all_dim": weight}
    growth = fields.number("attention.temperature_scale", 0.0, above=-1.0)
    return {"rope_scaling": {**scaling, "llama_4_scaling_beta": growth}}


def _minicpm3(file: GgufFile, fields: Fields, values: Values) -> Values:
    """Factors that llama.cpp knows, those of the published model of 4 billion."""
    return {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256}


# by architecture, what its files say; given what was read of all
SAYS_MORE: dict[str, Callable[[GgufFile, Fields, Values], Values]] = {
    "FalconForCausalLM": _falcon,
    "GPTNeoXForCausalLM": _gpt_neox,
    "BitNetForCausalLM": _bitnet,
    "GPT2LMHeadModel": _gpt2,
    "Llama4ForCausalLM": _llama4,
    "Ministral3ForCausalLM": _ministral3,
    "MiniCPM3ForCausalLM": _minicpm3,
}
