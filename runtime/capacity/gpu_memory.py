"""How much memory the NVIDIA GPUs here have, asked of the driver itself: what can be known without torch."""

from __future__ import annotations

import ctypes

_DRIVER = "libcuda.so.1"


def gpu_memory() -> list[int]:
    """Bytes of each GPU that this process may use (`CUDA_VISIBLE_DEVICES`), in CUDA's order; none: an empty list.

    These are `cuDeviceTotalMem`'s numbers, as torch gives them. Nothing is allocated on a GPU.
    """
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return []
    count, device, size = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return []
    found = []
    for index in range(count.value):
        if driver.cuDeviceGet(ctypes.byref(device), index):
            break
        if driver.cuDeviceTotalMem_v2(ctypes.byref(size), device):
            break
        found.append(size.value)
    return found
