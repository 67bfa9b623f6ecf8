"""The states of recurrent layers, slot by slot. Knows no tokens and no requests; a slot is an index.

Warm-up batches, which come before all requests, write slot 0. Memory: `num_slots` times
`RecurrentConfig.num_state_bytes`.
"""

from __future__ import annotations

from collections.abc import Sequence

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
