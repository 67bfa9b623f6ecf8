"""Asynchronous copies from the host to a device. It does not know what the numbers mean."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor


def send(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """The array's numbers on a device, as the current stream will see them; returns at once.

    On the CPU it is the array's own memory. For a GPU they are put into pinned memory, which torch keeps until the
    transfer is over: a transfer out of any other memory waits for whatever the stream still has to do.
    """
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
