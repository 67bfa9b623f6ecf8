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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...errors import ConfigError
from ..config import CPU_POOL_BYTES, KV_MEMORY_SHARE, MAX_BATCH_TOKENS, MAX_RUNNING_REQUESTS, Quantisation
from ..models import ModelConfig, recurrent_kinds
from ..models.added_parts import added_shapes, count_fp32, count_multiplied
from ..number_types import BYTES, KV_BITS, KV_SCALE_BYTES, ROUNDED_BITS, KVNumberType, NumberType
from .matrix_bytes import matrix_bytes
from .rank_config import largest_part
from .state_memory import needed_each, num_states
from .window_memory import KVSizes, most_blocks, room_for_windows, share_memory, widest_window

CONTEXT_LENS = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


@dataclass(frozen=True, slots=True)
class LengthPlan:
    """What fits of requests of one length (prompt and output together).

    Attributes:
        num_blocks: blocks of one request.
        num_requests: requests at the same time, each with all blocks of its own.
        num_sharing_requests: requests at the same time that share the plan's prefix; None: it is no shorter than they.
    """

    context_len: int
    num_blocks: int
    num_requests: int
    num_sharing_requests: int | None


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
        num_kv_parts: 2, keys and values, or 1 where latents are kept instead.
        kv_bytes_per_token: parts · layers · kv_heads · bytes of a head in the KV type, its scale included.
        num_states, state_bytes: of recurrent layers: how many there are room for, and the bytes of one; 0: none. Each
            running request takes two.
        num_slots, slot_bytes: of layers with a window, how many blocks of theirs there is room for, and the bytes of
            one; 0: none, all layers have blocks of the pool alone.
        memory_bytes: of the device; None: the pool was given.
        pool_bytes: set aside for KV; `num_blocks` whole blocks of it are used.
        prefix_len: the shared prefix assumed by `num_sharing_requests`; only its whole blocks are shared.
    """

    architecture: str
    num_parameters: int
    num_ranks: int
    weight_bytes: int
    dtype: NumberType
    kept_dtype: NumberType
    adapter_bytes: int
    num_kv_parts: int
    kv_bytes_per_token: int
    num_states: int
    state_bytes: int
    num_slots: int
    slot_bytes: int
    block_size: int
    memory_bytes: int | None
    pool_bytes: int
    num_blocks: int
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
) -> CapacityPlan:
    """Plans for one device (`device_memory_bytes`) or for a KV pool of a given size (`pool_bytes`).

    num_ranks: devices that share the model (`tensor_parallel_size`); all sizes are those of the rank that holds most.

    quantise: "int8" and "int4" count weights as the engine's setting of that name keeps them, with their scales, on a
    CPU, which alone has it. Types default to the checkpoint's, on a CPU to float32, where matrices published in bf16
    stay in two bytes a number (`kernels.linear_weight`), and those in MXFP4 in four bits, as they do with bf16 on a
    GPU; context_lens to powers of two up to the model's own context; prefix_len is the prefix that requests are assumed
    to share (0: none). A model that does not fit gives a plan with 0 blocks. num_adapter_parameters: of all adapters
    (`models.count_parameters`); they are counted in the type of the weights. kv_memory_share: which part of what the
    weights leave of a device becomes the pool, as in `EngineConfig`.

    Raises:
        ConfigError: not exactly one of the two sizes, a size, length or share out of range, a length above the model's
            context, a KV type that does not fit, or a number of ranks that cannot share the model.
    """
    if (device_memory_bytes is None) == (pool_bytes is None):
        raise ConfigError("plan: give either device_memory_bytes or pool_bytes")
    if not 0 < kv_memory_share <= 1:
        raise ConfigError(f"plan: kv_memory_share: {kv_memory_share} is out of range; it must be in (0, 1]")
    lengths = _checked_lengths(config, context_lens, [device_memory_bytes or pool_bytes or 0, block_size], prefix_len)
    part, on_cpu = largest_part(config, num_ranks), on_cpu or quantise != "none"
    weights = _weights(part, count_parameters(config)[1], weight_dtype, quantise, on_cpu=on_cpu)
    kv_type = kv_dtype or weights.dtype
    part.check_kv_type(kv_type)
    adapter_bytes = num_adapter_parameters * BYTES[weights.dtype]
    free = None
    if device_memory_bytes is not None:
        free = max(0, device_memory_bytes - weights.num_bytes - adapter_bytes)
    state_bytes = 0 if part.recurrent is None else part.recurrent.num_state_bytes
    states = _num_states(state_bytes, None if free is None or on_cpu else free * kv_memory_share)
    if free is not None:
        pool_bytes = int(max(0, free - states * state_bytes) * kv_memory_share)
    token_bytes, window = _kv_bytes_per_token(part, kv_type), widest_window(part, config.max_position_embeddings)
    slot_bytes = block_size * _kv_bytes_per_token(part, kv_type, windowed=True) if window else 0
    room = share_memory(pool_bytes or 0, block_size * token_bytes - slot_bytes, slot_bytes, window, block_size)
    most = states // needed_each(False) if state_bytes else None  # requests, of which each needs its states
    return CapacityPlan(
        architecture=part.architecture,
        num_parameters=sum(count_parameters(config)),
        num_ranks=num_ranks,
        weight_bytes=weights.num_bytes,
        dtype=weights.dtype,
        kept_dtype=weights.kept_dtype,
        adapter_bytes=adapter_bytes,
        num_kv_parts=part.num_kv_parts,
        kv_bytes_per_token=token_bytes,
        num_states=states,
        state_bytes=state_bytes,
        num_slots=room.num_slots,
        slot_bytes=slot_bytes if room.num_slots else 0,
        block_size=block_size,
        memory_bytes=device_memory_bytes,
        pool_bytes=pool_bytes or 0,
        num_blocks=room.num_blocks,
        prefix_len=prefix_len,
        lengths=tuple(_length(n, room, window, block_size, prefix_len, most) for n in lengths),
    )


def _checked_lengths(
    config: ModelConfig, context_lens: Sequence[int] | None, sizes: Sequence[int], prefix_len: int
) -> Sequence[int]:
    """The lengths to plan for, once all that was given makes sense."""
    longest = config.max_position_embeddings
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
    part: ModelConfig, num_routers: int, dtype: NumberType | None, quantise: Quantisation, *, on_cpu: bool
) -> _Weights:
    """What the weights of one rank take; num_routers: numbers in routers, which each rank has whole."""
    asked = dtype or ("float32" if on_cpu else part.dtype)
    kept: NumberType = "bfloat16" if on_cpu and (asked, part.dtype) == ("float32", "bfloat16") else asked
    dtype = asked if quantise == "none" else "float32"
    num_norms, num_biases = count_parameters(part)[0], count_outputs(part)[1]
    num_bytes = matrix_bytes(part, dtype, kept, on_cpu=on_cpu, quantise=quantise) + num_biases * BYTES[dtype]
    num_mxfp4 = _count_mxfp4(part)
    if dtype == ("float32" if on_cpu else "bfloat16"):
        num_bytes += num_mxfp4 // 2 + num_mxfp4 // 32
    else:
        num_bytes += num_mxfp4 * BYTES[kept]
    has_short_routers = on_cpu and "bfloat16" in (part.dtype, dtype)
    num_bytes += 4 * num_norms + (2 if has_short_routers else 4) * num_routers
    return _Weights(num_bytes, dtype, kept if quantise == "none" else dtype)


def _num_states(state_bytes: int, shared: float | None) -> int:
    """How many states of recurrent layers there are room for; shared: memory that they share with the pool, if so."""
    if not state_bytes:
        return 0
    return num_states(state_bytes, MAX_RUNNING_REQUESTS, None, free=shared, least=CPU_POOL_BYTES)


def _kv_bytes_per_token(config: ModelConfig, dtype: KVNumberType, *, windowed: bool = False) -> int:
    """What `KVCache` takes: parts of layers and heads, each with a scale where numbers have a byte or less.

    windowed: of layers with a window only.
    """
    scale = KV_SCALE_BYTES if dtype in ROUNDED_BITS else 0
    return sum(
        kept.num_parts * kept.num_heads * (kept.head_dim * KV_BITS[dtype] // 8 + scale)
        for kept in config.kv_shapes(windowed=windowed or None)
    )


def count_parameters(config: ModelConfig) -> tuple[int, int, int]:
    """(Numbers in norms and the like, kept as fp32; in routers, which are rounded to nothing less; in the rest)."""
    hidden, experts = config.hidden_size, config.experts
    numbers_each = 2 * hidden if config.options.norm == "layer" else hidden
    around = numbers_each * config.options.num_norms + 4 * (config.curve == "xielu")
    norms, norms_of_heads = config.num_heads * config.options.has_sinks, 0
    around += config.intermediate_size * bool(config.options.names.down_norm)
    norms += config.num_heads * config.head_dim * bool(config.options.names.o_norm)
    if config.options.qk_norm and not config.options.weightless_norms:
        has_weights_each = config.options.whole_norms or config.options.own_norms
        num_normed_heads = config.num_heads + config.num_kv_heads if has_weights_each else 2
        norms_of_heads = num_normed_heads * sum(kept.head_dim for kept in config.kv_shapes())
    if config.latent is not None:
        norms += config.latent.num_norms
    num_norms, num_routed = config.num_layers * around + config.num_kv_layers * norms + numbers_each, 0
    num_norms += norms_of_heads
    if config.options.qk_norm and config.options.weightless_norms:
        num_norms += config.head_dim * sum(layer.rope >= 0 for layer in config.layers)
    elif config.options.qk_norm and config.latent is None:
        shared = [index for index, layer in enumerate(config.layers) if layer.kv_of >= 0]
        num_norms += sum(config.kv_shape(index).head_dim for index in shared)  # of queries alone
    if config.recurrent is not None:
        num_norms += sum(config.recurrent.layers) * recurrent_kinds.num_fp32(config.recurrent)
    num_norms += count_fp32(config)
    if config.altup is not None:
        num_routed = config.num_layers * config.altup.num_streams
    if experts is not None:
        num_routed = sum(experts.has_experts) * experts.num_scored
        num_norms += num_routed * (experts.options.has_bias or experts.options.linear_biases)
    matrices = sum(outputs * inputs for outputs, inputs in _matrices(config))
    return num_norms, num_routed * hidden, matrices + count_outputs(config)[1]


def count_outputs(config: ModelConfig) -> tuple[int, int]:
    """(Rows of all matrices but routers, which have a scale each where weights are int8; numbers in biases, and of
    learned positions)."""
    hidden = config.hidden_size
    attending = [index for index, layer in enumerate(config.layers) if layer.attends]
    biases = len(attending) * hidden * config.o_bias
    if config.latent is not None:
        biases += len(attending) * config.latent.num_biases(config.num_heads)
    else:
        biases += sum(config.projected(index)[1] for index in attending) * config.qkv_bias
    dense, experts = filter(config.has_dense, range(config.num_layers)), config.experts
    biases += sum(config.gate_up_size(index) + hidden for index in dense) * config.mlp_bias
    biases += config.vocab_size * bool(config.options.projection_bias)
    biases += config.max_position_embeddings * hidden * bool(config.options.positions)
    if config.recurrent is not None:
        biases += sum(config.recurrent.layers) * recurrent_kinds.num_biases(config.recurrent, hidden)
    if experts is not None:
        num_biases = experts.num_experts * (2 * experts.inner_size + hidden) * experts.options.linear_biases
        biases += sum(experts.has_experts) * num_biases
    return sum(outputs for outputs, _ in _matrices(config)), biases


def _count_mxfp4(config: ModelConfig) -> int:
    """Numbers that are published in four bits, with a scale for 32 of them."""
    experts = config.experts
    if experts is None or not experts.is_mxfp4:
        return 0
    shapes = [(2 * experts.inner_size, config.hidden_size), (config.hidden_size, experts.inner_size)]
    each = sum(outputs * inputs for outputs, inputs in shapes)
    return each * experts.num_experts * sum(experts.has_experts)


def count_multiplications(config: ModelConfig) -> int:
    """Multiplications, each with an addition, of one token with the matrices of all layers; it meets few experts."""
    total = count_multiplied(config)
    for index in range(config.num_layers):
        experts = config.experts_of(index)
        if experts is not None:
            total += experts.num_scored * config.hidden_size
        num_experts = experts.num_chosen if experts is not None else 0
        total += sum(outputs * inputs for outputs, inputs in layer_matrices(config, index, num_experts))
    return total


def _matrices(config: ModelConfig) -> Iterator[tuple[int, int]]:
    """(Outputs, inputs) of all matrices but routers, a tied embedding once."""
    for index in range(config.num_layers):
        yield from layer_matrices(config, index, config.experts.num_experts if config.experts is not None else 0)
    for _ in range(1 if config.tie_word_embeddings else 2):
        yield config.vocab_size, config.hidden_size
    yield from ((outputs, inputs) for outputs, inputs, _ in added_shapes(config, None))


def layer_matrices(config: ModelConfig, index: int, num_experts: int) -> list[tuple[int, int]]:
    """(Outputs, inputs) of the matrices of one layer but its router, with `num_experts` of its experts."""
    hidden, inner, experts = config.hidden_size, config.inner_size(index), config.experts_of(index)
    found, layer = [], config.layers[index]
    if layer.attends:
        latent = config.latent
        found = [(config.projected(index)[1], hidden)] if latent is None else latent.shapes(hidden, config.num_heads)
        found.append((hidden, config.attended_size(index)))
    if config.recurrent is not None and config.is_recurrent(index):
        found += [matrix[:2] for matrix in recurrent_kinds.recurrent_matrices(config.recurrent, hidden)]
    if layer.has_mlp:
        mlp = [(config.gate_up_size(index), hidden), (hidden, inner)]
        found += mlp if config.has_dense(index) else []
        found += experts.shapes(hidden, num_experts) if experts is not None else []
    return found + [(outputs, inputs) for outputs, inputs, _ in added_shapes(config, index)]


def _length(
    context_len: int, sizes: KVSizes, window: int, block_size: int, prefix_len: int, most_requests: int | None
) -> LengthPlan:
    each = -(-context_len // block_size)
    # at least one block is a request's own: the last token's KV is never shared
    shared = min(prefix_len // block_size, each - 1)
    alone, sharing = sizes.num_blocks // each, max(0, sizes.num_blocks - shared) // (each - shared)
    if sizes.num_slots:
        most = most_blocks(window, block_size)
        room = room_for_windows(sizes.num_slots, block_size, MAX_BATCH_TOKENS)
        alone = min(alone, room // min(each, most))
        sharing = min(sharing, max(0, room - min(shared, most)) // min(each - shared, most))
    if most_requests is not None:
        alone, sharing = min(alone, most_requests), min(sharing, most_requests)
    return LengthPlan(context_len, each, alone, sharing if context_len > prefix_len > 0 else None)
