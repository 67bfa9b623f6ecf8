"""How many tokens and requests fit, answered from `config.json` and the memory alone, before anything is loaded.

The sums are exact where the code is: bytes of every tensor that the decoder will hold, bytes of a KV block, whole
blocks per request. Only the share of a device that is left to activations is a rule (`EngineConfig.kv_memory_share`).

::

    memory  │ weights │ KV pool = share × rest                         │ activations, libraries │
    pool    │ block │ block │ …      block = parts · layers · kv_heads · head_dim · block_size · bytes
            │ slot │ slot │ …        the same of layers with a window, where the others have the blocks to themselves
    request │ whole blocks of its context; blocks of a shared prefix are counted once for all
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from ...errors import ConfigError
from ..config import CPU_POOL_BYTES, KV_MEMORY_SHARE, MAX_BATCH_TOKENS, MAX_RUNNING_REQUESTS, Quantisation
from ..models import ModelConfig
from ..models.mtp_config import mtp_config
from ..number_types import BYTES, KV_BITS, KV_SCALE_BYTES, ROUNDED_BITS, KVNumberType, NumberType
from .counts import count_biases, count_mxfp4, count_parameters
from .longest import longest_of
from .matrix_bytes import joint_bytes, matrix_bytes
from .rank_config import largest_part
from .state_memory import check_number, check_tiers, needed_each, num_states
from .window_memory import KVSizes, most_blocks, room_for_windows, share_memory, widest_window

CONTEXT_LENS = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


@dataclass(frozen=True, slots=True)
class LengthPlan:
    """What fits of requests of one length (prompt and output together).

    Attributes:
        num_blocks: blocks of one request.
        num_requests: requests at the same time, each with all blocks of its own.
        num_sharing_requests: requests at the same time that share the plan's prefix; None: it is no shorter than they.
        limited_by: what runs out first as requests of their own come: blocks, slots of windows, or states.
    """

    context_len: int
    num_blocks: int
    num_requests: int
    num_sharing_requests: int | None
    limited_by: Literal["blocks", "windows", "states"]


@dataclass(frozen=True, slots=True)
class KVLayers:
    """Layers that keep as many KV heads (or one latent) of a token, of as many numbers."""

    num_layers: int
    num_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """What fits where. Bytes are bytes; lengths are tokens.

    Attributes:
        num_parameters: of the model; a tied embedding counts once.
        num_ranks: devices that share it. Of more than one, what follows is of each: of the one that holds most.
        weight_bytes: of the model.
        dtype: what the model computes in.
        kept_dtype: of the matrices that are neither published nor rounded in fewer bits.
        adapter_bytes: of the adapters loaded with it.
        draft_bytes, draft_bytes_per_token: of a draft model, which rank 0 alone has: its weights, and what it keeps of
            each token of the pool; 0: there is none.
        num_kv_parts: 2, keys and values, or 1 where latents are kept instead.
        num_layers, kv_layers: of the model, and those of them that keep keys, each kind with its number.
        kv_dtype: of keys and values.
        kv_bytes_per_token: of these, parts · layers · heads · bytes of a head in that type, its scale included.
        num_states, state_bytes: of recurrent layers: how many there are room for, and the bytes of one; 0: none. Each
            running request takes `states_each`: two, and with host memory below the pool three.
        num_slots, slot_bytes: of layers with a window, how many blocks of theirs there is room for, and the bytes of
            one; 0: none, all layers have blocks of the pool alone.
        memory_bytes: of the device; None: the pool was given.
        pool_bytes: set aside for KV; `num_blocks` whole blocks of it are used. 0: no layer has keys, and blocks only
            number the tokens.
        host_memory_bytes: for KV below the pool.
        prefix_len: the shared prefix assumed by `num_sharing_requests`; only its whole blocks are shared.
    """

    architecture: str
    num_parameters: int
    num_ranks: int
    weight_bytes: int
    dtype: NumberType
    kept_dtype: NumberType
    adapter_bytes: int
    draft_bytes: int
    draft_bytes_per_token: int
    num_kv_parts: int
    num_layers: int
    kv_layers: tuple[KVLayers, ...]
    kv_dtype: KVNumberType
    kv_bytes_per_token: int
    num_states: int
    state_bytes: int
    states_each: int
    num_slots: int
    slot_bytes: int
    block_size: int
    memory_bytes: int | None
    pool_bytes: int
    num_blocks: int
    host_memory_bytes: int
    prefix_len: int
    lengths: tuple[LengthPlan, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens whose KV the pool holds."""
        return self.num_blocks * self.block_size


def plan(
    config: ModelConfig,
    *,
    device_memory_bytes: int | None = None,
    pool_bytes: int | None = None,
    block_size: int = 16,
    weight_dtype: NumberType | None = None,
    kv_dtype: KVNumberType | None = None,
    quantise: Quantisation = "none",
    on_cpu: bool = False,
    context_lens: Sequence[int] | None = None,
    prefix_len: int = 2000,
    num_adapter_parameters: int = 0,
    num_ranks: int = 1,
    kv_memory_share: float = KV_MEMORY_SHARE,
    state_memory_bytes: int | None = None,
    host_memory_bytes: int = 0,
    max_running_requests: int = MAX_RUNNING_REQUESTS,
    max_batch_tokens: int = MAX_BATCH_TOKENS,
    max_model_len: int | None = None,
    draft: ModelConfig | Literal["mtp"] | None = None,
) -> CapacityPlan:
    """Plans for one device (`device_memory_bytes`) or for a KV pool of a given size (`pool_bytes`).

    What has a setting's name is as in `EngineConfig`. quantise counts weights as the engine keeps them, with their
    scales, on a CPU, which alone has it. Types default to the checkpoint's, on a CPU to float32, where matrices
    published in bf16 stay in two bytes a number (`kernels.linear_weight`), and those in MXFP4 in four bits, as they do
    with bf16 on a GPU; context_lens to powers of two up to the model's own context; prefix_len is the prefix that
    requests are assumed to share (0: none). A model that does not fit gives a plan with 0 blocks.
    num_adapter_parameters: of all adapters (`models.count_parameters`); they are counted in the type of the weights.
    num_ranks: devices that share the model (`tensor_parallel_size`); all sizes are those of the rank that holds most.
    kv_memory_share: which part of what the weights leave of a device becomes the pool. draft: a draft model
    (`draft_config.py`).

    Raises:
        ConfigError: not exactly one of the two sizes, a size, length or share out of range, a length above the model's
            context, a KV type or tier that does not fit, or a number of ranks that cannot share the model.
    """
    if (device_memory_bytes is None) == (pool_bytes is None):
        raise ConfigError("plan: give either device_memory_bytes or pool_bytes")
    if not 0 < kv_memory_share <= 1:
        raise ConfigError(f"plan: kv_memory_share: {kv_memory_share} is out of range; it must be in (0, 1]")
    longest = longest_of(config, max_model_len)
    sizes = [device_memory_bytes or pool_bytes or 0, block_size, max_running_requests, max_batch_tokens, longest]
    lengths = _checked_lengths(longest, context_lens, sizes, prefix_len)
    part, on_cpu = largest_part(config, num_ranks), on_cpu or quantise != "none"
    weights = _weights(part, count_parameters(config)[1], weight_dtype, quantise, on_cpu=on_cpu, num_ranks=num_ranks)
    kv_type, has_tiers = kv_dtype or weights.dtype, host_memory_bytes > 0
    part.check_kv_type(kv_type)
    if has_tiers:
        check_tiers(config)
    drafts = _draft(config, draft, weights.dtype, kv_type, quantise, on_cpu=on_cpu)
    adapter_bytes, free = num_adapter_parameters * BYTES[weights.dtype], None
    if device_memory_bytes is not None:
        free = max(0, device_memory_bytes - weights.num_bytes - adapter_bytes - drafts.num_bytes)
    shared = None if free is None or on_cpu else free * kv_memory_share
    states = _states(part, max_running_requests, state_memory_bytes, shared, has_tiers=has_tiers)
    if free is not None:
        pool_bytes = int(max(0, free - states.number * states.num_bytes) * kv_memory_share)
    pool = _pool(part, kv_type, pool_bytes or 0, block_size, longest, drafts.bytes_per_token, has_tiers=has_tiers)
    most = states.number // states.each if states.num_bytes else None  # requests, of which each needs its states
    rules = (pool.window, block_size, prefix_len, most, max_batch_tokens)
    return CapacityPlan(
        architecture=part.architecture,
        num_parameters=sum(count_parameters(config)),
        num_ranks=num_ranks,
        weight_bytes=weights.num_bytes,
        dtype=weights.dtype,
        kept_dtype=weights.kept_dtype,
        adapter_bytes=adapter_bytes,
        draft_bytes=drafts.num_bytes,
        draft_bytes_per_token=drafts.bytes_per_token,
        num_kv_parts=part.num_kv_parts,
        num_layers=part.num_layers,
        kv_layers=_kv_layers(part),
        kv_dtype=kv_type,
        kv_bytes_per_token=pool.bytes_per_token,
        num_states=states.number,
        state_bytes=states.num_bytes,
        states_each=states.each,
        num_slots=pool.sizes.num_slots,
        slot_bytes=pool.slot_bytes,
        block_size=block_size,
        memory_bytes=device_memory_bytes,
        pool_bytes=pool.num_bytes,
        num_blocks=pool.sizes.num_blocks,
        host_memory_bytes=host_memory_bytes,
        prefix_len=prefix_len,
        lengths=tuple(_length(n, pool.sizes, *rules) for n in lengths),
    )


def _checked_lengths(
    longest: int, context_lens: Sequence[int] | None, sizes: Sequence[int], prefix_len: int
) -> Sequence[int]:
    """The lengths to plan for, once all that was given makes sense."""
    if context_lens is None:
        context_lens = sorted({*(n for n in CONTEXT_LENS if n <= longest), longest})
    if min(*sizes, *context_lens) < 1 or prefix_len < 0:
        raise ConfigError("plan: sizes and lengths must be at least 1, and prefix_len at least 0")
    if max(context_lens) > longest:
        raise ConfigError(
            f"plan: a context of {max(context_lens):,} is more than the {longest:,} tokens of the model; lower it"
        )
    return context_lens


class _Weights(NamedTuple):
    num_bytes: int
    dtype: NumberType  # that is computed in
    kept_dtype: NumberType  # of matrices, as far as they are neither published nor rounded in fewer bits


def _weights(
    part: ModelConfig,
    num_routers: int,
    dtype: NumberType | None,
    quantise: Quantisation,
    *,
    on_cpu: bool,
    num_ranks: int = 1,
) -> _Weights:
    """What the weights of one rank take; num_routers: numbers in routers, which each rank has whole."""
    asked = dtype or ("float32" if on_cpu else part.dtype)
    kept: NumberType = "bfloat16" if on_cpu and (asked, part.dtype) == ("float32", "bfloat16") else asked
    dtype = asked if quantise == "none" else "float32"
    num_norms, num_biases = count_parameters(part)[0], count_biases(part)
    num_bytes = matrix_bytes(part, dtype, kept, on_cpu=on_cpu, quantise=quantise, num_ranks=num_ranks)
    num_bytes += num_biases * BYTES[dtype]
    num_mxfp4 = count_mxfp4(part)
    if dtype == ("float32" if on_cpu else "bfloat16"):
        num_bytes += num_mxfp4 // 2 + num_mxfp4 // 32
    else:
        num_bytes += num_mxfp4 * BYTES[kept]
    has_short_routers = on_cpu and "bfloat16" in (part.dtype, dtype)
    num_bytes += 4 * num_norms + (2 if has_short_routers else 4) * num_routers
    return _Weights(num_bytes, dtype, kept if quantise == "none" else dtype)


class _Draft(NamedTuple):
    """What a draft model takes: of weights, and of each token of the pool."""

    num_bytes: int
    bytes_per_token: int


def _draft(
    model: ModelConfig,
    draft: ModelConfig | Literal["mtp"] | None,
    dtype: NumberType,
    kv_type: KVNumberType,
    quantise: Quantisation,
    *,
    on_cpu: bool,
) -> _Draft:
    """Of another model, or of the model's own MTP layer, beside which hidden states are kept."""
    if draft is None:
        return _Draft(0, 0)
    config = draft if isinstance(draft, ModelConfig) else replace(mtp_config(model), vocab_size=0)
    found = _weights(config, count_parameters(config)[1], dtype, quantise, on_cpu=on_cpu)
    num_bytes, token_bytes = found.num_bytes, _kv_bytes_per_token(config, kv_type)
    if config is not draft:
        num_bytes += joint_bytes(config, dtype, found.kept_dtype, on_cpu=on_cpu, quantise=quantise)
        num_bytes += 2 * 4 * config.hidden_size  # norms of token and state
        token_bytes += config.hidden_size * BYTES[dtype]
    return _Draft(num_bytes, token_bytes)


def _kv_layers(config: ModelConfig) -> tuple[KVLayers, ...]:
    counted = Counter(config.kv_shapes())
    return tuple(KVLayers(number, shape.num_heads, shape.head_dim) for shape, number in counted.items())


class _States(NamedTuple):
    """Of recurrent layers; 0: there are none."""

    number: int
    num_bytes: int  # of one
    each: int  # of a request


def _states(
    part: ModelConfig, max_running_requests: int, memory_bytes: int | None, shared: float | None, *, has_tiers: bool
) -> _States:
    """memory_bytes: that were asked for; shared: of a GPU's memory, what states and the pool have; None: not known."""
    each = needed_each(has_tiers)
    if part.recurrent is None:
        return _States(0, 0, each)
    num_bytes = part.recurrent.num_state_bytes
    number = num_states(num_bytes, max_running_requests, memory_bytes, each=each, free=shared, least=CPU_POOL_BYTES)
    if memory_bytes is not None:
        check_number(number, each, num_bytes)
    return _States(number, num_bytes, each)


class _Pool(NamedTuple):
    """What is set aside for KV, and what fits; slot_bytes: 0: layers with a window have no blocks of their own."""

    num_bytes: int
    bytes_per_token: int
    slot_bytes: int
    window: int
    sizes: KVSizes


def _pool(
    part: ModelConfig,
    kv_type: KVNumberType,
    num_bytes: int,
    block_size: int,
    longest: int,
    draft_bytes_per_token: int,
    *,
    has_tiers: bool,
) -> _Pool:
    token_bytes, window = _kv_bytes_per_token(part, kv_type), widest_window(part, longest)
    if has_tiers and all(layer.window for layer in part.layers):
        window = 0  # a tier has rows of the size of a block in the other layers
    slot_bytes = block_size * _kv_bytes_per_token(part, kv_type, windowed=True) if window else 0
    block_bytes = block_size * (token_bytes + draft_bytes_per_token) - slot_bytes
    sizes = share_memory(num_bytes, block_bytes, slot_bytes, window, block_size)
    num_bytes = num_bytes if block_bytes + slot_bytes else 0
    return _Pool(num_bytes, token_bytes, slot_bytes if sizes.num_slots else 0, window, sizes)


def _kv_bytes_per_token(config: ModelConfig, dtype: KVNumberType, *, windowed: bool = False) -> int:
    """What `KVCache` takes: parts of layers and heads, each with a scale where numbers have a byte or less.

    windowed: of layers with a window only.
    """
    scale = KV_SCALE_BYTES if dtype in ROUNDED_BITS else 0
    return sum(
        kept.num_parts * kept.num_heads * (kept.head_dim * KV_BITS[dtype] // 8 + scale)
        for kept in config.kv_shapes(windowed=windowed or None)
    )


def _length(
    context_len: int,
    sizes: KVSizes,
    window: int,
    block_size: int,
    prefix_len: int,
    most_requests: int | None,
    max_batch_tokens: int,
) -> LengthPlan:
    each = -(-context_len // block_size)
    # at least one block is a request's own: the last token's KV is never shared
    shared = min(prefix_len // block_size, each - 1)
    alone, sharing = sizes.num_blocks // each, max(0, sizes.num_blocks - shared) // (each - shared)
    limited_by: Literal["blocks", "windows", "states"] = "blocks"
    if sizes.num_slots:
        most = most_blocks(window, block_size)
        room = room_for_windows(sizes.num_slots, block_size, max_batch_tokens)
        in_windows = room // min(each, most)
        alone, limited_by = (in_windows, "windows") if in_windows < alone else (alone, "blocks")
        sharing = min(sharing, max(0, room - min(shared, most)) // min(each - shared, most))
    if most_requests is not None:
        limited_by = "states" if most_requests < alone else limited_by
        alone, sharing = min(alone, most_requests), min(sharing, most_requests)
    return LengthPlan(context_len, each, alone, sharing if context_len > prefix_len > 0 else None, limited_by)
