"""Which device an engine runs on, and how its work gets there when a process has several GPUs.

torch follows its tensors from GPU to GPU; streams, events, captures and Triton's launches do not. They go to the
*current* device, which every thread chooses for itself and which is the first one in a new thread. So a step, whatever
thread takes it, is computed inside `on_device`, and devices carry their index from `find_device` on: nothing ever means
"the GPU that happens to be current".

What the host fetches (`Reading`) is queued like everything else, so that it never waits for work that has nothing to
do with it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from ..errors import ConfigError


def find_device(name: str, number: int = 1) -> torch.device:
    """The device of that name, a GPU with its index; "auto": a GPU if there is one.

    number: GPUs that are to be used, this one and the next ones.

    Raises:
        ConfigError: no such device, or none that can be used.
    """
    has_gpu = torch.cuda.is_available()
    try:
        device = torch.device(("cuda" if has_gpu else "cpu") if name == "auto" else name)
    except RuntimeError as error:
        raise ConfigError(f'device: {name!r} is not a device; use "auto", "cpu", "cuda" or "cuda:1"') from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f'device: {name!r} is not supported; use "auto", "cpu", "cuda" or "cuda:1"')
    if device.type == "cpu":
        return torch.device("cpu")
    if not has_gpu:
        raise ConfigError(f'device: {name!r} asked for, but no CUDA device is usable; use device="cpu"')
    index = torch.cuda.current_device() if device.index is None else device.index
    num_devices = torch.cuda.device_count()
    if index >= num_devices:
        raise ConfigError(f'device: there is no {name!r}; {num_devices} found, the last is "cuda:{num_devices - 1}"')
    if index + number > num_devices:
        raise ConfigError(
            f"tensor_parallel_size: {number} ranks need as many GPUs from cuda:{index} on, and there are {num_devices}"
            f" in all; take {num_devices - index} or fewer"
        )
    return torch.device("cuda", index)


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Makes a GPU this thread's current device until the block ends, which costs about a microsecond."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


class Reading:
    """A tensor on its way to the host: the transfer is queued at once, after what computes the tensor."""

    __slots__ = ("_event", "_tensor")

    def __init__(self, source: Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        self._tensor = source
        if source.is_cuda:
            self._tensor = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
            self._tensor.copy_(source, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch has no types
            self._event.record(torch.cuda.current_stream(source.device))

    def tensor(self) -> Tensor:
        """The numbers, on the host. Waits for them, and for nothing that was queued later."""
        if self._event is not None:
            self._event.synchronize()
        return self._tensor
