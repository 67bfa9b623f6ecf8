"""The one place that chooses who computes: the CPU path for CPU tensors.

Every function here has a twin of the same name and signature in `reference.py`.
"""

from __future__ import annotations

from . import reference
from .work_list import AttentionPlan, plan_attention

rms_norm = reference.rms_norm
add_rms_norm = reference.add_rms_norm
apply_rope = reference.apply_rope
silu_mul = reference.silu_mul
gelu_tanh_mul = reference.gelu_tanh_mul
write_kv = reference.write_kv
attention = reference.attention
sample = reference.sample

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
