"""Tile shapes, warps and pipeline depth of every Triton kernel: a table, chosen by our code, not by timing runs.

Autotuning would make the first call slow and, worse, results would differ between runs. What is here was chosen by
compiling (`scripts/check_kernels.py` prints registers, shared memory and buffers in flight of each entry) and is
to be confirmed by timing (`bench/studies/attention.py`). It knows shapes and types, no tensors and no Triton.
"""

from __future__ import annotations

from dataclasses import dataclass

BLOCK_ROWS = (16, 32, 64, 128)  # tile classes of attention, by number of query rows
SPLIT_SIZE = 256  # keys per split of the absolute grid; a multiple of every block_keys


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """One launch of the attention kernel. max_registers: per thread; None: the compiler decides."""

    block_rows: int
    block_keys: int
    num_warps: int
    num_stages: int
    max_registers: int | None = None


@dataclass(frozen=True, slots=True)
class SharingCosts:
    """When it pays on a GPU to read keys that several requests share together, in keys of one KV head.

    Sharing saves reading keys. It costs partial results, which are written and read again: `partial` keys for each (row
    and split), and `launch_bytes` for merging them at all, as many bytes of KV as could be read meanwhile.
    """

    partial: float
    launch_bytes: float


# A partial is head_dim + 2 floats, twice, and a key 4 head_dim bytes of K and V in 16 bits: two keys, and as much again
# to be sure. A launch inside a graph is about a microsecond. From bytes; `bench/studies/attention.py --fit` would tell.
SHARING_COSTS = SharingCosts(partial=4.0, launch_bytes=4e6)


def tile_classes(
    head_dim: int, deterministic: bool, itemsize: int = 2, quantised: bool = False, seen: bool = False
) -> tuple[int, ...]:
    """The tile classes that fit registers and shared memory everywhere; itemsize: bytes of a number of the queries.

    deterministic: one, hence one MMA instruction for all steps. seen: scores are kept, for which wide tiles have
    no registers; no deterministic step does that.
    """
    if seen and not deterministic:
        return (16, 32)
    if head_dim > 256:  # latents, and Gemma 4's heads of 512
        return (16,) if deterministic or itemsize == 4 else (16, 32)
    if head_dim > 128 or (itemsize == 4 and (head_dim > 64 or quantised)):
        return (32,) if deterministic else (16, 32)
    return (64,) if deterministic else BLOCK_ROWS


def folds_splits(block_rows: int, head_dim: int) -> bool:
    """Whether a walk in this class has room for a second sum, that of the splits so far."""
    return block_rows < (32 if head_dim > 256 else 128)


def attention_config(
    block_rows: int, folds: bool, head_dim: int, itemsize: int, quantised: bool = False, seen: bool = False
) -> AttentionConfig:
    """How to launch a tile class.

    num_stages 5 gives two buffers each of K and V in flight: Triton spends stages on the block-table load
    inside the loop, so that 2 to 4 give a single buffer and no overlap at all (7 would give three). folds: a second
    sum is kept, of the splits so far. quantised: keys and values of one byte, which are widened in registers. seen:
    scores are kept, which takes registers.

    Left to itself (max_registers None) the compiler takes what it likes, or spills a few words where that makes room
    for one more program on a multiprocessor; 168 registers a thread are what three programs of four warps find there.
    """
    if itemsize == 4:  # no tensor cores: many threads, few keys at a time
        num_warps = 16 if block_rows == 128 else 8
        registers = most_registers(num_warps) if block_rows >= 64 else None
        if block_rows == 16 and head_dim <= 64 and not folds and not quantised:
            registers = 80  # three programs of eight warps; the compiler alone would spill to fit a fourth
        block_keys = 8 if head_dim > 256 else 16 if head_dim > 64 else 32
        return AttentionConfig(block_rows, block_keys, num_warps, 5, registers)
    is_one_of_three = block_rows == 16 and head_dim <= 128 and not seen
    if quantised:
        num_warps = 8 if block_rows * head_dim >= 32 * 96 else 4
        return AttentionConfig(block_rows, 32, num_warps, 5, 168 if is_one_of_three else most_registers(num_warps))
    block_keys = 32 if head_dim > 128 or block_rows * head_dim > 64 * 128 else 64
    block_keys = 16 if head_dim > 256 else block_keys
    num_warps = 4 if block_rows * head_dim <= (16 if seen else 32) * 128 else 8
    if block_rows == 16 and head_dim <= 64 and not seen:  # four programs; some compilers would spill to fit a fifth
        return AttentionConfig(block_rows, block_keys, num_warps, 5, 128)
    return AttentionConfig(block_rows, block_keys, num_warps, 5, 168 if is_one_of_three else most_registers(num_warps))


def most_registers(num_warps: int) -> int:
    """Registers per thread that a program may have: 255, or its share of the multiprocessor's 65536."""
    return min(255, 65536 // (32 * num_warps) // 8 * 8)


def latent_config(block_rows: int, itemsize: int) -> AttentionConfig:
    """How to launch a tile class of attention over latents, whose keys are four times as wide as those of heads."""
    return AttentionConfig(block_rows, 32 if itemsize == 2 and block_rows == 16 else 16, 8, 5)


GROUPED_STAGES = {128: 4, 64: 5, 32: 6}  # short steps take more of them in flight


@dataclass(frozen=True, slots=True)
class ExpertsConfig:
    """One launch of the product of rows with their experts' weights: outputs and inputs of a tile."""

    block_rows: int
    block_outputs: int
    block_depth: int
    num_warps: int
    num_stages: int


def experts_config(num_pairs: int, num_experts: int, itemsize: int, *, deterministic: bool) -> ExpertsConfig:
    """How to multiply num_pairs rows with the weights of num_experts experts.

    With few rows for each expert the product is bound by reading weights, and a tile is as narrow as the tensor cores
    have it. deterministic: one tile for all steps, hence one MMA instruction.
    """
    if itemsize == 4:
        return ExpertsConfig(16, 64, 32, 4, 3)
    if deterministic or num_pairs > 16 * num_experts:
        return ExpertsConfig(64, 128, 64, 8, 3)
    return ExpertsConfig(16, 64, 128, 4, 4)


def mxfp4_config(num_pairs: int, num_experts: int, *, deterministic: bool) -> ExpertsConfig:
    """How to multiply num_pairs rows of bf16 with the weights of num_experts experts in MXFP4."""
    if deterministic or num_pairs > 16 * num_experts:
        return ExpertsConfig(64, 128, 128, 8, 3)
    return ExpertsConfig(16, 64, 128, 4, 4)


def grouped_experts_config(num_pairs: int, num_experts: int, step: int, *, deterministic: bool) -> ExpertsConfig:
    """How to multiply num_pairs rows with num_experts experts' weights of few bits; step: inputs per iteration."""
    if deterministic or num_pairs > 16 * num_experts:
        return ExpertsConfig(64, 128, step, 8, GROUPED_STAGES[step])
    return ExpertsConfig(16, 64, step, 4, GROUPED_STAGES[step])


def int8_experts_config(num_pairs: int, num_experts: int, *, deterministic: bool) -> ExpertsConfig:
    """How to multiply num_pairs rows of int8 with num_experts experts' weights of int8; rows as in the others."""
    if deterministic or num_pairs > 16 * num_experts:
        return ExpertsConfig(64, 128, 128, 8, 3)
    return ExpertsConfig(16, 64, 128, 4, 4)


MANY_PROGRAMS = 264  # what a large device runs at once: two programs on each of 132 multiprocessors
LEAST_SPLIT = 256  # inputs


@dataclass(frozen=True, slots=True)
class LinearConfig:
    """One launch of the product of rows with a weight, in deterministic mode."""

    block_rows: int
    block_outputs: int
    block_depth: int
    num_warps: int
    num_stages: int
    splits: bool  # a program has one split of the inputs; else it walks all


def linear_config(num_rows: int, itemsize: int) -> LinearConfig:
    """How to multiply num_rows rows.

    A Hopper instruction multiplies 64 rows; 128 are two of them side by side, so all launches of a type execute
    the same one, over as many outputs and in the same steps of depth.
    """
    if itemsize == 4:  # no tensor cores
        return LinearConfig(32, 64, 32, 4, 3, splits=num_rows <= 64)
    if num_rows <= 64:
        return LinearConfig(64, 128, 64, 4, 4, splits=True)
    return LinearConfig(128, 128, 64, 8, 3, splits=False)


def grouped_config(num_rows: int, step: int, *, deterministic: bool) -> LinearConfig:
    """How to multiply num_rows rows with a weight of few bits; step: inputs per iteration.

    Rows are the right side of the product, whose width is part of the instruction: deterministic launches have one.
    """
    num_stages = GROUPED_STAGES[step]
    if deterministic:
        return LinearConfig(64, 128, step, 8, num_stages, splits=num_rows <= 64)
    if num_rows <= 16:
        return LinearConfig(16, 64, step, 4, num_stages, splits=True)
    return LinearConfig(64, 128, step, 8, num_stages, splits=num_rows <= 64)


def int8_config(num_rows: int) -> LinearConfig:
    """How to multiply num_rows rows of int8 with int8. Whole numbers may be summed by any instruction."""
    if num_rows <= 16:
        return LinearConfig(16, 64, 128, 4, 4, splits=True)
    return LinearConfig(64, 128, 128, 8, 3, splits=num_rows <= 64)


def linear_splits(num_outputs: int, depth: int) -> int:
    """Into how many splits the inputs of a weight are cut: such that few rows are work for all processors.

    A matter of the weight's shape alone, for its sums are ordered by it: neither of the rows nor of the device.
    """
    num_tiles = -(-num_outputs // 128)
    return max(1, min(MANY_PROGRAMS // num_tiles, depth // LEAST_SPLIT))


def elementwise_warps(width: int) -> int:
    """Warps for a row of `width` elements: about eight elements a thread, 1 to 16 warps."""
    return max(1, min(16, width // 256))
