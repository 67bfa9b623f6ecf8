"""What a GGUF file's keys say of a model, in the words of a `config.json`.

Every key of the architecture is read, or known to change nothing, or refused by name: a setting that is overlooked
makes a model that runs and answers nonsense. Some things are not written in the file and are known of the architecture,
as llama.cpp has them in its code: which layers have a window (Gemma 2 and 3, Phi-3 …) or no rope (SmolLM3), the rope of
layers with a window (Gemma 3), how queries are scaled in the largest Gemma 2 and 3, the activation of MLPs without a
gate, and what `says_more` has.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np

from ....errors import ModelError
from ..architecture import Architecture
from ..architectures import ARCHITECTURES
from ..json_file import Fields
from .families import FAMILIES, JOINED, MULTIPLIERS, Family
from .file import GgufFile
from .layers_by_kind import by_kind
from .recurrent import recurrent_values
from .says_more import SAYS_MORE

MOST_POSITIONS = 1 << 26  # six times the longest context there is; a table of positions is made of it
_READ = {
    "context_length", "embedding_length", "block_count", "feed_forward_length", "vocab_size", "attention.head_count",
    "attention.head_count_kv", "attention.key_length", "attention.value_length",
    "attention.layer_norm_rms_epsilon", "attention.sliding_window", "attention.sliding_window_pattern",
    "attn_logit_softcapping", "final_logit_softcapping", "rope.dimension_count", "rope.freq_base",
    "rope.freq_base_swa", "rope.scaling.type", "rope.scaling.factor", "rope.scaling.attn_factor",
    "rope.scaling.original_context_length", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
    "rope.scale_linear", "expert_count", "expert_used_count", "expert_feed_forward_length",
    "expert_shared_feed_forward_length", "expert_weights_norm", "expert_weights_scale", "expert_gating_func",
    "expert_group_count", "expert_group_used_count", "leading_dense_block_count", "interleave_moe_layer_step",
    "nextn_predict_layers", "attention.layer_norm_epsilon",
}  # fmt: skip
# with any of these values a key changes nothing; None: with all
_NEUTRAL: dict[str, tuple[object, ...] | None] = {
    "rope.scaling.finetuned": None,
    "tensor_data_layout": None,
    "attention.causal": (True,),
    "use_parallel_residual": (False,),
    "logit_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "embedding_scale": (0.0, 1.0),
    "attention.scale": (0.0,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "expert_shared_count": None,  # the width of their tensors counts
    "moe_every_n_layers": (0, 1),
    "pooling_type": None,
    "rope.scaling.yarn_log_multiplier": (0.0,),
    "rope.scaling.yarn_ext_factor": (-1.0, 1.0),
    "rope.scaling.yarn_attn_factor": (1.0,),
}


def family_of(file: GgufFile) -> Family:
    """Raises ModelError: no architecture, or one that has no entry here."""
    arch = file.fields().text("general.architecture")
    if arch not in FAMILIES:
        raise ModelError(
            f"{file.path}: general.architecture: {arch} is not supported as GGUF; these are: {', '.join(FAMILIES)}"
        )
    return FAMILIES[arch]


def config_values(file: GgufFile) -> dict[str, Any]:
    """The object that `config.json` would hold.

    Raises:
        ModelError: a key is missing, odd, or one whose meaning is not known here.
    """
    family = family_of(file)
    fields = _of_architecture(file, family)
    hidden = fields.integer("embedding_length")
    layers = fields.integer("block_count") - fields.integer("nextn_predict_layers", 0, at_least=0)
    fields.integer("context_length", at_most=MOST_POSITIONS)
    if not 0 < layers <= len(file.tensors):
        raise fields.odd("block_count", f"1 to one for each of {len(file.tensors)} tensors")
    own: dict[str, Any] = {}
    if family.by_kind:
        fields, own = by_kind(file, fields, layers)
    architecture = _architecture(file, fields, family)
    options = ARCHITECTURES[architecture]
    attends = not options.one_part or fields.values.get("attention.head_count") != 0  # Mamba
    num_heads = _of_all_layers(fields, "attention.head_count") if attends else 1
    head_dim = fields.integer("attention.key_length", hidden // num_heads)
    if not options.is_latent and fields.integer("attention.value_length", head_dim) != head_dim:
        raise fields.odd("attention.value_length", f"attention.key_length ({head_dim})")
    is_rms = options.norm == "rms" or family.has_rms_eps
    eps = "attention.layer_norm_rms_epsilon" if is_rms else "attention.layer_norm_epsilon"
    rotary = fields.integer("rope.dimension_count") if options.is_latent else head_dim
    values: dict[str, Any] = {
        "architectures": [architecture],
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": num_heads,
        "num_key_value_heads": _of_all_layers(fields, "attention.head_count_kv", num_heads),
        **({"head_dim": head_dim} if attends else {}),
        "vocab_size": file.rows("token_embd"),
        "max_position_embeddings": fields.integer("context_length"),
        options.eps_key: fields.number(eps),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attn_logit_softcapping": fields.number("attn_logit_softcapping", 0.0, above=-1.0),
        "final_logit_softcapping": fields.number("final_logit_softcapping", family.soft_cap, above=-1.0),
        "dtype": _dtype(file),
        **_parts_that_are_there(file, options),
        "joins_qkv": _joins_qkv(file, family, options),
        **_factors_of(fields, options, head_dim),
        **(_latent(fields, head_dim, hidden // num_heads) if options.is_latent else {}),
        **(own or (_rope(file, fields, family, options, rotary) if options.has_positions else {})),
        **_windows(fields, family, layers),
        **(_mlp(file, fields, options, family.normalises) if attends else {}),
        **recurrent_values(file, fields, options, layers),
        **(_streams(file, fields, layers) if options.has_altup else {}),
    }
    if family.activation:
        values["hidden_act"] = family.activation
    if family.wide_layers == layers:
        values["query_pre_attn_scalar"] = hidden / num_heads
    if architecture in SAYS_MORE:
        values |= SAYS_MORE[architecture](file, fields, values)
    if family.unturned_every:
        values["no_rope_layers"] = [int((index + 1) % family.unturned_every > 0) for index in range(layers)]
    return values


def _architecture(file: GgufFile, fields: Fields, family: Family) -> str:
    if fields.integer("expert_count", 0, at_least=0):
        if not family.mixture:
            raise fields.odd("expert_count", "0")
        has_bias = any(name.endswith("exp_probs_b.bias") for name in file.tensors)
        return family.balanced if family.balanced and has_bias else family.mixture
    if not family.architecture:
        raise fields.odd("expert_count", "an integer of at least 1")
    if family.normed and fields.boolean("ssm.dt_b_c_rms", False):
        return family.normed
    if family.unscaled and not any(fields.values.get(key) for key in MULTIPLIERS):
        return family.unscaled
    return family.windowed if family.windowed and "attention.sliding_window" in fields else family.architecture


def _parts_that_are_there(file: GgufFile, options: Architecture) -> dict[str, bool]:
    """What a `config.json` says of biases and norms of heads, by the tensors that there are."""
    parts = [(options.qkv_bias, "attn_q.bias"), (options.o_bias, "attn_output.bias")]
    parts += [(options.mlp_bias, "ffn_up.bias"), (options.qk_norm, "attn_q_norm.weight")]
    there = {name.split(".", 2)[-1] for name in file.tensors if name.startswith("blk.")}
    found: dict[str, bool] = {}
    for option, name in parts:
        if isinstance(option, str):
            found.setdefault(option, name in there or name.replace("attn_q.", "attn_qkv.") in there)
    if isinstance(options.projection_bias, str):
        found[options.projection_bias] = "output.bias" in file.tensors
    return found


def _joins_qkv(file: GgufFile, family: Family, options: Architecture) -> bool:
    """Whether queries, keys and values are one tensor where they might be three (ChatGLM)."""
    may = len(options.names.qkv) == 3 and options.recurrent is None and not family.is_permuted
    return may and "blk.0.attn_qkv.weight" in file.tensors


def _factors_of(fields: Fields, options: Architecture, head_dim: int) -> dict[str, float]:
    """Granite's and Cohere's factors; 0 stands for none, and of q·k for that of heads of this size."""
    names = {"logit_scale": "logit_scale"} if options.logit_scale else {}
    if options.multipliers:
        names = {
            "attention.scale": "attention_multiplier",
            "embedding_scale": "embedding_multiplier",
            "residual_scale": "residual_multiplier",
            "logit_scale": "logits_scaling",
        }
    found = {ours: fields.number(theirs) for theirs, ours in names.items() if fields.values.get(theirs)}
    return {"attention_multiplier": head_dim**-0.5, **found} if options.multipliers else found


def _of_architecture(file: GgufFile, family: Family) -> Fields:
    """The keys of the architecture, without its name, every one of them known."""
    arch = file.fields().text("general.architecture")
    prefix = f"{arch}."
    values = {
        key.removeprefix(prefix): value.tolist() if isinstance(value, np.ndarray) else value
        for key, value in file.values.items()
        if key.startswith(prefix)
    }
    for key, value in values.items():
        neutral = _NEUTRAL.get(key, ())
        if key not in _READ and key not in family.keys and neutral is not None and value not in neutral:
            raise ModelError(f"{file.path}: {prefix}{key}: {repr(value)[:80]} is not supported")
    num_parts = file.fields().integer("split.count", 1, at_least=0)
    if num_parts > 1:
        raise ModelError(f"{file.path}: is one of {num_parts} parts; join them with `llama-gguf-split --merge`")
    return Fields(values, f"{file.path}: {arch}")


def _latent(fields: Fields, head_dim: int, default: int) -> dict[str, Any]:
    """Widths of latent attention; in files whose heads are as wide as the latents, those of heads are said apart.
    default: of a value head (MiniCPM3)."""
    rotary, query = fields.integer("rope.dimension_count"), fields.integer("attention.key_length_mla", head_dim)
    if query <= rotary:
        raise fields.odd("rope.dimension_count", f"less than a query head has, {query}")
    value = fields.integer("attention.value_length", default)
    return {
        "kv_lora_rank": fields.integer("attention.kv_lora_rank"),
        "q_lora_rank": fields.integer("attention.q_lora_rank", 0, at_least=0),
        "qk_rope_head_dim": rotary,
        "qk_nope_head_dim": query - rotary,
        "v_head_dim": fields.integer("attention.value_length_mla", value),
    }


def _streams(file: GgufFile, fields: Fields, num_layers: int) -> dict[str, Any]:
    """Streams of hidden states, inputs of layers and shared keys (Gemma 3n); sparse gates are said by quantiles."""
    values: dict[str, Any] = {
        "altup_num_inputs": fields.integer("altup.num_inputs"),
        "altup_active_idx": fields.integer("altup.active_idx", at_least=0),
        "altup_correct_scale": "blk.0.altup_correct_scale.weight" in file.tensors,
        "hidden_size_per_layer_input": fields.integer("embedding_length_per_layer_input"),
        # of files that do not say it the first twenty layers have keys of their own
        "num_kv_shared_layers": fields.integer("attention.shared_kv_layers", max(0, num_layers - 20), at_least=0),
        "laurel_rank": file.rows("blk.0.laurel_l"),
        "vocab_size_per_layer_input": file.rows("per_layer_token_embd"),
    }
    quantiles = fields.values.get("activation_sparsity_scale", [float("-inf")] * num_layers)
    if not isinstance(quantiles, list) or not all(isinstance(each, float) for each in quantiles):
        raise fields.odd("activation_sparsity_scale", f"{num_layers} numbers")
    return values | {"activation_sparsity_pattern": [NormalDist().cdf(each) for each in quantiles]}


def _of_all_layers(fields: Fields, key: str, default: int | None = None) -> int:
    """An integer that some files write once for each layer, 0 for those to which it does not apply."""
    value = fields.values.get(key)
    if isinstance(value, list):
        value = [each for each in value if each != 0]
        if not value or any(each != value[0] for each in value):
            raise fields.odd(key, "the same number for all layers")
        fields = Fields({key: value[0]}, fields.place)
    return fields.integer(key, default)


def _mlp(file: GgufFile, fields: Fields, options: Architecture, normalises: bool) -> dict[str, Any]:
    num_experts = fields.integer("expert_count", 0, at_least=0)
    if num_experts == 1 and not any(name.endswith(".ffn_gate_inp.weight") for name in file.tensors):
        num_experts = 0  # MLPs, which need no router (Jamba)
    if not num_experts or options.experts is None:
        return {options.width_key: _of_all_layers(fields, "feed_forward_length")}
    has_width = fields.values.get("feed_forward_length", 0) != 0
    inner = _of_all_layers(fields, "feed_forward_length") if has_width else 1
    num_dense = fields.integer("leading_dense_block_count", 0, at_least=0)
    step = fields.integer("interleave_moe_layer_step", 1, at_least=0) or 1
    first, up = -(-(num_dense + 1) // step) * step - 1, "up" if options.experts.gateless else "gate"

    def experts_of(layer: int) -> str:
        joined = f"blk.{layer}.{JOINED}.weight"
        return joined if joined in file.tensors else f"blk.{layer}.ffn_{up}_exps.weight"

    if options.recurrent is not None:  # layers with experts may be any (Jamba, Nemotron-H)
        layers = range(fields.integer("block_count"))
        first = next((index for index in layers if experts_of(index) in file.tensors), first)
    name = experts_of(first)
    stacked = file.tensors.get(name)
    if stacked is None or stacked.shape[0] != num_experts:
        found = "nothing" if stacked is None else str(list(stacked.shape))
        raise fields.odd("expert_count", f"that of {name} ({found})")
    scoring = fields.integer("expert_gating_func", 0, at_least=0)  # 0: the architecture's own
    if scoring not in (0, 1 + (options.experts.scoring == "sigmoid")):
        raise fields.odd("expert_gating_func", f"that of {options.experts.scoring}")
    values: dict[str, Any] = {
        options.width_key: inner,
        "num_experts": num_experts,
        **({options.experts_key: num_experts} if options.experts_key else {}),
        "num_experts_per_tok": fields.integer("expert_used_count"),
        "moe_intermediate_size": fields.integer("expert_feed_forward_length", inner),
        "norm_topk_prob": fields.boolean("expert_weights_norm", normalises),
        "routed_scaling_factor": fields.number("expert_weights_scale", 1.0, above=-1.0) or 1.0,
        "n_group": fields.integer("expert_group_count", 1, at_least=0) or 1,
        "topk_group": fields.integer("expert_group_used_count", 1, at_least=0) or 1,
        "first_k_dense_replace": num_dense,
        "decoder_sparse_step": step,
        "moe_latent_size": fields.integer("moe_latent_size", 0, at_least=0),
    }
    shared = file.tensors.get(f"blk.{first}.ffn_{up}_shexp.weight")
    if shared is not None:
        width = fields.integer("expert_shared_feed_forward_length", shared.shape[0])
        values["shared_expert_intermediate_size"] = width
    return values


def _windows(fields: Fields, family: Family, num_layers: int) -> dict[str, Any]:
    window = fields.integer("attention.sliding_window", 0, at_least=0)
    if not window:
        return {}
    if family.window_pattern is None:
        if window >= fields.integer("context_length"):
            return {}
        raise fields.odd("attention.sliding_window", "none for this architecture")
    pattern = fields.values.get("attention.sliding_window_pattern", family.window_pattern)
    if isinstance(pattern, list):
        slides = [bool(each) for each in pattern]
    elif isinstance(pattern, int) and pattern >= 0:
        slides = [not pattern or (index + 1) % pattern != 0 for index in range(num_layers)]
    else:
        raise fields.odd("attention.sliding_window_pattern", "a number, or true or false for each layer")
    kinds = ["sliding_attention" if each else "full_attention" for each in slides]
    return {"sliding_window": window, "layer_types": kinds}


def _rope(file: GgufFile, fields: Fields, family: Family, options: Architecture, head_dim: int) -> dict[str, Any]:
    turned = fields.integer("rope.dimension_count", head_dim)
    turns_all = family.is_permuted and options.partial_rotary == 1.0
    if turned > head_dim or (turns_all and turned != head_dim):
        raise fields.odd("rope.dimension_count", f"that of a head, {head_dim}")
    values: dict[str, Any] = {
        "rope_theta": fields.number("rope.freq_base", 10_000.0),
        # a hair more, for the product is rounded down
        "partial_rotary_factor": 1.0 if turned == head_dim else math.nextafter(turned / head_dim, 1.0),
    }
    if "rope.freq_base_swa" in fields:
        values["rope_local_base_freq"] = fields.number("rope.freq_base_swa")
    scaling = _rope_scaling(file, fields, turned)
    if scaling.get("rope_type") == "yarn":
        scaling["truncate"] = family.cuts_yarn
    return values | ({"rope_scaling": scaling} if scaling else {})


def _rope_scaling(file: GgufFile, fields: Fields, turned: int) -> dict[str, Any]:
    original = fields.integer("rope.scaling.original_context_length", fields.integer("context_length"))
    attention = fields.number("rope.scaling.attn_factor", 1.0)
    factors = [file.factors(f"rope_factors_{which}.weight", turned // 2) for which in ("short", "long")]
    kind = fields.text("rope.scaling.type", "none")
    if factors[0] and factors[1]:
        scaling: dict[str, Any] = {"original_max_position_embeddings": original}
        scaling |= {"rope_type": "longrope", "short_factor": factors[0], "long_factor": factors[1]}
        return scaling | ({"attention_factor": attention} if "rope.scaling.attn_factor" in fields else {})
    if attention != 1.0:
        raise fields.odd("rope.scaling.attn_factor", "1, or factors of each pair")
    divisors = file.factors("rope_freqs.weight", turned // 2)
    if divisors:  # Llama 3's rule, worked out: what longrope calls factors, the same at all lengths
        if kind not in ("none", "linear") or fields.number("rope.scaling.factor", 1.0) != 1.0:
            raise fields.odd("rope.scaling.type", "none together with rope_freqs.weight")
        return {"rope_type": "longrope", "short_factor": divisors, "long_factor": divisors, "attention_factor": 1.0}
    factor = fields.number("rope.scaling.factor", fields.number("rope.scale_linear", 1.0))
    if kind == "yarn":
        scaling = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
        if "rope.scaling.yarn_log_multiplier" in fields:  # a tenth, as llama.cpp has it
            weight = 10 * fields.number("rope.scaling.yarn_log_multiplier")
            scaling |= {"mscale": weight, "mscale_all_dim": weight}
        for key in ("beta_fast", "beta_slow"):
            if f"rope.scaling.yarn_{key}" in fields:
                scaling[key] = fields.number(f"rope.scaling.yarn_{key}")
        return scaling
    if kind not in ("none", "linear"):
        raise fields.odd("rope.scaling.type", "none, linear or yarn, or longrope with its factors")
    linear = kind == "linear" or "rope.scale_linear" in fields
    return {"rope_type": "linear", "factor": factor} if linear and factor != 1.0 else {}


def _dtype(file: GgufFile) -> str:
    """What numbers are widened to on a GPU: the type of plain matrices, and bf16 with those in few bits."""
    found = {info.type.name for info in file.tensors.values() if len(info.shape) > 1}
    if found <= {"F32"}:
        return "float32"
    return "float16" if found <= {"F16", "F32"} else "bfloat16"
