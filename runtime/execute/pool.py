"""How large the KV pool is, how many states of recurrent layers there are, and their tensors. Knows settings and device
memory; it knows no requests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import torch

from ...errors import ConfigError
from ..byte_text import bytes_text
from ..capacity.state_memory import check_number, check_tiers, most_running, needed_each, num_states
from ..capacity.window_memory import KVSizes, share_memory, slots_beside, widest_window
from ..config import CPU_POOL_BYTES, MOST_BLOCKS, EngineConfig
from ..models import ModelConfig
from ..models.kv_shape import KVShape
from ..parallel.message import Message
from ..parallel.ranks import RankLost
from .draft_kv import DraftKV
from .kv_cache import KVCache
from .leading_tensors import LeadingKV, LeadingStates
from .loading import LoadedModel, LoadedPart
from .recurrent_states import RecurrentStates
from .window_kv import WindowKV

logger = logging.getLogger("phloem.loading")


def allocate_pool(config: EngineConfig, loaded: LoadedModel, num_slots_of_states: int = 0) -> KVCache | WindowKV:
    """The KV tensors, as many blocks as the settings or the memory allow, a draft model's counted; and slots beside
    them, of a model with windows that are let go of (`window_of`). Other ranks make theirs of the same sizes, and so
    many states of recurrent layers.
    """
    model, draft = loaded.decoder.config, loaded.draft_decoder
    kept = draft.config.hidden_size * draft.dtype.itemsize if draft is not None and draft.takes_hidden else 0
    sizes = pool_size(config, model, loaded.kv_dtype, loaded.device, None if draft is None else draft.config, kept)
    if loaded.processes is None:
        return pool_tensors(config, loaded, *sizes)
    processes, cut = loaded.processes, loaded.cut
    assert cut is not None
    processes.begin_engine()

    def leading(name: str) -> Callable[..., KVCache]:
        return partial(LeadingKV, processes, name, cut.whole.num_kv_heads)

    try:
        processes.tell(Message("begin", {**sizes._asdict(), "num_states": num_slots_of_states}))
        found = pool_tensors(config, loaded, *sizes, leading)
        processes.replies()
    except RankLost as error:
        processes.close()
        raise ConfigError(f"tensor_parallel_size: {error}; lower kv_memory_share or num_blocks") from error
    return found


def pool_tensors(
    config: EngineConfig,
    loaded: LoadedModel | LoadedPart,
    num_blocks: int,
    num_slots: int,
    maker: Callable[[str], Callable[..., KVCache]] = lambda name: KVCache,
) -> KVCache | WindowKV:
    """The KV tensors of a rank, with `num_blocks` blocks, and slots beside them. maker: of tensors of that name."""
    model = loaded.decoder.config
    if not num_slots:
        return _tensors(config, loaded, model.kv_shapes(), num_blocks, maker("pool"))
    pool = _tensors(config, loaded, model.kv_shapes(windowed=False), num_blocks, maker("pool"))
    windowed = _tensors(config, loaded, model.kv_shapes(windowed=True), num_slots, maker("windowed"))
    return WindowKV(pool, windowed, [layer.window > 0 for layer in model.layers if layer.keeps_kv])


def allocate_states(config: EngineConfig, loaded: LoadedModel) -> RecurrentStates | None:
    """As many states as the settings or the memory allow; None: the model has no recurrent layers.

    Raises:
        ConfigError: a setting that these models do not go with, or the memory does not hold the states of one request.
    """
    model, device = loaded.decoder.config, loaded.device
    if model.recurrent is None:
        return None
    if config.has_tiers:
        check_tiers(model)
    state_bytes, running = model.recurrent.num_state_bytes, config.max_running_requests
    free = None
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0] * config.kv_memory_share
    each = needed_each(config.has_tiers)
    num_slots = num_states(state_bytes, running, config.state_memory_bytes, each=each, free=free, least=CPU_POOL_BYTES)
    check_number(num_slots, each, state_bytes)
    if most_running(num_slots, each) < running:
        logger.warning(
            "states of recurrent layers take %s each: at most %d requests run at a time (state_memory_bytes)",
            bytes_text(state_bytes),
            most_running(num_slots, each),
        )
    sizes = (model, num_slots, device)
    return RecurrentStates(*sizes) if loaded.processes is None else LeadingStates(loaded.processes, *sizes)


def allocate_draft_kv(config: EngineConfig, loaded: LoadedModel, model_kv: KVCache | WindowKV) -> DraftKV | None:
    """KV tensors of the draft model, for each block of the model's, and what MTP layers need; None without one."""
    decoder = loaded.draft_decoder
    if decoder is None:
        return None
    draft = decoder.config
    kv = DraftKV(_tensors(config, loaded, draft.kv_shapes(), model_kv.num_blocks, KVCache))
    if decoder.takes_hidden:
        kv.keep_hidden(model_kv, draft.hidden_size, decoder.dtype)
    return kv


def _tensors(
    config: EngineConfig,
    loaded: LoadedModel | LoadedPart,
    shapes: Sequence[KVShape],
    num_blocks: int,
    make: Callable[..., KVCache],
) -> KVCache:
    return make(
        shapes=shapes,
        num_blocks=num_blocks,
        block_size=config.block_size,
        dtype=loaded.kv_dtype,
        device=loaded.device,
    )


def pool_size(
    config: EngineConfig,
    model: ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
    draft: ModelConfig | None = None,
    hidden_bytes: int = 0,
) -> KVSizes:
    """KV blocks, as set, or what the memory set aside for the pool holds of the model and of its draft model; and slots
    of layers with a window. hidden_bytes: of what else is kept of each token.

    Raises:
        ConfigError: the memory does not hold a single block.
    """
    window = window_of(config, model)
    if config.num_blocks is not None:
        return KVSizes(config.num_blocks, slots_beside(config.num_blocks, window, config.block_size) if window else 0)
    bytes_of = partial(KVCache.bytes_per_block, block_size=config.block_size, dtype=dtype)
    slot_bytes = bytes_of(model.kv_shapes(windowed=True)) if window else 0
    block_bytes = bytes_of(model.kv_shapes()) - slot_bytes
    if draft is not None:
        block_bytes += bytes_of(draft.kv_shapes()) + hidden_bytes * config.block_size
    token_bytes = block_bytes + slot_bytes
    memory = config.kv_memory_bytes
    if memory is None:
        memory = CPU_POOL_BYTES
        if device.type == "cuda":
            memory = int(torch.cuda.mem_get_info(device)[0] * config.kv_memory_share)
    if memory < token_bytes:
        raise ConfigError(
            f"kv_memory_bytes: {memory} does not hold one block of {token_bytes} bytes"
            f" ({config.block_size} tokens); raise it or lower block_size"
        )
    sizes = share_memory(memory, block_bytes, slot_bytes, window, config.block_size)
    if sizes.num_blocks > MOST_BLOCKS:
        raise ConfigError(
            f"kv_memory_bytes: {memory} is {sizes.num_blocks} blocks of {config.block_size} tokens; at most"
            f" {MOST_BLOCKS} are numbered; lower it or raise block_size"
        )
    return sizes


def window_of(config: EngineConfig, model: ModelConfig) -> int:
    """The widest window of a model whose keys behind it make room; 0: all keys are kept, as with tiers below the pool
    where all layers have one: a tier has rows of the size of a block in the other layers."""
    longest = min(config.max_model_len or model.max_position_embeddings, model.max_position_embeddings)
    return 0 if config.has_tiers and all(layer.window for layer in model.layers) else widest_window(model, longest)
