"""The tiers below the pool, joined to it: what is written to them, what is read back, and on which thread.

::

    step thread    commit ─► copy of new blocks ─┐      ask ─► …goes on… ─► take in ─► admit: a hit
                   evict ──► copy of old blocks ─┤       │                    ▲
    writer                                       └► put  │                    │
    reader                                               └► look, weigh, read ┘

**Out.** The disk gets blocks when they come into the tree (write through: only so does a prefix outlive a process that
is killed), host memory when they are evicted (write back: it never holds what the pool holds). What the disk had to
decline is offered again on eviction. A block is copied at once, on the step's thread or stream, which costs about a
thousandth of computing it; so nothing holds on to the pool's blocks, and they may be written over. The writer has at
most `QUEUE_BYTES` before it: what comes beyond that is dropped, never waited for.

**In.** Whoever is next to be admitted, and would have to compute whole blocks that a tier has, is passed over while
they are read. When they are there they go into the tree like computed ones, and the request is admitted as one that
hits. A large prefix comes in portions. Who wants what is just being read for another waits for that one.

Nothing here fails a request: whatever goes wrong is a miss. A reader that does not answer for `PATIENCE` seconds is
not waited for.

Belongs to the step's thread, except where it says otherwise. Knows tokens, blocks and tiers; it knows no tree.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue

from torch import Tensor

from ..tiers import BlockKey, DiskTier, MemoryTier
from ..tiers.block_key import extend_keys, root_of
from ..tiers.memory_tier import Row
from .ferry import Ferry
from .kv_cache import KVCache
from .load_cost import LoadCost

QUEUE_BYTES = 64 << 20  # copied and not written yet
PORTION_BYTES = 64 << 20  # read before the step hears of it
MOST_LOADS = 4  # under way at a time
PATIENCE = 5.0  # seconds
CLOSING = 20.0  # seconds for what is still to be written when an engine is closed

logger = logging.getLogger("phloem.tiers")


@dataclass(slots=True)
class Load:
    """Blocks on their way into the pool, for the first who asked.

    Attributes:
        tokens: packed, of the whole blocks from the root to the end of what was asked for.
        first: index of the first block that is read; `keys` are those of all from it on.
        rows: what was read, on the pool's device, a row per block; None: nothing.
    """

    namespace: str
    tokens: bytes
    first: int
    keys: list[BlockKey]
    begun_at: float
    rows: Tensor | None = None
    is_done: bool = False

    @property
    def num_blocks(self) -> int:
        return 0 if self.rows is None else len(self.rows)


@dataclass(slots=True)
class _Asker:
    """What is known of a waiting request.

    Attributes:
        keys: of all whole blocks that it might not have to compute.
        reached: the index of the block up to which the tree has held its prefix, or should.
        num_loaded: blocks that were read for it.
        is_settled: there is nothing more to be had.
    """

    keys: list[BlockKey]
    reached: int = 0
    num_loaded: int = 0
    load: Load | None = None
    is_settled: bool = False


@dataclass(slots=True)
class _Traffic:
    """What the threads share. Guarded by `news` but for plain counts."""

    news: threading.Condition = field(default_factory=threading.Condition)
    done: deque[Load] = field(default_factory=deque)
    num_queued_bytes: int = 0
    num_written: int = 0
    num_failed: int = 0  # jobs of either thread that an unforeseen error has ended


@dataclass(frozen=True, slots=True)
class TierStatistics:
    """Counts since start, in blocks, and what the tiers hold now.

    Attributes:
        num_stored: copied to a tier.
        num_loaded: read back into the pool.
        num_dropped: not copied, since the writer was busy.
        num_faults: files that could not be read or written, or were not what they should be, and other failures.
    """

    num_stored: int = 0
    num_loaded: int = 0
    num_dropped: int = 0
    num_faults: int = 0
    host_bytes: int = 0
    disk_bytes: int = 0


class LowerTiers:
    """Host memory, a disk, or both.

    Args:
        fingerprint: 32 bytes, of the model; keys begin with it.
        cost: what reading and computing take.
    """

    def __init__(
        self,
        kv_cache: KVCache,
        ferry: Ferry,
        fingerprint: bytes,
        cost: LoadCost,
        *,
        memory: MemoryTier | None,
        disk: DiskTier | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cost = cost
        self._kv_cache = kv_cache
        self._ferry = ferry
        self._fingerprint = fingerprint
        self._block_size = kv_cache.block_size
        self._block_bytes = kv_cache.block_bytes
        self._memory = memory
        self._disk = disk
        self._clock = clock
        self._keys: list[BlockKey | None] = [None] * kv_cache.num_blocks  # by block, of those in the tree
        self._askers: dict[object, _Asker] = {}
        self._loads: list[Load] = []
        self._coming: set[bytes] = set()
        self._num_dropped = 0
        self._num_loaded = 0
        self._traffic = _Traffic()
        self._to_write: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._to_read: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=_work, args=(jobs, self._traffic), name=f"phloem-{name}", daemon=True)
            for name, jobs in (("writer", self._to_write), ("reader", self._to_read))
        ]
        for thread in self._threads:
            thread.start()
        if disk is not None:
            self._to_write.put(disk.begin)
        # also at the exit of a process that has not closed its engine: a thread in the middle of something must end
        self.close = weakref.finalize(self, _close, self._to_write, self._to_read, self._threads)

    # -- out ---------------------------------------------------------------------------------------------------

    def entered(self, blocks: Sequence[int], tokens: bytes, namespace: str, before: int | None) -> None:
        """Blocks have come into the tree: they hold packed `tokens`, behind block `before` of the tree (None: at its
        root). The last may be a tail."""
        keys = self._name(blocks, tokens, namespace, before)
        if self._disk is not None:
            disk = self._disk
            self._offer([(key, block) for key, block in zip(keys, blocks, strict=False) if not disk.knows(key)])

    def _name(self, blocks: Sequence[int], tokens: bytes, namespace: str, before: int | None) -> list[BlockKey]:
        """Puts down the keys of blocks; a tail has none."""
        parent = None if before is None else self._keys[before]
        digest = root_of(self._fingerprint, namespace) if parent is None else parent.digest
        keys = extend_keys(digest, before is None, tokens, 4 * self._block_size) if before is None or parent else []
        for index, block in enumerate(blocks):
            self._keys[block] = keys[index] if index < len(keys) else None
        return keys

    def leaving(self, blocks: Sequence[int]) -> None:
        """Blocks have just been evicted, and will be written over."""
        wanted = [
            (key, block)
            for block in blocks
            if (key := self._keys[block]) is not None
            and (
                (self._memory is not None and key not in self._memory)
                or not (self._disk is None or self._disk.knows(key))
            )
        ]
        self._offer(wanted, to_memory=True)

    def _offer(self, wanted: list[tuple[BlockKey, int]], *, to_memory: bool = False) -> None:
        """Copies blocks for the writer, as many as it has room for."""
        room = max(0, (QUEUE_BYTES - self._traffic.num_queued_bytes)) // self._block_bytes
        if not self._traffic.num_queued_bytes:
            room = max(room, 1)  # however large a block is
        self._num_dropped += max(0, len(wanted) - room)
        wanted = wanted[:room]
        if not wanted:
            return
        try:
            rows = self._ferry.send_out(self._kv_cache.read_blocks([block for _, block in wanted]))
        except Exception:
            self._fail("KV could not be copied")
            return
        keys, traffic, num_bytes = [key for key, _ in wanted], self._traffic, len(wanted) * self._block_bytes
        memory, disk = self._memory if to_memory else None, self._disk
        with traffic.news:
            traffic.num_queued_bytes += num_bytes

        def write() -> None:
            try:
                for key, row in zip(keys, rows(), strict=True):
                    is_kept = memory is not None and memory.put(key, row)
                    is_kept |= disk is not None and disk.put(key, row)
                    traffic.num_written += is_kept
            finally:
                with traffic.news:
                    traffic.num_queued_bytes -= num_bytes
                    traffic.news.notify_all()

        self._to_write.put(write)

    # -- in ----------------------------------------------------------------------------------------------------

    def delays(self, asker: object, namespace: str, look: Callable[[], tuple[bytes, int]], num_available: int) -> bool:
        """Whether a request is to wait, since what it would have to compute is being read; begins that if it pays.

        Args:
            asker: the request; whatever it is, it is the same until `forget`.
            look: what it might not have to compute, packed, and how many of these tokens the tree has.
            num_available: blocks of the pool that are free or could be.
        """
        state = self._askers.get(asker)
        if state is not None and (state.is_settled or state.load is not None):
            return not state.is_settled and not self._gives_up(state)
        is_late = any(self._is_late(load) for load in self._loads)
        if len(self._loads) >= MOST_LOADS and not is_late:
            return True
        try:
            tokens, num_cached = look()
        except Exception:
            self._fail("nobody knows what is cached")
            return False
        if state is None:
            root = root_of(self._fingerprint, namespace)
            state = self._askers[asker] = _Asker(extend_keys(root, True, tokens, 4 * self._block_size))
        first = num_cached // self._block_size
        missing = state.keys[first : first + max(1, PORTION_BYTES // self._block_bytes)]
        # what was read and is gone again is not read twice
        is_hopeless = is_late or first < state.reached or len(missing) > num_available
        if is_hopeless or not missing or (missing[0].digest not in self._coming and not self._has(missing[0])):
            state.is_settled = True
        elif missing[0].digest not in self._coming:
            state.load = Load(namespace, tokens, first, missing, self._clock())
            self._begin(state.load)
        return not state.is_settled

    def _is_late(self, load: Load) -> bool:
        return not load.is_done and self._clock() - load.begun_at > PATIENCE

    def _gives_up(self, state: _Asker) -> bool:
        """Whether a request does not wait any more for what it has asked for."""
        assert state.load is not None
        if self._is_late(state.load):
            logger.warning("no answer from the tiers below the pool for %g s: computing instead", PATIENCE)
            state.load, state.is_settled = None, True
        return state.is_settled

    def _has(self, key: BlockKey) -> bool:
        return (self._memory is not None and key in self._memory) or (self._disk is not None and key in self._disk)

    def _begin(self, load: Load) -> None:
        self._loads.append(load)
        self._coming.update(key.digest for key in load.keys)
        traffic = self._traffic
        read = _Reading(self._memory, self._disk, self._ferry, self.cost, self._block_size, self._block_bytes)

        def job() -> None:
            try:
                load.rows = read.rows(load)
            finally:
                with traffic.news:
                    load.is_done = True
                    traffic.done.append(load)
                    traffic.news.notify_all()

        self._to_read.put(job)

    def take_in(self, adopt: Callable[[str, bytes, int, Tensor], int]) -> None:
        """Hands over what was read since the last call.

        adopt: given namespace, packed tokens up to the end of what was read, index of the first block and rows, puts
            them into the tree; returns how many blocks it has put there.
        """
        while self._traffic.done:
            load = self._traffic.done.popleft()
            self._loads.remove(load)
            self._coming.difference_update(key.digest for key in load.keys)
            state = next((state for state in self._askers.values() if state.load is load), None)
            if state is None:
                continue  # who asked has ended, or waited for too long
            num_adopted = 0
            if load.rows is not None:
                end = load.first + load.num_blocks
                tokens = load.tokens[: 4 * self._block_size * end]
                try:
                    num_adopted = adopt(load.namespace, tokens, load.first, self._ferry.receive(load.rows))
                except Exception:
                    self._fail("KV that was read could not be used")
            self._num_loaded += num_adopted
            state.load = None
            state.num_loaded += num_adopted
            state.reached = load.first + load.num_blocks
            state.is_settled = load.num_blocks < len(load.keys)  # that was all there is

    def adopted(self, blocks: Sequence[int], tokens: bytes, namespace: str, before: int | None) -> None:
        """Blocks that were read are in the tree now; arguments as for `entered`."""
        self._name(blocks, tokens, namespace, before)

    def forget(self, asker: object) -> int:
        """The request is admitted, or has ended; returns how many blocks were read for it."""
        state = self._askers.pop(asker, None)
        return 0 if state is None else state.num_loaded

    def await_news(self, seconds: float) -> None:
        """Waits until something that was asked for has come, for so long at most; not at all if nothing was."""
        traffic = self._traffic
        if self._loads:
            with traffic.news:
                if not traffic.done:
                    traffic.news.wait(seconds)

    # -- both --------------------------------------------------------------------------------------------------

    def clear_memory(self) -> None:
        """Forgets what is in host memory, and what is on its way there. Files stay."""
        if self._memory is not None:
            self._memory.clear()
            self._to_write.put(self._memory.clear)

    def settle(self, seconds: float = CLOSING) -> bool:
        """Waits until what was copied has been written; False if that takes longer."""
        traffic = self._traffic
        with traffic.news:
            return traffic.news.wait_for(lambda: not traffic.num_queued_bytes, seconds)

    def _fail(self, what: str) -> None:
        _fail(self._traffic, what)

    def statistics(self) -> TierStatistics:
        """Safe on any thread."""
        disk, memory = self._disk, self._memory
        return TierStatistics(
            num_stored=self._traffic.num_written,
            num_loaded=self._num_loaded,
            num_dropped=self._num_dropped,
            num_faults=self._traffic.num_failed + (0 if disk is None else disk.num_faults),
            host_bytes=0 if memory is None else memory.num_bytes,
            disk_bytes=0 if disk is None else disk.num_bytes,
        )


@dataclass(frozen=True, slots=True)
class _Reading:
    """What the reader needs to read a load."""

    memory: MemoryTier | None
    disk: DiskTier | None
    ferry: Ferry
    cost: LoadCost
    block_size: int
    block_bytes: int

    def rows(self, load: Load) -> Tensor | None:
        """As many blocks as there are, from the first on, on the pool's device; None if there is none, or it would
        not pay."""
        found: dict[str, int] = {"host": 0, "disk": 0}
        for key in load.keys:
            if self.memory is not None and key in self.memory:
                found["host"] += 1
            elif self.disk is not None and key in self.disk:
                found["disk"] += 1
            else:
                break
        num_found = sum(found.values())
        if not num_found or not self.cost.pays(found, load.first * self.block_size):
            return None
        host = self.ferry.host_rows(num_found, self.block_bytes)
        num_read = self._read(load.keys[:num_found], host.numpy())
        return self.ferry.bring_in(host[:num_read]) if num_read else None

    def _read(self, keys: list[BlockKey], rows: Row) -> int:
        """Reads blocks until one is missing; how many that are."""
        seconds, numbers = {"host": 0.0, "disk": 0.0}, {"host": 0, "disk": 0}
        num_read = 0
        for key, row in zip(keys, rows, strict=True):
            begin = time.perf_counter()
            if self.memory is not None and self.memory.read(key, row):
                tier = "host"
            elif self.disk is not None and self.disk.read(key, row):
                tier = "disk"
            else:
                break
            seconds[tier] += time.perf_counter() - begin
            numbers[tier] += 1
            num_read += 1
        for tier, number in numbers.items():
            self.cost.observe_load(tier, number, seconds[tier])
        if self.memory is not None:
            self.memory.touch(keys[:num_read])
        if self.disk is not None and num_read:
            self.disk.touch(keys[num_read - 1])
        return num_read


def _work(jobs: SimpleQueue[Callable[[], None] | None], traffic: _Traffic) -> None:
    """Does jobs until there are no more. One that fails costs itself alone."""
    while (job := jobs.get()) is not None:
        try:
            job()
        except Exception:
            _fail(traffic, "what was asked of it was not done")
        del job  # it holds memory


def _fail(traffic: _Traffic, what: str) -> None:
    """Counts an error that nobody has foreseen, and tells of the first. To be called where it is handled."""
    traffic.num_failed += 1
    if traffic.num_failed == 1:
        logger.warning("a tier below the pool has failed: %s. Later errors are counted only.", what, exc_info=True)


def _close(
    to_write: SimpleQueue[Callable[[], None] | None],
    to_read: SimpleQueue[Callable[[], None] | None],
    threads: Sequence[threading.Thread],
) -> None:
    """Ends the threads when they have done what was begun."""
    deadline = time.monotonic() + CLOSING
    for jobs in (to_write, to_read):
        jobs.put(None)
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
