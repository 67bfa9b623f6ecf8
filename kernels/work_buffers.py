"""Where the work list of a step lies on its device: one buffer, sent in one copy. Knows the layout, plans nothing.

::

    header │ rows │ positions │ slots │ merged │ items │ block tables
      20      T        T         2 T      T       8 N    of each request as many blocks as it has, end to end

T is the number of tokens laid out for, in whole fours; items name their block table by its place in the buffer. So
every place but the tables' is known from T alone, every count stands in the header, and a kernel that was launched
for T tokens reads the work list of any step of at most T tokens. `WorkBuffers` keeps the buffer where it is from step
to step (`fixed_buffer`) and fixes the number of programs: then nothing of a launch depends on the step but which
kernels it takes, `CudaWork.signature`, and a captured graph serves every step of the same signature.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .._core import kernels as core
from .fixed_buffer import FixedBuffer
from .launch import BLOCK_ROWS
from .transfer import send

IntArray = npt.NDArray[np.int32]

ENTRY = 4  # numbers of a header entry: 16 bytes, so that every launch finds its own equally aligned
MERGE_ENTRY = len(BLOCK_ROWS)
HEADER = ENTRY * (MERGE_ENTRY + 1)
FIRST_SIZE = 1 << 16  # numbers: the work list of 128 requests of 4k tokens
FIRST_SLOTS = 1 << 14
MANY_BYTES = 1 << 28  # of partial results: more than that grows by a quarter, not to the double
PROGRAMS_PER_PROCESSOR = 2  # of a launch of fixed size: the second half starts where the first ends early


@dataclass(frozen=True, slots=True)
class Launch:
    """All items of one tile class, longest first. The device finds first item and number in its header entry."""

    block_rows: int
    folds: bool  # items may span several splits, and fold them one by one; one of a single split has nothing to fold
    num_items: int

    @property
    def entry(self) -> int:
        """Which entry of the header is its own."""
        return BLOCK_ROWS.index(self.block_rows)


@dataclass(frozen=True, slots=True)
class CudaWork:
    """The work list of one step on its device; tensors are int32 views of `buffer`."""

    launches: tuple[Launch, ...]
    num_merged: int  # tokens whose rows were cut
    num_slots: int  # for partial results
    num_tokens: int  # that the list is laid out for; there may be fewer
    num_programs: int  # of every launch; 0: one per item
    buffer: Tensor
    partials: tuple[Tensor, Tensor] | None  # sums [>= num_slots, D] and tops [>= num_slots, 2], fp32; None: none kept

    @property
    def signature(self) -> tuple[object, ...]:
        """Equal for steps that launch the same kernels at the same places, if buffers and programs are fixed."""
        kinds = tuple((launch.block_rows, launch.folds) for launch in self.launches)
        return self.num_tokens, kinds, self.num_merged > 0

    @property
    def num_merge_programs(self) -> int:
        """Per head. Fixed where the launches are; those beyond the number in the header have nothing to do."""
        return self.num_tokens if self.num_programs else self.num_merged

    def partial_results(self, head_dim: int) -> tuple[Tensor, Tensor]:
        """Sums `[num_slots, head_dim]` and tops `[num_slots, 2]`: the buffers' if they are fixed, else new memory."""
        if self.partials is not None:
            return self.partials
        device = self.buffer.device
        return (
            torch.empty(self.num_slots, head_dim, dtype=torch.float32, device=device),
            torch.empty(self.num_slots, 2, dtype=torch.float32, device=device),
        )

    def entry(self, index: int) -> Tensor:
        return self.buffer[ENTRY * index : ENTRY * (index + 1)]

    @property
    def rows(self) -> Tensor:
        """`[T]` token of each row; requests in prefix order."""
        return self._part(0, 1)

    @property
    def positions(self) -> Tensor:
        """`[T]` absolute position, by token."""
        return self._part(1, 1)

    @property
    def slots(self) -> Tensor:
        """`[T, 2]` first slot of a token, slots from one split to the next."""
        return self._part(2, 2).view(-1, 2)

    @property
    def merged_tokens(self) -> Tensor:
        """`[T]` of which `num_merged` are meant."""
        return self._part(4, 1)

    @property
    def items(self) -> Tensor:
        """`[N, 8]`, see `cuda_work` for the columns."""
        num_items = sum(launch.num_items for launch in self.launches)
        begin = _items_begin(self.num_tokens)
        return self.buffer[begin : begin + 8 * num_items].view(-1, 8)

    def _part(self, index: int, width: int) -> Tensor:
        step = _part_size(self.num_tokens)
        begin = HEADER + index * step
        return self.buffer[begin : begin + width * self.num_tokens]


def _part_size(num_tokens: int) -> int:
    return -(-num_tokens // 4) * 4


def _items_begin(num_tokens: int) -> int:
    return HEADER + 5 * _part_size(num_tokens)


class WorkBuffers:
    """Memory for the work lists of one step after the other, and for their partial results.

    A step's list is overwritten by the next one's `plan_attention` with the same buffers, in the order of the stream.

    Attributes:
        device: where the kernels run.
        num_processors: programs that the device runs side by side.
    """

    def __init__(self, device: torch.device, num_processors: int) -> None:
        self.device = device
        self.num_processors = num_processors
        self._list = FixedBuffer(torch.int32, device, size=FIRST_SIZE)
        self._partials = (torch.empty(0, 0, device=device), torch.empty(0, 2, device=device))
        self._num_moves = 0

    @property
    def num_programs(self) -> int:
        return PROGRAMS_PER_PROCESSOR * self.num_processors

    @property
    def num_moves(self) -> int:
        """How often anything had to move: a graph captured before may not be replayed."""
        return self._num_moves + self._list.num_moves

    def stage(self, size: int) -> IntArray:
        """Host memory for a work list of `size` numbers."""
        return self._list.stage(size)

    def send(self) -> Tensor:
        """The device's copy of what was staged; whatever was there before is overwritten in the stream's order."""
        self._list.send()
        return self._list.tensor

    def partials(self, num_slots: int, head_dim: int) -> tuple[Tensor, Tensor]:
        """Sums `[>= num_slots, head_dim]` and tops `[>= num_slots, 2]`, fp32, contents undefined."""
        held, width = self._partials[0].shape
        if num_slots > held or head_dim != width:
            self._num_moves += 1
            growth = 1.25 if num_slots * (head_dim + 2) * 4 > MANY_BYTES else 2.0
            rows = max(FIRST_SLOTS, int(growth * num_slots))
            self._partials = (torch.empty(0, 0), torch.empty(0, 2))  # frees what there is before there is more
            self._partials = (torch.empty(rows, head_dim, device=self.device), torch.empty(rows, 2, device=self.device))
        return self._partials


def send_work(
    items: IntArray,
    launches: tuple[Launch, ...],
    rows: IntArray,
    positions: IntArray,
    slots: IntArray,
    merged: IntArray,
    block_tables: IntArray,
    num_blocks: IntArray,
    *,
    num_slots: int,
    num_tokens: int,
    head_dim: int,
    device: torch.device,
    buffers: WorkBuffers | None,
) -> CudaWork:
    """Lays a plan out for `num_tokens`, or for its own tokens if they are more, and queues its copy to the device.

    items `[N, 8]`, in the order of launches, name a row of block_tables `[B, M]` in their first column; num_blocks
    `[B]` of each row are meant. Without `buffers` the list lies in memory of its own, and no sizes are fixed.
    """
    num_tokens = max(num_tokens, len(rows))
    begin, step = _items_begin(num_tokens), _part_size(num_tokens)
    size = begin + items.size + int(num_blocks.sum())
    host = buffers.stage(size) if buffers is not None else np.empty(size, np.int32)
    entries = host[:HEADER].reshape(-1, ENTRY)
    first = 0
    for launch in launches:
        entries[launch.entry, :2] = first, launch.num_items
        first += launch.num_items
    entries[MERGE_ENTRY, 0] = len(merged)
    for index, part in ((0, rows), (1, positions), (2, slots), (4, merged)):
        host[HEADER + index * step :][: part.size] = part.ravel()
    core.write_items_and_tables(host, begin, items, block_tables, num_blocks)
    work = (launches, len(merged), num_slots, num_tokens)
    if buffers is None:
        return CudaWork(*work, 0, send(host, device), None)
    partials = buffers.partials(num_slots, head_dim)
    return CudaWork(*work, buffers.num_programs, buffers.send(), partials)
