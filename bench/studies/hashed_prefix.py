"""A router for `ray_replicas.py`: Ray Serve's consistent hashing, of a prompt's beginning instead of a session.

Imported by Ray's processes, by this name.
"""

from __future__ import annotations

import hashlib
from typing import Any

from ray.serve.experimental.consistent_hash_router import ConsistentHashRouter

HASHED_BYTES = 2 * 16 * 4  # of packed tokens: two blocks, which all turns of a chat have in common


class HashedPrefix(ConsistentHashRouter):
    """Hashes what `Replica.generate` is called with."""

    def _routing_key(self, pending_request: Any) -> str | None:
        if pending_request is None:
            return None
        tokens, namespace, _ = pending_request.args
        return hashlib.blake2b(tokens[:HASHED_BYTES] + namespace.encode()).hexdigest()
