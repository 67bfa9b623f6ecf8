"""How memory for keys and values is shared between layers with a window and those without, from its size alone.

Layers without a window need keys of all tokens, in *blocks*; those with one only those of the last tokens before each
place where a request is or may resume, in *slots* (`cache.window_store`). Long sequences need many more blocks than
slots, those that are shorter than the window as many; with four blocks to a slot neither run out long before the
others, be the window one of 128 tokens or of 1,024::

    memory │ slots × slot_bytes │ blocks × block_bytes │     blocks = 4 × slots

Knows configurations and numbers only.
"""

from __future__ import annotations

from typing import NamedTuple

from ..models import ModelConfig

BLOCKS_PER_SLOT = 4
EMPTY_BLOCKS = 1 << 16  # of a model without attention, whose blocks hold nothing: 2^20 tokens in blocks of 16
CHUNK_SHARE = 4  # the tokens of a step take at most one n-th of all slots
LEAST_WINDOWS = 4  # that there are slots for; otherwise all keys are kept


class KVSizes(NamedTuple):
    """Blocks of layers without a window, and slots of those with one; 0 slots: all layers have blocks alone."""

    num_blocks: int
    num_slots: int


def widest_window(model: ModelConfig, longest: int) -> int:
    """Tokens that the layer with the widest window sees; 0: none has one, or it is as long as what is served.

    With latents or recurrent layers, all keys are kept.
    """
    window = max(layer.window for layer in model.layers)
    return window if 0 < window < longest and model.recurrent is None and model.latent is None else 0


def chunk_blocks(num_slots: int, block_size: int, max_batch_tokens: int) -> int:
    """Slots for the tokens of a step, which may be cut to as many."""
    return min(-(-max_batch_tokens // block_size), num_slots // CHUNK_SHARE)


def room_for_windows(num_slots: int, block_size: int, max_batch_tokens: int) -> int:
    """Slots that windows of running requests may take; the others are for the tokens of a step, and one for zeros."""
    return num_slots - 1 - chunk_blocks(num_slots, block_size, max_batch_tokens)


def most_blocks(window: int, block_size: int) -> int:
    """Blocks in which the last `window` tokens may lie, together with the next one."""
    return (window - 1) // block_size + 2


def share_memory(memory: int, block_bytes: int, slot_bytes: int, window: int, block_size: int) -> KVSizes:
    """For a pool of `memory` bytes.

    Args:
        block_bytes: of a block in all layers without a window; 0: there are none, and a block takes no memory.
        slot_bytes: of a block in all layers with one; 0: there are none.
    """
    if slot_bytes:
        num_slots = memory // (slot_bytes + BLOCKS_PER_SLOT * block_bytes)
        if num_slots >= _least(window, block_size):
            num_left = (memory - num_slots * slot_bytes) // block_bytes if block_bytes else BLOCKS_PER_SLOT * num_slots
            return KVSizes(num_left, num_slots)
    if not block_bytes + slot_bytes:
        return KVSizes(EMPTY_BLOCKS, 0)
    return KVSizes(memory // (block_bytes + slot_bytes), 0)


def slots_beside(num_blocks: int, window: int, block_size: int) -> int:
    """Slots beside a given number of blocks; 0: there are too few."""
    num_slots = num_blocks // BLOCKS_PER_SLOT
    return num_slots if num_slots >= _least(window, block_size) else 0


def _least(window: int, block_size: int) -> int:
    return LEAST_WINDOWS * most_blocks(window, block_size) + 1
