"""The states of recurrent layers, slot by slot. Knows no tokens and no requests; a slot is an index.

Warm-up batches, which come before all requests, write slot 0. Memory: `num_slots` times
`RecurrentConfig.num_state_bytes`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from ..byte_text import bytes_text
from ..capacity.state_memory import check_number, check_tiers, most_running, needed_each, num_states
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

    @property
    def block_bytes(self) -> int:
        """Bytes of a state outside of its slot."""
        return sum(tensor[:1].nbytes for tensor in self._tensors)

    @property
    def _tensors(self) -> list[Tensor]:
        return [tensor for layer in self.layers for tensor in layer]

    def read_blocks(self, slots: Sequence[int]) -> Tensor:
        """A copy of some states, uint8 `[n, block_bytes]` on their device; ordered like all on the stream."""
        rows = [torch.cat([tensor[slot].flatten() for tensor in self._tensors]) for slot in slots]
        return torch.stack(rows).view(torch.uint8)

    def write_blocks(self, slots: Sequence[int], rows: Tensor) -> None:
        """What `read_blocks` has copied, into slots; ordered like all on the stream."""
        for slot, row in zip(slots, rows.view(torch.float32), strict=True):
            parts = torch.split(row, [tensor[0].numel() for tensor in self._tensors])
            for tensor, part in zip(self._tensors, parts, strict=True):
                tensor[slot] = part.view(tensor.shape[1:])


def allocate_states(config: EngineConfig, loaded: LoadedModel) -> RecurrentStates | None:
    """As many states as the settings or the memory allow; None: the model has no recurrent layers.

    Raises:
        ConfigError: a setting that these models do not go with, or the memory does not hold the states of one request.
    """
    model, device = loaded.decoder.config, loaded.device
    if model.recurrent is None:
        return None
    if config.has_tiers:
        check_tiers(model, config.tensor_parallel_size)
    state_bytes, running = model.recurrent.num_state_bytes, config.max_running_requests
    free = None
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0] * config.kv_memory_share
    each = needed_each(config.has_tiers)
    num_slots = num_states(state_bytes, running, config.state_memory_bytes, each=each, free=free, least=CPU_POOL_BYTES)
    check_number(num_slots, each, state_bytes)
    if most_running(num_slots, each) < running:
        logger.warning(
            "states of recurrent layers take %s each: at most %d requests run at a time (state_memory_bytes)",
            bytes_text(state_bytes),
            most_running(num_slots, each),
        )
    return RecurrentStates(model, num_slots, device)
