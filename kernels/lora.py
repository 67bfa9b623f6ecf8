"""Low-rank adapters (LoRA, arXiv 2106.09685): what they add to the linear maps of a step, row by row.

::

    x [T, K] ─► base product ─────────────────────────────► + ─► y [T, N]
      └─ rows of an adapter ─► · Aᵀ [R] ─► · scale ─► · Bᵀ ─┘   for each part of the outputs that has an A and a B

The delta is added after the product, so the base weight may be in any format. Where projections are fused (query, key
and value; gate and up) their A are stacked and multiplied with the inputs once; each part has its own B.

A step is a list of segments, runs of rows of one adapter; rows between them have none. `LoraPlan` lays it out once for
all layers. This module knows places (`PLACES`) of layers by number, and no model. Everything is addressed through one
table per adapter, a row for each layer and place, so that a compiled loop or kernel finds its weights by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from .cpu.panels import PANEL
from .fixed_buffer import FixedBuffer
from .linear_weight import LinearWeight, pack_linear
from .transfer import send

PLACES = ("qkv", "o", "gate_up", "down")
MAX_PARTS = 4
TILE_ROWS = 16  # rows of a GPU's program
RANK_STEP = 16  # ranks are filled up to a multiple of it there
# columns of a table: addresses, sizes; then for each part its own
DOWN, DOWN_PACKING, DEPTH, WIDTH, ZEROS, SCALES, NUM_PARTS, PARTS = range(8)
UP, UP_PACKING, RANK, FIRST_RANK, NUM_OUTPUTS, FIRST_OUTPUT, PART_COLUMNS = range(7)
COLUMNS = PARTS + MAX_PARTS * PART_COLUMNS


@dataclass(frozen=True, slots=True)
class LoraPart:
    """`scale · up @ down` for some outputs of a linear map.

    Attributes:
        down: A, `[r, K]`. up: B, `[n, r]`.
        first_output: the first of the n outputs that it adds to.
    """

    down: Tensor
    up: Tensor
    scale: float
    first_output: int


@dataclass(frozen=True, slots=True)
class LoraWeight:
    """The parts of one linear map, laid out for their device; made by `pack_lora`.

    Attributes:
        down: every A, on each other: K -> sum of the ranks.
        scales: fp32, one for each output of `down`, with ones up to whole panels.
        ups: every B: its rank -> its outputs.
        first_outputs: of each B.
    """

    down: LinearWeight
    scales: Tensor
    ups: tuple[LinearWeight, ...]
    first_outputs: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of the matrices, as they are laid out."""
        return self.scales.nbytes + sum(weight.stored.nbytes for weight in (self.down, *self.ups))


def pack_lora(parts: Sequence[LoraPart], device: torch.device, dtype: torch.dtype) -> LoraWeight:
    """Lays one to `MAX_PARTS` parts of a linear map out, in order of their outputs.

    On the CPU the numbers stay as they are, in fp32 (or in bf16 where that holds them exactly), whatever dtype the rows
    have; on a GPU they are rounded to dtype, and ranks filled up with zeros.
    """
    on_cpu = device.type == "cpu"
    downs, ups, scales = [], [], []
    for part in parts:
        missing = 0 if on_cpu else -len(part.down) % RANK_STEP
        downs.append(F.pad(part.down.to(device, torch.float32), (0, 0, 0, missing)))
        ups.append(F.pad(part.up.to(device, torch.float32), (0, missing)))
        scales += [part.scale] * len(downs[-1])
    scales += [1.0] * (-len(scales) % PANEL)
    kept = torch.float32 if on_cpu else dtype
    return LoraWeight(
        pack_linear(torch.cat(downs).to(kept)),
        torch.tensor(scales, dtype=torch.float32, device=device),
        tuple(pack_linear(up.to(kept)) for up in ups),
        tuple(part.first_output for part in parts),
    )


class LoraLayers:
    """The deltas of one adapter: of each layer, at each of `PLACES`; None: it adds nothing there.

    Attributes:
        weights: by layer and place.
        table: `[layers, places, COLUMNS]` int64; it holds addresses of `weights`, and is on the host.
        address: of the same on the device, in bytes.
        num_bytes: memory of all of it on the device.
        most_rank, most_outputs: of a place, in whole panels.
    """

    def __init__(self, weights: Sequence[Sequence[LoraWeight | None]], device: torch.device) -> None:
        packed = [weight for layer in weights for weight in layer if weight is not None]
        self.most_rank = max((_whole_panels(weight.down.num_outputs) for weight in packed), default=0)
        self.most_outputs = max((_whole_panels(up.num_outputs) for weight in packed for up in weight.ups), default=0)
        zeros = torch.zeros(max(self.most_rank, self.most_outputs))
        if device.type == "cpu":  # the compiled products begin with a bias: one of zeros does for all
            weights = [[None if weight is None else _with_bias(weight, zeros) for weight in layer] for layer in weights]
        self.weights = tuple(map(tuple, weights))
        self.table = np.zeros((len(weights), len(PLACES), COLUMNS), np.int64)
        for layer, row in zip(self.weights, self.table, strict=True):
            for weight, columns in zip(layer, row, strict=True):
                if weight is not None:
                    _describe(weight, zeros, columns)
        self._on_device = torch.from_numpy(self.table) if device.type == "cpu" else send(self.table, device)
        self.address = self._on_device.data_ptr()
        self.num_bytes = sum(weight.num_bytes for weight in packed) + self._on_device.nbytes


def _whole_panels(count: int) -> int:
    return -(-count // PANEL) * PANEL


def _with_bias(weight: LoraWeight, zeros: Tensor) -> LoraWeight:
    ups = tuple(replace(up, bias=zeros) for up in weight.ups)
    return replace(weight, down=replace(weight.down, bias=zeros), ups=ups)


def _describe(weight: LoraWeight, zeros: Tensor, columns: npt.NDArray[np.int64]) -> None:
    """Fills a row of the table."""
    down, num_parts = weight.down, len(weight.ups)
    columns[:PARTS] = (
        down.stored.data_ptr(), down.packing, down.num_inputs, _whole_panels(down.num_outputs), zeros.data_ptr(),
        weight.scales.data_ptr(), num_parts,
    )  # fmt: skip
    first_rank = 0
    for index, (up, first_output) in enumerate(zip(weight.ups, weight.first_outputs, strict=True)):
        at = PARTS + PART_COLUMNS * index
        sizes = (up.num_inputs, first_rank, up.num_outputs, first_output)
        columns[at : at + PART_COLUMNS] = (up.stored.data_ptr(), up.packing, *sizes)
        first_rank += up.num_inputs


@dataclass(frozen=True, slots=True)
class LoraSegment:
    """Rows [begin, end) of a step, which one adapter adds to."""

    begin: int
    end: int
    layers: LoraLayers


@dataclass(frozen=True, slots=True)
class LoraPlan:
    """Which rows of a step go through which adapter; the same for all layers. Made by `plan_lora`.

    Attributes:
        segments: in the order of their rows, none of them empty; there is at least one.
        table: `[S, 3]` int64: begin, end and the address of the adapter's table.
        tiles: on a GPU the same on the device, cut into tiles of at most `TILE_ROWS` rows, the last of them perhaps
            empty; None: on the CPU.
        most_rows, most_rank, most_outputs: of a segment, of a place, of a part, the last two in whole panels.
    """

    segments: tuple[LoraSegment, ...]
    table: npt.NDArray[np.int64]
    tiles: Tensor | None
    most_rows: int
    most_rank: int
    most_outputs: int

    @property
    def signature(self) -> tuple[int, ...]:
        """What launches depend on: those of one step run another of the same signature from the same buffer."""
        assert self.tiles is not None
        return len(self.tiles), self.most_rank, self.most_outputs


def plan_lora(
    segments: Sequence[LoraSegment], device: torch.device, buffer: FixedBuffer | None = None
) -> LoraPlan | None:
    """Lays the segments of a step out, empty ones left aside; None if no row has an adapter.

    buffer: int64, for the tiles; their number is padded to a power of two, so that few different launches occur.
    """
    kept = tuple(segment for segment in segments if segment.end > segment.begin)
    if not kept:
        return None
    table = np.array([[segment.begin, segment.end, segment.layers.address] for segment in kept], np.int64)
    tiles = None
    if buffer is not None:
        tiles = _place(cut_tiles(kept), buffer)
    elif device.type != "cpu":
        tiles = send(cut_tiles(kept), device)
    return LoraPlan(
        kept,
        table,
        tiles,
        max(segment.end - segment.begin for segment in kept),
        max(segment.layers.most_rank for segment in kept),
        max(segment.layers.most_outputs for segment in kept),
    )


def cut_tiles(segments: Sequence[LoraSegment]) -> npt.NDArray[np.int64]:
    """`[num_tiles, 3]`: the segments in runs of at most `TILE_ROWS` rows, as in `LoraPlan.table`."""
    return np.array(
        [
            (first, min(first + TILE_ROWS, segment.end), segment.layers.address)
            for segment in segments
            for first in range(segment.begin, segment.end, TILE_ROWS)
        ],
        np.int64,
    )


def _place(tiles: npt.NDArray[np.int64], buffer: FixedBuffer) -> Tensor:
    """The tiles in a buffer, filled up with empty ones to a power of two."""
    num_tiles = 1 << (len(tiles) - 1).bit_length()
    staged = buffer.stage(3 * num_tiles).reshape(num_tiles, 3)
    staged[: len(tiles)], staged[len(tiles) :] = tiles, 0
    buffer.send()
    return buffer.tensor[: 3 * num_tiles].view(num_tiles, 3)


def narrow_segments(segments: Sequence[LoraSegment], rows: npt.NDArray[np.int64]) -> list[LoraSegment]:
    """The segments as they lie once only some rows are left: those in `rows`, which ascend."""
    return [
        LoraSegment(int(np.searchsorted(rows, one.begin)), int(np.searchsorted(rows, one.end)), one.layers)
        for one in segments
    ]
