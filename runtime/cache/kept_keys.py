"""What requests with a `kv_budget` have kept at a compaction, outside of the pool until there are blocks for it.

Layers that see all tokens keep the keys at chosen places. Layers with a window need its last keys alone, which stand at
the same distances before and after (`kv_compress.fit`), and go from slots to slots. A state goes on as it is.

Knows requests, blocks and tensors; it knows no tree.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..execute.kv_cache import KVCache
from ..execute.window_view import EMPTY
from ..request import Request
from .dropped_texts import DroppedTexts
from .kept_state import StatePoint
from .slot_books import SlotBooks


@dataclass(frozen=True, slots=True)
class _Kept:
    """Copies: of layers that see all tokens; of those with a window, from block `first` on, or None."""

    full: list[Tensor]
    windowed: list[Tensor] | None
    first: int
    state: StatePoint | None


class KeptKeys(Container[Request]):
    """Of requests, until their next blocks.

    Attributes:
        dropped: what requests have said whose keys were dropped.
    """

    def __init__(self, kv_cache: KVCache, slots: SlotBooks) -> None:
        self._kv_cache = kv_cache
        self._windows = slots.windows
        self._window_kv = slots.window_kv
        self._states = slots.states
        self._kept: dict[Request, _Kept] = {}
        self.dropped = DroppedTexts()

    def __contains__(self, request: object) -> bool:
        return request in self._kept

    def copy_out(self, request: Request, places: Tensor) -> _Kept:
        """Copies the keys and values of some places of a request, as `KVCache.gather` has them, rising."""
        full, windowed, first = self._kv_cache.gather(request.blocks, places), None, 0
        if self._windows is not None and self._window_kv is not None:
            end, number = request.num_computed_tokens - request.num_dropped_tokens, places.shape[-1]
            first = self._windows.first_block(number)
            last = torch.arange(end - number + first * self._kv_cache.block_size, end)
            slots = np.maximum(self._windows.slots.slot_of[np.asarray(request.blocks, np.int64)], EMPTY)
            windowed = self._window_kv.gather(slots.tolist(), last)
        return _Kept(full, windowed, first, None if self._states is None else self._states.lend(request))

    def keep(self, request: Request, kept: _Kept) -> None:
        """The request has no blocks now, and is to have this in its next."""
        self._kept[request] = kept
        if self._states is not None and kept.state is not None:
            self._states.take_back(request, kept.state)

    def copy_in(self, request: Request) -> None:
        """Puts what was kept into the request's blocks, if there is anything."""
        kept = self._kept.pop(request, None)
        if kept is None:
            return
        self._kv_cache.scatter(request.blocks, kept.full)
        if kept.windowed is not None:
            assert self._windows is not None
            assert self._window_kv is not None
            slots = [int(self._windows.slots.slot_of[block]) for block in request.blocks[kept.first :]]
            self._window_kv.scatter(slots, kept.windowed)

    def fork(self, parent: Request, child: Request) -> None:
        """The child is to have what the parent is."""
        if parent in self._kept:
            self._kept[child] = self._kept[parent]

    def forget(self, request: Request) -> None:
        self._kept.pop(request, None)

    def clear(self) -> None:
        self._kept.clear()
