"""An engine on the second GPU, without a GPU: tensors that only have shape, type and device, and kernels that only say
where they would have been launched.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from phloem.errors import ConfigError
from phloem.kernels import FixedBuffer
from phloem.runtime.device import Reading, find_device, on_device
from phloem.runtime.execute.batch import Batch
from phloem.runtime.execute.cuda_graphs import CudaRecorder
from phloem.runtime.execute.kv_cache import KVCache
from phloem.runtime.execute.model_runner import ModelRunner
from phloem.runtime.models import Decoder
from phloem.runtime.models.part import Axis, count
from phloem.runtime.models.weights import Checkpoint
from phloem.runtime.sample.sampler import Sampler

from .models.decoder_cases import CASES
from .models.oracle import save_random_model

SECOND = torch.device("cuda:1")
ROOT = Path(__file__).resolve().parents[2]


class Current:
    """The current device of a machine with two GPUs."""

    def __init__(self) -> None:
        self.index = 0

    def guard(self, device: torch.device) -> Guard:
        return Guard(self, torch.device(device))


class Guard:
    def __init__(self, current: Current, device: torch.device) -> None:
        self._current, self._device = current, device

    def __enter__(self) -> Self:
        assert self._device.index is not None, "a device without an index is whichever is current"
        self._before, self._current.index = self._current.index, self._device.index
        return self

    def __exit__(self, *error: object) -> None:
        self._current.index = self._before


class WithoutLibraries(TorchFunctionMode):
    """Indexing (slices, None, a tensor in front) and copying by torch's operators: its methods ask for CUDA first."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.copy_:
            return torch.ops.aten.copy_(*args, **(kwargs or {}))
        if func is not torch.Tensor.__getitem__ or args[0].device.type == "cpu":
            return func(*args, **(kwargs or {}))
        tensor, index = args
        for axis, part in enumerate(index if isinstance(index, tuple) else (index,)):
            if isinstance(part, slice):
                tensor = torch.ops.aten.slice(tensor, axis, part.start, part.stop)
            elif part is None:
                tensor = tensor.unsqueeze(axis)
            else:
                tensor = torch.index_select(tensor, axis, part)
        return tensor


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> Current:
    current = Current()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current.index)
    monkeypatch.setattr(torch.cuda, "device", current.guard)
    return current


@pytest.fixture
def launches(current: Current, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int, set[torch.device]]]]:
    """(Kernel, current device, devices of its tensors) of every launch; tensors that are made are without contents."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from triton.runtime.jit import KernelInterface

    seen: list[tuple[str, int, set[torch.device]]] = []

    def launcher(kernel: Any, grid: object) -> Any:
        def launch(*args: object, **options: object) -> None:
            values = (*args, *options.values())
            devices = {value.device for value in values if isinstance(value, torch.Tensor)}
            seen.append((kernel.fn.__name__, current.index, devices))

        return launch

    monkeypatch.setattr(KernelInterface, "__getitem__", launcher)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)  # there is none without a driver
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # or torch would ask the GPU for its state
    monkeypatch.setattr("phloem.runtime.execute.model_runner.num_programs_at_once", lambda device: 264)
    monkeypatch.setattr("phloem.kernels.work_list.num_programs_at_once", lambda device: 264)
    monkeypatch.setattr("phloem.kernels.cuda_work.most_partial_bytes", lambda device: 1 << 30)
    with FakeTensorMode(allow_non_fake_inputs=True), WithoutLibraries():
        yield seen


def two_requests() -> Batch:
    """A prompt of 20 tokens, and a request that decodes its 301st."""
    lens = np.array([20, 301], np.int32)
    tables = np.arange(40, dtype=np.int32).reshape(2, 20)
    positions = np.concatenate([np.arange(20), [300]])
    slots = np.concatenate([np.arange(20), [20 * 16 + 300]])
    starts = np.array([0, 20, 21], np.int32)
    return Batch([], positions % 7, positions, slots, starts, lens, tables, [], np.array([19, 20]))


@pytest.fixture(params=["llama-gqa", "qwen3-moe", "hunyuan-dense", "ministral3", "cohere2", "starcoder2"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A checkpoint with an MLP, one with experts, and one of each block that is not Llama's."""
    save_random_model(tmp_path, *CASES[request.param])
    return tmp_path


def test_a_step_on_the_second_gpu_launches_every_kernel_there_and_waits_for_none(
    folder: Path,
    current: Current,
    launches: list[tuple[str, int, set[torch.device]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tensor without contents cannot be read back, so what passes does not wait for the device."""

    def blank(
        _: Checkpoint, names: object, rows: list[Axis], tail: list[Axis], *, device: object, **more: object
    ) -> Any:
        return torch.empty((sum(map(count, rows)), *map(count, tail)), dtype=torch.bfloat16, device=device)

    monkeypatch.setattr(Checkpoint, "read_stacked", blank)
    monkeypatch.setattr(Checkpoint, "unread", lambda self, ignored: [])
    decoder = Decoder.from_folder(folder, device=SECOND, dtype=torch.bfloat16)
    config = decoder.config
    cache = KVCache(shapes=config.kv_shapes(), num_blocks=40, block_size=16, dtype=torch.bfloat16, device=SECOND)
    runner = ModelRunner(decoder, cache, SECOND)
    decided = torch.empty(2, dtype=torch.int64, device=SECOND)
    for batch in (two_requests(), replace(two_requests(), unread=np.array([-1] * 20 + [1]))):
        assert runner.forward(batch, decided).device == SECOND
    wanted = {"place_rows", "attend_items"}
    wanted |= {"norm_rows"} if config.options.norm == "rms" else set()
    wanted |= {"gate_rows"} if config.curve is None else set()
    wanted |= {"choose_rows", "sort_pairs", "multiply_tiles", "sum_choices"} if config.experts is not None else set()
    assert wanted <= {name for name, _, _ in launches}
    assert {(index, *devices) for _, index, devices in launches} == {(1, SECOND)}
    assert current.index == 0


def test_the_sampler_works_on_the_second_gpu(current: Current, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    sampler = Sampler(97, (0,), torch.device("cpu"))
    monkeypatch.setattr(sampler, "_device", SECOND)
    monkeypatch.setattr(sampler, "_launch", lambda *_: found.append(current.index))
    sampler.launch(torch.zeros(1, 97), two_requests())
    assert found == [1]


def test_a_reading_waits_for_its_own_transfer_alone(launches: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[object] = []

    class Event:
        def record(self, stream: object) -> None:
            heard.append(stream)

        def synchronize(self) -> None:
            heard.append("waited")

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: ("stream of", device))
    reading = Reading(torch.empty(3, device=SECOND))
    assert heard == [("stream of", SECOND)]
    assert reading.tensor().device == torch.device("cpu")
    assert heard == [("stream of", SECOND), "waited"]


def test_what_was_sent_is_waited_for_on_the_stream_that_sent_it(
    launches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[object] = []

    class Event:
        def record(self, stream: object) -> None:
            recorded.append(stream)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: ("stream of", device))
    buffer = FixedBuffer(torch.int32, torch.device("cpu"), size=8)
    buffer.tensor = torch.empty(8, dtype=torch.int32, device=SECOND)
    buffer.send()
    assert recorded == [("stream of", SECOND)]


class Captures:
    """Graphs without contents: on which streams they are captured, and which stream is the current one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.streams: list[object] = []
        self.current: object = "the thread's own"
        self.fails = False
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: ("stream of", device))
        monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: self.current)
        monkeypatch.setattr(torch.cuda, "stream", self._stream)
        monkeypatch.setattr(torch.cuda, "graph", self._capture)

    @contextmanager
    def _stream(self, stream: object) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def _capture(self, graph: object, *, pool: object, stream: object, **options: object) -> Iterator[None]:
        self.current = stream  # as torch does, which leaves it so if the capture does not begin
        self.streams.append(stream)
        if self.fails:
            raise RuntimeError("out of memory")
        yield


def test_graphs_are_captured_on_a_stream_of_their_own_device(
    launches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    captures = Captures(monkeypatch)
    recorder = CudaRecorder(SECOND)
    recorder.record(lambda: torch.zeros(1))
    assert captures.streams == [("stream of", SECOND)] * 2  # the first is the one that keeps the pool


def test_a_capture_that_fails_leaves_the_thread_on_its_stream(
    launches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    captures = Captures(monkeypatch)
    recorder = CudaRecorder(SECOND)
    captures.fails = True
    with pytest.raises(RuntimeError, match="out of memory"):
        recorder.record(lambda: torch.zeros(1))
    assert captures.current == "the thread's own"


@pytest.mark.parametrize(
    ("name", "expected"), [("auto", "cuda:0"), ("cuda", "cuda:0"), ("cuda:1", "cuda:1"), ("cpu", "cpu")]
)
def test_a_gpu_is_named_with_its_index(current: Current, name: str, expected: str) -> None:
    assert find_device(name) == torch.device(expected)


def test_auto_and_cuda_are_the_current_gpu(current: Current) -> None:
    with on_device(SECOND):
        assert find_device("auto") == find_device("cuda") == SECOND


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cuda:2", 'there is no .cuda:2.; 2 found, the last is "cuda:1"'),
        ("meta", "is not supported"),
        ("gpu", "is not a device"),
    ],
)
def test_a_device_that_is_not_there_is_named(current: Current, name: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        find_device(name)


def test_cpu_work_leaves_the_current_gpu_alone(current: Current) -> None:
    with on_device(torch.device("cpu")):
        assert current.index == 0


CURRENT = {"current_stream", "synchronize", "Stream", "get_device_properties", "get_device_capability", "mem_get_info"}


def calls_without_a_device(path: Path) -> list[str]:
    """Calls of torch.cuda that mean whichever device is current, and the one device that a number or a name fixes."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CURRENT:
            is_torchs = ast.unparse(node.func).startswith("torch.cuda.")
            if is_torchs and (not node.args or isinstance(node.args[0], ast.Constant)):
                found.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.keyword) and ast.unparse(node).startswith("device='cuda"):
            found.append(f"{path.name}:{node.value.lineno}: {ast.unparse(node)}")
    return found


def test_no_call_means_whichever_gpu_is_current() -> None:
    assert calls_without_a_device(ROOT / "bench" / "studies" / "sampling.py")  # a script may
    paths = [path for folder in ("kernels", "runtime") for path in (ROOT / folder).rglob("*.py")]
    assert [fault for path in paths for fault in calls_without_a_device(path)] == []
