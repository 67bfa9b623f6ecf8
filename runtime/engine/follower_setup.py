"""From settings to the followers of the tree: the tiers below the pool, and KV events. Knows no requests."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import torch

from ...errors import ConfigError
from ..byte_text import bytes_text
from ..cache.followers import Followers
from ..config import EngineConfig
from ..device import allocating
from ..event_settings import KVEventsConfig, is_text
from ..events.facts import Medium, Scope
from ..events.kv_events import KVEvents, ScopeOf
from ..events.ledger import Ledger
from ..execute.adapters import Adapters
from ..execute.kv_cache import KVCache
from ..execute.loading import LoadedModel
from ..execute.prefill_cost import PrefillCost
from ..models.adapter import parted
from ..offload import DiskTier, MemoryTier, Tier, open_folder
from ..offload.block_key import BlockKeys
from ..offload.device_copy import DeviceCopy
from ..offload.fingerprint import fingerprint_of
from ..offload.load_cost import LoadCost
from ..offload.lower_tiers import LowerTiers
from ..offload.parts import PartRules
from ..offload.stores import open_store
from ..offload.tier import Changed, ignore_changes
from ..path_fault import path_fault

logger = logging.getLogger("phloem.tiers")
CACHE = Path("~/.cache/phloem")  # where hashes of checkpoints are remembered if no folder of blocks is given
IN_THIS_PROCESS = bytes(32)  # what is in memory is gone before any weight can change


def make_followers(
    config: EngineConfig,
    loaded: LoadedModel,
    kv_cache: KVCache,
    prefill: PrefillCost,
    adapters: Adapters,
    rules: PartRules | None = None,
) -> Followers | None:
    """What of the settings follows the tree; None if they ask for nothing. rules: of parts that tiers take.

    Raises:
        ConfigError: the folder cannot be used or trusted (`open_folder`), a budget does not hold a block, or events
            cannot be published where they should be.
    """
    events = _make_events(config, adapters, has_tiers=config.has_tiers)
    if not config.has_tiers and events is None:
        return None
    tiers, fingerprint = _make_tiers(config, loaded, kv_cache.block_bytes, events)
    keys = BlockKeys(fingerprint, config.block_size, kv_cache.num_blocks)
    if not tiers:
        return Followers(keys, None, events)
    cost = LoadCost(prefill, always=config.role == "decode")
    waits = config.role == "prefill"
    lower = LowerTiers(kv_cache, DeviceCopy(loaded.device), keys, cost, tiers, rules=rules, waits=waits)
    return Followers(keys, lower, events)


def _make_tiers(
    config: EngineConfig, loaded: LoadedModel, block_bytes: int, events: KVEvents | None
) -> tuple[list[Tier], bytes]:
    """The tiers below the pool, fastest first, and what their keys begin with."""
    for name in ("host_memory_bytes", "disk_cache_bytes"):
        if 0 < getattr(config, name) < 2 * block_bytes:
            raise ConfigError(
                f"{name}: {getattr(config, name)} does not hold two blocks of {block_bytes} bytes; raise it"
            )
    tiers: list[Tier] = []
    fingerprint = IN_THIS_PROCESS
    if config.host_memory_bytes:
        size = bytes_text(config.host_memory_bytes)
        with allocating(f"host_memory_bytes (--host-memory): {size}", torch.device("cpu")):
            slab = np.empty((config.host_memory_bytes // block_bytes, block_bytes), np.uint8)
        tiers.append(MemoryTier(slab, _listener(events, "CPU_PINNED")))
    if config.disk_cache is not None:
        path = Path(os.path.expanduser(config.disk_cache))
        fault = path_fault(path)
        if fault is not None:
            raise ConfigError(f"disk_cache: {config.disk_cache[:200]!r}: {fault}; choose another folder")
        folder = open_folder(path, shared=config.disk_cache_shared)
        if not folder.is_writable:
            logger.warning("disk_cache: %s cannot be written to; what it holds is read, nothing is added", folder.path)
        fingerprint = fingerprint_of(config, loaded, folder.path, remembers=folder.is_writable)
        tiers.append(DiskTier(folder, config.disk_cache_bytes, fingerprint, block_bytes, _listener(events, "DISK")))
    if config.shared_cache is not None:
        make_tier = open_store(config.shared_cache)
        if config.disk_cache is None:
            fingerprint = fingerprint_of(config, loaded, CACHE.expanduser(), remembers=_makes(CACHE.expanduser()))
        changed = _listener(events, "EXTERNAL")
        tiers.append(make_tier(fingerprint, block_bytes, ttl=config.shared_cache_ttl, changed=changed))
    return tiers, fingerprint


def _makes(folder: Path) -> bool:
    """Whether a folder is there, made if it was not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return True
    except OSError:
        return False


def _listener(events: KVEvents | None, medium: Medium) -> Changed:
    return ignore_changes if events is None else events.tier_listener(medium)


def _make_events(config: EngineConfig, adapters: Adapters, *, has_tiers: bool) -> KVEvents | None:
    """None if the settings ask for none; else what needs pyzmq and msgpack is imported here, and sockets are opened.

    Raises:
        ConfigError: an endpoint cannot be bound, or connected to.
    """
    if config.kv_events_config is None:
        return None
    settings = KVEventsConfig.parse(config.kv_events_config)
    if not settings.is_on:
        return None
    from ..events.publisher import ZmqPublisher

    ledger = Ledger(4 * config.block_size, has_tiers=has_tiers)
    publisher = ZmqPublisher(settings, ledger.apply, config.block_size)
    return KVEvents(publisher, scope_reader(adapters, include_salted=settings.include_salted))


def scope_reader(adapters: Adapters, *, include_salted: bool) -> ScopeOf:
    """Reads namespaces as `scoped` writes them.

    What cannot be written as UTF-8 is not published. An adapter that was unloaded keeps its name here. Of two that were
    loaded with the same content, which share what is cached, one is named.
    """

    def scope_of(namespace: str) -> Scope | None:
        fingerprint, salt = parted(namespace)
        if salt and not (include_salted and is_text(salt)):
            return None
        if fingerprint is None:
            return Scope(salt=salt or None)
        name = adapters.name_of(fingerprint)
        return None if name is None or not is_text(name) else Scope(name, int(fingerprint[:7], 16) + 1, salt or None)

    return scope_of
