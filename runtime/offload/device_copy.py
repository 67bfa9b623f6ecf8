"""Copies of blocks between the pool's device and the host, on a stream of their own.

On the CPU there is nothing to do: rows are in host memory already. On a GPU rows that were copied out of the pool
(`KVCache.read_blocks`, in the order of the step's stream) go to pinned memory on this stream, and the thread that
needs them on the host waits for that. The way back is the same: a row is on the device before the step's thread
is notified of it. So neither way delays a step by more than a copy within the device's memory. Knows rows of bytes; it
knows no keys, no tiers and no requests.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..device import on_device
from .tier import Row


class DeviceCopy:
    """Copies to and from one device; any thread may call."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch has no types

    def send_out(self, rows: Tensor) -> Callable[[], Row]:
        """Queues a copy to the host, after what computes the rows. Returns a function that waits for it, on any
        thread.
        """
        if self._stream is None:
            return rows.numpy
        with on_device(self._device):
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
            host = self.host_rows(*rows.shape)
            with torch.cuda.stream(self._stream):
                host.copy_(rows, non_blocking=True)
                rows.record_stream(self._stream)
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch has no types
                event.record(self._stream)

        def wait() -> Row:
            event.synchronize()
            return host.numpy()

        return wait

    def host_rows(self, num_rows: int, num_bytes: int) -> Tensor:
        """Host memory for rows on their way, uint8 `[num_rows, num_bytes]`, undefined contents; pinned with a GPU."""
        with on_device(self._device):  # pinned memory is taken through the current device
            return torch.empty(num_rows, num_bytes, dtype=torch.uint8, pin_memory=self._stream is not None)

    def bring_in(self, rows: Tensor) -> Tensor:
        """Host rows on the device. Waits until they are there, so it is not for the thread that steps."""
        if self._stream is None:
            return rows
        with on_device(self._device), torch.cuda.stream(self._stream):
            there = rows.to(self._device, non_blocking=True)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch has no types
            event.record(self._stream)
            event.synchronize()
        return there

    def receive(self, rows: Tensor) -> Tensor:
        """Rows that `bring_in` has brought, for the step's stream: their memory is kept until it has read them."""
        if self._stream is not None:
            rows.record_stream(torch.cuda.current_stream(self._device))
        return rows
