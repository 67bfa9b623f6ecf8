"""The states of recurrent layers, slot by slot. Knows no tokens and no requests; a slot is an index.

Slot 0 belongs to no request: warm-up batches write it. Memory: `num_slots` times `RecurrentConfig.num_state_bytes`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..models import ModelConfig

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
