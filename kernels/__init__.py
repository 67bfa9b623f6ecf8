"""Pure functions on tensors: Triton on CUDA, compiled loops and torch on the CPU, a plain twin for each.

The functions are those of `ops` and `recurrent`; here are what they take, and what lays it out.
"""

if "." not in __name__:  # Python was started in the repository
    raise ImportError("kernels is a part of the package phloem: import phloem.kernels")

from .attention_mass import AttentionMass as AttentionMass
from .attention_mass import plan_mass as plan_mass
from .cpu.threads import use_threads as use_threads
from .cuda_work import num_programs_at_once as num_programs_at_once
from .fixed_buffer import FixedBuffer as FixedBuffer
from .grouped import Grouped as Grouped
from .key_scores import best_keys as best_keys
from .key_scores import score_keys as score_keys
from .kv_format import FP8 as FP8
from .kv_format import INT4 as INT4
from .kv_format import KV_FORMATS as KV_FORMATS
from .kv_format import bytes_per_head as bytes_per_head
from .kv_format import is_quantised as is_quantised
from .kv_format import scale_type as scale_type
from .kv_format import stored_dim as stored_dim
from .launch import SPLIT_SIZE as SPLIT_SIZE
from .linear_weight import can_keep as can_keep
from .linear_weight import pack_grouped as pack_grouped
from .linear_weights import keep_mxfp4 as keep_mxfp4
from .linear_weights import pack_grouped_each as pack_grouped_each
from .linear_weights import pack_mxfp4s as pack_mxfp4s
from .lora import PLACES as PLACES
from .lora import LoraLayers as LoraLayers
from .lora import LoraPart as LoraPart
from .lora import LoraSegment as LoraSegment
from .lora import LoraWeight as LoraWeight
from .lora import narrow_segments as narrow_segments
from .lora import pack_lora as pack_lora
from .ops import AttentionPlan as AttentionPlan
from .ops import ExpertChoice as ExpertChoice
from .ops import Gate as Gate
from .ops import LinearWeight as LinearWeight
from .ops import LinearWeights as LinearWeights
from .ops import LogitEdits as LogitEdits
from .ops import Logprobs as Logprobs
from .ops import LoraPlan as LoraPlan
from .ops import SamplingRows as SamplingRows
from .ops import pack_linear as pack_linear
from .ops import pack_linears as pack_linears
from .ops import plan_attention as plan_attention
from .ops import plan_lora as plan_lora
from .plain.ops import gather_kv as gather_kv
from .plain.rounding import quantise_heads as quantise_heads
from .plain.rounding import widen_heads as widen_heads
from .transfer import send as send
from .work_buffers import WorkBuffers as WorkBuffers
