"""The KV tensors, block by block. Knows no tokens and no requests; a block is an index.

Per layer two tensors `[num_blocks, num_kv_heads, block_size, head_dim]`: one head's tokens of a block lie together, so
an attention tile of one block is one contiguous read. int8, fp8 and int4 (two numbers in a byte: uint8, and half of
head_dim below) come with a scale per token and head (`kernels.kv_format`). Models with latent attention keep one tensor
per layer, their latents. Layers may differ in heads and head_dim (`KVShape`); those of one shape are views of one stack
for each part, so that a block is copied in all of them at once.

Outside of the pool a block is a row of bytes: the layers of the first stack, those of the second, and so on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from ...kernels import bytes_per_head, is_quantised, quantise_heads, scale_type, send, stored_dim, widen_heads
from ..device import on_device
from ..models.kv_shape import KVShape

ALIGNMENT = 64  # bytes, as torch has it: a line of the processor's caches
NO_LAYER = KVShape(1, 8)  # of a pool without layers, whose blocks hold nothing


class KVCache:
    """Keys and values of all layers.

    Attributes:
        shapes: by layer.
        keys, values: one tensor per layer, `[num_blocks, num_kv_heads, block_size, head_dim]`; no values with one part.
        key_scales, value_scales: one tensor per layer, fp32 (of int4 int32) `[num_blocks, num_kv_heads, block_size]`;
            None where keys and values are stored as they are.
        hidden: hidden states by slot, which are kept for drafts (`DraftKV`); None: they are not.
    """

    def __init__(
        self,
        *,
        shapes: Sequence[KVShape],
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """shapes: of the layers, all with as many parts."""
        self.shapes = tuple(shapes)
        self.block_size = block_size
        self.num_blocks = num_blocks
        groups = list(dict.fromkeys(shapes)) or [NO_LAYER]
        made = {
            shape: _stacks(shape, self.shapes.count(shape), num_blocks, block_size, dtype, device) for shape in groups
        }
        self._stacks = [stack for stacks in made.values() for stack in stacks]
        places = [self.shapes[:index].count(shape) for index, shape in enumerate(shapes)]
        layers = {shape: list(zip(*stacks, strict=True)) for shape, stacks in made.items()}
        of = [layers[shape][place] for shape, place in zip(shapes, places, strict=True)]
        num_parts = groups[0].num_parts
        self.keys = [tensors[0] for tensors in of]
        self.values = [tensors[1] for tensors in of] if num_parts > 1 else []
        self.key_scales: list[Tensor] | list[None] = [None] * len(of)
        self.value_scales: list[Tensor] | list[None] = [None] * len(of)
        if is_quantised(dtype):
            self.key_scales = [tensors[num_parts] for tensors in of]
            self.value_scales = [tensors[-1] for tensors in of]
        self.hidden: Tensor | None = None

    def copy_block(self, source: int, target: int) -> None:
        """Copies one block in all layers, with a launch for each stack; ordered like all on the stream.

        Where a stack is larger than 2 GiB, torch takes a launch for each group of layers that lie within 2 GiB.
        """
        if source != target:
            for stack in self._stacks:
                stack[:, target].copy_(stack[:, source])

    @property
    def row_bytes(self) -> int:
        """Bytes of a block in all layers of these tensors."""
        return sum(stack[:, :1].nbytes for stack in self._stacks)

    @property
    def num_bytes(self) -> int:
        """Bytes of these tensors."""
        return sum(stack.nbytes for stack in self._stacks)

    @property
    def block_bytes(self) -> int:
        """Bytes of a block outside of the pool."""
        return self.row_bytes

    def gather(self, blocks: Sequence[int], places: Tensor) -> list[Tensor]:
        """A copy of some tokens' keys and values as they are stored, for each layer and head its own.

        places: int64 `[n]`, or of layers of one shape `[num_layers, num_kv_heads, n]`: where in `blocks`, laid end to
        end, they lie. One tensor for each stack, `[layers, num_kv_heads, n, …]`; ordered like all on the stream.
        """
        device = self._stacks[0].device
        with on_device(device):
            places = places if places.device == device else send(places.numpy(), device)
            return [stack[self._index(stack, blocks, places)] for stack in self._numbers()]

    def scatter(self, blocks: Sequence[int], kept: list[Tensor]) -> None:
        """What `gather` has copied, into the first places of other blocks; ordered like all on the stream."""
        device = self._stacks[0].device
        with on_device(device):
            places = torch.arange(kept[0].shape[2], device=device)
            for stack, part in zip(self._numbers(), kept, strict=True):
                stack[self._index(stack, blocks, places)] = part

    def change_keys(self, kept: list[Tensor], first: int, change: Callable[[int, Tensor], Tensor]) -> None:
        """Replaces keys that `gather` has copied, from place `first` on, by what change(layer, keys) makes of them.

        It is given fp32 `[num_kv_heads, n, head_dim]`, and what it returns is rounded to what the cache holds. All
        layers have one shape.
        """
        dtype = self.keys[0].dtype
        with on_device(self.keys[0].device):
            for layer, own in enumerate(kept[0].view(dtype)[:, :, first:]):
                if not is_quantised(dtype):
                    own.copy_(change(layer, own.float()))
                    continue
                scales = kept[2][layer, :, first:]
                stored, new_scales = quantise_heads(change(layer, widen_heads(own, scales)), dtype)
                own.view(torch.int8).copy_(stored.view(torch.int8))
                scales.copy_(new_scales)

    def _index(self, stack: Tensor, blocks: Sequence[int], places: Tensor) -> tuple[Tensor, ...]:
        """Of a stack: layer, block, head and offset of each place."""
        num_layers, _, num_heads = stack.shape[:3]
        table = send(np.asarray(blocks, np.int64), places.device)
        layers = torch.arange(num_layers, device=places.device)[:, None, None]
        heads = torch.arange(num_heads, device=places.device)[:, None]
        return layers, table[places // self.block_size], heads, places % self.block_size

    def _numbers(self) -> list[Tensor]:
        """The stacks, in types that can be indexed: fp8 cannot everywhere."""
        return [stack.view(torch.int8) if stack.dtype.itemsize == 1 else stack for stack in self._stacks]

    def read_blocks(self, blocks: Sequence[int]) -> Tensor:
        """A copy of some blocks, uint8 `[n, block_bytes]` on the pool's device; ordered like all on the stream.

        On the CPU some fifty microseconds for a block of 700 KB: what computing it takes is a thousand times that.
        """
        device = self._stacks[0].device
        rows = torch.empty(len(blocks), self.row_bytes, dtype=torch.uint8, device=device)
        if device.type == "cuda":
            with on_device(device):
                index = send(np.asarray(blocks, np.int64), device)
                for stack, part in self._stacks_with(rows):
                    part.copy_(stack.index_select(1, index).transpose(0, 1))
            return rows
        for stack, part in self._stacks_with(rows):
            # block by block each layer is a copy of plain memory; torch would go element by element
            source, target = stack.numpy(), part.numpy()
            for row, block in enumerate(blocks):
                target[row] = source[:, block]
        return rows

    def write_blocks(self, blocks: Sequence[int], rows: Tensor) -> None:
        """What `read_blocks` has copied, into blocks; ordered like all on the stream."""
        if rows.is_cuda:
            with on_device(rows.device):
                index = send(np.asarray(blocks, np.int64), rows.device)
                for stack, part in self._stacks_with(rows):
                    stack.index_copy_(1, index, part.transpose(0, 1))
            return
        for stack, part in self._stacks_with(rows):
            target, source = stack.numpy(), part.numpy()
            for row, block in enumerate(blocks):
                target[:, block] = source[row]

    def _stacks_with(self, rows: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Each stack as `[layers, blocks, words]`, and its part of the rows as `[n, layers, words]`."""
        stacks = [stack.view(torch.uint8).flatten(2) for stack in self._stacks]
        word = torch.int64 if all(stack.shape[2] % 8 == 0 for stack in stacks) else torch.uint8
        stacks = [stack.view(word) for stack in stacks]
        parts = torch.split(rows.view(word), [stack.shape[0] * stack.shape[2] for stack in stacks], 1)
        return [
            (stack, part.view(len(rows), stack.shape[0], stack.shape[2]))
            for stack, part in zip(stacks, parts, strict=True)
        ]

    @staticmethod
    def bytes_per_block(shapes: Sequence[KVShape], *, block_size: int, dtype: torch.dtype) -> int:
        """Bytes of one block: of each layer parts · kv_heads · block_size · bytes of a head, scale included."""
        return sum(
            shape.num_parts * shape.num_heads * block_size * bytes_per_head(shape.head_dim, dtype) for shape in shapes
        )


def _stacks(
    shape: KVShape, num_layers: int, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
) -> list[Tensor]:
    """Of layers of one shape: a stack for each part, and then the scales of each."""
    sizes = (num_layers, num_blocks, shape.num_heads, block_size, stored_dim(shape.head_dim, dtype))
    stacks = [zeros(sizes, dtype, device) for _ in range(shape.num_parts)]
    if is_quantised(dtype):
        stacks += [zeros(sizes[:4], scale_type(dtype), device) for _ in range(shape.num_parts)]
    return stacks


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros. On the CPU they take up memory where they are first written: `torch.zeros` writes them all at once."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    num_bytes = math.prod(shape) * dtype.itemsize
    memory = np.zeros(num_bytes + ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT
    return torch.from_numpy(memory[begin : begin + num_bytes]).view(dtype).view(shape)
