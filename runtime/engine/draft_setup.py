"""From settings to what drafts, by look-ups and by a model where there is one. Knows no requests."""

from __future__ import annotations

from collections.abc import Callable

from ...fsm import Vocabulary
from ..cache.prefix_cache import PrefixCache
from ..config import TARGET_STEP_SECONDS, EngineConfig
from ..execute.draft_kv import DraftKV
from ..execute.loading import LoadedModel
from ..execute.model_runner import ModelRunner
from ..execute.mtp_runner import MtpRunner
from ..execute.prefill_cost import PrefillCost
from ..sample.sampler import Sampler
from ..schedule.recompute_cost import recompute_cost
from ..speculate.draft import Drafter
from ..speculate.lookup import Lookups
from ..speculate.model_drafter import ModelDrafter


def make_drafter(
    config: EngineConfig,
    loaded: LoadedModel,
    vocabulary: Vocabulary,
    prefix_cache: PrefixCache,
    draft_kv: DraftKV | None,
    stopwatch: Callable[[], float],
) -> Drafter:
    """draft_kv: keys and values of the draft model, in the blocks of the pool; None without one."""
    lookups = None
    if config.lookup_drafts and config.max_draft_tokens:
        lookups = Lookups(vocabulary, loaded.decoder.config.vocab_size, config.max_draft_tokens)
    model = _make_model_drafter(config, loaded, draft_kv, stopwatch)
    return Drafter(config.jump, lookups, prefix_cache, config.max_draft_tokens, loaded.device.type, model)


def _make_model_drafter(
    config: EngineConfig, loaded: LoadedModel, kv: DraftKV | None, stopwatch: Callable[[], float]
) -> ModelDrafter | None:
    """None without a draft model. Its steps are launched kernel by kernel on a GPU, too."""
    decoder = loaded.draft_decoder
    if decoder is None or kv is None:
        return None
    device, model = loaded.device, decoder.config
    eos_ids = tuple(loaded.tokenizer.eos_ids)
    make_runner = MtpRunner if decoder.takes_hidden else ModelRunner
    return ModelDrafter(
        make_runner(decoder, kv.kv_cache, device, deterministic=config.deterministic),
        Sampler(model.vocab_size, eos_ids, device),
        kv,
        PrefillCost(recompute_cost(model, config.block_size), config.block_size),
        max_len=min(config.max_model_len or model.max_position_embeddings, model.max_position_embeddings),
        max_draft_tokens=config.max_draft_tokens,
        max_batch_tokens=config.max_batch_tokens,
        target_seconds=config.target_step_seconds or TARGET_STEP_SECONDS[device.type],
        device_type=device.type,
        eos_ids=eos_ids,
        stopwatch=stopwatch,
    )
