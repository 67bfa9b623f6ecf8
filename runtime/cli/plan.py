"""`phloem plan`: what fits, before anything is loaded."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict

import typer

from ...errors import ConfigError
from ..config import MAX_RUNNING_REQUESTS, MTP, EngineConfig, Quantisation
from ..setting import setting
from .engine_options import Settings, fetched
from .options import ModelArgument, size
from .setting_options import with_options

if TYPE_CHECKING:
    from ..capacity.planner import CapacityPlan
    from ..capacity.speed import DeviceNumbers, SpeedPlan
    from ..models import ModelConfig
    from ..number_types import NumberType

LEAST_BYTES = 1 << 20  # of a memory worth a plan; what is less lacks its unit
# of an engine, those that a plan depends on; --kv-memory and --device mean something else here
SETTINGS = (
    "adapters",
    "tensor_parallel_size",
    "dtype",
    "quantise",
    "block_size",
    "kv_dtype",
    "kv_memory_share",
    "state_memory_bytes",
    "max_model_len",
    "max_batch_tokens",
    "max_running_requests",
    "host_memory_bytes",
    "speculative_model",
)


class Asked(TypedDict):
    context_len: int
    num_requests: list[int]


@dataclass(frozen=True, slots=True)
class Planned:
    """The options of `phloem plan` besides those of an engine."""

    memory: str | None = setting(None, "Memory of the GPU to plan for (80GiB …); default: of the one here.")
    kv_memory: str | None = setting(None, "Plan for a KV pool of this size instead, on a GPU unless --device is cpu.")
    device: str = setting("auto", "cpu: plan for memory as the engine uses it on a CPU.")
    context: tuple[int, ...] = setting(
        (), "Length of a request in tokens, instead of several up to the model's (repeatable)."
    )
    prefix_len: int = setting(2000, "Tokens of a prefix that requests share.", flag="prefix")
    gpu: str | None = setting(None, "Estimate tokens per second on it (h100, l4 …), and plan for it.")
    bandwidth: float | None = setting(None, "The same for a device of n GB/s …")
    tflops: float | None = setting(None, "… and n TFLOPS in bfloat16, dense.")
    as_json: bool = setting(False, "Print JSON.", flag="json")


@with_options(SETTINGS, settings=EngineConfig)
@with_options(asked=Planned)
def plan(settings: Settings, asked: Settings, model: ModelArgument = "nano") -> None:
    """Says how many tokens and requests fit, from what each layer keeps of a token and what the weights leave.

    With --gpu, or --bandwidth and --tflops, it estimates tokens per second too.
    """
    from ..capacity import planner, speed
    from ..models import ModelConfig, count_parameters, resolve_model

    planned = Planned(**asked)
    folder = resolve_model(fetched(model, weights=False))
    config = ModelConfig.from_folder(folder)
    numbers, quantise = _numbers(planned), settings.pop("quantise")
    place = _place(planned, _device_of(planned.device, quantise, planned.gpu), numbers)
    num_ranks, kv_dtype, adapters = (settings.pop(name) for name in ("tensor_parallel_size", "kv_dtype", "adapters"))
    capacity = planner.plan(
        config,
        device_memory_bytes=place.memory_bytes,
        pool_bytes=place.pool_bytes,
        weight_dtype=_weight_type(settings.pop("dtype")),
        kv_dtype=None if kv_dtype == "auto" else kv_dtype,
        quantise=quantise,
        on_cpu=place.is_cpu,
        context_lens=planned.context or None,
        prefix_len=planned.prefix_len,
        num_adapter_parameters=sum(count_parameters(at, config) for at in adapters.values()),
        num_ranks=num_ranks,
        draft=_draft(settings.pop("speculative_model"), folder, config, num_ranks, kv_dtype),
        **settings,
    )
    estimated = None
    if numbers is not None and capacity.num_blocks:
        estimated = speed.estimate(config, capacity, numbers, **_asked(capacity, planned.context))
    _print(capacity, estimated, place, quantise, as_json=planned.as_json)
    if capacity.num_blocks == 0:
        raise typer.Exit(1)


def _draft(
    name: str | None, folder: Path, config: ModelConfig, num_ranks: int, kv_dtype: str
) -> ModelConfig | Literal["mtp"] | None:
    """The draft model, as `planner.plan` takes it."""
    from ..capacity.draft_config import draft_config

    if name is None:
        return None
    name = name if name == MTP else fetched(name, weights=False)
    found = draft_config(name, folder, config, num_ranks=num_ranks, kv_dtype=kv_dtype)
    return "mtp" if name == MTP else found


class Place(NamedTuple):
    """What is planned for: the memory of a device, or a pool."""

    memory_bytes: int | None
    pool_bytes: int | None
    is_cpu: bool


def _device_of(device: str, quantise: Quantisation, gpu: str | None) -> str:
    """The device as it was given, or the CPU where nothing else can have such weights."""
    if not re.fullmatch(r"auto|(cpu|cuda)(:\d+)?", device):
        raise ConfigError(f'device: {device!r} is not a device; use "auto", "cpu", "cuda" or "cuda:1"')
    if quantise == "none":
        return device
    if gpu is not None or device.startswith("cuda"):
        raise ConfigError(
            f"--quantise {quantise}: weights are rounded on a CPU only; on a GPU a checkpoint of few bits (GPTQ, AWQ,"
            " fp8 …) keeps its own: plan that, or leave out --gpu"
        )
    return "cpu"


def _place(planned: Planned, device: str, numbers: DeviceNumbers | None) -> Place:
    memory, kv_memory = planned.memory, planned.kv_memory
    if memory is not None and kv_memory is not None:
        raise ConfigError("--memory and --kv-memory exclude each other; give one of them")
    on_cpu = device.startswith("cpu")
    if memory is not None:
        return Place(size(memory, "--memory", LEAST_BYTES), None, on_cpu)
    if kv_memory is not None:
        return Place(None, size(kv_memory, "--kv-memory", LEAST_BYTES), on_cpu)
    if numbers is not None and numbers.memory_bytes and not on_cpu:
        return Place(numbers.memory_bytes, None, False)
    return _here(device)


def _print(
    capacity: CapacityPlan, estimated: SpeedPlan | None, place: Place, quantise: Quantisation, *, as_json: bool
) -> None:
    from ..capacity import plan_table, speed

    if as_json:
        values = dataclasses.asdict(capacity)
        typer.echo(json.dumps(values if estimated is None else {**values, "speed": estimated.as_dict()}, indent=2))
        return
    kept = "" if capacity.kept_dtype == capacity.dtype else f", matrices published in {capacity.kept_dtype} kept so"
    kept = kept if quantise == "none" else f", matrices rounded to {quantise}"
    where = "one CPU" if place.is_cpu else "one GPU"
    if capacity.num_ranks > 1:
        number = capacity.num_ranks
        where = f"one CPU, with {number} ranks (processes)" if place.is_cpu else f"each of {number} GPUs"
    typer.echo(f"{'device':<14}{where}, computing in {capacity.dtype}{kept}")
    typer.echo(plan_table.table(capacity))
    if estimated is not None:
        typer.echo(f"\n{speed.table(estimated)}")


def _numbers(planned: Planned) -> DeviceNumbers | None:
    """What is known of the device whose speed is asked for; None: it is not."""
    from ..capacity.speed import DEVICES, DeviceNumbers

    gpu, bandwidth, tflops = planned.gpu, planned.bandwidth, planned.tflops

    if (bandwidth is None) != (tflops is None):
        raise ConfigError("--bandwidth and --tflops go together; give both, or --gpu instead")
    if gpu is not None and bandwidth is not None:
        raise ConfigError("--gpu and --bandwidth exclude each other; give one of them")
    if bandwidth is not None and tflops is not None:
        return DeviceNumbers("this device", 0, bandwidth * 1e9, tflops * 1e12)
    if gpu is None:
        return None
    if gpu.lower() not in DEVICES:
        raise ConfigError(f"--gpu: {gpu!r} is not one of {', '.join(DEVICES)}; give --bandwidth and --tflops instead")
    return DEVICES[gpu.lower()]


def _asked(capacity: CapacityPlan, context: Sequence[int]) -> Asked:
    """Requests of 4,096 tokens, or of the first length given: one, sixteen, and as many as fit."""
    rows = capacity.lengths if context else [row for row in capacity.lengths if row.context_len <= 4096]
    row = rows[0] if context else rows[-1] if rows else capacity.lengths[0]
    most = min(row.num_requests, MAX_RUNNING_REQUESTS)
    return {"context_len": row.context_len, "num_requests": sorted({1, *(n for n in (16, most) if 1 <= n <= most)})}


def _here(device: str) -> Place:
    """The GPU of this machine, or on a CPU what the engine sets aside for the pool."""
    from ..capacity.gpu_memory import gpu_memory
    from ..config import CPU_POOL_BYTES

    kind, _, number = device.partition(":")
    sizes = [] if kind == "cpu" else gpu_memory()
    if kind == "cuda" and int(number or 0) >= len(sizes):
        raise ConfigError(f"device: there is no {device!r}; {len(sizes)} GPUs found; give the size with --memory")
    if not sizes:
        return Place(None, CPU_POOL_BYTES, True)
    return Place(sizes[int(number or 0)], None, False)


def _weight_type(name: str) -> NumberType | None:
    from ..number_types import BYTES

    for known in BYTES:
        if name == known:
            return known
    if name == "auto":
        return None
    raise ConfigError(f"--dtype: {name!r} is not one of auto, {', '.join(BYTES)}")
