"""The tensors of rank 0, whose blocks and states the other ranks copy, keep and fill along with it.

Blocks and slots have the same ids on every rank; each rank's tensors hold its own heads or channels. Outside of its
tensors a block or a state is the rows of all ranks, one after another. Cost: a message for each call, and for rows the
way to rank 0 and back.
"""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..parallel.message import Array, Message
from ..parallel.rank_processes import RankProcesses
from ..parallel.ranks import Ranks
from .kv_cache import KVCache
from .recurrent_states import RecurrentStates

STATES = "states"  # the name of those of recurrent layers, where tensors of keys have others


def of_all_ranks(ranks: Ranks, own: Tensor) -> Tensor:
    """Rows of all ranks, one rank's after another's, of those of each, `[n, size]`; on rank 0."""
    return torch.cat(ranks.collect(own), 1)


def of_each_rank(ranks: Ranks, rows: Tensor) -> Tensor:
    """The inverse: rank 0's part of such rows, `[n, size]`, while each other rank gets its own."""
    return ranks.hand_out(rows.reshape(len(rows), ranks.size, -1).transpose(0, 1))


class Kept(list[Tensor]):
    """What `gather` has copied, and the number under which other ranks have theirs."""

    def __init__(self, parts: list[Tensor], number: int) -> None:
        super().__init__(parts)
        self.number = number


class LeadingKV(KVCache):
    """As `KVCache`, for all ranks.

    Args:
        processes: the other ranks, which have made their own tensors of the same name when the first call comes.
        num_heads: KV heads of the whole model.
    """

    def __init__(self, processes: RankProcesses, name: str, num_heads: int, **sizes: Any) -> None:
        super().__init__(**sizes)
        self._processes = processes
        self._name = name
        self._num_heads = num_heads
        self._numbers_kept = itertools.count()
        self._dropped: deque[int] = deque()  # by the garbage collector, on any thread

    @property
    def block_bytes(self) -> int:
        """Bytes of a block in all layers, of all ranks."""
        return self.row_bytes * self._processes.size

    def copy_block(self, source: int, target: int) -> None:
        if source != target:
            with self._processes.together(self._message("copy_block", {"source": source, "target": target})):
                super().copy_block(source, target)

    def gather(self, blocks: Sequence[int], places: Tensor) -> list[Tensor]:
        number = next(self._numbers_kept)
        values = {"name": self._name, "number": number, "dropped": self._take_dropped()}
        table = np.asarray(blocks, np.int64)
        all_places = places.cpu().numpy()

        def of_rank(rank: int) -> Mapping[str, Array]:
            return {"blocks": table, "places": self._of_rank(all_places, rank)}

        self._processes.tell_each("gather", values, of_rank)
        own = torch.from_numpy(np.ascontiguousarray(self._of_rank(all_places, 0)))
        kept = Kept(super().gather(blocks, own), number)
        weakref.finalize(kept, self._dropped.append, number).atexit = False
        return kept

    def scatter(self, blocks: Sequence[int], kept: list[Tensor]) -> None:
        assert isinstance(kept, Kept)
        with self._processes.together(self._message("scatter", {"number": kept.number}, blocks)):
            super().scatter(blocks, kept)

    def read_blocks(self, blocks: Sequence[int]) -> Tensor:
        with self._processes.together(self._message("read_blocks", {}, blocks)):
            return of_all_ranks(self._processes.ranks, super().read_blocks(blocks))

    def write_blocks(self, blocks: Sequence[int], rows: Tensor) -> None:
        if len(blocks):
            with self._processes.together(self._message("write_blocks", {}, blocks)):
                super().write_blocks(blocks, of_each_rank(self._processes.ranks, rows))

    def _message(self, kind: str, values: Mapping[str, Any], blocks: Sequence[int] = ()) -> Message:
        values = {"name": self._name, "dropped": self._take_dropped(), **values}
        return Message(kind, values, {"blocks": np.asarray(blocks, np.int64)})

    def _take_dropped(self) -> list[int]:
        return [self._dropped.popleft() for _ in range(len(self._dropped))]

    def _of_rank(self, places: Array, rank: int) -> Array:
        """Places in the blocks of a rank's own heads."""
        if places.ndim == 1:
            return places
        own = self._stacks[0].shape[2]
        begin = rank * self._num_heads // self._processes.size
        return places[:, begin : begin + own]


class LeadingStates(RecurrentStates):
    """As `RecurrentStates`, for all ranks; the others have made theirs when the first call comes."""

    def __init__(self, processes: RankProcesses, *sizes: Any) -> None:
        super().__init__(*sizes)
        self._processes = processes

    @property
    def block_bytes(self) -> int:
        """Bytes of a state outside of its slot, of all ranks."""
        return super().block_bytes * self._processes.size

    def read_blocks(self, slots: Sequence[int]) -> Tensor:
        with self._processes.together(_of_states("read_blocks", slots)):
            return of_all_ranks(self._processes.ranks, super().read_blocks(slots))

    def write_blocks(self, slots: Sequence[int], rows: Tensor) -> None:
        with self._processes.together(_of_states("write_blocks", slots)):
            super().write_blocks(slots, of_each_rank(self._processes.ranks, rows))


def _of_states(kind: str, slots: Sequence[int]) -> Message:
    return Message(kind, {"name": STATES, "dropped": []}, {"blocks": np.asarray(slots, np.int64)})
