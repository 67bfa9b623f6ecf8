"""A subscriber to KV events as a router has one, written from the published form of the events.

It uses msgspec, whose structs are how the form is published, and nothing of phloem: a tree of its own, filled by what
comes over the socket, says which blocks of a prompt the publisher has. What must not come fails an assertion: a gap,
a block twice, a block before its parent, the removal of a block that is not there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec
import zmq


class BlockStored(msgspec.Struct, tag_field="type", tag="BlockStored", kw_only=True, forbid_unknown_fields=True):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[list[str] | None] | None
    cache_salt: str | None = None


class BlockRemoved(msgspec.Struct, tag_field="type", tag="BlockRemoved", forbid_unknown_fields=True):
    block_hashes: list[int]
    medium: str | None


class AllBlocksCleared(msgspec.Struct, tag_field="type", tag="AllBlocksCleared", forbid_unknown_fields=True):
    pass


class StoredArray(msgspec.Struct, array_like=True, tag="BlockStored"):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[list[str] | None] | None = None


class RemovedArray(msgspec.Struct, array_like=True, tag="BlockRemoved"):
    block_hashes: list[int]
    medium: str | None


class ClearedArray(msgspec.Struct, array_like=True, tag="AllBlocksCleared"):
    pass


MapEvent: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared
ArrayEvent: TypeAlias = StoredArray | RemovedArray | ClearedArray


class MapBatch(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    ts: float
    events: list[MapEvent]
    data_parallel_rank: int | None


class ArrayBatch(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    ts: float
    events: list[ArrayEvent]
    data_parallel_rank: int | None


# of a block: that of the block before it, its tokens, and for the first what else is in its name
Place: TypeAlias = tuple[int | None, tuple[int, ...], tuple[str, ...]]


@dataclass
class View:
    """What of a publisher's blocks is where, by medium.

    is_complete: the subscriber has heard everything from the first event on.
    """

    is_complete: bool = True
    hashes: dict[str, set[int]] = field(default_factory=dict)
    places: dict[Place, int] = field(default_factory=dict)
    num_stored: int = 0
    num_removed: int = 0
    num_cleared: int = 0

    def apply(self, event: MapEvent | ArrayEvent) -> None:
        if isinstance(event, BlockStored | StoredArray):
            self._store(event)
        elif isinstance(event, BlockRemoved | RemovedArray):
            assert event.medium is not None and event.block_hashes
            here = self.hashes.setdefault(event.medium, set())
            if self.is_complete:
                assert here.issuperset(event.block_hashes), "a block was removed that was not there"
            here.difference_update(event.block_hashes)
            self.num_removed += len(event.block_hashes)
        else:
            self.hashes.clear()
            self.num_cleared += 1

    def _store(self, event: BlockStored | StoredArray) -> None:
        assert event.medium is not None and event.block_hashes
        size, parent = event.block_size, event.parent_block_hash
        assert len(event.token_ids) == size * len(event.block_hashes)
        extra = event.extra_keys or [None] * len(event.block_hashes)
        assert len(extra) == len(event.block_hashes)
        here = self.hashes.setdefault(event.medium, set())
        for index, (name, more) in enumerate(zip(event.block_hashes, extra, strict=True)):
            assert 0 <= name < 1 << 64
            assert name not in here, "a block was stored twice"
            if self.is_complete and parent is not None and event.medium == "GPU":
                assert parent in here, "a block was stored before its parent"
            assert (event.lora_name is None) == (event.lora_id is None)
            if event.lora_name is not None:
                assert more is not None and more[0] == event.lora_name
            tokens = tuple(event.token_ids[index * size : (index + 1) * size])
            place = (parent, tokens, tuple(more or ()) if parent is None else ())
            assert self.places.setdefault(place, name) == name, "one prefix has two names"
            here.add(name)
            parent = name
            self.num_stored += 1

    def match(
        self, tokens: Sequence[int], size: int, extra: tuple[str, ...] = (), media: Sequence[str] = ("GPU",)
    ) -> int:
        """How many leading blocks of a prompt are in one of the media."""
        name: int | None = None
        for start in range(0, len(tokens) - size + 1, size):
            block = tuple(tokens[start : start + size])
            name = self.places.get((name, block, extra if name is None else ()))
            if name is None or not any(name in self.hashes.get(medium, ()) for medium in media):
                return start // size
        return len(tokens) // size


class Subscriber:
    """A SUB socket and the view that it fills; `replay` asks for what was missed.

    Attributes:
        view: what it knows.
        numbers: of the batches that came, in order.
    """

    def __init__(self, endpoint: str, topic: str = "", *, form: str = "map", hwm: int = 0, binds: bool = False) -> None:
        self.view = View()
        self.numbers: list[int] = []
        self.num_gaps = 0
        self._replayed = -1
        self._topic = topic.encode()
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(MapBatch if form == "map" else ArrayBatch)
        self._context: zmq.Context[Any] = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, hwm)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SUBSCRIBE, self._topic)
        (self._socket.bind if binds else self._socket.connect)(endpoint)

    @property
    def endpoint(self) -> str:
        address: bytes = self._socket.getsockopt(zmq.LAST_ENDPOINT)
        return address.rstrip(b"\0").decode()

    def take(self, milliseconds: int) -> bool:
        """Takes the next batch in; False if none comes in time."""
        if not self._socket.poll(milliseconds):
            return False
        self._take(self._socket.recv_multipart())
        return True

    def _take(self, frames: list[bytes]) -> None:
        topic, number, payload = frames
        assert topic == self._topic and len(number) == 8
        self._apply(int.from_bytes(number, "big"), payload)

    def _apply(self, number: int, payload: bytes) -> None:
        last = self.numbers[-1] if self.numbers else -1
        if number <= self._replayed:
            return  # it was on its way when it was replayed
        assert number > last
        self.num_gaps += number != last + 1
        self.numbers.append(number)
        batch = self._decoder.decode(payload)
        assert batch.events and batch.data_parallel_rank == 0 and abs(batch.ts - time.time()) < 86_400
        for event in batch.events:
            self.view.apply(event)

    def wait(self, condition: Callable[[View], bool], seconds: float = 15.0) -> None:
        """Takes batches in until a condition holds; AssertionError if it never does."""
        end = time.monotonic() + seconds
        while not condition(self.view):
            assert self.take(max(0, int(1000 * (end - time.monotonic())))), "what was waited for did not come"

    def drain(self, milliseconds: int = 0) -> int:
        """Takes in what there is; returns how many batches."""
        count = 0
        while self.take(milliseconds):
            count += 1
        return count

    def replay(self, endpoint: str, first: int) -> int:
        """Asks for all batches from a number on, and takes in those that it does not know; returns how many came."""
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, 60_000)
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.connect(endpoint)
        socket.send_multipart([b"", first.to_bytes(8, "big")])
        count = 0
        while True:
            delimiter, topic, number, payload = socket.recv_multipart()
            assert delimiter == b""
            if int.from_bytes(number, "big", signed=True) == -1:
                assert topic == payload == b""
                break
            assert topic == self._topic
            count += 1
            if not self.numbers or int.from_bytes(number, "big") > self.numbers[-1]:
                self._apply(int.from_bytes(number, "big"), payload)
        self._replayed = self.numbers[-1] if self.numbers else -1
        socket.close()
        return count

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, *error: object) -> None:
        self._context.destroy(linger=0)
