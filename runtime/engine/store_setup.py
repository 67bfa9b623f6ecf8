"""From settings to the books of states and of windows. Knows no requests."""

from __future__ import annotations

from ..cache.state_store import StateStore
from ..cache.window_store import WindowStore
from ..config import EngineConfig
from ..execute.kv_cache import KVCache
from ..execute.recurrent_states import RecurrentStates
from ..execute.window_kv import WindowKV
from ..offload.parts import PartRules


def window_store(config: EngineConfig, window: int, kv: WindowKV) -> WindowStore:
    """Which blocks have slots."""
    sizes = (kv.num_slots, kv.num_blocks, config.block_size, window)
    return WindowStore(*sizes, max_batch_tokens=config.max_batch_tokens, keeps=config.prefix_cache)


def state_store(config: EngineConfig, num_slots: int) -> StateStore:
    """Which states are whose."""
    return StateStore(
        num_slots,
        config.block_size,
        interval=config.state_interval,
        keeps=config.prefix_cache,
        at_blocks=config.has_tiers,
    )


def part_rules(books: StateStore | WindowStore | None, tensors: RecurrentStates | KVCache | None) -> PartRules | None:
    """What a block needs in tiers besides its keys; None: nothing."""
    return None if books is None or tensors is None else PartRules(tensors.block_bytes, books.needed)
