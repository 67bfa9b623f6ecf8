"""The mask rows of running requests, in one tensor on the device: a step sends an index per row of logits, not the row.

::

    row (numpy, shared by all states with these tokens) ──► slot ──► table[slot] on the device
                                                              ▲
    mask_rows[r], int32, one per row of logits and step ──────┘

A row is known by the array that it is: the constraints keep equal rows as one array. It is copied when it is first
asked for, and stays until its slot is needed by another; the least recently used go first. Rows made for one request
and step, near the end of its budget, are arrays that may be written to: they get a slot for this step only.

Knows arrays and tensors, no constraints and no requests. A look-up costs two dictionary accesses; memory is bounded,
except that a single step always gets the slots it needs. On the CPU "the device" is a tensor like any other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from ...kernels import send

Row = npt.NDArray[np.int32]

DEFAULT_MAX_BYTES = 64 << 20
FIRST_SLOTS = 256


class MaskTable:
    """Slots for mask rows of `num_words` words.

    Args:
        num_words: of a row of the table; a shorter row is followed by zeros, a longer one is cut.
        max_bytes: bound on the table, and as much again for the rows that it holds on to.

    Attributes:
        num_copied: rows copied to the device so far.
    """

    def __init__(self, num_words: int, device: torch.device, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._device = device
        self._max_slots = max(1, max_bytes // (4 * num_words))
        self._table = torch.zeros(0, num_words, dtype=torch.int32, device=device)
        self._slots: dict[int, int] = {}  # by the identity of the row, which `_rows` keeps alive
        self._rows: list[Row | None] = []
        self._last_used: list[int] = []  # step, by slot
        self._free: list[int] = []
        self._lent: list[int] = []  # for this step only
        self._waiting: dict[int, Row] = {}  # by slot, to be copied; of two rows for a slot only the later is meant
        self._step = 0
        self.num_copied = 0

    @property
    def num_slots(self) -> int:
        return len(self._rows)

    @property
    def num_bytes(self) -> int:
        """Of the tensor."""
        return self._table.numel() * 4

    def begin_step(self) -> None:
        """From here on slots of the step before may be given to others."""
        self._step += 1
        self._free += self._lent
        self._lent.clear()

    def slot(self, row: Row) -> int:
        """The slot of a row, valid in `tensor()` until the next `begin_step`, after which it is asked for again."""
        slot = self._slots.get(id(row))
        if slot is None:
            return self._add(row)
        self._last_used[slot] = self._step
        return slot

    def tensor(self) -> torch.Tensor:
        """int32[num_slots, num_words] on the device, with all rows asked for in this step."""
        if self._waiting:
            rows = np.zeros((len(self._waiting), self._table.shape[1]), np.int32)
            for index, row in enumerate(self._waiting.values()):
                rows[index, : len(row)] = row[: rows.shape[1]]
            slots = send(np.array(list(self._waiting), np.int64), self._device)
            self._table.index_copy_(0, slots, send(rows, self._device))
            self.num_copied += len(rows)
            self._waiting.clear()
        return self._table

    def _add(self, row: Row) -> int:
        if not self._free:
            self._make_room()
        slot = self._free.pop()
        self._last_used[slot] = self._step
        if row.flags.writeable:
            self._lent.append(slot)
        else:
            self._slots[id(row)] = slot
            self._rows[slot] = row
        self._waiting[slot] = row
        return slot

    def _make_room(self) -> None:
        """Enlarges the table within its bound, or frees a quarter of its slots, or has to enlarge it after all."""
        if self.num_slots < self._max_slots:
            self._enlarge(min(max(2 * self.num_slots, FIRST_SLOTS), self._max_slots))
            return
        last_used = np.array(self._last_used)
        idle = np.flatnonzero(last_used < self._step)
        idle = idle[np.argsort(last_used[idle], kind="stable")][: max(1, self.num_slots // 4)]
        for slot in idle.tolist():
            row = self._rows[slot]
            if row is not None:
                del self._slots[id(row)]
                self._rows[slot] = None
                self._free.append(slot)
        if not self._free:
            self._enlarge(2 * self.num_slots)

    def _enlarge(self, num_slots: int) -> None:
        table = torch.zeros(num_slots, self._table.shape[1], dtype=torch.int32, device=self._device)
        table[: self.num_slots] = self._table
        self._table = table
        self._free += range(num_slots - 1, self.num_slots - 1, -1)
        added = num_slots - self.num_slots
        self._rows += [None] * added
        self._last_used += [-1] * added
