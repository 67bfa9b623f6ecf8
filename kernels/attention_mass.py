"""How much attention keys receive (accumulated scores, H2O, arXiv 2306.14048): an output of attention, on request.

A run is some rows of one request, one after another. What they give each key is summed over the query heads of each KV
head and over the rows, and added to what is there; a learnt sink keeps its share. Knows no requests and no blocks.

Invariant on the CPU: a row's heads are summed first, then rows are added in order. So the sums' bits do not depend on
the rest of the step, nor on how rows are cut into runs of several steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .transfer import send

LANES = 8  # numbers of a register: rows of sums and scores are whole ones
ROW_BEGIN, ROW_END, NUM_KEYS, OFFSET = range(4)


@dataclass(frozen=True, slots=True)
class LayerMass:
    """What runs of a step give to the keys of one layer; made by `AttentionMass.layer`, added to by `attention`.

    Attributes:
        runs: int64 `[A, 4]`: first row and end row, the keys that its last row sees, and where its sums begin.
        sums: fp32 `[size]`; those of a run are `[num_kv_heads, width]`, width being its keys in whole `LANES`.
    """

    runs: npt.NDArray[np.int64]
    sums: Tensor
    num_kv_heads: int

    def of_run(self, index: int) -> Tensor:
        """A view `[num_kv_heads, num_keys]`."""
        _, _, num_keys, offset = self.runs[index].tolist()
        width = whole_lanes(num_keys)
        return self.sums[offset : offset + self.num_kv_heads * width].view(self.num_kv_heads, width)[:, :num_keys]

    def add(self, index: int, weights: Tensor) -> None:
        """Adds a run's attention weights, `[num_heads, num_rows, num_keys]`."""
        num_heads, num_rows, num_keys = weights.shape
        by_head = weights.reshape(self.num_kv_heads, num_heads // self.num_kv_heads, num_rows, num_keys)
        self.of_run(index).add_(by_head.sum((1, 2)))


@dataclass(frozen=True, slots=True)
class AttentionMass:
    """The runs of a step and their sums in all layers; made by `plan_mass`. sums: fp32 `[num_layers, size]`."""

    runs: npt.NDArray[np.int64]
    sums: Tensor
    num_kv_heads: int

    def layer(self, index: int) -> LayerMass:
        return LayerMass(self.runs, self.sums[index], self.num_kv_heads)

    def of_run(self, index: int) -> Tensor:
        """A view `[num_layers, num_kv_heads, num_keys]`."""
        _, _, num_keys, offset = self.runs[index].tolist()
        width, num_layers = whole_lanes(num_keys), len(self.sums)
        own = self.sums[:, offset : offset + self.num_kv_heads * width]
        return own.view(num_layers, self.num_kv_heads, width)[..., :num_keys]


def plan_mass(
    runs: Sequence[tuple[int, int, int]], *, num_layers: int, num_kv_heads: int, device: torch.device
) -> AttentionMass:
    """Sums of zeros. runs: of each the first row, the end row, and how many keys its last row sees."""
    table = np.zeros((len(runs), 4), np.int64)
    table[:, :OFFSET] = runs
    sizes = num_kv_heads * np.array([whole_lanes(num_keys) for num_keys in table[:, NUM_KEYS].tolist()])
    table[1:, OFFSET] = np.cumsum(sizes)[:-1]
    sums = torch.zeros(num_layers, int(sizes.sum()), dtype=torch.float32, device=device)
    return AttentionMass(table, sums, num_kv_heads)


def whole_lanes(num_keys: int) -> int:
    return -(-num_keys // LANES) * LANES


class SeenScores:
    """Scores that a kernel keeps for the rows of runs, to be made weights of (`add_to`).

    Attributes:
        scores: fp32, -inf where a row sees no key; those of a row are `[num_heads, width]`.
        places: int32 `[T, 2]`: where those of each row begin, -1 for a row of no run; and their width.
    """

    def __init__(self, mass: LayerMass, num_tokens: int, num_heads: int) -> None:
        places, self._starts, size = np.full((num_tokens, 2), -1, np.int32), list[int](), 0
        for begin, end, num_keys, _ in mass.runs.tolist():
            width = whole_lanes(num_keys)
            places[begin:end, 0] = size + np.arange(end - begin) * num_heads * width
            places[begin:end, 1] = width
            self._starts.append(size)
            size += (end - begin) * num_heads * width
        assert size < 1 << 31
        self._num_heads = num_heads
        self.places = send(places, mass.sums.device)
        self.scores = torch.full((size,), float("-inf"), device=mass.sums.device)

    def add_to(self, mass: LayerMass, factor: float, sinks: Tensor | None) -> None:
        """Adds the softmax of the scores, times `factor`, to the sums; sinks `[num_heads]` take part in it."""
        for index, (begin, end, num_keys, _) in enumerate(mass.runs.tolist()):
            shape = (end - begin, self._num_heads, whole_lanes(num_keys))
            first = self._starts[index]
            scores = self.scores[first : first + shape[0] * shape[1] * shape[2]].view(shape) * factor
            if sinks is not None:
                scores = torch.cat([scores, sinks.float()[None, :, None].expand(*shape[:2], 1)], -1)
            mass.add(index, torch.softmax(scores, -1)[..., :num_keys].transpose(0, 1))
