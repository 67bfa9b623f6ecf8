"""Pure functions on tensors: Triton on CUDA, numba and torch on the CPU, a plain twin for each."""

from .ops import (
    AttentionPlan,
    add_rms_norm,
    apply_rope,
    attention,
    gelu_tanh_mul,
    plan_attention,
    rms_norm,
    sample,
    silu_mul,
    write_kv,
)

__all__ = [
    "AttentionPlan",
    "add_rms_norm",
    "apply_rope",
    "attention",
    "gelu_tanh_mul",
    "plan_attention",
    "rms_norm",
    "sample",
    "silu_mul",
    "write_kv",
]
