"""From settings and a loaded model to the parts of a core: tensors, prefix cache, request factory, scheduler, drafter.

Knows how these are made, and nothing of what they do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ...fsm import Compiler, Vocabulary
from ...radix import BlockCost
from ..byte_text import bytes_text
from ..cache.followers import Followers
from ..cache.prefix_cache import PrefixCache
from ..cache.slot_books import SlotBooks
from ..cache.state_slots import StateSlots
from ..cache.state_store import StateStore
from ..cache.window_slots import WindowSlots
from ..cache.window_store import WindowStore
from ..capacity.state_memory import most_running, needed_each
from ..config import TARGET_STEP_SECONDS, EngineConfig
from ..device import allocating
from ..execute.adapters import Adapters
from ..execute.draft_kv import DraftKV
from ..execute.kv_cache import KVCache
from ..execute.loading import LoadedModel
from ..execute.model_runner import ModelRunner
from ..execute.mtp_runner import MtpRunner
from ..execute.pool import allocate_draft_kv, allocate_pool, allocate_states, window_of
from ..execute.prefill_cost import PrefillCost
from ..execute.recurrent_states import RecurrentStates
from ..execute.window_kv import WindowKV
from ..kv_compress.fit import LayerGroups
from ..models import ModelConfig
from ..models.rope import can_turn_back
from ..sample.sampler import Sampler
from ..schedule.recompute_cost import recompute_cost
from ..schedule.rope_switch import RopeSwitch
from ..schedule.scheduler import Scheduler
from ..speculate.draft import Drafter
from ..speculate.lookup import Lookups
from ..speculate.model_drafter import ModelDrafter
from .request_factory import RequestFactory


@dataclass(frozen=True, slots=True)
class Allocated:
    """An engine's tensors besides weights, and the books of those in slots.

    Attributes:
        kv_cache: keys and values. states: of recurrent layers. draft_kv: of a draft model, in the same blocks.
    """

    kv_cache: KVCache | WindowKV
    states: RecurrentStates | None
    draft_kv: DraftKV | None
    slots: SlotBooks

    @staticmethod
    def of(config: EngineConfig, loaded: LoadedModel) -> Allocated:
        """Raises ConfigError: the memory does not hold them."""
        size = "the states" if config.state_memory_bytes is None else bytes_text(config.state_memory_bytes)
        with allocating(f"state_memory_bytes (--state-memory): {size}", loaded.device):
            states = allocate_states(config, loaded)
        with allocating(_pool_setting(config), loaded.device):
            kv_cache = allocate_pool(config, loaded, 0 if states is None else states.num_slots)
            draft_kv = allocate_draft_kv(config, loaded, kv_cache)
        slots = _slot_books(config, loaded.decoder.config, kv_cache, states)
        return Allocated(kv_cache, states, draft_kv, slots)

    @property
    def pool(self) -> KVCache:
        """Of layers that see all tokens."""
        return self.kv_cache.pool if isinstance(self.kv_cache, WindowKV) else self.kv_cache


def _pool_setting(config: EngineConfig) -> str:
    """What says how large the pool is, and its value."""
    if config.num_blocks is not None:
        return f"num_blocks (--num-blocks): a pool of {config.num_blocks} blocks"
    if config.kv_memory_bytes is not None:
        return f"kv_memory_bytes (--kv-memory): a pool of {bytes_text(config.kv_memory_bytes)}"
    return f"kv_memory_share (--kv-memory-share): a pool of {config.kv_memory_share:.0%} of what was free"


def _slot_books(
    config: EngineConfig, model: ModelConfig, kv_cache: KVCache | WindowKV, tensors: RecurrentStates | None
) -> SlotBooks:
    """Whose the slots of these tensors are."""
    states, windows = None, None
    if tensors is not None:
        states = StateStore(
            StateSlots(tensors.num_slots, config.block_size),
            interval=config.state_interval,
            keeps=config.prefix_cache,
            at_blocks=config.has_tiers,
        )
    if not isinstance(kv_cache, WindowKV):
        return SlotBooks(states, windows, tensors)
    windows = WindowStore(
        WindowSlots(kv_cache.num_slots, kv_cache.num_blocks),
        config.block_size,
        window_of(config, model),
        in_chunks=any(layer.in_chunks for layer in model.layers),
        max_batch_tokens=config.max_batch_tokens,
        keeps=config.prefix_cache,
    )
    return SlotBooks(states, windows, tensors, kv_cache.windowed)


def make_prefix_cache(
    config: EngineConfig,
    tensors: Allocated,
    followers: Followers | None,
    block_cost: BlockCost,
    clock: Callable[[], float],
) -> PrefixCache:
    num_blocks = tensors.kv_cache.num_blocks
    return PrefixCache(
        num_blocks=num_blocks,
        block_size=config.block_size,
        kv_cache=tensors.pool,
        enabled=config.prefix_cache,
        eviction_policy=config.eviction_policy,
        block_cost=block_cost,
        explain_namespaces=config.explain_namespaces,
        max_pinned_blocks=num_blocks // 4 if config.max_pinned_blocks is None else config.max_pinned_blocks,
        followers=followers,
        slots=tensors.slots,
        draft_kv=tensors.draft_kv,
        clock=clock,
    )


def make_request_factory(
    config: EngineConfig,
    loaded: LoadedModel,
    compiler: Compiler,
    adapters: Adapters,
    tensors: Allocated,
    max_model_len: int,
) -> RequestFactory:
    model = loaded.decoder.config
    return RequestFactory(
        config,
        loaded.tokenizer,
        compiler,
        adapters,
        max_model_len=max_model_len,
        pool_len=tensors.kv_cache.num_blocks * config.block_size,
        vocab_size=model.vocab_size,
        groups=LayerGroups.of(model.layers, max_model_len, has_states=tensors.states is not None),
        has_logits=loaded.generates,
        is_on_gpu=loaded.device.type == "cuda",
        turns_keys=loaded.switches_at is None and can_turn_back(model),
    )


def make_scheduler(
    config: EngineConfig,
    loaded: LoadedModel,
    prefix_cache: PrefixCache,
    prefill: PrefillCost,
    tensors: Allocated,
    rope_switch: RopeSwitch,
    clock: Callable[[], float],
) -> Scheduler:
    windows, states, most = tensors.slots.windows, tensors.states, config.max_running_requests
    if states is not None:
        most = min(most, most_running(states.num_slots, needed_each(config.has_tiers)))
    return Scheduler(
        prefix_cache,
        prefill,
        max_batch_tokens=config.max_batch_tokens if windows is None else windows.most_step_tokens,
        target_step_seconds=config.target_step_seconds or TARGET_STEP_SECONDS[loaded.device.type],
        max_running_requests=most,
        max_overtakes=config.max_overtakes,
        max_wait_seconds=config.max_wait_seconds,
        clock=clock,
        rope_switch=rope_switch,
    )


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


def stopwatch_of(loaded: LoadedModel) -> Callable[[], float]:
    """The CPU time of the thread that steps if it computes the model, where other processes must not count."""
    waits = loaded.device.type != "cpu" or loaded.processes is not None
    return time.monotonic if waits else time.thread_time
