"""Which device an engine runs on, and how its work gets there when a process has several GPUs.

torch follows its tensors from GPU to GPU; streams, events, captures and Triton's launches do not. They go to the
*current* device, which every thread chooses for itself and which is the first one in a new thread. So a step, whatever
thread takes it, is computed inside `on_device`, and devices carry their index from `find_device` on: nothing ever means
"the GPU that happens to be current".

What the host fetches (`Reading`) is queued like everything else, so that it never waits for work that has nothing to
do with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from ..errors import ConfigError
from .byte_text import bytes_text


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


@contextmanager
def allocating(what: str, device: torch.device) -> Iterator[None]:
    """Raises ConfigError if there is no memory for what the block allocates; what: the setting, and its value."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # on the CPU torch's own is a RuntimeError, and no more
        if type(error) is RuntimeError and "allocate" not in str(error):
            raise
        free = free_memory(device)
        shown = f"; {bytes_text(free)} are free" if free is not None else ""
        raise ConfigError(f"{what} cannot be had on {device}{shown}; lower it") from error


def free_memory(device: torch.device) -> int | None:
    """Bytes; None: the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if "SC_AVPHYS_PAGES" not in os.sysconf_names:
        return None
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


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
