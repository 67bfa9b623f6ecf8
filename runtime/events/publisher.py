"""KV events over ZeroMQ: vLLM's sockets and frames.

::

    PUB       [topic, sequence number, batch]                    to all subscribers, as it happens
    ROUTER    ask [first number]                                 as 8 bytes, by a REQ or a DEALER socket
              get [topic, sequence number, batch] …              what is kept from there on, in order
                  ["", -1, ""]                                   the end

Numbers are 8 bytes, big-endian, signed. They rise by one for each batch, and for each that was dropped: so a subscriber
sees every gap, wherever the batch was lost, and fills it by asking. What was dropped here cannot be asked for.

Two threads, one for each socket, neither of which a step ever waits for. They end with `close`, or when the publisher
is no longer referred to.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import zmq

from ...errors import ConfigError
from ..event_settings import NAME, WILDCARDS, KVEventsConfig, host_of
from .facts import EventStatistics, Fact
from .ledger import Event
from .wire import encode

END = (-1).to_bytes(8, "big", signed=True)
LINGER = 1000  # ms for what was sent to reach subscribers at the end
PATIENCE = 1000  # ms for which a client that asks for a replay may read nothing
CLOSING_SECONDS = 5.0
MOST_JOINED = 256  # facts in a batch of batches that join

logger = logging.getLogger("phloem.events")

Apply = Callable[[Sequence[Fact]], list[Event]]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Attributes: seconds since 1970, and how many batches before it were dropped."""

    facts: list[Fact]
    seconds: float
    num_lost: int
    joins: bool


class _Line:
    """Batches that wait to be sent. Thread-safe."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._batches: deque[_Batch] = deque()
        self._change = threading.Condition()
        self._num_lost = 0
        self._is_closed = False
        self.num_dropped = 0

    def put(self, facts: list[Fact], *, joins: bool) -> None:
        with self._change:
            if self._is_closed:
                return
            last = self._batches[-1] if joins and self._batches else None
            if last is not None and last.joins and len(last.facts) < MOST_JOINED:
                last.facts.extend(facts)
                return
            if len(self._batches) >= self._max_size:
                self._num_lost += 1
                self.num_dropped += 1
                is_first = self.num_dropped == 1
            else:
                self._batches.append(_Batch(facts, time.time(), self._num_lost, joins))
                self._num_lost = 0
                is_first = False
                self._change.notify()
        if is_first:
            logger.warning(
                "%s: %d batches of KV events wait, and later ones are dropped; subscribers see the gap. Raise "
                "max_queue_size. Later drops are counted only.",
                NAME,
                self._max_size,
            )

    def get(self) -> _Batch | None:
        """The next, as soon as there is one; None: it is closed, and empty."""
        with self._change:
            self._change.wait_for(lambda: self._batches or self._is_closed)
            return self._batches.popleft() if self._batches else None

    def close(self) -> None:
        with self._change:
            self._is_closed = True
            self._change.notify()


@dataclass(slots=True)
class _Kept:
    """The last batches that were sent, by their numbers, for those that ask. Thread-safe."""

    batches: deque[tuple[int, bytes]]
    lock: threading.Lock = field(default_factory=threading.Lock)
    num_sent: int = 0

    def add(self, number: int, payload: bytes) -> None:
        with self.lock:
            self.batches.append((number, payload))
            self.num_sent += 1

    def since(self, first: int) -> list[tuple[int, bytes]]:
        with self.lock:
            return [batch for batch in self.batches if batch[0] >= first]


class ZmqPublisher:
    """Publishes what `apply` makes of facts.

    Args:
        apply: called on the publisher's thread only.
        block_size: tokens per block.

    Attributes:
        endpoint, replay_endpoint: as they were bound, with their ports; None: there is none.
        close: sends what waits, publishes no more, and ends the threads; waits for that for some seconds at most.

    Raises:
        ConfigError: an endpoint cannot be bound, or connected to.
    """

    def __init__(self, config: KVEventsConfig, apply: Apply, block_size: int) -> None:
        context = zmq.Context()
        context.setsockopt(zmq.LINGER, 0)
        self._line = line = _Line(config.max_queue_size)
        self._kept = kept = _Kept(deque(maxlen=config.buffer_steps))
        topic = config.topic.encode()
        try:
            publisher = context.socket(zmq.PUB)
            publisher.setsockopt(zmq.SNDHWM, config.hwm)
            self.endpoint = _open(publisher, "endpoint", config.endpoint, binds=config.binds)
            self.replay_endpoint: str | None = None
            router = None
            if config.replay_endpoint is not None:
                router = context.socket(zmq.ROUTER)
                router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # a client that reads slowly is waited for, not cut short
                router.setsockopt(zmq.SNDTIMEO, PATIENCE)
                self.replay_endpoint = _open(router, "replay_endpoint", config.replay_endpoint, binds=True)
        except BaseException:
            context.destroy(linger=0)
            raise

        def encoded(batch: _Batch) -> bytes | None:
            events = apply(batch.facts)
            return encode(batch.seconds, events, block_size, config.format) if events else None

        threads = [threading.Thread(target=_send, args=(publisher, topic, line, kept, encoded), daemon=True)]
        if router is not None:
            threads.append(threading.Thread(target=_replay, args=(router, topic, kept), daemon=True))
        for thread, name in zip(threads, ("phloem-kv-events", "phloem-kv-replay"), strict=False):
            thread.name = name
            thread.start()
        self.close = weakref.finalize(self, _close, line, context, threads)

    def publish(self, facts: list[Fact], *, joins: bool = False) -> None:
        """Puts a batch at the end of the line, or drops it if there is no room; never waits. Any thread may call.

        joins: the batch may become one with those before and after it that may, too.
        """
        self._line.put(facts, joins=joins)

    def statistics(self) -> EventStatistics:
        return EventStatistics(self._kept.num_sent, self._line.num_dropped)


def _open(socket: zmq.Socket[bytes], name: str, endpoint: str, *, binds: bool) -> str:
    """Binds or connects; returns the address with its port."""
    if endpoint.startswith("tcp://["):
        socket.setsockopt(zmq.IPV6, 1)
    try:
        if not binds:
            socket.connect(endpoint)
            return endpoint
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        raise ConfigError(f"{NAME}: {name}: {endpoint}: {_remedy(error, binds)}") from error
    if host_of(endpoint) in WILDCARDS:
        logger.warning(
            "%s: %s: %s can be reached from other machines, and every one of them can read prompts",
            NAME,
            name,
            endpoint,
        )
    found: bytes = socket.getsockopt(zmq.LAST_ENDPOINT)  # type: ignore[assignment]
    return found.rstrip(b"\0").decode()


def _remedy(error: zmq.ZMQError, binds: bool) -> str:
    if error.errno == zmq.EADDRINUSE:
        text = "the address is in use; choose another port, or * for any that is free"
        return f'{text}; to publish to a subscriber that is bound there, set "bind": false'
    if error.errno in (zmq.EADDRNOTAVAIL, errno.ENODEV):
        return f'no interface of this machine has this address; to connect to it, set "bind": false ({error.strerror})'
    return (
        f"cannot be {'bound' if binds else 'connected to'} ({error.strerror}); write for example tcp://127.0.0.1:5557"
    )


def _send(
    socket: zmq.Socket[bytes], topic: bytes, line: _Line, kept: _Kept, encoded: Callable[[_Batch], bytes | None]
) -> None:
    """The thread of the PUB socket. A batch of which nothing is published has no number."""
    number, has_failed = 0, False
    while (batch := line.get()) is not None:
        number += batch.num_lost
        try:
            payload = encoded(batch)
            if payload is None:
                continue
            kept.add(number, payload)
            socket.send_multipart((topic, number.to_bytes(8, "big"), payload), zmq.DONTWAIT)
        except Exception:
            if not has_failed:
                logger.exception("a batch of KV events was not published; later errors are not logged")
            has_failed = True
        number += 1
    socket.close(linger=LINGER)


def _replay(socket: zmq.Socket[bytes], topic: bytes, kept: _Kept) -> None:
    """The thread of the ROUTER socket, until its context is ended."""
    try:
        while True:
            identity, *delimiter, asked = socket.recv_multipart()
            if len(asked) != 8 or any(delimiter):
                logger.debug("no request for a replay: %d frames", len(delimiter) + 2)
                continue
            try:
                for number, payload in kept.since(int.from_bytes(asked, "big", signed=True)):
                    socket.send_multipart((identity, *delimiter, topic, number.to_bytes(8, "big"), payload))
                socket.send_multipart((identity, *delimiter, b"", END, b""))
            except zmq.ContextTerminated:
                raise
            except zmq.ZMQError as error:  # it has gone, or reads nothing
                logger.debug("a replay was given up: %s", error)
    except zmq.ContextTerminated:
        socket.close(linger=0)


def _close(line: _Line, context: zmq.Context[zmq.Socket[bytes]], threads: Sequence[threading.Thread]) -> None:
    line.close()
    if threading.current_thread() in threads:  # where a collection of garbage may have led
        return
    threads[0].join(CLOSING_SECONDS)
    if threads[0].is_alive():
        logger.warning("KV events: not sent after %g s; what is left is given up", CLOSING_SECONDS)
        return
    context.term()  # ends the other
    for thread in threads:
        thread.join(CLOSING_SECONDS)
