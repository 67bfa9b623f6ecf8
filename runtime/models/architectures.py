"""The architectures phloem runs: one entry of options each. All of them are the same decoder.

An entry says what differs from Llama, and under which names a checkpoint keeps its tensors. Everything numeric comes
from the checkpoint's own `config.json` (see `config.py`); this module reads no files and knows no tensors.
"""

from __future__ import annotations

from dataclasses import replace

from . import mixtures
from .altup_config import adapt_gemma3n
from .architecture import (
    Architecture,
    LayerNames,
    all_but_every,
    all_but_first_of_four,
    all_layers,
    every_other_if_enabled,
    from_max_window_layers,
    if_enabled,
    turned_layers,
)
from .experts_config import ExpertNames, ExpertOptions
from .falcon import adapt_falcon
from .gemma4 import adapt_gemma4, full_shape
from .learned_positions import LEARNED
from .recurrent_architectures import RECURRENT
from .recurrent_config import RecurrentOptions

_EVERY_OTHER, _FOURTH_IS_FULL = all_but_every(2), all_but_every(4, "sliding_window_pattern")
_GEMMA_WINDOWS = all_but_every(6, "sliding_window_pattern", "_sliding_window_pattern")
_LLAMA = Architecture()
_MISTRAL = replace(_LLAMA, qkv_bias=False, o_bias=False, sliding=all_layers)
_PHI3 = replace(_MISTRAL, names=LayerNames(qkv=("self_attn.qkv_proj",), gate_up=("mlp.gate_up_proj",)))
_GEMMA = Architecture(norm_offset=1.0, scale_embedding=True, gelu=True, tied=True)
_GEMMA2 = replace(
    _GEMMA,
    names=LayerNames(
        post_attention_norm="post_attention_layernorm",
        mlp_norm="pre_feedforward_layernorm",
        post_mlp_norm="post_feedforward_layernorm",
    ),
    sandwich_norms=True,
    sliding=_EVERY_OTHER,
)
_GEMMA3N = replace(
    _GEMMA2,
    norm_offset=0.0,
    qk_norm=True,
    norms_values=True,
    sliding=all_but_every(5),
    local_theta=10_000.0,
    shares_kv=True,
    has_layer_inputs=True,
    has_altup=True,
    adapts=adapt_gemma3n,
)

_OLMO2 = replace(
    _LLAMA,
    names=LayerNames(
        post_attention_norm="post_attention_layernorm", mlp_norm="", post_mlp_norm="post_feedforward_layernorm"
    ),
    qk_norm=True,
    whole_norms=True,
    pre_norms=False,
    sandwich_norms=True,
)
_GLM = replace(
    _LLAMA,
    names=LayerNames(gate_up=("mlp.gate_up_proj",)),
    biased=True,
    o_bias=False,
    interleaved=True,
    partial_rotary=0.5,
)
_GLM4 = replace(
    _GLM,
    names=replace(_GLM.names, post_attention_norm="post_self_attn_layernorm", post_mlp_norm="post_mlp_layernorm"),
    sandwich_norms=True,
)

_BITNET = replace(_LLAMA, names=LayerNames(o_norm="self_attn.attn_sub_norm", down_norm="mlp.ffn_sub_norm"))

_GRANITE = replace(_LLAMA, scale_embedding="embedding_multiplier", multipliers=True)

_COHERE = replace(
    _LLAMA,
    names=LayerNames(mlp_norm=""),
    norm="unbiased_layer",
    parallel=True,
    interleaved=True,
    tied=True,
    logit_scale="logit_scale",
    eps_key="layer_norm_eps",
    qk_norm="use_qk_norm",
    own_norms=True,
)
_STARCODER2 = replace(
    _LLAMA,
    names=LayerNames(gate_up=("mlp.c_fc",), down="mlp.c_proj"),
    qkv_bias="use_bias",
    o_bias="use_bias",
    mlp_bias="use_bias",
    biased=True,
    norm="layer",
    gateless=True,
    tied=True,
    eps_key="norm_epsilon",
    sliding=all_layers,
)
_EXAONE4 = replace(
    _OLMO2,
    qkv_bias=False,
    o_bias=False,
    whole_norms=False,
    sliding=_FOURTH_IS_FULL,
    unturned=True,
)
_ERNIE = replace(_LLAMA, qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias", tied=True, interleaved=True)
_HUNYUAN = replace(
    _LLAMA,
    names=LayerNames(q_norm="self_attn.query_layernorm", k_norm="self_attn.key_layernorm"),
    qk_norm=True,
    norms_after_rope=True,
)
_GATELESS = ("mlp.up_proj",)
_APERTUS = replace(
    _LLAMA,
    names=LayerNames(input_norm="attention_layernorm", mlp_norm="feedforward_layernorm", gate_up=_GATELESS),
    qk_norm=True,
    gateless=True,
)
_PHI = replace(
    _LLAMA,
    names=LayerNames(o="self_attn.dense", mlp_norm="", gate_up=("mlp.fc1",), down="mlp.fc2"),
    qkv_bias=True,
    o_bias=True,
    mlp_bias=True,
    norm="layer",
    parallel=True,
    gateless=True,
    partial_rotary=0.5,
    eps_key="layer_norm_eps",
    final_norm="final_layernorm",
    projection_bias=True,
    refused=(("qk_layernorm", "LayerNorms of queries and keys are missing here"),),
)
_NEOX = replace(
    _LLAMA,
    names=LayerNames(
        qkv=("attention.query_key_value",),
        o="attention.dense",
        gate_up=("mlp.dense_h_to_4h",),
        down="mlp.dense_4h_to_h",
    ),
    mlp_bias=True,
    biased=True,
    norm="layer",
    parallel="use_parallel_residual",
    gateless=True,
    partial_rotary=0.25,
    eps_key="layer_norm_eps",
    backbone="gpt_neox",
    embedding="embed_in",
    projection="embed_out",
    final_norm="final_layer_norm",
    rows_by_head=True,
)
_FALCON = replace(
    _LLAMA,
    names=LayerNames(
        qkv=("self_attention.query_key_value",),
        o="self_attention.dense",
        gate_up=("mlp.dense_h_to_4h",),
        down="mlp.dense_4h_to_h",
    ),
    qkv_bias="bias",
    o_bias="bias",
    mlp_bias="bias",
    norm="layer",
    gateless=True,
    tied=True,
    eps_key="layer_norm_epsilon",
    embedding="word_embeddings",
    final_norm="ln_f",
    backbone="transformer",
    layers="h",
    rows_by_head=True,
    refused=(("alibi", "biases by distance (ALiBi) are missing here"),),
    adapts=adapt_falcon,
)
_STABLELM = replace(
    _LLAMA,
    qkv_bias="use_qkv_bias",
    o_bias=False,
    norm="layer",
    partial_rotary=0.25,
    eps_key="layer_norm_eps",
    names=LayerNames(q_norm="self_attn.q_layernorm.norms.{}", k_norm="self_attn.k_layernorm.norms.{}"),
    qk_norm="qk_layernorm",
    own_norms=True,
    parallel="use_parallel_residual",
    shares_norm=True,
)
_NEMOTRON = replace(
    _LLAMA,
    names=LayerNames(gate_up=_GATELESS),
    norm="layer",
    norm_offset=1.0,
    gateless=True,
    partial_rotary=0.5,
    eps_key="norm_eps",
)

_DEEPSEEK_V3 = replace(_LLAMA, is_latent=True, interleaved=True, experts=mixtures.DEEPSEEK_V3)
_GLM4_MOE = replace(_LLAMA, o_bias=False, qk_norm="use_qk_norm", partial_rotary=0.5, experts=mixtures.DEEPSEEK_V3)
_MINIMAX_M2 = replace(
    _LLAMA,
    qkv_bias=False,
    o_bias=False,
    qk_norm=True,
    whole_norms=True,
    experts=ExpertOptions(
        replace(mixtures.MIXTRAL_NAMES, bias="block_sparse_moe.e_score_correction_bias"),
        scoring="sigmoid",
        normalises=True,
        has_bias=True,
    ),
)
_GRANITE_HYBRID = replace(
    _GRANITE,
    names=LayerNames(gate_up=("shared_mlp.input_linear",), down="shared_mlp.output_linear"),
    recurrent=RecurrentOptions("state_space", "mamba.", ("mamba", "linear_attention")),
    experts=mixtures.GRANITE,
    width_key="shared_intermediate_size",
    positions_key="position_embedding_type",
    experts_key="num_local_experts",
)

_LLAMA4 = replace(
    _LLAMA,
    names=LayerNames(gate_up=("feed_forward.gate_proj", "feed_forward.up_proj"), down="feed_forward.down_proj"),
    mlp_bias=False,
    qk_norm="use_qk_norm",
    norms_after_rope=True,
    weightless_norms=True,
    interleaved=True,
    sliding=turned_layers,
    in_chunks=True,
    unturned_every=4,
    scales_queries=True,
    width_key="intermediate_size_mlp",
    experts=mixtures.LLAMA4,
)

ARCHITECTURES: dict[str, Architecture] = {
    **RECURRENT,
    **LEARNED,
    "LlamaForCausalLM": _LLAMA,  # Llama 2 and 3, SmolLM and SmolLM2, TinyLlama, Yi …
    "MistralForCausalLM": _MISTRAL,
    "Qwen2ForCausalLM": replace(_LLAMA, qkv_bias=True, o_bias=False, sliding=if_enabled),
    "Qwen3ForCausalLM": replace(_LLAMA, qk_norm=True, sliding=if_enabled),
    "SmolLM3ForCausalLM": replace(_LLAMA, tied=True, sliding=if_enabled, unturned_every=4),
    "Phi3ForCausalLM": _PHI3,  # Phi-3, Phi-4, Phi-4-mini
    "GemmaForCausalLM": _GEMMA,
    "Gemma2ForCausalLM": _GEMMA2,
    "BitNetForCausalLM": _BITNET,  # BitNet b1.58 2B4T
    "GraniteForCausalLM": _GRANITE,
    "GraniteMoeHybridForCausalLM": _GRANITE_HYBRID,  # Granite 4.0
    "Olmo2ForCausalLM": _OLMO2,
    "Olmo3ForCausalLM": replace(_OLMO2, sliding=all_but_every(4), unscaled_windows=True),
    "GlmForCausalLM": _GLM,
    "Glm4ForCausalLM": _GLM4,
    "YoutuForCausalLM": replace(_LLAMA, tied=True, is_latent=True, interleaved=True),
    "MiniCPM3ForCausalLM": replace(
        _LLAMA, tied=True, is_latent=True, scale_embedding="scale_emb", depth_scale=True, width_scale=True
    ),
    "MixtralForCausalLM": replace(_MISTRAL, experts=ExpertOptions(mixtures.MIXTRAL_NAMES, normalises=True)),
    "PhimoeForCausalLM": replace(  # Phi-3.5-MoE
        _LLAMA,
        norm="layer",
        sliding=all_layers,
        projection_bias="lm_head_bias",
        experts=ExpertOptions(mixtures.MIXTRAL_NAMES, mixes_near=True),
    ),
    "Qwen3MoeForCausalLM": replace(_LLAMA, qk_norm=True, sliding=if_enabled, experts=ExpertOptions()),
    "DeepseekV2ForCausalLM": replace(_LLAMA, is_latent=True, interleaved=True, experts=ExpertOptions()),
    "DeepseekV3ForCausalLM": _DEEPSEEK_V3,
    "Qwen2MoeForCausalLM": replace(
        _LLAMA,
        qkv_bias="qkv_bias",
        o_bias=False,
        biased=True,
        sliding=every_other_if_enabled,
        experts=ExpertOptions(mixtures.QWEN2_NAMES),
    ),
    "OlmoeForCausalLM": replace(
        _LLAMA,
        qk_norm=True,
        whole_norms=True,
        refused=(("clip_qkv", "queries, keys and values are not clipped here"),),
        experts=ExpertOptions(),
    ),
    "GptOssForCausalLM": replace(_LLAMA, biased=True, has_sinks=True, sliding=_EVERY_OTHER, experts=mixtures.GPT_OSS),
    "Llama4ForCausalLM": _LLAMA4,  # Llama 4 Scout, Maverick
    "CohereForCausalLM": _COHERE,  # Command R
    "Cohere2ForCausalLM": replace(_COHERE, sliding=_FOURTH_IS_FULL, unturned=True),  # Command R7B, Command A
    "Starcoder2ForCausalLM": _STARCODER2,
    "Exaone4ForCausalLM": _EXAONE4,
    "SeedOssForCausalLM": replace(_LLAMA, biased=True, o_bias="attention_out_bias"),
    "Ernie4_5ForCausalLM": _ERNIE,
    "Ernie4_5_MoeForCausalLM": replace(_ERNIE, experts=mixtures.ERNIE),
    "HunYuanDenseV1ForCausalLM": _HUNYUAN,
    "HunYuanMoEV1ForCausalLM": replace(_HUNYUAN, experts=mixtures.HUNYUAN),
    "ApertusForCausalLM": _APERTUS,
    "ArceeForCausalLM": replace(_LLAMA, names=LayerNames(gate_up=_GATELESS), gateless=True),
    "NemotronForCausalLM": _NEMOTRON,  # Nemotron-4, Minitron
    "PhiForCausalLM": _PHI,  # Phi-1, Phi-1.5, Phi-2
    "GPTNeoXForCausalLM": _NEOX,  # Pythia
    "FalconForCausalLM": _FALCON,
    "StableLmForCausalLM": _STABLELM,
    "HeliumForCausalLM": replace(_LLAMA, o_bias=False, interleaved=True),
    "MinistralForCausalLM": _MISTRAL,
    "Ministral3ForCausalLM": replace(_MISTRAL, scales_queries=True),
    "Glm4MoeForCausalLM": _GLM4_MOE,  # GLM-4.5, GLM-4.6
    "Glm4MoeLiteForCausalLM": _DEEPSEEK_V3,  # GLM-4.7-Flash
    "SolarOpenForCausalLM": replace(_LLAMA, o_bias=False, experts=mixtures.DEEPSEEK_V3),
    "CwmForCausalLM": replace(_LLAMA, qkv_bias=False, o_bias=False, sliding=all_but_first_of_four),
    "VaultGemmaForCausalLM": replace(
        _GEMMA, names=LayerNames(mlp_norm="pre_feedforward_layernorm"), sliding=_EVERY_OTHER
    ),
    "Jais2ForCausalLM": replace(
        _NEMOTRON, norm_offset=0.0, partial_rotary=1.0, biased=True, mlp_bias="mlp_bias", eps_key="layer_norm_eps"
    ),
    "Dots1ForCausalLM": replace(_LLAMA, qk_norm=True, sliding=from_max_window_layers, experts=mixtures.DEEPSEEK_V3),
    "MiniMaxM2ForCausalLM": _MINIMAX_M2,
    "GraniteMoeForCausalLM": replace(_GRANITE, experts=mixtures.GRANITE),
    "GraniteMoeSharedForCausalLM": replace(_GRANITE, experts=mixtures.GRANITE),
    "Qwen3VLMoeForConditionalGeneration": replace(
        _LLAMA, qk_norm=True, experts=ExpertOptions(ExpertNames(stacked="mlp.experts"), normalises=True)
    ),
    "Gemma3nForCausalLM": _GEMMA3N,
    "Gemma3ForCausalLM": replace(_GEMMA2, qk_norm=True, sliding=_GEMMA_WINDOWS, local_theta=10_000.0),
    "Gemma4ForCausalLM": replace(
        _GEMMA2,
        norm_offset=0.0,
        qk_norm=True,
        norms_values=True,
        full_shape=full_shape,
        layer_scalars=True,
        sliding=_GEMMA_WINDOWS,
        local_theta=10_000.0,
        experts=mixtures.GEMMA4,
        adapts=adapt_gemma4,
        shares_kv=True,
        has_layer_inputs=True,
    ),
}
