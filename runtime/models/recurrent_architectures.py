"""Architectures with recurrent layers: entries of `architectures.py`, but for Granite's, which is with its family.

Knows no tensors.
"""

from __future__ import annotations

from dataclasses import replace

from .architecture import Architecture, LayerNames, MtpNames
from .experts_config import ExpertNames, ExpertOptions
from .mixtures import DEEPSEEK_V3, MIXTRAL_NAMES, QWEN2_NAMES
from .recurrent_config import RecurrentOptions

_LLAMA = Architecture()
_LFM2 = replace(
    _LLAMA,
    names=LayerNames(
        input_norm="operator_norm",
        q_norm="self_attn.q_layernorm",
        k_norm="self_attn.k_layernorm",
        o="self_attn.out_proj",
        mlp_norm="ffn_norm",
        gate_up=("feed_forward.w1", "feed_forward.w3"),
        down="feed_forward.w2",
    ),
    qkv_bias=False,
    o_bias=False,
    qk_norm=True,
    tied=True,
    recurrent=RecurrentOptions("short_conv", "conv.", ("conv",)),
    eps_key="norm_eps",
    final_norm="embedding_norm",
    adjusts_width=True,
)
_QWEN35_RECURRENT = RecurrentOptions("delta", "linear_attn.", ("linear_attention",))
_QWEN35 = replace(
    _LLAMA,
    qk_norm=True,
    norm_offset=1.0,
    partial_rotary=0.25,
    recurrent=_QWEN35_RECURRENT,
    gated_attention=True,
    mtp=MtpNames(
        "mtp.", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm", count_key="mtp_num_hidden_layers", count=1
    ),
)

_FEED_FORWARD = LayerNames(
    mlp_norm="pre_ff_layernorm",
    gate_up=("feed_forward.gate_proj", "feed_forward.up_proj"),
    down="feed_forward.down_proj",
)
_FALCON_H1 = replace(
    _LLAMA,
    names=_FEED_FORWARD,
    recurrent=RecurrentOptions("state_space", "mamba.", is_beside=True),
    scale_embedding="embedding_multiplier",
    logit_scale="lm_head_multiplier",
    factors=True,
    final_norm="final_layernorm",
)
_MIXER = LayerNames(
    input_norm="norm",
    qkv=("mixer.q_proj", "mixer.k_proj", "mixer.v_proj"),
    o="mixer.o_proj",
    mlp_norm="",
    gate_up=("mixer.up_proj",),
    down="mixer.down_proj",
)
_STATE_SPACE_KEYS = (
    ("conv_kernel", "mamba_d_conv"),
    ("expand", "mamba_expand"),
    ("n_groups", "mamba_n_groups"),
    ("use_conv_bias", "mamba_conv_bias"),
    ("use_bias", "mamba_proj_bias"),
)
_NEMOTRON_H = replace(
    _LLAMA,
    names=_MIXER,
    qkv_bias=False,
    o_bias=False,
    gateless=True,
    one_part=True,
    has_positions=False,
    experts=replace(
        DEEPSEEK_V3,
        names=ExpertNames(
            router="mixer.gate",
            bias="mixer.gate.e_score_correction_bias",
            expert="mixer.experts.{}",
            gate="",
            shared="mixer.shared_experts",
            latents=("mixer.fc1_latent_proj", "mixer.fc2_latent_proj"),
        ),
        gateless=True,
        has_latents=True,
    ),
    recurrent=RecurrentOptions(
        "state_space",
        "mixer.",
        ("linear_attention", "mamba"),
        others=("mlp", "moe"),
        is_wide_by_heads=True,
        least_step="time_step_min",
    ),
    eps_key="layer_norm_epsilon",
    embedding="embeddings",
    final_norm="norm_f",
    aliases=(
        *_STATE_SPACE_KEYS,
        ("layers_block_type", "layer_types"),
        ("mamba_num_heads", "mamba_n_heads"),
        ("mamba_head_dim", "mamba_d_head"),
        ("ssm_state_size", "mamba_d_state"),
        ("mlp_hidden_act", "hidden_act"),
        ("moe_shared_expert_intermediate_size", "shared_expert_intermediate_size"),
    ),
)
_MAMBA2 = replace(
    _LLAMA,
    backbone="backbone",
    names=_MIXER,
    one_part=True,
    has_positions=False,
    recurrent=RecurrentOptions("state_space", "mixer."),
    eps_key="layer_norm_epsilon",
    embedding="embeddings",
    final_norm="norm_f",
    aliases=(
        *_STATE_SPACE_KEYS,
        ("num_heads", "mamba_n_heads"),
        ("head_dim", "mamba_d_head"),
        ("state_size", "mamba_d_state"),
    ),
)
_MAMBA = replace(
    _MAMBA2,
    recurrent=RecurrentOptions("selective_scan", "mixer."),
    aliases=(
        *_STATE_SPACE_KEYS,
        ("intermediate_size", "mamba_d_ssm"),
        ("time_step_rank", "mamba_dt_rank"),
        ("state_size", "mamba_d_state"),
    ),
)
_JAMBA = replace(
    _LLAMA,
    names=_FEED_FORWARD,
    qkv_bias=False,
    o_bias=False,
    has_positions=False,
    experts=ExpertOptions(ExpertNames(router="feed_forward.router", expert="feed_forward.experts.{}")),
    recurrent=RecurrentOptions("selective_scan", "mamba.", ("linear_attention", "mamba"), norms="weights"),
    final_norm="final_layernorm",
)
_LFM2_MOE = replace(
    _LFM2,
    adjusts_width=False,
    experts=ExpertOptions(
        ExpertNames(
            router="feed_forward.gate",
            bias="feed_forward.expert_bias",
            expert="feed_forward.experts.{}",
            gate="w1",
            up="w3",
            down="w2",
        ),
        scoring="sigmoid",
        normalises=True,
        has_bias=True,
        aliases=(("num_dense_layers", "first_k_dense_replace"),),
    ),
)
_KIMI = replace(
    _LLAMA,
    is_latent=True,
    has_positions=False,
    recurrent=RecurrentOptions("kimi_delta", "self_attn.", ("linear_attention",), out="o_proj"),
    experts=replace(
        DEEPSEEK_V3,
        names=replace(
            MIXTRAL_NAMES,
            bias="block_sparse_moe.gate.e_score_correction_bias",
            shared="block_sparse_moe.shared_experts",
            shared_parts=("gate_proj", "up_proj", "down_proj"),
        ),
    ),
    mlp_moved="block_sparse_moe.",
    aliases=(
        ("model_max_length", "max_position_embeddings"),
        ("moe_renormalize", "norm_topk_prob"),
        ("num_expert_group", "n_group"),
        ("num_experts_per_token", "num_experts_per_tok"),
        ("num_shared_experts", "n_shared_experts"),
    ),
)
_MINIMAX = replace(
    _LLAMA,
    qkv_bias=False,
    o_bias=False,
    recurrent=RecurrentOptions("lightning", "self_attn.", ("linear_attention",)),
    experts=ExpertOptions(MIXTRAL_NAMES, normalises=True),
    keeps_normed=True,
)

RECURRENT: dict[str, Architecture] = {
    "Lfm2ForCausalLM": _LFM2,
    "Qwen3NextForCausalLM": replace(
        _QWEN35,
        recurrent=replace(_QWEN35_RECURRENT, is_fused=True, fuses_rates=True),
        experts=ExpertOptions(QWEN2_NAMES, normalises=True),
    ),
    "Qwen3_5ForCausalLM": _QWEN35,
    "Qwen3_5MoeForCausalLM": replace(_QWEN35, experts=ExpertOptions(QWEN2_NAMES, normalises=True)),
    "FalconH1ForCausalLM": _FALCON_H1,
    "BambaForCausalLM": replace(
        _LLAMA,
        names=_FEED_FORWARD,
        partial_rotary=0.5,
        recurrent=RecurrentOptions("state_space", "mamba.", ("linear_attention", "mamba")),
        final_norm="final_layernorm",
        aliases=(("attn_layer_indices", "full_attn_idxs"),),
    ),
    "NemotronHForCausalLM": _NEMOTRON_H,
    "Mamba2ForCausalLM": _MAMBA2,
    "MambaForCausalLM": _MAMBA,
    "FalconMambaForCausalLM": replace(_MAMBA, recurrent=RecurrentOptions("selective_scan", "mixer.", norms="plain")),
    "JambaForCausalLM": _JAMBA,
    "Lfm2MoeForCausalLM": _LFM2_MOE,
    "KimiLinearForCausalLM": _KIMI,
    "MiniMaxForCausalLM": _MINIMAX,
}
