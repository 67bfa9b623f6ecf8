"""torch's process group of all ranks, made without a default group: gloo on CPUs, NCCL on GPUs.

Ranks find each other through a file in a private folder; they talk over 127.0.0.1.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch

from ...errors import ConfigError
from ..device import on_device

MEETING_SECONDS = 30.0  # for ranks that are all there
LEAST_NCCL_SECONDS = 600.0
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}


def check_backend(device: torch.device) -> None:
    """Raises ConfigError: this torch has no way for processes to talk about tensors on such devices."""
    import torch.distributed as distributed

    backend = BACKENDS[device.type]
    if not distributed.is_available() or not getattr(distributed, f"is_{backend}_available")():
        raise ConfigError(
            f"tensor_parallel_size: torch {torch.__version__} was built without {backend}, through which ranks on "
            f'"{device.type}" exchange tensors; install a build of torch that has it, or take 1'
        )


def join(path: str, rank: int, size: int, device: torch.device, timeout: float) -> Any:
    """This process's place in the group; returns when all ranks are there.

    Args:
        path: of a file that is not there yet, or that another rank has made.
        timeout: seconds that an operation waits for the other ranks; this call waits for `MEETING_SECONDS`.

    Raises:
        RuntimeError: the others have not come.
    """
    import torch.distributed as distributed

    store = distributed.FileStore(path, size)  # type: ignore[attr-defined]  # torch exports it unsaid
    limit, at_first = timedelta(seconds=timeout), timedelta(seconds=MEETING_SECONDS)
    if device.type == "cuda":
        from torch.distributed import ProcessGroupNCCL

        options = ProcessGroupNCCL.Options()
        # its watchdog ends the whole process; ranks that hang are noticed by their lifelines before
        options._timeout = max(limit, timedelta(seconds=LEAST_NCCL_SECONDS))
        with on_device(device):
            return ProcessGroupNCCL(store, rank, size, options)
    from torch.distributed import ProcessGroupGloo

    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # torch's types have no options
    options._devices = [ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    options._timeout = at_first
    group = ProcessGroupGloo(store, rank, size, options)
    group._set_default_timeout(limit)
    return group
