"""The sockets: subscribers that are late, killed or slow, lines that are full, ports that are taken, and the end."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

zmq = pytest.importorskip("zmq", reason="pyzmq (phloem[events]) is not installed")
pytest.importorskip("msgpack", reason="msgpack (phloem[events]) is not installed")
pytest.importorskip("msgspec", reason="msgspec, with which the test's subscriber reads events, is not installed")

from phloem.errors import ConfigError  # noqa: E402
from phloem.radix import pack  # noqa: E402
from phloem.runtime.event_settings import KVEventsConfig  # noqa: E402
from phloem.runtime.events.facts import Entered, Fact, Left, Scope  # noqa: E402
from phloem.runtime.events.ledger import Event, Ledger  # noqa: E402
from phloem.runtime.events.publisher import ZmqPublisher  # noqa: E402
from phloem.runtime.offload.block_key import extend_keys, root_of  # noqa: E402
from phloem.runtime.request import SamplingParams  # noqa: E402

from .subscriber import Subscriber  # noqa: E402
from .traffic import SIZE, endpoints, make_engine  # noqa: E402

LOCAL = "tcp://127.0.0.1:*"
ONE = SamplingParams(max_tokens=1)


def entered(number: int, num_blocks: int = 1) -> Entered:
    """A prefix of its own for each number."""
    tokens = pack([number, *range(1, SIZE * num_blocks)])
    return Entered(extend_keys(root_of(bytes(32), ""), True, tokens, 4 * SIZE), tokens, Scope())


def left(number: int) -> Left:
    return Left([key.digest for key in entered(number).keys])


@contextmanager
def publishing(**fields: Any) -> Iterator[ZmqPublisher]:
    config = KVEventsConfig(**{"endpoint": LOCAL, "replay_endpoint": LOCAL, **fields})
    publisher = ZmqPublisher(config, Ledger(4 * SIZE, has_tiers=False).apply, SIZE)
    try:
        yield publisher
    finally:
        publisher.close()


def join(publisher: ZmqPublisher, subscriber: Subscriber) -> None:
    """Publishes until the subscriber hears it: it takes a while until sockets are connected."""
    number = 1 << 20
    while not subscriber.take(20):
        publisher.publish([entered(number), left(number)])
        number += 1
    while subscriber.numbers[-1] + 1 < number - (1 << 20):
        assert subscriber.take(10_000)


def until(condition: Callable[[], bool]) -> None:
    """Waits for what another thread does; AssertionError if that never is."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "what was waited for did not come"
        time.sleep(0.01)


def test_one_that_is_late_asks_for_what_it_missed() -> None:
    with publishing() as publisher:
        assert publisher.replay_endpoint is not None
        for number in range(50):
            publisher.publish([entered(number)])
        until(lambda: publisher.statistics().num_batches == 50)
        with Subscriber(publisher.endpoint) as late:
            join(publisher, late)
            first, late.numbers = late.numbers[0], []
            late.view.hashes.clear()
            assert first >= 50
            assert late.replay(publisher.replay_endpoint, 0) == publisher.statistics().num_batches
            assert late.numbers == list(range(publisher.statistics().num_batches))
            assert len(late.view.hashes["GPU"]) == 50
            assert late.replay(publisher.replay_endpoint, 1 << 40) == 0, "only the end"


def test_a_replay_reaches_back_by_buffer_steps() -> None:
    with publishing(buffer_steps=10) as publisher, Subscriber(publisher.endpoint) as subscriber:
        assert publisher.replay_endpoint is not None
        join(publisher, subscriber)
        for number in range(30):
            publisher.publish([entered(number)])
        subscriber.wait(lambda view: len(view.hashes.get("GPU", ())) == 30)
        last = subscriber.numbers[-1]
        subscriber.numbers, subscriber.view.is_complete = [last - 100], False
        subscriber.view.hashes.clear()
        assert subscriber.replay(publisher.replay_endpoint, 0) == 10
        assert subscriber.numbers[1:] == list(range(last - 9, last + 1))


def test_what_is_no_request_for_a_replay_is_ignored() -> None:
    with publishing() as publisher, zmq.Context() as context:
        publisher.publish([entered(0)])
        with context.socket(zmq.DEALER) as socket, context.socket(zmq.REQ) as asking:
            for wrong in ([b""], [b"", b"1234567"], [b"", b"12345678", b"more"], [b"x", bytes(8)], [b"", bytes(9)]):
                socket.connect(publisher.replay_endpoint)
                socket.send_multipart(wrong)
            socket.setsockopt(zmq.LINGER, 0)
            asking.setsockopt(zmq.RCVTIMEO, 10_000)
            asking.connect(publisher.replay_endpoint)
            asking.send((7).to_bytes(8, "big"))
            assert asking.recv_multipart() == [b"", (-1).to_bytes(8, "big", signed=True), b""], "the REQ socket's reply"
            assert not socket.poll(0)


SLEEPER = """
import sys, time, zmq
socket = zmq.Context().socket(zmq.SUB)
socket.setsockopt(zmq.RCVHWM, 1)
socket.setsockopt(zmq.SUBSCRIBE, b"")
socket.connect(sys.argv[1])
socket.recv_multipart()
print("heard", flush=True)
time.sleep(1000)
"""


def test_one_that_is_killed_costs_no_other_anything() -> None:
    with publishing() as publisher, Subscriber(publisher.endpoint) as subscriber:
        join(publisher, subscriber)
        child = subprocess.Popen([sys.executable, "-c", SLEEPER, publisher.endpoint], stdout=subprocess.PIPE, text=True)
        try:
            heard = threading.Thread(target=lambda: child.stdout and child.stdout.readline())
            heard.start()
            number = 0
            while heard.is_alive():
                publisher.publish([entered(number)])
                number += 1
                heard.join(0.02)
            os.kill(child.pid, signal.SIGKILL)
        finally:
            child.kill()
            child.communicate()
        for other in range(number, number + 100):
            publisher.publish([entered(other)])
        subscriber.wait(lambda view: len(view.hashes["GPU"]) == number + 100)
        assert subscriber.num_gaps == 0


def test_one_that_is_slow_loses_batches_and_nothing_waits_for_it() -> None:
    """It reads nothing until all is published; its numbers show the gap, which a replay fills."""
    num_batches, num_blocks = 3000, 40
    config = {"hwm": 5, "buffer_steps": 100_000, "endpoint": "ipc:///tmp/phloem-slow-" + str(os.getpid())}
    with publishing(**config) as publisher, Subscriber(publisher.endpoint, hwm=5) as slow:
        assert publisher.replay_endpoint is not None
        join(publisher, slow)
        begun = slow.numbers[-1]
        for number in range(num_batches):
            publisher.publish([entered(number, num_blocks)])
        # the thread goes on though no subscriber reads
        until(lambda: publisher.statistics().num_batches > begun + num_batches)
        slow.view.is_complete = False
        slow.drain(200)
        assert set(range(begun + 1, begun + num_batches + 1)) - set(slow.numbers), "some were lost"
        slow.replay(publisher.replay_endpoint, slow.numbers[-1] + 1)
        assert slow.numbers[-1] == begun + num_batches
        assert publisher.statistics().num_dropped == 0, "the loss was the subscriber's"


class Gate:
    """A ledger that waits."""

    def __init__(self) -> None:
        self.opens = threading.Event()
        self.is_reached = threading.Event()
        self._ledger = Ledger(4 * SIZE, has_tiers=False)

    def apply(self, facts: Sequence[Fact]) -> list[Event]:
        self.is_reached.set()
        assert self.opens.wait(60)
        return self._ledger.apply(facts)


def test_what_finds_no_room_is_dropped_and_counted_and_has_a_number() -> None:
    gate = Gate()
    config = KVEventsConfig(endpoint=LOCAL, max_queue_size=10)
    publisher = ZmqPublisher(config, gate.apply, SIZE)
    with Subscriber(publisher.endpoint) as subscriber:
        gate.opens.set()
        join(publisher, subscriber)
        begun = subscriber.numbers[-1]
        gate.opens.clear()
        gate.is_reached.clear()
        publisher.publish([entered(0)])
        assert gate.is_reached.wait(60)
        for number in range(1, 100):
            publisher.publish([entered(number)])  # never waits: the gate is shut
        num_dropped = publisher.statistics().num_dropped
        assert num_dropped == 89
        gate.opens.set()
        subscriber.wait(lambda view: len(view.hashes["GPU"]) == 100 - num_dropped)
        publisher.publish([entered(1000)])
        subscriber.wait(lambda view: len(view.hashes["GPU"]) == 101 - num_dropped)
        assert subscriber.num_gaps == 1 and subscriber.numbers[-1] == begun + 101
        publisher.close()


def test_an_endpoint_that_is_taken_is_refused_before_anything_runs() -> None:
    with publishing() as publisher:
        with pytest.raises(
            ConfigError, match=r"endpoint: tcp://127.0.0.1:\d+: the address is in use; choose another port"
        ):
            make_engine({"endpoint": publisher.endpoint})
        with pytest.raises(ConfigError, match=r"replay_endpoint: .* in use"):
            make_engine({"endpoint": LOCAL, "replay_endpoint": publisher.replay_endpoint})
    make_engine({"endpoint": publisher.endpoint}).close()  # it is free again


def test_an_engine_may_connect_to_a_subscriber_that_is_bound() -> None:
    with Subscriber(LOCAL, binds=True) as subscriber:
        engine = make_engine({"endpoint": subscriber.endpoint, "bind": False})
        while not subscriber.take(20):
            engine.flush_cache()
            engine.generate([1, 2, 3, 4, 5], ONE)
        engine.close()


def test_an_end_tells_that_nothing_is_left_and_leaves_no_thread() -> None:
    def threads() -> list[str]:
        return [one.name for one in threading.enumerate() if one.name.startswith("phloem-kv")]

    before = threads()
    engine = make_engine({"endpoint": LOCAL, "replay_endpoint": LOCAL})
    assert len(threads()) == len(before) + 2
    with Subscriber(endpoints(engine)[0]) as subscriber:
        subscriber.view.is_complete = False
        while not subscriber.take(20):
            engine.flush_cache()
            engine.generate([1, 2, 3, 4, 5], ONE)
        engine.generate([9, 9, 9, 9, 9], ONE)
        engine.close()
        subscriber.wait(lambda view: view.num_cleared > 0 and not any(view.hashes.values()))
    assert threads() == before


def test_an_engine_that_is_forgotten_leaves_no_thread() -> None:
    before = threading.active_count()
    engine = make_engine({"endpoint": LOCAL, "replay_endpoint": LOCAL})
    engine.generate([1, 2, 3, 4, 5], ONE)
    del engine
    gc.collect()
    until(lambda: threading.active_count() <= before)
