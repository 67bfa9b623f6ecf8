"""Pure functions on tensors: Triton on CUDA, compiled loops and torch on the CPU, a plain twin for each."""

if "." not in __name__:  # Python was started in the repository
    raise ImportError("kernels is a part of the package phloem: import phloem.kernels")

from .attention_mass import AttentionMass, plan_mass
from .automata import Automata, lay_out_automata
from .cpu.threads import use_threads
from .cuda_work import num_programs_at_once
from .fixed_buffer import FixedBuffer
from .grouped import Grouped
from .key_scores import best_keys, score_keys
from .kv_format import FP8, INT4, KV_FORMATS, bytes_per_head, is_quantised, scale_type, stored_dim
from .launch import SPLIT_SIZE
from .linear_weight import can_keep, pack_grouped
from .linear_weights import keep_mxfp4, pack_grouped_each, pack_mxfp4s
from .lora import PLACES, LoraLayers, LoraPart, LoraSegment, LoraWeight, narrow_segments, pack_lora
from .mxfp4 import BLOCK as MXFP4_BLOCK
from .mxfp4 import widen as widen_mxfp4
from .ops import (
    AttentionPlan,
    ExpertChoice,
    Gate,
    LinearWeight,
    LinearWeights,
    LogitEdits,
    Logprobs,
    LoraPlan,
    add_lora,
    add_rms_norm,
    advance_states,
    apply_rope,
    attention,
    choose_experts,
    gated,
    latent_attention,
    linear,
    linear_heads,
    logprobs,
    mix_experts,
    pack_linear,
    pack_linears,
    place_heads,
    plan_attention,
    plan_lora,
    rms_norm,
    sample,
    write_kv,
    write_latents,
)
from .plain.ops import gather_kv
from .plain.rounding import quantise_heads, widen_heads
from .transfer import send
from .work_buffers import WorkBuffers

__all__ = [
    "FP8",
    "INT4",
    "KV_FORMATS",
    "MXFP4_BLOCK",
    "PLACES",
    "SPLIT_SIZE",
    "AttentionMass",
    "AttentionPlan",
    "Automata",
    "ExpertChoice",
    "FixedBuffer",
    "Gate",
    "Grouped",
    "LinearWeight",
    "LinearWeights",
    "LogitEdits",
    "Logprobs",
    "LoraLayers",
    "LoraPart",
    "LoraPlan",
    "LoraSegment",
    "LoraWeight",
    "WorkBuffers",
    "add_lora",
    "add_rms_norm",
    "advance_states",
    "apply_rope",
    "attention",
    "best_keys",
    "bytes_per_head",
    "can_keep",
    "choose_experts",
    "gated",
    "gather_kv",
    "is_quantised",
    "keep_mxfp4",
    "latent_attention",
    "lay_out_automata",
    "linear",
    "linear_heads",
    "logprobs",
    "mix_experts",
    "narrow_segments",
    "num_programs_at_once",
    "pack_grouped",
    "pack_grouped_each",
    "pack_linear",
    "pack_linears",
    "pack_lora",
    "pack_mxfp4s",
    "place_heads",
    "plan_attention",
    "plan_lora",
    "plan_mass",
    "quantise_heads",
    "rms_norm",
    "sample",
    "scale_type",
    "score_keys",
    "send",
    "stored_dim",
    "use_threads",
    "widen_heads",
    "widen_mxfp4",
    "write_kv",
    "write_latents",
]
