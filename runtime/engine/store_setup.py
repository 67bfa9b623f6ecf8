"""From settings to the books of states and of windows. Knows no requests."""

from __future__ import annotations

from ..cache.state_store import StateStore
from ..cache.window_store import WindowStore
from ..config import EngineConfig
from ..execute.window_kv import WindowKV


def window_store(config: EngineConfig, window: int, kv: WindowKV, *, in_chunks: bool) -> WindowStore:
    """Which blocks have slots."""
    sizes = (kv.num_slots, kv.num_blocks, config.block_size, window)
    return WindowStore(*sizes, in_chunks=in_chunks, max_batch_tokens=config.max_batch_tokens, keeps=config.prefix_cache)


def state_store(config: EngineConfig, num_slots: int) -> StateStore:
    """Which states are whose."""
    return StateStore(num_slots, config.block_size, interval=config.state_interval, keeps=config.prefix_cache)
