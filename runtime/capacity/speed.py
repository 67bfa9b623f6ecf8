"""How fast a model is on a device, estimated from its configuration and two numbers of the device.

A roofline: a step takes as long as the slower of two things takes,

::

    bytes that are read    weights, once for all requests; keys, values and states of each   / bandwidth
    operations             2 for each multiplication of a token with weights and with keys   / operations a second

Of a mixture a step reads the experts that its tokens choose between them: of E experts, k for each of n tokens, that is
E (1 - (1 - k / E)^n) if tokens choose evenly. No device gives all of what its maker states; what is counted on is said
beside the result (`BANDWIDTH_SHARE`, `OPERATIONS_SHARE`: what well-tuned kernels reach). Neither the time between
steps nor the host's work is in it, nor what a prefix cache, drafts or forced text spare. Of several ranks each reads
and computes its part; what they send each other (two sums a layer) is not in it either.

Knows the configuration and the plan; no tensors, no device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from ...errors import ConfigError
from ..models import ModelConfig
from .counts import count_layer, count_multiplications, count_multiplied
from .matrices import own_matrices
from .planner import CapacityPlan

BANDWIDTH_SHARE, OPERATIONS_SHARE = 0.8, 0.5
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class DeviceNumbers:
    """What a device's maker states of it.

    Attributes:
        memory_bytes: as a program finds it.
        bandwidth: of its memory, bytes a second.
        operations: in bfloat16 with sums in fp32, dense, a second.
    """

    name: str
    memory_bytes: int
    bandwidth: float
    operations: float


def _numbers(name: str, gib: float, gigabytes: float, teraflops: float) -> DeviceNumbers:
    return DeviceNumbers(name, int(gib * GIB), gigabytes * 1e9, teraflops * 1e12)


DEVICES: dict[str, DeviceNumbers] = {
    "a100": _numbers("NVIDIA A100 80 GB SXM", 79.2, 2039, 312),
    "a10": _numbers("NVIDIA A10", 22.0, 600, 125),
    "l4": _numbers("NVIDIA L4", 22.0, 300, 121),
    "l40s": _numbers("NVIDIA L40S", 44.4, 864, 362),
    "h100": _numbers("NVIDIA H100 SXM", 79.1, 3350, 989),
    "h200": _numbers("NVIDIA H200", 139.8, 4800, 989),
    "b200": _numbers("NVIDIA B200", 178.3, 8000, 2250),
    "rtx4090": _numbers("NVIDIA GeForce RTX 4090", 23.5, 1008, 165),
    "rtx5090": _numbers("NVIDIA GeForce RTX 5090", 31.3, 1792, 209),
}
"""By the name that `--gpu` takes; figures of NVIDIA's data sheets."""


@dataclass(frozen=True, slots=True)
class StepSpeed:
    """A step in which each of some requests says one token.

    Attributes:
        context_len: tokens of each request so far.
        seconds: of the step.
        limited_by: what takes longer, reading memory or computing.
    """

    num_requests: int
    context_len: int
    seconds: float
    limited_by: Literal["memory", "operations"]

    @property
    def tokens_per_second(self) -> float:
        """Of all requests together."""
        return self.num_requests / self.seconds


@dataclass(frozen=True, slots=True)
class SpeedPlan:
    """What is estimated for one device.

    Attributes:
        num_ranks: devices that share the model; what they send each other is not counted.
        bandwidth, operations: what the device states, a second; `BANDWIDTH_SHARE` and `OPERATIONS_SHARE` of them count.
        prompt_tokens_per_second: while prompts are computed, in steps large enough that operations limit them.
        steps: for each number of requests asked for.
    """

    device: str
    num_ranks: int
    bandwidth: float
    operations: float
    prompt_tokens_per_second: float
    steps: tuple[StepSpeed, ...]

    def as_dict(self) -> dict[str, object]:
        """The same for JSON, with what each step comes to."""
        steps = [{**asdict(step), "tokens_per_second": step.tokens_per_second} for step in self.steps]
        return {**asdict(self), "steps": steps}


def estimate(
    config: ModelConfig,
    capacity: CapacityPlan,
    device: DeviceNumbers,
    *,
    context_len: int,
    num_requests: Sequence[int],
) -> SpeedPlan:
    """How fast the model is, as `capacity` has planned it.

    context_len: tokens of each request when the step is taken.

    Raises:
        ConfigError: a number of the device, a length or a number of requests that is not positive.
    """
    is_known = 0 < device.bandwidth < math.inf and 0 < device.operations < math.inf
    if not is_known or context_len < 1 or min(num_requests, default=1) < 1:
        raise ConfigError("plan: bandwidth, operations, lengths and numbers of requests must be positive")
    prompt = _operations(config, context_len // 2) - 2 * config.vocab_size * config.hidden_size
    return SpeedPlan(
        device.name,
        capacity.num_ranks,
        device.bandwidth,
        device.operations,
        device.operations * OPERATIONS_SHARE * capacity.num_ranks / prompt,
        tuple(_step(config, capacity, device, context_len, n) for n in num_requests),
    )


def _step(config: ModelConfig, capacity: CapacityPlan, device: DeviceNumbers, context_len: int, n: int) -> StepSpeed:
    num_bytes = weight_bytes_read(config, capacity, n)
    num_bytes += n * (_kv_bytes_read(config, capacity, context_len) + 2 * capacity.state_bytes)
    by_memory = num_bytes / (device.bandwidth * BANDWIDTH_SHARE)
    by_operations = n * _operations(config, context_len) / capacity.num_ranks / (device.operations * OPERATIONS_SHARE)
    return StepSpeed(
        n, context_len, max(by_memory, by_operations), "memory" if by_memory >= by_operations else "operations"
    )


def weight_bytes_read(config: ModelConfig, capacity: CapacityPlan, num_tokens: int) -> float:
    """Of the weights, in a step of n tokens: all but an embedding's other rows and the experts that none chooses."""
    read = float(config.vocab_size * config.hidden_size + count_multiplied(config))
    held = sum(matrix.size for matrix in own_matrices(config))
    for index in range(config.num_layers):
        experts = config.experts_of(index)
        rest = count_layer(config, index, 0)
        if experts is None:
            read, held = read + rest, held + rest
            continue
        each = count_layer(config, index, 1) - rest
        most = experts.num_experts
        met = most * (1 - (1 - experts.num_chosen / most) ** num_tokens)
        read, held = read + rest + met * each, held + rest + most * each
    return capacity.weight_bytes * read / held


def _kv_bytes_read(config: ModelConfig, capacity: CapacityPlan, context_len: int) -> float:
    """Of one request: layers with a window read no more than that."""
    kept = sum(math.prod(shape) for shape in config.kv_shapes())
    read = sum(math.prod(config.kv_shape(index)) * seen for index, seen in _visible(config, context_len))
    return capacity.kv_bytes_per_token * read / kept if kept else 0.0


def _operations(config: ModelConfig, context_len: int) -> float:
    """Of one token that sees n keys: a multiplication and an addition are two."""
    numbers = sum(config.kv_shape(index).head_dim * seen for index, seen in _visible(config, context_len))
    with_keys = 2 * config.num_heads * numbers  # scores, then values
    return 2.0 * (count_multiplications(config) + config.vocab_size * config.hidden_size + with_keys)


def _visible(config: ModelConfig, context_len: int) -> list[tuple[int, int]]:
    """Each layer that attends, and the keys that a token sees there."""
    attend = [(index, layer.window) for index, layer in enumerate(config.layers) if layer.attends]
    return [(index, min(context_len, window) if window else context_len) for index, window in attend]


def table(speed: SpeedPlan) -> str:
    """The estimate as text for a terminal, which has no more than two figures that mean something."""
    context_len = speed.steps[0].context_len if speed.steps else 0
    lines = [
        f"{'speed':<14}estimate for {speed.device}: {BANDWIDTH_SHARE:.0%} of {speed.bandwidth / 1e9:,.0f} GB/s, "
        f"{OPERATIONS_SHARE:.0%} of {speed.operations / 1e12:,.0f} TFLOPS",
        *([f"{'':<14}on each of {speed.num_ranks}; what they send each other is left out"] * (speed.num_ranks > 1)),
        f"{'prompts':<14}{two_figures(speed.prompt_tokens_per_second)} tokens/s, at {context_len:,} tokens each",
        "",
        f"{'requests':>10}{'context':>10}{'step':>12}{'tokens/s each':>16}{'in all':>12}   limited by",
    ]
    for step in speed.steps:
        each = step.tokens_per_second / step.num_requests
        lines.append(
            f"{step.num_requests:>10,}{step.context_len:>10,}{two_figures(step.seconds * 1000):>9} ms"
            f"{two_figures(each):>16}{two_figures(step.tokens_per_second):>12}   {step.limited_by}"
        )
    return "\n".join(lines)


def two_figures(number: float) -> str:
    """A positive number rounded to two figures: `0.0058`, `5.8`, `170`, `1,800`."""
    places = 1 - math.floor(math.log10(number))
    rounded = round(number, places)
    return f"{rounded:,.{max(0, 1 - math.floor(math.log10(rounded)))}f}"
