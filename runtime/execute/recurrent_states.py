"""The states of recurrent layers, slot by slot. Knows no tokens and no requests; a slot is an index.

Warm-up batches, which come before all requests, write slot 0. Memory: `num_slots` times
`RecurrentConfig.num_state_bytes`.
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from ...errors import ConfigError
from ..config import CPU_POOL_BYTES, EngineConfig
from ..models import ModelConfig
from .loading import LoadedModel

logger = logging.getLogger("phloem.loading")
SCRATCH = 0
GPU_SHARE = 0.5  # of what `kv_memory_share` names, for states; the pool of KV has its share of what they leave
KEPT_EACH = 2  # states for each request that may run, besides the two that it needs
LEAST_KEPT = 16


class RecurrentStates:
    """States of all layers, fp32.

    Attributes:
        layers: by layer its tensors, `[num_slots, *shape]` for each of `RecurrentConfig.state_shapes`; none of a layer
            that keeps keys and values.
    """

    def __init__(self, model: ModelConfig, num_slots: int, device: torch.device) -> None:
        assert model.recurrent is not None
        self.num_slots = num_slots
        shapes = model.recurrent.state_shapes
        self.layers: list[tuple[Tensor, ...]] = [
            tuple(torch.zeros(num_slots, *shape, device=device) for shape in shapes) if is_recurrent else ()
            for is_recurrent in model.recurrent.layers
        ]


def allocate_states(config: EngineConfig, loaded: LoadedModel) -> RecurrentStates | None:
    """As many states as the settings or the memory allow; None: the model has no recurrent layers.

    A running request needs two, the one that a step reads and the one that it writes; the others are kept for requests
    that share a prefix.

    Raises:
        ConfigError: a setting that these models do not go with, or the memory does not hold the states of one request.
    """
    model, device = loaded.decoder.config, loaded.device
    if model.recurrent is None:
        return None
    _refuse(config, model)
    state_bytes, running = model.recurrent.num_state_bytes, config.max_running_requests
    wanted = 2 * running + max(LEAST_KEPT, KEPT_EACH * running)
    memory = config.state_memory_bytes
    if memory is None:
        memory = max(CPU_POOL_BYTES, (2 + LEAST_KEPT) * state_bytes)
        if device.type == "cuda":
            memory = int(torch.cuda.mem_get_info(device)[0] * config.kv_memory_share * GPU_SHARE)
        memory = min(memory, wanted * state_bytes)
    num_slots = memory // state_bytes
    if num_slots < 2:
        raise ConfigError(
            f"state_memory_bytes: {memory} does not hold the two states of one request, of {state_bytes} bytes each; "
            "raise it"
        )
    if most_running(num_slots) < running:
        logger.warning(
            "states of recurrent layers take %d MB each: at most %d requests run at a time (state_memory_bytes)",
            state_bytes >> 20,
            most_running(num_slots),
        )
    return RecurrentStates(model, num_slots, device)


def most_running(num_slots: int) -> int:
    """Requests that n slots are enough for."""
    return num_slots // 2


def _refuse(config: EngineConfig, model: ModelConfig) -> None:
    asked = {
        "host_memory_bytes": config.host_memory_bytes > 0,
        "disk_cache": config.disk_cache is not None,
        "shared_cache": config.shared_cache is not None,
        "adapters": bool(config.adapters),
    }
    for name, is_asked in asked.items():
        if is_asked:
            raise ConfigError(
                f"{name}: {model.architecture} has layers that keep a state instead of keys and values, for which "
                f"there is no {'adapter' if name == 'adapters' else 'tier below the pool'} yet; leave it out"
            )
