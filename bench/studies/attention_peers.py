"""Attention kernels of others on our paged tensors, for `attention.py`; each takes part if it can be imported.

    FlashInfer    its wrappers over paged KV, in our block layout; planned once, outside the time
    vLLM          `unified_attention`, its Triton kernel, over a view of our blocks, with its split softmax
    SGLang        `decode_attention_fwd`, its Triton kernel for decode, over a copy with one token a page, 8 splits

Knows nothing of our kernels. Their signatures change from version to version: arguments are given by name, and only
those that the installed version has. What fails is reported by `attention.py` with its reason, and the rest goes
on.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Call = Callable[[], Tensor]

VLLM = ("vllm.v1.attention.ops.triton_unified_attention", "vllm.attention.ops.triton_unified_attention")
VLLM_SEGMENTS, VLLM_PROGRAMS = 16, 128  # of its split softmax: parts of a sequence, programs that make it needless
SGLANG = (
    "sglang.srt.layers.attention.triton_ops.decode_attention",
    "sglang.kernels.ops.attention.decode_attention",
)
SGLANG_SPLITS = 8  # its default


@dataclass(frozen=True)
class Paged:
    """Requests of one length. q `[T, H, D]`, caches `[num_blocks, Hkv, block_size, D]`, blocks `[B, M]`."""

    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    blocks: Tensor
    context_len: int
    scale: float

    @property
    def q_len(self) -> int:
        return len(self.q) // len(self.blocks)

    def starts(self, step: int) -> Tensor:
        """`[B + 1]` int32: 0, step, 2 step, …"""
        return torch.arange(len(self.blocks) + 1, dtype=torch.int32, device=self.q.device) * step

    def full(self, value: int) -> Tensor:
        """`[B]` int32."""
        return torch.full((len(self.blocks),), value, dtype=torch.int32, device=self.q.device)


def flashinfer(problem: Paged) -> Call:
    module = importlib.import_module("flashinfer")
    _, num_heads, head_dim = problem.q.shape
    _, num_kv_heads, block_size, _ = problem.k_cache.shape
    workspace = torch.empty(256 << 20, dtype=torch.uint8, device=problem.q.device)
    width = -(-problem.context_len // block_size)
    pages = (
        problem.starts(width),
        problem.blocks[:, :width].flatten().int(),
        problem.full(problem.context_len - (width - 1) * block_size),
    )
    shape = (num_heads, num_kv_heads, head_dim, block_size)
    types = {"q_data_type": problem.q.dtype, "kv_data_type": problem.k_cache.dtype, "sm_scale": problem.scale}
    if problem.q_len == 1:
        wrapper = module.BatchDecodeWithPagedKVCacheWrapper(workspace, "HND", use_tensor_cores=True)
        wrapper.plan(*pages, *shape, **types)
    else:
        wrapper = module.BatchPrefillWithPagedKVCacheWrapper(workspace, "HND")
        wrapper.plan(problem.starts(problem.q_len), *pages, *shape, causal=True, **types)
    return lambda: wrapper.run(problem.q, (problem.k_cache, problem.v_cache))


def vllm(problem: Paged) -> Call:
    function = _import(VLLM).unified_attention
    _, num_heads, head_dim = problem.q.shape
    num_kv_heads = problem.k_cache.shape[1]
    most = max(1, VLLM_PROGRAMS // num_kv_heads)
    segments = torch.empty(most, num_heads, VLLM_SEGMENTS, 1 << (head_dim - 1).bit_length(), device=problem.q.device)
    out = torch.empty_like(problem.q)
    given = _known(
        function,
        q=problem.q,
        k=problem.k_cache.transpose(1, 2),
        v=problem.v_cache.transpose(1, 2),
        out=out,
        cu_seqlens_q=problem.starts(problem.q_len),
        max_seqlen_q=problem.q_len,
        seqused_k=problem.full(problem.context_len),
        max_seqlen_k=problem.context_len,
        softmax_scale=problem.scale,
        causal=True,
        window_size=(-1, -1),
        block_table=problem.blocks.int(),
        softcap=0.0,
        q_descale=None,
        k_descale=None,
        v_descale=None,
        seq_threshold_3D=most,
        num_par_softmax_segments=VLLM_SEGMENTS,
        softmax_segm_output=segments,
        softmax_segm_max=segments[..., 0].contiguous(),
        softmax_segm_expsum=segments[..., 0].contiguous(),
    )

    def call() -> Tensor:
        function(**given)
        return out

    return call


def sglang(problem: Paged) -> Call:
    function = _import(SGLANG).decode_attention_fwd
    if problem.q_len != 1:
        raise NotImplementedError("decode only")
    batch, num_heads, head_dim = problem.q.shape
    block_size = problem.k_cache.shape[2]
    keys = torch.arange(problem.context_len, device=problem.q.device)
    slots = problem.blocks[:, keys // block_size] * block_size + keys % block_size
    out = torch.empty_like(problem.q)
    partial = torch.empty(batch, num_heads, SGLANG_SPLITS, head_dim, device=problem.q.device)
    given = _known(
        function,
        q=problem.q,
        k_buffer=problem.k_cache.transpose(1, 2).flatten(0, 1).contiguous(),
        v_buffer=problem.v_cache.transpose(1, 2).flatten(0, 1).contiguous(),
        o=out,
        kv_indptr=problem.starts(problem.context_len),
        kv_indices=slots.flatten(),
        attn_logits=partial,
        attn_lse=partial[..., 0].contiguous(),
        num_kv_splits=problem.full(SGLANG_SPLITS),
        max_kv_splits=SGLANG_SPLITS,
        sm_scale=problem.scale,
        k_scale=1.0,
        v_scale=1.0,
    )

    def call() -> Tensor:
        function(**given)
        return out

    return call


PEERS: dict[str, Callable[[Paged], Call]] = {"FlashInfer": flashinfer, "vLLM": vllm, "SGLang": sglang}
ABSENT = "does not take part"
PACKAGES = {"FlashInfer": "flashinfer", "vLLM": "vllm", "SGLang": "sglang"}


def present() -> dict[str, str]:
    """What to say of each peer: its version, or why it does not take part."""
    said = {}
    for name, package in PACKAGES.items():
        try:
            said[name] = str(getattr(importlib.import_module(package), "__version__", "of unknown version"))
        except Exception as error:  # a package may fail to load in any way
            said[name] = f"{ABSENT} ({error})"
    return said


def _import(places: tuple[str, ...]) -> Any:
    """The first module that there is."""
    for place in places[:-1]:
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError:
            continue
    return importlib.import_module(places[-1])


def _known(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """Those arguments that the function has."""
    names = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in names}
