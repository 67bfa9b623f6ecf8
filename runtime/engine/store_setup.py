"""From settings to the books of states and of windows. Knows no requests."""

from __future__ import annotations

from ..cache.slot_books import SlotBooks
from ..cache.state_slots import StateSlots
from ..cache.state_store import StateStore
from ..cache.window_slots import WindowSlots
from ..cache.window_store import WindowStore
from ..config import EngineConfig
from ..execute.kv_cache import KVCache
from ..execute.pool import window_of
from ..execute.recurrent_states import RecurrentStates
from ..execute.window_kv import WindowKV
from ..models import ModelConfig


def slot_books(
    config: EngineConfig, model: ModelConfig, kv_cache: KVCache | WindowKV, tensors: RecurrentStates | None
) -> SlotBooks:
    """Whose the slots of these tensors are."""
    states, windows = None, None
    if tensors is not None:
        states = StateStore(
            StateSlots(tensors.num_slots, config.block_size),
            interval=config.state_interval,
            keeps=config.prefix_cache,
            at_blocks=config.has_tiers,
        )
    if not isinstance(kv_cache, WindowKV):
        return SlotBooks(states, windows, tensors)
    windows = WindowStore(
        WindowSlots(kv_cache.num_slots, kv_cache.num_blocks),
        config.block_size,
        window_of(config, model),
        in_chunks=any(layer.in_chunks for layer in model.layers),
        max_batch_tokens=config.max_batch_tokens,
        keeps=config.prefix_cache,
    )
    return SlotBooks(states, windows, tensors, kv_cache.windowed)
