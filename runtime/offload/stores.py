"""Stores that machines share, by the scheme of their URLs.

A new one is a module with a `Tier` and a function that opens it, and a line in `STORES`. `shared_cache` and `KVStore`
take its URLs then, and statistics, reports, `/metrics` and KV events have it under the tier's `name`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...errors import ConfigError
from . import redis_tier
from .tier import Changed, Tier, ignore_changes


class MakeTier(Protocol):
    """A store that is open, for one model after the other."""

    def __call__(
        self, fingerprint: bytes, block_bytes: int, *, ttl: float | None = None, changed: Changed = ignore_changes
    ) -> Tier:
        """The blocks of one model there.

        Args:
            fingerprint: 32 bytes, of the model.
            block_bytes: bytes of a block's KV.
            ttl: seconds after which the store forgets a block that was not used; None: it decides.
            changed: called with the blocks that this process has found or put there, and with those that have gone.
        """


Open = Callable[[str], MakeTier]  # ConfigError if the URL is wrong; a store that does not answer now is no error

STORES: dict[str, Open] = {
    "redis": redis_tier.open_store,
    "rediss": redis_tier.open_store,
    "unix": redis_tier.open_store,
}


def open_store(url: str) -> MakeTier:
    """The store at a URL.

    Raises:
        ConfigError: no store has such URLs, or that one refuses this one.
    """
    scheme, mark, _ = url.partition("://")
    if not mark or scheme not in STORES:
        shown = redis_tier.without_password(url)
        known = ", ".join(f"{known}://" for known in STORES if known != "redis")
        raise ConfigError(f"shared_cache: {shown!r}: expected redis://HOST:PORT/NUMBER, or a URL with {known}")
    return STORES[scheme](url)
