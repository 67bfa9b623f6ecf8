"""The adapters of rank 0, of which each other rank has its part under the same fingerprint.

Another rank reads an adapter after rank 0 has, and answers; one that it refuses is refused on all ranks. What rank 0
has let go of, the others let go of when the next one is loaded. Knows no requests and no batches.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter, deque
from typing import Any

from ...errors import EngineStopped
from ..models import Adapter
from ..parallel.message import Message
from ..parallel.rank_processes import RankProcesses
from ..parallel.ranks import RankLost
from .adapters import Adapters


class LeadingAdapters(Adapters):
    """As `Adapters`, for all ranks.

    Args:
        processes: the other ranks, which have read those that are loaded already.
    """

    def __init__(self, processes: RankProcesses, *of_adapters: Any) -> None:
        super().__init__(*of_adapters)
        self._processes = processes
        self._sharing = threading.Lock()
        self._copies: Counter[str] = (
            Counter()
        )  # adapters in memory by fingerprint, since two names may have one content
        self._dropped: deque[str] = deque()  # by the garbage collector, on any thread
        for adapter in self._by_name.values():
            self._watch(adapter)

    def _share(self, adapter: Adapter) -> None:
        """Raises ConfigError, ModelError: a rank has refused it; EngineStopped: a rank is lost."""
        with self._sharing:
            values = {
                "name": adapter.name,
                "folder": str(adapter.folder.absolute()),
                "fingerprint": adapter.fingerprint,
                "dropped": self._take_dropped(),
            }
            self._watch(adapter)
            try:
                self._processes.ask(Message("adapter", values))
            except RankLost as error:
                raise EngineStopped(f"the engine has stopped: {error}") from error

    def _watch(self, adapter: Adapter) -> None:
        self._copies[adapter.fingerprint] += 1
        weakref.finalize(adapter, self._dropped.append, adapter.fingerprint).atexit = False

    def _take_dropped(self) -> list[str]:
        """Of which no copy is left."""
        gone = []
        for _ in range(len(self._dropped)):
            fingerprint = self._dropped.popleft()
            self._copies[fingerprint] -= 1
            if not self._copies[fingerprint]:
                del self._copies[fingerprint]
                gone.append(fingerprint)
        return gone
