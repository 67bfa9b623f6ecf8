"""From settings to a loaded model: device, number format, decoder, tokenizer, and how large the KV pool is.

Knows files, settings and device memory; it knows no requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ...errors import ConfigError
from ...kernels import FP8, use_threads
from ..config import CPU_POOL_BYTES, MOST_BLOCKS, EngineConfig
from ..device import find_device
from ..models import Adapter, Decoder, ModelConfig, resolve_model
from ..models.vector_rules import VectorRules
from ..models.weights import TORCH_TYPES
from ..tokenizer.tokenizer import Tokenizer
from .adapters import load_adapter
from .kv_cache import KVCache

logger = logging.getLogger("phloem.loading")
TORCH_THREADS = torch.get_num_threads()  # as it is set before anything is loaded
# A model whose weights fit the second-level cache is computed faster by one core than by several in step.
ONE_THREAD_BYTES = 32 << 20
KV_DTYPES = {"fp8": FP8, "int8": torch.int8}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A decoder on its device, its tokenizer, and adapters by name; `folder` is where the first two came
    from, if they came from one. `generates`: whether there are logits; `vectors`: how vectors are made."""

    decoder: Decoder
    tokenizer: Tokenizer
    device: torch.device
    dtype: torch.dtype
    kv_dtype: torch.dtype
    folder: Path | None = None
    adapters: Mapping[str, Adapter] = field(default_factory=dict)
    generates: bool = True
    vectors: VectorRules = VectorRules()


def load(config: EngineConfig, report: Callable[[int, int], None] | None = None) -> LoadedModel:
    """Resolves the settings and loads the checkpoint. On the CPU it may set torch's number of threads.

    report: called with the numbers of layers that are loaded and of all layers.

    Raises:
        ConfigError: an unknown device or dtype, or a context that is longer than the model's.
        ModelError: the checkpoint cannot be loaded.
    """
    device = find_device(config.device)
    folder = resolve_model(config.model)
    model = ModelConfig.from_folder(folder)
    vectors = VectorRules.from_folder(folder)
    longest = model.max_position_embeddings
    if config.max_model_len is not None and config.max_model_len > longest:
        raise ConfigError(
            f"max_model_len: {config.max_model_len} is more than the {longest} tokens that the model was made for;"
            " lower it, or leave it out"
        )
    dtype = _dtype(config.dtype, model, device)
    kv_dtype = KV_DTYPES.get(config.kv_dtype, dtype)
    model.check_kv_type(config.kv_dtype)
    if kv_dtype == FP8 and device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 9):
        raise ConfigError('kv_dtype: "fp8" needs a GPU of compute capability 8.9 or above; use "int8"')
    if config.quantise != "none" and (device.type, dtype) != ("cpu", torch.float32):
        where = f"{str(dtype).removeprefix('torch.')} on {device.type}"
        raise ConfigError(
            f'quantise: "{config.quantise}" works in float32 on the CPU, not in {where}; leave it "none", or give '
            'device="cpu" and dtype="float32"'
        )
    if device.type == "cpu":
        # in fp32 nothing large is left to torch, whose threads would stand in the way of the team's
        torch.set_num_threads(1 if dtype is torch.float32 else config.num_threads or TORCH_THREADS)
    decoder = Decoder.from_folder(
        folder,
        device=device,
        dtype=dtype,
        max_positions=config.max_model_len,
        deterministic=config.deterministic,
        quantise=config.quantise,
        report=report,
    )
    adapters = {name: load_adapter(name, place, model, device, dtype) for name, place in config.adapters.items()}
    if device.type == "cpu":
        is_small = decoder.num_weight_bytes <= ONE_THREAD_BYTES
        num_threads = config.num_threads or (1 if is_small else TORCH_THREADS)
        use_threads(num_threads)
        if dtype is not torch.float32:
            torch.set_num_threads(num_threads)
    tokenizer = Tokenizer.from_folder(folder)
    if not tokenizer.has_text:
        logger.warning(
            "%s: no tokenizer.json and no tokenizer.model: token ids go in and come out, and no text", folder
        )
    _tell_of_long_ropes(model, decoder.max_positions)
    return LoadedModel(
        decoder, tokenizer, device, dtype, kv_dtype, folder, adapters, generates=decoder.generates, vectors=vectors
    )


def _tell_of_long_ropes(model: ModelConfig, max_positions: int) -> None:
    """transformers takes the short factors while a sequence is short; a key in the cache must not depend on that."""
    for rope in model.ropes:
        if rope.takes_long_factors(max_positions) and rope.short_factor != rope.long_factor:
            logger.warning(
                "longrope: up to %d tokens are served, so the long factors hold for all sequences: a cached key must "
                "not depend on how long its sequence becomes. transformers takes the short ones below %d tokens; "
                "max_model_len=%d does too",
                max_positions,
                rope.original_max_positions,
                rope.original_max_positions,
            )


def allocate_pool(config: EngineConfig, loaded: LoadedModel) -> KVCache:
    """The KV tensors, as many blocks as the settings or the memory allow."""
    model = loaded.decoder.config
    return KVCache(
        num_layers=model.num_kv_layers,
        num_blocks=pool_size(config, model, loaded.kv_dtype, loaded.device),
        num_kv_heads=model.num_kv_heads,
        block_size=config.block_size,
        head_dim=model.head_dim,
        dtype=loaded.kv_dtype,
        device=loaded.device,
        num_parts=model.num_kv_parts,
    )


def pool_size(config: EngineConfig, model: ModelConfig, dtype: torch.dtype, device: torch.device) -> int:
    """Number of KV blocks: as set, or what the memory set aside for the pool holds.

    Raises:
        ConfigError: the memory does not hold a single block.
    """
    if config.num_blocks is not None:
        return config.num_blocks
    block_bytes = KVCache.bytes_per_block(
        num_layers=model.num_kv_layers,
        num_kv_heads=model.num_kv_heads,
        block_size=config.block_size,
        head_dim=model.head_dim,
        dtype=dtype,
        num_parts=model.num_kv_parts,
    )
    memory = config.kv_memory_bytes
    if memory is None:
        memory = CPU_POOL_BYTES
        if device.type == "cuda":
            memory = int(torch.cuda.mem_get_info(device)[0] * config.kv_memory_share)
        else:
            # On the CPU a pool larger than a few full contexts per running request only costs start-up time.
            wanted = config.max_running_requests * -(-model.max_position_embeddings // config.block_size)
            memory = min(memory, wanted * block_bytes)
    if memory < block_bytes:
        raise ConfigError(
            f"kv_memory_bytes: {memory} does not hold one block of {block_bytes} bytes"
            f" ({config.block_size} tokens); raise it or lower block_size"
        )
    if memory // block_bytes > MOST_BLOCKS:
        raise ConfigError(
            f"kv_memory_bytes: {memory} is {memory // block_bytes} blocks of {block_bytes} bytes; at most {MOST_BLOCKS}"
            " are numbered; lower it or raise block_size"
        )
    return memory // block_bytes


def _dtype(name: str, model: ModelConfig, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.float32 if device.type == "cpu" else TORCH_TYPES[model.dtype]
    for known, dtype in TORCH_TYPES.items():
        if name == known:
            return dtype
    raise ConfigError(f"dtype: {name!r} is not one of auto, {', '.join(TORCH_TYPES)}")
