"""From settings to a loaded model: device, number format, decoder, tokenizer, and how large the KV pool is.

Knows files, settings and device memory; it knows no requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from ...errors import ConfigError, ModelError
from ...kernels import FP8, INT4, use_threads
from ..capacity.window_memory import KVSizes, share_memory, slots_beside, widest_window
from ..config import CPU_POOL_BYTES, MOST_BLOCKS, EngineConfig
from ..device import find_device
from ..models import Adapter, Decoder, ModelConfig, resolve_model
from ..models.vector_rules import VectorRules
from ..models.weights import TORCH_TYPES
from ..tokenizer.tokenizer import Tokenizer
from .adapters import load_adapter
from .draft_kv import DraftKV
from .kv_cache import KVCache
from .window_kv import WindowKV

logger = logging.getLogger("phloem.loading")
TORCH_THREADS = torch.get_num_threads()  # as it is set before anything is loaded
# A model whose weights fit the second-level cache is computed faster by one core than by several in step.
ONE_THREAD_BYTES = 32 << 20
KV_DTYPES = {"fp8": FP8, "int8": torch.int8, "int4": INT4}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A decoder on its device, its tokenizer, adapters by name, and a draft model's decoder; `folder` is where the
    first two came from, if they came from one. `generates`: whether there are logits; `vectors`: how vectors are
    made; `switches_at`: as `Decoder.switch_ropes` has it."""

    decoder: Decoder
    tokenizer: Tokenizer
    device: torch.device
    dtype: torch.dtype
    kv_dtype: torch.dtype
    folder: Path | None = None
    adapters: Mapping[str, Adapter] = field(default_factory=dict)
    generates: bool = True
    vectors: VectorRules = VectorRules()
    draft_decoder: Decoder | None = None
    switches_at: int | None = None


def load(config: EngineConfig, report: Callable[[int, int], None] | None = None) -> LoadedModel:
    """Resolves the settings and loads the checkpoint. On the CPU it may set torch's number of threads.

    report: called with the numbers of layers that are loaded and of all layers.

    Raises:
        ConfigError: an unknown device or dtype, a context that is longer than the model's, or a draft model that does
            not go with it.
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
    draft = _draft_config(config, model)
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
    loaded = LoadedModel(
        decoder,
        tokenizer,
        device,
        dtype,
        kv_dtype,
        folder,
        adapters,
        generates=decoder.generates,
        vectors=vectors,
        switches_at=decoder.switch_ropes(),
    )
    return loaded if draft is None else replace(loaded, draft_decoder=_load_draft(config, loaded, draft))


def _draft_config(config: EngineConfig, model: ModelConfig) -> ModelConfig | None:
    """What the draft model is, if there is to be one.

    Raises:
        ConfigError: it has another number of token ids, or one of the two has recurrent layers, whose states cannot be
            taken back token by token.
    """
    name = config.speculative_model
    if name is None:
        return None
    try:
        draft = ModelConfig.from_folder(resolve_model(name))
    except ModelError as error:
        raise ConfigError(f"speculative_model: {error}") from error
    for one, which in ((model, "the model"), (draft, name)):
        if one.recurrent is not None:
            raise ConfigError(f"speculative_model: {which} has recurrent layers, with which no drafts go; leave it out")
    if draft.vocab_size != model.vocab_size:
        raise ConfigError(
            f"speculative_model: {name} has {draft.vocab_size} token ids, the model has {model.vocab_size}; take a "
            "smaller model of the same family whose embedding has as many rows"
        )
    draft.check_kv_type(config.kv_dtype)
    return draft


def _load_draft(config: EngineConfig, loaded: LoadedModel, draft: ModelConfig) -> Decoder:
    """The draft model, in the types of the model.

    Raises:
        ConfigError: its tokens are others.
    """
    assert config.speculative_model is not None
    folder = resolve_model(config.speculative_model)
    tokens, its = (_spellings(one, draft.vocab_size) for one in (loaded.tokenizer, Tokenizer.from_folder(folder)))
    first = next((index for index, pair in enumerate(zip(tokens, its, strict=True)) if pair[0] != pair[1]), None)
    if first is not None:
        raise ConfigError(
            f"speculative_model: {config.speculative_model} has another vocabulary: token {first} is {its[first]!r}, "
            f"the model's is {tokens[first]!r}; take a smaller model of the same family"
        )
    decoder = Decoder.from_folder(
        folder,
        device=loaded.device,
        dtype=loaded.dtype,
        max_positions=min(config.max_model_len or draft.max_position_embeddings, draft.max_position_embeddings),
        deterministic=config.deterministic,
        quantise=config.quantise,
    )
    if not (loaded.generates and decoder.generates):
        which = config.speculative_model if loaded.generates else "the model"
        raise ConfigError(f"speculative_model: {which} makes vectors and no text; leave it out")
    return decoder


def _spellings(tokenizer: Tokenizer, vocab_size: int) -> list[bytes | str]:
    """Of each token id; of special tokens their names."""
    names = {token_id: text for text, token_id in tokenizer.special_ids.items()}
    return [names.get(token_id, tokenizer.token_bytes(token_id)) for token_id in range(vocab_size)]


def allocate_pool(config: EngineConfig, loaded: LoadedModel) -> KVCache | WindowKV:
    """The KV tensors, as many blocks as the settings or the memory allow, a draft model's counted; and slots beside
    them, of a model with windows that are let go of (`window_of`)."""
    model, draft = loaded.decoder.config, loaded.draft_decoder
    sizes = pool_size(config, model, loaded.kv_dtype, loaded.device, None if draft is None else draft.config)
    if not sizes.num_slots:
        return _tensors(config, loaded, model, model.num_kv_layers, sizes.num_blocks)
    has_window = [layer.window > 0 for layer in model.layers]
    pool = _tensors(config, loaded, model, has_window.count(False), sizes.num_blocks)
    return WindowKV(pool, _tensors(config, loaded, model, sum(has_window), sizes.num_slots), has_window)


def allocate_draft_kv(config: EngineConfig, loaded: LoadedModel, num_blocks: int) -> DraftKV | None:
    """KV tensors of the draft model, for each block of the pool; None without one."""
    if loaded.draft_decoder is None:
        return None
    draft = loaded.draft_decoder.config
    return DraftKV(_tensors(config, loaded, draft, draft.num_kv_layers, num_blocks))


def _tensors(
    config: EngineConfig, loaded: LoadedModel, model: ModelConfig, num_layers: int, num_blocks: int
) -> KVCache:
    return KVCache(
        num_layers=num_layers,
        num_blocks=num_blocks,
        num_kv_heads=model.num_kv_heads,
        block_size=config.block_size,
        head_dim=model.head_dim,
        dtype=loaded.kv_dtype,
        device=loaded.device,
        num_parts=model.num_kv_parts,
    )


def pool_size(
    config: EngineConfig,
    model: ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
    draft: ModelConfig | None = None,
) -> KVSizes:
    """KV blocks, as set, or what the memory set aside for the pool holds of the model and of its draft model; and slots
    of layers with a window.

    Raises:
        ConfigError: the memory does not hold a single block.
    """
    window = window_of(config, model)
    if config.num_blocks is not None:
        return KVSizes(config.num_blocks, slots_beside(config.num_blocks, window, config.block_size) if window else 0)
    num_windowed = sum(layer.window > 0 for layer in model.layers) if window else 0
    slot_bytes = _block_bytes(config, model, num_windowed, dtype)
    block_bytes = _block_bytes(config, model, model.num_kv_layers - num_windowed, dtype)
    if draft is not None:
        block_bytes += _block_bytes(config, draft, draft.num_kv_layers, dtype)
    token_bytes = block_bytes + slot_bytes
    memory = config.kv_memory_bytes
    if memory is None:
        memory = CPU_POOL_BYTES
        if device.type == "cuda":
            memory = int(torch.cuda.mem_get_info(device)[0] * config.kv_memory_share)
        else:
            # On the CPU a pool larger than a few full contexts per running request only costs start-up time.
            wanted = config.max_running_requests * -(-model.max_position_embeddings // config.block_size)
            memory = min(memory, wanted * token_bytes)
    if memory < token_bytes:
        raise ConfigError(
            f"kv_memory_bytes: {memory} does not hold one block of {token_bytes} bytes"
            f" ({config.block_size} tokens); raise it or lower block_size"
        )
    sizes = share_memory(memory, block_bytes, slot_bytes, window, config.block_size)
    if sizes.num_blocks > MOST_BLOCKS:
        raise ConfigError(
            f"kv_memory_bytes: {memory} is {sizes.num_blocks} blocks of {config.block_size} tokens; at most"
            f" {MOST_BLOCKS} are numbered; lower it or raise block_size"
        )
    return sizes


def window_of(config: EngineConfig, model: ModelConfig) -> int:
    """The widest window of a model whose keys behind it make room; 0: all keys are kept, as with tiers below the pool,
    which take blocks of all layers."""
    longest = min(config.max_model_len or model.max_position_embeddings, model.max_position_embeddings)
    has_tiers = config.host_memory_bytes > 0 or config.disk_cache is not None or config.shared_cache is not None
    return 0 if has_tiers else widest_window(model, longest)


def _block_bytes(config: EngineConfig, model: ModelConfig, num_layers: int, dtype: torch.dtype) -> int:
    return KVCache.bytes_per_block(
        num_layers=num_layers,
        num_kv_heads=model.num_kv_heads,
        block_size=config.block_size,
        head_dim=model.head_dim,
        dtype=dtype,
        num_parts=model.num_kv_parts,
    )


def _dtype(name: str, model: ModelConfig, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.float32 if device.type == "cpu" else TORCH_TYPES[model.dtype]
    for known, dtype in TORCH_TYPES.items():
        if name == known:
            return dtype
    raise ConfigError(f"dtype: {name!r} is not one of auto, {', '.join(TORCH_TYPES)}")
