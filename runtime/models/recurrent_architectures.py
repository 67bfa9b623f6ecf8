"""Architectures with recurrent layers: entries of `architectures.py`, but for Granite's, which is with its family.

Knows no tensors.
"""

from __future__ import annotations

from dataclasses import replace

from .architecture import Architecture, LayerNames
from .experts_config import ExpertNames, ExpertOptions
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
)

_FALCON_H1 = replace(
    _LLAMA,
    names=LayerNames(
        mlp_norm="pre_ff_layernorm",
        gate_up=("feed_forward.gate_proj", "feed_forward.up_proj"),
        down="feed_forward.down_proj",
    ),
    recurrent=RecurrentOptions("state_space", "mamba.", is_beside=True),
    scale_embedding="embedding_multiplier",
    logit_scale="lm_head_multiplier",
    factors=True,
    final_norm="final_layernorm",
)
_SHARED_EXPERT = ExpertNames(shared="mlp.shared_expert", shared_gate="mlp.shared_expert_gate")

RECURRENT: dict[str, Architecture] = {
    "Lfm2ForCausalLM": _LFM2,
    "Qwen3NextForCausalLM": replace(
        _QWEN35,
        recurrent=replace(_QWEN35_RECURRENT, is_fused=True),
        experts=ExpertOptions(_SHARED_EXPERT, normalises=True),
    ),
    "Qwen3_5ForCausalLM": _QWEN35,
    "Qwen3_5MoeForCausalLM": replace(_QWEN35, experts=ExpertOptions(_SHARED_EXPERT, normalises=True)),
    "FalconH1ForCausalLM": _FALCON_H1,
}
