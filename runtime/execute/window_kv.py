"""Keys and values of a model some of whose layers have a window: two sets of tensors, seen as one by its layers.

Layers without a window have a place for each block of the pool, those with one for each slot (`cache.window_store`).
Knows no tokens, no requests and no blocks' slots.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .kv_cache import KVCache


class WindowKV:
    """The tensors of all layers, as `KVCache` names them.

    Args:
        pool: of layers without a window; it may have none.
        windowed: of layers with one, with as many blocks as there are slots.
        has_window: by layer that keeps keys and values.

    Attributes:
        shapes: of each of these.
    """

    def __init__(self, pool: KVCache, windowed: KVCache, has_window: Sequence[bool]) -> None:
        self.pool = pool
        self.windowed = windowed
        self.block_size = pool.block_size
        self.num_blocks = pool.num_blocks
        self.num_slots = windowed.num_blocks
        self.num_bytes = pool.num_bytes + windowed.num_bytes
        places = [sum(has_window[:index]) for index in range(len(has_window))]
        of = [
            (windowed, before) if has else (pool, index - before)
            for index, (before, has) in enumerate(zip(places, has_window, strict=True))
        ]
        self.shapes = tuple(cache.shapes[at] for cache, at in of)
        self.keys: list[Tensor] = [cache.keys[at] for cache, at in of]
        self.values: list[Tensor] = [cache.values[at] for cache, at in of]
        self.key_scales: list[Tensor] | list[None] = [cache.key_scales[at] for cache, at in of]  # type: ignore[assignment]
        self.value_scales: list[Tensor] | list[None] = [cache.value_scales[at] for cache, at in of]  # type: ignore[assignment]
        self.hidden: Tensor | None = None  # as `KVCache` has it
