"""From settings to a loaded model: device, number format, decoder, tokenizer; and the processes of its other ranks.

Knows files and settings; it knows no requests, and no memory but that of weights (`pool.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

import torch

from ...errors import ConfigError, ModelError
from ...kernels import KV_FORMATS, use_threads
from ..capacity.draft_config import draft_config
from ..capacity.longest import longest_of
from ..config import MTP, EngineConfig
from ..device import find_device
from ..models import Adapter, Decoder, ModelConfig, resolve_model
from ..models.cut import Cut
from ..models.fitted_vocabulary import FittedVocabulary
from ..models.mtp import MtpDecoder
from ..models.vector_rules import VectorRules
from ..models.weights import TORCH_TYPES
from ..parallel.message import Message
from ..parallel.rank_processes import RankProcesses
from ..parallel.ranks import ALONE, RankLost, Ranks
from ..tokenizer.tokenizer import Tokenizer
from .adapters import load_adapter

logger = logging.getLogger("phloem.loading")
TORCH_THREADS = torch.get_num_threads()  # as it is set before anything is loaded
# A model whose weights fit the second-level cache is computed faster by one core than by several in step.
ONE_THREAD_BYTES = 32 << 20
DraftDecoder = Decoder | FittedVocabulary


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A decoder on its device, its tokenizer, adapters by name, and a draft model's decoder; `folder` is where the
    first two came from, if they came from one. `generates`: whether there are logits; `vectors`: how vectors are
    made; `switches_at`: as `Decoder.switch_ropes` has it. `cut`: of the whole model, the decoder's part; `processes`:
    those that have the other parts."""

    decoder: Decoder
    tokenizer: Tokenizer
    device: torch.device
    dtype: torch.dtype
    kv_dtype: torch.dtype
    folder: Path | None = None
    adapters: Mapping[str, Adapter] = field(default_factory=dict)
    generates: bool = True
    vectors: VectorRules = VectorRules()
    draft_decoder: DraftDecoder | None = None
    switches_at: int | None = None
    cut: Cut | None = None
    processes: RankProcesses | None = None


@dataclass(frozen=True, slots=True)
class LoadedPart:
    """What one rank has in memory of a model that was loaded; the rank alone, as a rule, has all of it."""

    decoder: Decoder
    device: torch.device
    dtype: torch.dtype
    kv_dtype: torch.dtype
    adapters: Mapping[str, Adapter]


def load(
    config: EngineConfig,
    report: Callable[[int, int], None] | None = None,
    processes: RankProcesses | None = None,
) -> LoadedModel:
    """Resolves the settings and loads the checkpoint. On the CPU it may set torch's number of threads.

    report: called with the numbers of layers that are loaded and of all layers. processes: of the other ranks, where
    they run already; None: they are started, if the settings ask for several ranks.

    Raises:
        ConfigError: an unknown device or dtype, a context that is longer than the model's, a draft model that does not
            go with it, or ranks that cannot share the model or be started.
        ModelError: the checkpoint cannot be loaded.
    """
    device, size = find_device(config.device, config.tensor_parallel_size), config.tensor_parallel_size
    folder = resolve_model(config.model)
    model = ModelConfig.from_folder(folder)
    vectors = VectorRules.from_folder(folder)
    draft = None
    if config.speculative_model is not None:
        draft = draft_config(config.speculative_model, folder, model, num_ranks=size, kv_dtype=config.kv_dtype)
    if size == 1:
        part = load_part(config, device, ALONE, report)
    else:
        Cut(model, Ranks(0, size))  # before processes are started
        if processes is None:
            seconds, in_order = config.rank_timeout_seconds, config.deterministic
            processes = RankProcesses(size, device, seconds, deterministic=in_order)
        part = _load_parts(replace(config, model=str(folder)), device, processes, report)
    tokenizer = Tokenizer.from_folder(folder)
    if not tokenizer.has_text:
        logger.warning(
            "%s: no tokenizer.json, tokenizer.model or tekken.json: token ids go in and come out, and no text", folder
        )
    loaded = LoadedModel(
        part.decoder,
        tokenizer,
        device,
        part.dtype,
        part.kv_dtype,
        folder,
        part.adapters,
        generates=part.decoder.generates,
        vectors=vectors,
        switches_at=part.decoder.switch_ropes(),
        cut=part.decoder.cut,
        processes=processes,
    )
    return loaded if draft is None else replace(loaded, draft_decoder=_load_draft(config, loaded, draft))


def load_part(
    config: EngineConfig,
    device: torch.device,
    ranks: Ranks,
    report: Callable[[int, int], None] | None = None,
) -> LoadedPart:
    """Loads what a rank has of the checkpoint. Raises ConfigError and ModelError as `load` does."""
    folder = resolve_model(config.model)
    model = ModelConfig.from_folder(folder)
    longest_of(model, config.max_model_len)
    dtype = _dtype(config.dtype, model, device)
    rounded = KV_FORMATS.get(config.kv_dtype)
    kv_dtype = dtype if rounded is None else rounded.dtype
    model.check_kv_type(config.kv_dtype)
    least = (0, 0) if rounded is None else rounded.least_capability
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < least:
        text = f'"{config.kv_dtype}" needs a GPU of compute capability {least[0]}.{least[1]} or above; use "int8"'
        raise ConfigError(f"kv_dtype: {text}")
    if config.quantise != "none" and (device.type, dtype) != ("cpu", torch.float32):
        where = f"{str(dtype).removeprefix('torch.')} on {device.type}"
        raise ConfigError(
            f'quantise: "{config.quantise}" works in float32 on the CPU, not in {where}; leave it "none", or give '
            'device="cpu" and dtype="float32"'
        )
    most_threads = max(1, TORCH_THREADS // ranks.size)
    if device.type == "cpu":
        # in fp32 nothing large is left to torch, whose threads would stand in the way of the team's
        torch.set_num_threads(1 if dtype is torch.float32 else config.num_threads or most_threads)
    decoder = Decoder.from_folder(
        folder,
        device=device,
        dtype=dtype,
        max_positions=config.max_model_len,
        deterministic=config.deterministic,
        quantise=config.quantise,
        report=report,
        ranks=ranks,
    )
    adapters = {name: load_adapter(name, at, model, device, dtype, decoder.cut) for name, at in config.adapters.items()}
    if device.type == "cpu":
        is_small = decoder.num_weight_bytes <= ONE_THREAD_BYTES
        num_threads = config.num_threads or (1 if is_small else most_threads)
        use_threads(num_threads)
        if dtype is not torch.float32:
            torch.set_num_threads(num_threads)
    return LoadedPart(decoder, device, dtype, kv_dtype, adapters)


def _load_parts(
    config: EngineConfig, device: torch.device, processes: RankProcesses, report: Callable[[int, int], None] | None
) -> LoadedPart:
    """Loads the parts of all ranks at once, and returns that of rank 0.

    Raises:
        ConfigError, ModelError: as `load` does; of a rank that was lost the processes are closed.
    """
    own = replace(config, speculative_model=None, kv_events_config=None, role="both")
    try:
        processes.tell(Message("load", asdict(own)))
        try:
            part = load_part(config, device, processes.ranks, report)
        except (ConfigError, ModelError):  # the others have refused it too
            with suppress(ConfigError, ModelError):
                processes.replies()
            raise
        for reply in processes.replies():
            _check_adapters(part.adapters, reply["adapters"])
    except RankLost as error:
        processes.close()
        raise ConfigError(f"tensor_parallel_size: {error}") from error
    except BaseException:
        processes.end_model()
        raise
    return part


def _check_adapters(own: Mapping[str, Adapter], found: Mapping[str, str]) -> None:
    """Raises ConfigError: another rank has found other adapters; found: their fingerprints."""
    for name, adapter in own.items():
        if found[name] != adapter.fingerprint:
            raise ConfigError(f"adapters: {name}: {adapter.folder} changed while the ranks read it; start again")


def _load_draft(config: EngineConfig, loaded: LoadedModel, draft: ModelConfig) -> DraftDecoder:
    """The draft model, in the types of the model.

    Raises:
        ConfigError: its tokens are others, or the checkpoint lacks its MTP layer.
    """
    name = config.speculative_model
    assert name is not None
    decoder = _load_mtp(config, loaded) if name == MTP else _load_other(config, loaded, name, draft)
    if not (loaded.generates and decoder.generates):
        which = name if loaded.generates else "the model"
        raise ConfigError(f"speculative_model: {which} makes vectors and no text; leave it out")
    return decoder


def _load_mtp(config: EngineConfig, loaded: LoadedModel) -> Decoder:
    assert loaded.folder is not None
    deterministic, quantise = config.deterministic, config.quantise
    try:
        return MtpDecoder.of(loaded.decoder, loaded.folder, deterministic=deterministic, quantise=quantise)
    except ModelError as error:
        raise ConfigError(f"speculative_model: {error}; take the checkpoint as it was published") from error


def _load_other(config: EngineConfig, loaded: LoadedModel, name: str, draft: ModelConfig) -> DraftDecoder:
    folder, vocab_size = resolve_model(name), loaded.decoder.config.vocab_size
    tokens, its = _spellings(loaded.tokenizer), _spellings(Tokenizer.from_folder(folder))
    for token_id, (one, other) in enumerate(zip_longest(tokens, its, fillvalue=b"")):
        if one != other:
            raise ConfigError(
                f"speculative_model: {name} has another vocabulary: token {token_id} is {other!r}, the model's is "
                f"{one!r}; take a smaller model of the same family"
            )
    if draft.vocab_size != vocab_size and not tokens:
        raise ConfigError(
            f"speculative_model: {name} has {draft.vocab_size} token ids, the model has {vocab_size}, and no tokenizer "
            "says which of them are tokens; put the tokenizer's files into both folders"
        )
    decoder = Decoder.from_folder(
        folder,
        device=loaded.device,
        dtype=loaded.dtype,
        max_positions=min(config.max_model_len or draft.max_position_embeddings, draft.max_position_embeddings),
        deterministic=config.deterministic,
        quantise=config.quantise,
    )
    return decoder if draft.vocab_size == vocab_size else FittedVocabulary(decoder, vocab_size, len(tokens))


def _spellings(tokenizer: Tokenizer) -> list[bytes | str]:
    """Of each token id, without those at the end that are no tokens; of special tokens their names."""
    names = {token_id: text for text, token_id in tokenizer.special_ids.items()}
    found = [names.get(token_id, tokenizer.token_bytes(token_id)) for token_id in range(tokenizer.vocab_size)]
    while found and not found[-1]:
        found.pop()
    return found


def _dtype(name: str, model: ModelConfig, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.float32 if device.type == "cpu" else TORCH_TYPES[model.dtype]
    for known, dtype in TORCH_TYPES.items():
        if name == known:
            return dtype
    raise ConfigError(f"dtype: {name!r} is not one of auto, {', '.join(TORCH_TYPES)}")
