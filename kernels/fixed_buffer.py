"""A tensor with a fixed address whose contents change from step to step, as a captured CUDA graph needs it.

The host writes step k + 1 while the device may still run step k::

    host, pinned    copy A ── step k ──┐          copy B ── step k+1 ──┐          copy A ── step k+2 …
    device                             └► tensor ─ kernels of step k ──┴► tensor ─ kernels of step k+1 …

On the device there is one tensor: copies and kernels follow each other on one stream, so a copy overwrites nothing
that an earlier kernel still reads. On the host there are two copies, used alternately; one is written again only after
the transfer from it has ended. So the host may run one step ahead, and nothing is copied twice.

It does not know what the numbers mean. Not safe for several threads or streams.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch


class FixedBuffer:
    """Numbers of one type on one device.

    Attributes:
        tensor: 1-d, on the device; after the numbers that were sent last it holds older ones.
        num_moves: how often it had to move because it became too small. Graphs captured before read freed memory.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device, *, size: int) -> None:
        self._events: list[torch.cuda.Event | None] = [None, None]
        self._turn = 0
        self._num_staged = 0
        self.num_moves = 0
        self._allocate(size, dtype, device)

    def stage(self, size: int) -> npt.NDArray[Any]:
        """Host memory for `size` numbers, contents undefined; `send` sends it. Waits for the last but one `send`."""
        self._turn = 1 - self._turn
        event = self._events[self._turn]
        if event is not None:
            event.synchronize()
        if size > len(self.tensor):  # twice of it, so that a growing context moves it a few times in all
            self.num_moves += 1
            for event in filter(None, self._events):
                event.synchronize()
            self._allocate(2 * size, self.tensor.dtype, self.tensor.device)
        self._num_staged = size
        array: npt.NDArray[Any] = self._copies[self._turn][:size].numpy()
        return array

    def send(self) -> None:
        """Queues the copy of what was staged to the front of `tensor` on its device's current stream."""
        size = self._num_staged
        self.tensor[:size].copy_(self._copies[self._turn][:size], non_blocking=True)
        if self.tensor.is_cuda:
            event = self._events[self._turn] or torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch has no types
            event.record(torch.cuda.current_stream(self.tensor.device))
            self._events[self._turn] = event

    def _allocate(self, size: int, dtype: torch.dtype, device: torch.device) -> None:
        self.tensor = torch.empty(size, dtype=dtype, device=device)
        self._copies = [torch.empty(size, dtype=dtype, pin_memory=device.type == "cuda") for _ in range(2)]
