"""From settings to KV events: which namespaces are published, and where to. Knows no blocks and no requests."""

from __future__ import annotations

from ..config import EngineConfig
from ..event_settings import KVEventsConfig, is_text
from ..events.facts import Scope
from ..events.kv_events import KVEvents, ScopeOf
from ..events.ledger import Ledger
from ..execute.adapters import Adapters
from ..models.adapter import parted


def make_events(config: EngineConfig, adapters: Adapters, *, has_tiers: bool) -> KVEvents | None:
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
