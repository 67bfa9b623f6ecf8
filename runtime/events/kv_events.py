"""KV events as the engine sees them: it says what comes and goes, and where a batch ends.

::

    step thread     facts ──┐ a batch per step
    tiers' threads  facts ──┴► publisher ──► ledger ──► wire ──► subscribers     all on the publisher's thread

A step pays for appending to a list. Blocks that are not full have no key, and are not published. Nor are, unless
`include_salted`, blocks of requests with a salt or a namespace: consumers hash `token_ids` by themselves, and one that
does not know of the salt would send requests without it, or with another, to where they hit nothing; and token ids are
what the caller has sent.

Belongs to the step's thread, but for `tier_listener`. Knows keys and namespaces, no tree and no socket.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..offload import BlockKey
from .facts import Ended, Entered, EventStatistics, Fact, Left, Medium, Remain, Scope, TierChanged

if TYPE_CHECKING:
    from .publisher import ZmqPublisher  # which needs pyzmq

PLAIN = Scope()

ScopeOf = Callable[[str], Scope | None]


class KVEvents:
    """What of the cache is published.

    Args:
        scope_of: which requests may share what is cached in a namespace (the engine's word for salt and adapter); None:
            nothing of it is published.
    """

    def __init__(self, publisher: ZmqPublisher, scope_of: ScopeOf) -> None:
        self.publisher = publisher
        self._scope_of = scope_of
        self._facts: list[Fact] = []

    def entered(self, keys: Sequence[BlockKey], tokens: bytes, namespace: str) -> None:
        """Blocks are in the tree, some perhaps for long; `tokens` (packed) are those in them, and may go beyond."""
        if keys:
            scope = PLAIN if not namespace else self._scope_of(namespace)
            if scope is not None:
                self._facts.append(Entered(keys, tokens, scope))

    def left(self, keys: Sequence[BlockKey], *, is_flush: bool = False) -> None:
        """Blocks have left the tree."""
        if keys or is_flush:
            self._facts.append(Left([key.digest for key in keys], is_flush))

    def remain(self, keys: Sequence[BlockKey]) -> None:
        """After a fault: these are in the tree, and nothing else is."""
        self._facts.append(Remain(frozenset(key.digest for key in keys)))

    def end_batch(self) -> None:
        """What was said since the last call goes out together."""
        if self._facts:
            facts, self._facts = self._facts, []
            self.publisher.publish(facts)

    def tier_listener(self, medium: Medium) -> Callable[[Sequence[tuple[bytes, bool]]], None]:
        """For a tier to say, on any thread, which digests it has now (True) and which it has lost, in order."""
        publish = self.publisher.publish
        return lambda changes: publish([TierChanged(medium, changes)], joins=True)

    def statistics(self) -> EventStatistics:
        """Safe on any thread."""
        return self.publisher.statistics()

    def close(self) -> None:
        """Tells subscribers that nothing is left, and ends the thread."""
        self._facts.append(Ended())
        self.end_batch()
        self.publisher.close()
