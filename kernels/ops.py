"""The dispatch of every op: Triton kernels on CUDA, compiled loops for fp32 on the CPU, plain torch otherwise.

Triton is imported with the first CUDA tensor; a CPU machine does not need it. It launches on the current device, so
with several GPUs the caller makes the tensors' device the current one (`torch.cuda.device`).

Every function here has a twin of the same name and signature in plain torch, where the contract of each is written:
`reference` in docstrings, which is `plain/ops.py` and what that takes from other modules of `plain/`. Results do not
alias their inputs unless said so.
"""

from __future__ import annotations

from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention_mass import LayerMass
from .automata import Automata
from .cpu import elementwise as cpu_elementwise
from .cpu import lora as cpu_lora
from .cpu import sample as cpu_sample
from .cpu.attention import cpu_attention
from .cpu.experts import mix_by_expert
from .cpu.linear import cpu_linear
from .cpu.readable import has_bytes, is_plain
from .expert_choice import ExpertChoice as ExpertChoice
from .gate import SILU
from .gate import Gate as Gate
from .linear_weight import LinearWeight as LinearWeight
from .linear_weight import pack_linear as pack_linear
from .linear_weight import tiled_linear
from .linear_weights import LinearWeights as LinearWeights
from .linear_weights import batched_linear_heads
from .linear_weights import pack_linears as pack_linears
from .logit_edits import LogitEdits as LogitEdits
from .lora import LoraPlan as LoraPlan
from .lora import plan_lora as plan_lora
from .plain import ops as reference
from .plain.ops import AttentionOptions
from .plain.sample import Logprobs as Logprobs
from .plain.sample import SamplingRows as SamplingRows
from .work_list import AttentionPlan as AttentionPlan
from .work_list import plan_attention as plan_attention


def linear(x: Tensor, weight: LinearWeight) -> Tensor:
    """`x @ weight.T + bias`: x `[T, K]` -> `[T, N]`. Packed, int8 or tiled, a row's bits do not depend on T."""
    if weight.groups is not None:
        if weight.groups.order is not None:
            x = x[:, weight.groups.order]
        if x.is_cuda:
            from .triton import grouped as triton_grouped

            return triton_grouped.linear(x, weight)
    if weight.is_packed or weight.is_int8:
        return cpu_linear(x, weight)
    if weight.row_tile:
        if x.is_cuda:
            from .triton import linear as triton_linear

            return triton_linear.linear(x, weight)
        return tiled_linear(x, weight)
    return F.linear(x, weight.stored, weight.bias)


def add_lora(out: Tensor, x: Tensor, plan: LoraPlan, layer: int, place: int) -> None:
    """Adds to out `[T, N]`, in place, what the adapters of the plan's rows make of x `[T, K]`.

    See `reference.add_lora`. On the CPU a row's bits do not depend on the others.
    """
    if out.is_cuda:
        from .triton import lora as triton_lora

        return triton_lora.add_lora(out, x, plan, layer, place)
    return cpu_lora.add_lora(out, x, plan, layer, place)


def linear_heads(x: Tensor, weight: LinearWeights) -> Tensor:
    """`x[:, h] @ weight[h].T` for every head: x `[T, H, K]` -> `[T, H, N]`. Bits as in `linear`."""
    if weight.stored is not None:
        return batched_linear_heads(x, weight.stored, weight.row_tile)
    return torch.stack([linear(x[:, head], packed) for head, packed in enumerate(weight.packed)], dim=1)


def choose_experts(
    logits: Tensor, bias: Tensor | None, choice: ExpertChoice, slots: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The experts of each row, best first, and their shares: logits `[T, E]` fp32 -> `[T, k]`, `[T, k]` fp32.

    The choice is int64 on the CPU and int32 on a GPU. bias `[E]`, slots `[T]` int64: see `reference.choose_experts`.
    """
    if logits.is_cuda:
        from .triton import route as triton_route

        return triton_route.choose_experts(logits, bias, choice, slots)
    return reference.choose_experts(logits, bias, choice, slots)


def sigmoid(x: Tensor) -> Tensor:
    """Of each number by itself, to the last bit."""
    return torch.sigmoid(x) if x.is_cuda else reference.sigmoid(x)


def mix_experts(
    x: Tensor, chosen: Tensor, shares: Tensor, gate_up: LinearWeights, down: LinearWeights, *, gate: Gate = SILU
) -> Tensor:
    """The sum of each row's chosen experts, each times its share: x `[T, C]` -> `[T, C]`.

    chosen `[T, k]` and shares `[T, k]` fp32, as `choose_experts` has them; an expert is `down(gated(gate_up(row)))`,
    with its biases. Bits as in `linear`. What is made of a row that chose none is undefined.
    """
    if x.is_cuda:
        from .triton import experts as triton_experts

        return triton_experts.mix_experts(x, chosen, shares, gate_up, down, gate=gate)

    def run(expert: int, rows: Tensor) -> Tensor:
        return linear(gated(linear(rows, gate_up.one(expert)), gate), down.one(expert))

    return mix_by_expert(x, chosen, shares, gate_up.num_maps, run)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMS norm over the last axis: `[..., C]`, `[C]` -> `[..., C]`."""
    if x.dim() != 2 and not (x.is_cuda and x.dim() == 3 and x.stride(2) == 1):
        return rms_norm(x.reshape(-1, x.shape[-1]), weight, eps).view(x.shape)
    if x.is_cuda:
        from .triton import norm as triton_norm

        return triton_norm.rms_norm(x, weight, eps)
    if is_plain(x, weight):
        return cpu_elementwise.rms_norm(x, weight, eps)
    return reference.rms_norm(x, weight, eps)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """`(rms_norm(x + residual), x + residual)`."""
    if x.is_cuda:
        from .triton import norm as triton_norm

        return triton_norm.add_rms_norm(x, residual, weight, eps)
    if x.dim() == 2 and is_plain(x, residual, weight):
        return cpu_elementwise.add_rms_norm(x, residual, weight, eps)
    return reference.add_rms_norm(x, residual, weight, eps)


def apply_rope(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
    """Rotate q `[T, H, D]` and k `[T, Hkv, D]` in place by their positions, half-rotated pairs."""
    if q.is_cuda:
        from .triton import rope as triton_rope

        return triton_rope.apply_rope(q, k, positions, cos_sin)
    if is_plain(q, k) and cos_sin.shape[1] % 16 == 0 and cos_sin.is_contiguous():
        return cpu_elementwise.apply_rope(q, k, positions.contiguous(), cos_sin)
    return reference.apply_rope(q, k, positions, cos_sin)


def gated(gate_up: Tensor, gate: Gate = SILU) -> Tensor:
    """gate_up `[T, 2F]` = gate | up -> `[T, F]`, by a formula of `gate.py`; without a gate `[T, F]` -> `[T, F]`."""
    if gate.kind == "relu2":
        return reference.gated(gate_up, gate)
    if gate_up.is_cuda:
        from .triton import gate as triton_gate

        return triton_gate.gated(gate_up, gate)
    if is_plain(gate_up) and gate_up.shape[-1] % 16 == 0:
        return cpu_elementwise.gated(gate_up, gate)
    return reference.gated(gate_up, gate)


def write_kv(
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slots: Tensor,
    k_scales: Tensor | None = None,
    v_scales: Tensor | None = None,
) -> None:
    """Scatter k, v `[T, Hkv, D]` into the caches at slots `[T]`; negative slots are skipped. int8, fp8 need scales.

    A part of `place_heads` on the CPU; on a GPU that is one kernel.
    """
    if k_scales is not None and v_scales is not None:
        is_read = is_plain(k, v) and has_bytes(k_cache, v_cache, k_scales, v_scales)
    else:
        is_read = is_plain(k, v, k_cache, v_cache) and k_cache.stride() == v_cache.stride()
    write = cpu_elementwise.write_kv if is_read and not k.is_cuda else reference.write_kv
    write(k, v, k_cache, v_cache, slots.contiguous(), k_scales, v_scales)


def place_heads(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    cos_sin: Tensor | None,
    norms: tuple[Tensor, Tensor] | None,
    eps: float,
    k_cache: Tensor,
    v_cache: Tensor,
    slots: Tensor,
    k_scales: Tensor | None = None,
    v_scales: Tensor | None = None,
) -> Tensor:
    """Norms and turns the heads of a step, writes keys and values, and returns the queries `[T, H, D]`.

    q, k and v are views of what a projection wrote, which is undefined afterwards; see `reference.place_heads`.
    """
    if q.is_cuda:
        from .triton import heads as triton_heads

        return triton_heads.place_heads(
            q, k, v, positions, cos_sin, norms, eps, k_cache, v_cache, slots, k_scales, v_scales
        )
    if norms is not None:
        q, k = rms_norm(q, norms[0], eps), rms_norm(k, norms[1], eps)
    if cos_sin is not None:
        apply_rope(q, k, positions, cos_sin)
    write_kv(k, v, k_cache, v_cache, slots, k_scales, v_scales)
    return q


def attention(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, plan: AttentionPlan, **options: Unpack[AttentionOptions]
) -> Tensor:
    """Causal attention of a ragged batch over its paged KV, as planned: q `[T, H, D]` -> `[T, H, D]`.

    fp32 on the CPU: a row's bits depend on its query, position and keys alone, never on the batch, the
    chunking, a cache hit or the sharing of prefixes. options: see `reference.attention_in`.
    """
    if plan.cuda_work is not None:
        from .triton.attention import cuda_attention

        return cuda_attention(plan.cuda_work, q, k_cache, v_cache, **options)
    k_scales, v_scales = options.get("k_scales"), options.get("v_scales")
    is_known = plan.cpu_work is not None and is_plain(q) and k_cache.stride() == v_cache.stride()
    if k_scales is not None and v_scales is not None:
        is_known = is_known and has_bytes(k_cache, v_cache, k_scales, v_scales)
    else:
        is_known = is_known and is_plain(k_cache, v_cache)
    if plan.cpu_work is not None and is_known:
        return cpu_attention(plan.cpu_work, q, k_cache, v_cache, **options)
    return reference.attention(q, k_cache, v_cache, plan, **options)


def write_latents(latents: Tensor, cache: Tensor, slots: Tensor) -> None:
    """Scatter latents `[T, W]` into cache `[num_blocks, block_size, W]` at slots `[T]`; negative slots are skipped."""
    if latents.is_cuda:
        from .triton import latent as triton_latent

        return triton_latent.write_latents(latents, cache, slots)
    return reference.write_latents(latents, cache, slots)


def latent_attention(
    q: Tensor, cache: Tensor, plan: AttentionPlan, *, scale: float, rank: int, mass: LayerMass | None = None
) -> Tensor:
    """Causal attention over latents, whose first `rank` numbers are the values: q `[T, H, W]` -> `[T, H, rank]`.

    cache `[num_blocks, block_size, W]`, dense; planned with one KV head and head_dim W. On a GPU rank and W - rank are
    powers of two. fp32 on the CPU: bits as in `attention`.
    """
    if plan.cuda_work is not None:
        from .triton import latent as triton_latent

        return triton_latent.latent_attention(plan.cuda_work, q, cache, scale=scale, rank=rank, mass=mass)
    if plan.cpu_work is not None and is_plain(q, cache):
        stored = cache[:, None]
        return cpu_attention(plan.cpu_work, q, stored, stored, scale=scale, mass=mass)[..., :rank]
    return reference.latent_attention(q, cache, plan, scale=scale, rank=rank, mass=mass)


def sample(
    logits: Tensor,
    mask_table: Tensor | None,
    rows: SamplingRows,
    edits: LogitEdits | None = None,
    num_top: int | None = None,
) -> tuple[Tensor, Logprobs | None]:
    """One token per row of logits `[R, V]` -> `[R]` int64, -1 where nothing is allowed, and log-probabilities if asked.

    edits: penalties and biases; num_top: how many of the likeliest tokens `Logprobs` reports, None: no report.
    """
    if logits.is_cuda:
        from .triton import sample as triton_sample

        return triton_sample.sample(logits, mask_table, rows, edits, num_top)
    return cpu_sample.sample(logits, mask_table, rows, edits, num_top)


def logprobs(logits: Tensor, token_ids: Tensor, num_top: int) -> Logprobs:
    """Log-probabilities of one token per row and of the likeliest: logits `[R, V]`, token_ids `[R]` int64."""
    if logits.is_cuda:
        from .triton import logprobs as triton_logprobs

        return triton_logprobs.logprobs(logits, token_ids, num_top)
    return cpu_sample.logprobs(logits, token_ids, num_top)


def advance_states(
    token_ids: Tensor, states: Tensor, automaton_ids: Tensor, mask_rows: Tensor, automata: Automata
) -> None:
    """Move byte automata on by one token each and write the mask rows that hold then; all `[R]`, in place."""
    if token_ids.is_cuda:
        from .triton import advance as triton_advance

        return triton_advance.advance_states(token_ids, states, automaton_ids, mask_rows, automata)
    return reference.advance_states(token_ids, states, automaton_ids, mask_rows, automata)
