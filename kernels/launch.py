"""Tile shapes, warps and pipeline depth of every Triton kernel: a table, chosen by our code, not by timing runs.

Autotuning would make the first call slow and, worse, the numbers depend on the day. What is here was chosen by
compiling (`scripts/check_kernels.py` prints registers, shared memory and buffers in flight of each entry) and is
to be confirmed by timing (`bench/attention.py`). It knows shapes and types, no tensors and no Triton.
"""

from __future__ import annotations

from dataclasses import dataclass

BLOCK_ROWS = (16, 32, 64)  # tile classes of attention, by number of query rows
DETERMINISTIC_BLOCK_ROWS = 64  # one class, hence one MMA instruction, for decode and prefill alike
SPLIT_SIZE = 256  # keys per split of the absolute grid; a multiple of every block_keys


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """One launch of the attention kernel."""

    block_rows: int
    block_keys: int
    num_warps: int
    num_stages: int


def largest_block_rows(head_dim: int) -> int:
    """The widest tile class whose two sums, of a split and of all splits so far, fit the registers."""
    return 32 if head_dim > 128 else 64


def attention_config(block_rows: int, head_dim: int, itemsize: int, quantised: bool = False) -> AttentionConfig:
    """How to launch a tile class.

    num_stages 5 gives two buffers each of K and V in flight: Triton spends stages on the block-table load
    inside the loop, so that 2 to 4 give a single buffer and no overlap at all (7 would give three). quantised: keys and
    values of one byte, which are widened in registers; the widest class has none to spare for 64 of them.
    """
    block_keys = 64
    if head_dim > 128 or itemsize == 4 or (quantised and block_rows * head_dim >= 64 * 96):
        block_keys = 32
    if head_dim > 128 and itemsize == 4:
        block_keys = 16
    num_warps = 8 if block_rows * head_dim >= 32 * 96 else 4
    return AttentionConfig(block_rows, block_keys, num_warps, 5)


def elementwise_warps(width: int) -> int:
    """Warps for a row of `width` elements: about eight elements a thread, 1 to 16 warps."""
    return max(1, min(16, width // 256))
