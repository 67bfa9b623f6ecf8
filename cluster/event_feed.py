"""KV events of many replicas, applied to one index as they come.

A replica's events have its name as their topic, so one socket receives them all. Events that were missed, before this
feed began or on the way, are requested from the replica's replay socket. If the replica does not keep them any more,
all that was known of it is dropped: a gap in the index sends a request to the wrong replica once, a wrong entry again
and again.

One thread. It ends with `close`.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgpack
import zmq

from .prefix_index import PrefixIndex

TICK = 100  # ms in which replicas that join or leave are noticed
PATIENCE = 2000  # ms for a replica to answer
logger = logging.getLogger("phloem.cluster")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a replica's events are: addresses of its PUB socket and of its replay socket."""

    replica: str
    endpoint: str
    replay_endpoint: str


class EventFeed:
    """Keeps an index up to date.

    Args:
        lock: held while the index is read or changed, here and by all others.
    """

    def __init__(self, index: PrefixIndex, lock: threading.Lock) -> None:
        self._index = index
        self._lock = lock
        self._context = zmq.Context()
        self._context.setsockopt(zmq.LINGER, 0)
        self._socket = self._context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._next: dict[str, int] = {}  # by replica, the number of the batch that comes next
        self._sources: dict[str, Source] = {}
        self._commands: queue.SimpleQueue[tuple[str, Source | str | None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="phloem-event-feed", daemon=True)
        self._thread.start()

    def follow(self, source: Source) -> None:
        """From now on the index has what this replica says."""
        self._commands.put(("follow", source))

    def leave(self, replica: str) -> None:
        """A replica is gone, and is followed no longer; the caller informs the index."""
        self._commands.put(("leave", replica))

    def close(self) -> None:
        """Ends the thread."""
        self._commands.put(("close", None))
        self._thread.join()
        self._context.destroy(linger=0)

    def _run(self) -> None:
        while True:
            with suppress(queue.Empty):
                while True:
                    what, about = self._commands.get_nowait()
                    if what == "close":
                        return
                    if isinstance(about, Source):
                        self._begin(about)
                    else:
                        self._end(str(about))
            if self._socket.poll(TICK):
                with suppress(zmq.Again):
                    for _ in range(1000):
                        parts = self._socket.recv_multipart(zmq.DONTWAIT)
                        if len(parts) == 3:  # of another kind: from no replica of ours
                            topic, number, payload = parts
                            self._take(topic.decode(errors="replace"), int.from_bytes(number, "big"), payload)

    def _begin(self, source: Source) -> None:
        self._end(source.replica)
        self._sources[source.replica] = source
        self._next[source.replica] = 0
        try:
            self._socket.connect(source.endpoint)
            self._socket.setsockopt_string(zmq.SUBSCRIBE, source.replica)
        except zmq.ZMQError as error:
            logger.warning("%s: no KV events from %s: %s", source.replica, source.endpoint, error.strerror)
            return
        self._catch_up(source)

    def _end(self, replica: str) -> None:
        source = self._sources.pop(replica, None)
        self._next.pop(replica, None)
        if source is not None:
            with suppress(zmq.ZMQError):  # it could not be connected to
                self._socket.setsockopt_string(zmq.UNSUBSCRIBE, replica)
                self._socket.disconnect(source.endpoint)

    def _take(self, replica: str, number: int, payload: bytes) -> None:
        source = self._sources.get(replica)
        if source is None or number < self._next[replica]:
            return  # not followed any more, or replayed before
        if number > self._next[replica]:
            self._catch_up(source)
        if number >= self._next[replica]:
            if number > self._next[replica]:
                self._give_up(source)
            self._apply(replica, number, payload)

    def _catch_up(self, source: Source) -> None:
        """Asks for what was missed, and waits for that."""
        with self._context.socket(zmq.DEALER) as socket:
            socket.setsockopt(zmq.RCVTIMEO, PATIENCE)
            socket.setsockopt(zmq.RCVHWM, 0)
            try:
                socket.connect(source.replay_endpoint)
                socket.send_multipart([b"", self._next[source.replica].to_bytes(8, "big")])
                while True:
                    _, _, number, payload = socket.recv_multipart()
                    if int.from_bytes(number, "big", signed=True) < 0:
                        return
                    if int.from_bytes(number, "big") > self._next[source.replica]:
                        self._give_up(source)
                    self._apply(source.replica, int.from_bytes(number, "big"), payload)
            except (zmq.ZMQError, ValueError) as error:
                logger.debug("%s: what it said before was not to be had: %s", source.replica, error)

    def _give_up(self, source: Source) -> None:
        logger.info("%s: KV events are missing; what it has cached is learnt anew", source.replica)
        with self._lock:
            self._index.clear(source.replica)

    def _apply(self, replica: str, number: int, payload: bytes) -> None:
        self._next[replica] = number + 1
        try:
            _, events, *_ = msgpack.unpackb(payload)
        except ValueError as error:
            logger.warning("%s: a batch of KV events cannot be read: %s", replica, error)
            return
        with self._lock:
            if replica in self._index.numbers:
                apply(self._index, replica, events)


def apply(index: PrefixIndex, replica: str, events: Sequence[dict[str, Any]]) -> None:
    """Tells an index what events say, as `runtime.events.wire` writes them in its "map" form."""
    for event in events:
        if event["type"] == "BlockStored":
            index.store(replica, event["medium"], event["block_hashes"])
        elif event["type"] == "BlockRemoved":
            index.remove(replica, event["medium"], event["block_hashes"])
        elif event["type"] == "AllBlocksCleared":
            index.clear(replica)
