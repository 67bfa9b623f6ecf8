"""`phloem plan`: what fits, before anything is loaded."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypedDict

import typer

from ...errors import ConfigError
from ..config import KV_MEMORY_SHARE, MAX_RUNNING_REQUESTS, KVType, Quantisation
from .engine_options import fetched
from .options import ModelArgument, option, size
from .setting_options import folders_by_name

if TYPE_CHECKING:
    from ..capacity.planner import CapacityPlan
    from ..capacity.speed import DeviceNumbers, SpeedPlan
    from ..number_types import NumberType

LEAST_BYTES = 1 << 20  # of a memory worth a plan; what is less lacks its unit


class Asked(TypedDict):
    context_len: int
    num_requests: list[int]


def plan(
    model: ModelArgument = "nano",
    memory: Annotated[
        str | None,
        option("--memory", help="Memory of the device (80GiB …); default: of the GPU here.", env="MEMORY"),
    ] = None,
    kv_memory: Annotated[
        str | None, option("--kv-memory", help="Plan for a KV pool of this size instead.", env="KV_MEMORY")
    ] = None,
    kv_memory_share: Annotated[
        float,
        option("--kv-memory-share", help="Part of the memory beside the weights that is KV.", env="KV_MEMORY_SHARE"),
    ] = KV_MEMORY_SHARE,
    block_size: Annotated[int, option("--block-size", help="Tokens per KV block.", env="BLOCK_SIZE")] = 16,
    dtype: Annotated[
        str, option("--dtype", help="Type of the weights: auto, float32, bfloat16 or float16.", env="DTYPE")
    ] = "auto",
    kv_dtype: Annotated[
        KVType, option("--kv-dtype", help="Type of the KV cache; auto: as the weights.", env="KV_DTYPE")
    ] = "auto",
    quantise: Annotated[
        Quantisation,
        option("--quantise", help="Round the weights to int8 or int4, with their scales (CPU).", env="QUANTISE"),
    ] = "none",
    device: Annotated[
        str, option("--device", help="cpu: plan for memory as the engine uses it on a CPU.", env="DEVICE")
    ] = "auto",
    context: Annotated[
        list[int] | None,
        option(
            "--context",
            help="Length of a request in tokens, instead of several up to the model's (repeatable).",
            env="CONTEXT",
        ),
    ] = None,
    adapter: Annotated[
        list[str] | None,
        option("--adapter", help="A LoRA adapter to be loaded too, NAME=FOLDER (repeatable).", env="ADAPTER"),
    ] = None,
    num_ranks: Annotated[
        int,
        option(
            "--tensor-parallel-size",
            help="Devices that share the model; sizes are of each.",
            env="TENSOR_PARALLEL_SIZE",
        ),
    ] = 1,
    prefix_len: Annotated[int, option("--prefix", help="Tokens of a prefix that requests share.", env="PREFIX")] = 2000,
    gpu: Annotated[
        str | None,
        option("--gpu", help="Estimate tokens per second on it (h100, l4 …), and plan for it.", env="GPU"),
    ] = None,
    bandwidth: Annotated[
        float | None, option("--bandwidth", help="The same for a device of n GB/s …", env="BANDWIDTH")
    ] = None,
    tflops: Annotated[float | None, option("--tflops", help="… and n TFLOPS in bfloat16, dense.", env="TFLOPS")] = None,
    as_json: Annotated[bool, option("--json", help="Print JSON.", env="JSON")] = False,
) -> None:
    """Says how many tokens and requests fit: 2 × layers × kv_heads × head_dim × bytes per token (1 × with latents).

    With --gpu, or --bandwidth and --tflops, it estimates tokens per second too.
    """
    from ..capacity import planner, speed
    from ..models import ModelConfig, count_parameters, resolve_model

    config = ModelConfig.from_folder(resolve_model(fetched(model, weights=False)))
    numbers = _numbers(gpu, bandwidth, tflops)
    place = _place(memory, kv_memory, _device_of(device, quantise, gpu), numbers)
    capacity = planner.plan(
        config,
        device_memory_bytes=place.memory_bytes,
        pool_bytes=place.pool_bytes,
        block_size=block_size,
        weight_dtype=_weight_type(dtype),
        kv_dtype=None if kv_dtype == "auto" else kv_dtype,
        quantise=quantise,
        on_cpu=place.is_cpu,
        context_lens=context or None,
        prefix_len=prefix_len,
        num_adapter_parameters=sum(
            count_parameters(folder, config) for folder in folders_by_name(adapter, "--adapter").values()
        ),
        num_ranks=num_ranks,
        kv_memory_share=kv_memory_share,
    )
    estimated = None
    if numbers is not None and capacity.num_blocks:
        estimated = speed.estimate(config, capacity, numbers, **_asked(capacity, context))
    _print(capacity, estimated, place, quantise, as_json=as_json)
    if capacity.num_blocks == 0:
        raise typer.Exit(1)


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


def _place(memory: str | None, kv_memory: str | None, device: str, numbers: DeviceNumbers | None) -> Place:
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
    where = "CPU" if place.is_cpu else "GPU"
    where = f"one {where}" if capacity.num_ranks == 1 else f"each of {capacity.num_ranks} {where}s"
    typer.echo(f"{'device':<14}{where}, computing in {capacity.dtype}{kept}")
    typer.echo(plan_table.table(capacity))
    if estimated is not None:
        typer.echo(f"\n{speed.table(estimated)}")


def _numbers(gpu: str | None, bandwidth: float | None, tflops: float | None) -> DeviceNumbers | None:
    """What is known of the device whose speed is asked for; None: it is not."""
    from ..capacity.speed import DEVICES, DeviceNumbers

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


def _asked(capacity: CapacityPlan, context: list[int] | None) -> Asked:
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
