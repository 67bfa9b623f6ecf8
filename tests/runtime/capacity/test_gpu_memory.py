"""GPUs and their memory as the driver tells them, without torch."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from phloem.errors import ConfigError
from phloem.runtime.capacity.gpu_memory import gpu_memory
from phloem.runtime.cli.plan import _device_of, _here


class Driver:
    """Answers as libcuda does: 0 is success. `fails`: the function that does not succeed."""

    def __init__(self, sizes: list[int], fails: str = "") -> None:
        self._sizes = sizes
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "cuInit": lambda flags: None,
            "cuDeviceGetCount": lambda count: setattr(count._obj, "value", len(self._sizes)),
            "cuDeviceGet": lambda device, index: setattr(device._obj, "value", 100 + index),
            "cuDeviceTotalMem_v2": lambda size, device: setattr(size._obj, "value", self._sizes[device.value - 100]),
        }

        def call(*arguments: Any) -> int:
            answers[name](*arguments)
            return 100 if name == self._fails else 0

        return call


@pytest.mark.parametrize("fails", ["", "cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceTotalMem_v2"])
def test_the_driver_is_asked(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver([5 << 30, 3 << 40], fails))
    assert gpu_memory() == ([] if fails else [5 << 30, 3 << 40])
    if not fails:
        assert [_here(name).memory_bytes for name in ("auto", "cuda", "cuda:1")] == [5 << 30, 5 << 30, 3 << 40]
        assert _here("cpu").is_cpu
        with pytest.raises(ConfigError, match=r"there is no 'cuda:2'; 2 GPUs found"):
            _here("cuda:2")


def test_without_a_driver_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert gpu_memory() == []
    assert _here("auto").is_cpu
    with pytest.raises(ConfigError, match="0 GPUs found"):
        _here("cuda")


@pytest.mark.parametrize("name", ["", "tpu", "cuda:", "cuda:-1", "cuda:x", "auto:0", "mps"])
def test_what_is_no_device_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a device"):
        _device_of(name, "none", None)


@pytest.mark.gpu
def test_a_gpus_memory_is_what_torch_says() -> None:
    devices = range(torch.cuda.device_count())
    assert gpu_memory() == [torch.cuda.get_device_properties(index).total_memory for index in devices]
