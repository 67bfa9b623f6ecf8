"""The states of recurrent layers, slot by slot. Knows no tokens and no requests; a slot is an index.

Warm-up batches, which come before all requests, write slot 0. Memory: `num_slots` times
`RecurrentConfig.num_state_bytes`.
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from ...errors import ConfigError
from ..capacity.state_memory import most_running, num_states
from ..config import CPU_POOL_BYTES, EngineConfig
from ..models import ModelConfig
from .loading import LoadedModel

logger = logging.getLogger("phloem.loading")
SCRATCH = 0


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

    Raises:
        ConfigError: a setting that these models do not go with, or the memory does not hold the states of one request.
    """
    model, device = loaded.decoder.config, loaded.device
    if model.recurrent is None:
        return None
    _refuse(config, model)
    state_bytes, running = model.recurrent.num_state_bytes, config.max_running_requests
    free = None
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0] * config.kv_memory_share
    num_slots = num_states(state_bytes, running, config.state_memory_bytes, free=free, least=CPU_POOL_BYTES)
    if num_slots < 2:
        raise ConfigError(
            f"state_memory_bytes: the memory does not hold the two states of one request, of {state_bytes} bytes each; "
            "raise it"
        )
    if most_running(num_slots) < running:
        logger.warning(
            "states of recurrent layers take %d MB each: at most %d requests run at a time (state_memory_bytes)",
            state_bytes >> 20,
            most_running(num_slots),
        )
    return RecurrentStates(model, num_slots, device)


def _refuse(config: EngineConfig, model: ModelConfig) -> None:
    asked = {
        "host_memory_bytes": config.host_memory_bytes > 0,
        "disk_cache": config.disk_cache is not None,
        "shared_cache": config.shared_cache is not None,
    }
    for name, is_asked in asked.items():
        if is_asked:
            raise ConfigError(
                f"{name}: {model.architecture} has layers that keep a state instead of keys and values, for which "
                "there is no tier below the pool yet; leave it out"
            )
