"""KV on its way from the tiers back into the pool.

::

    step thread    ask ──► others go on …            ──► take in ──► the request is admitted: a hit
    reader            └──► look, weigh, read, bring ──┘

A request that is next to be admitted, and would have to compute whole blocks that a tier has, is passed over while they
are read, if reading is faster (`load_cost`). When they are there they go into the tree like computed ones, and the
request is admitted as one that hits. A large prefix comes in portions. A request that needs what is just being read for
another waits for that. What is being read takes none of the pool's blocks, so a request may end at any moment; but no
more is read at a time than the pool could take in, or one would push out what was read for the other.

Nothing that goes wrong where it is read fails a request: it is a miss. A reader from which nothing is heard for
`PATIENCE` seconds is not waited for, and not asked again until it answers.

Belongs to the step's thread. Knows requests as objects that ask, keys and tiers; it knows no tree.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from . import BlockKey, Tier
from .background import Background, Failures, logger
from .block_keys import BlockKeys
from .device_copy import DeviceCopy
from .load_cost import LoadCost

PORTION_BYTES = 64 << 20  # read before the step hears of it
MOST_LOADS = 4  # under way at a time
MOST_LOOKS = 16  # at requests that have not asked before, in a step: their keys take a microsecond per block
PATIENCE = 5.0  # seconds without a finished load


@dataclass(slots=True, eq=False)
class Load:
    """Blocks on their way into the pool, for the first request that asked.

    Attributes:
        tokens: packed, from the root on, as far as any request asked.
        first: index of the first block that is read; `keys` are those of all that are, from it on.
        rows: what was read, on the pool's device, a row per block; None: nothing.
    """

    namespace: str
    tokens: bytes
    first: int
    keys: list[BlockKey]
    begun_at: float
    rows: Tensor | None = None
    is_done: bool = False
    digests: frozenset[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.digests = frozenset(key.digest for key in self.keys)

    @property
    def num_blocks(self) -> int:
        return 0 if self.rows is None else len(self.rows)

    def brings(self, key: BlockKey) -> bool:
        """Whether this block is among those that are read."""
        return key.digest in self.digests


@dataclass(slots=True)
class _Asker:
    """What is known of a waiting request.

    Attributes:
        keys: of all whole blocks that it might not have to compute.
        load: what it waits for.
        reached: index of the block up to which what was read for it goes.
        num_loaded: blocks that were read for it.
        is_settled: there is nothing more to be had.
    """

    keys: list[BlockKey]
    load: Load | None = None
    reached: int = 0
    num_loaded: int = 0
    is_settled: bool = False


class Loads:
    """What waiting requests get from the tiers.

    Args:
        tiers: fastest first.
        keys: what blocks are called in the tiers.
        block_size: tokens per block.
        block_bytes: bytes of a block's KV.
        clock: seconds, for patience.

    Attributes:
        cost: what reading and computing take.
        num_loaded: blocks that have come into the pool.
    """

    def __init__(
        self,
        tiers: Sequence[Tier],
        device_copy: DeviceCopy,
        cost: LoadCost,
        failures: Failures,
        keys: BlockKeys,
        block_size: int,
        block_bytes: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cost = cost
        self.num_loaded = 0
        self._shelf = _Shelf(tiers, device_copy, cost, block_size, block_bytes)
        self._device_copy = device_copy
        self._failures = failures
        self._keys = keys
        self._block_size = block_size
        self._portion = max(1, PORTION_BYTES // block_bytes)
        self._clock = clock
        self._thread = Background("phloem-tier-reader", failures)
        self._askers: dict[object, _Asker] = {}
        self._under_way: list[Load] = []
        self._bell = threading.Condition()  # rings when a load is done
        self._heard_at = clock()
        self._num_looks = 0  # in this step

    def delays(self, asker: object, namespace: str, look: Callable[[], tuple[bytes, int]], num_available: int) -> bool:
        """Whether a request is to wait, since what it would have to compute is being read; begins that if it can.

        Args:
            asker: the request; whatever it is, it is the same until `forget`.
            look: what it might not have to compute, packed, and how many of these tokens the tree has.
            num_available: blocks of the pool that are free or could be.
        """
        state = self._askers.get(asker)
        if state is not None and (state.is_settled or state.load is not None):
            return not state.is_settled and not self._gives_up(state)
        is_full = len(self._under_way) >= MOST_LOADS
        if state is None and is_full and self._num_looks >= MOST_LOOKS:
            return True
        is_late = any(self._is_late(load) for load in self._under_way)
        try:
            tokens, num_cached = look()
        except Exception:  # it changes nothing
            self._failures.note("what is cached is not known")
            return False
        if state is None:
            self._num_looks += 1
            state = self._askers[asker] = _Asker(self._keys.of_prefix(tokens, namespace))
        first = num_cached // self._block_size
        missing = state.keys[first : first + self._portion]
        if missing and not is_late and any(load.brings(missing[0]) for load in self._under_way):
            return True
        if len(missing) > num_available:
            return False  # nor is there room to compute it: it will ask again
        # what was read and is gone again is not read twice
        if is_late or not missing or first < state.reached or not self._shelf.may_have(missing[0]):
            state.is_settled = True
        elif not is_full and len(missing) + sum(len(load.keys) for load in self._under_way) <= num_available:
            state.load = Load(namespace, tokens, first, missing, self._clock())
            self._begin(state.load)
        return not state.is_settled

    def _is_late(self, load: Load) -> bool:
        return not load.is_done and self._clock() - max(load.begun_at, self._heard_at) > PATIENCE

    def _gives_up(self, state: _Asker) -> bool:
        """Whether a request does not wait any more for what it has asked for."""
        assert state.load is not None
        if self._is_late(state.load):
            logger.warning("no answer from the tiers below the pool for %g s: computing instead", PATIENCE)
            state.load, state.is_settled = None, True
        return state.is_settled

    def _begin(self, load: Load) -> None:
        shelf, bell = self._shelf, self._bell

        def read() -> None:
            try:
                load.rows = shelf.rows(load)
            finally:
                with bell:
                    load.is_done = True
                    bell.notify_all()

        self._thread.do(read)
        self._under_way.append(load)

    def take_in(self, adopt: Callable[[str, bytes, int, Tensor], int]) -> None:
        """Hands over what was read since the last call.

        adopt: given namespace, packed tokens up to the end of what was read, index of the first block and rows, puts
            them into the tree; returns how many blocks it has put there.
        """
        self._num_looks = 0
        for load in [load for load in self._under_way if load.is_done]:
            self._under_way.remove(load)
            self._heard_at = self._clock()
            state = next((state for state in self._askers.values() if state.load is load), None)
            if state is None:
                continue  # the request has ended, or waited for too long
            num_adopted = 0
            if load.rows is not None:
                tokens = load.tokens[: 4 * self._block_size * (load.first + load.num_blocks)]
                try:
                    num_adopted = adopt(load.namespace, tokens, load.first, self._device_copy.receive(load.rows))
                except Exception:  # which may have left the pool in disorder: the step puts it in order, and goes on
                    self._failures.note("KV that was read could not be used")
                    raise
            self.num_loaded += num_adopted
            state.load = None
            state.num_loaded += num_adopted
            state.reached = load.first + load.num_blocks
            state.is_settled = load.num_blocks < len(load.keys)  # that was all there is

    def give_up(self, askers: Container[object]) -> None:
        """After a fault: these wait no longer, and compute instead; all others are forgotten."""
        self._askers = {asker: state for asker, state in self._askers.items() if asker in askers}
        for state in self._askers.values():
            state.load, state.is_settled = None, True

    def forget(self, asker: object) -> int:
        """The request is admitted, or has ended; returns how many blocks were read for it."""
        state = self._askers.pop(asker, None)
        return 0 if state is None else state.num_loaded

    def wait_for_one(self, seconds: float) -> None:
        """Waits until something that was asked for has come, for so long at most; not at all if nothing was."""
        if self._under_way:
            with self._bell:
                if not any(load.is_done for load in self._under_way):
                    self._bell.wait(seconds)

    def close(self) -> None:
        """Ends the reader when it has read what it was asked for."""
        self._thread.close()


@dataclass(frozen=True, slots=True)
class _Shelf:
    """The tiers as the reader sees them, fastest first."""

    tiers: Sequence[Tier]
    device_copy: DeviceCopy
    cost: LoadCost
    block_size: int
    block_bytes: int

    def may_have(self, key: BlockKey) -> bool:
        """False: no tier has the block. For the step's thread."""
        return any(tier.may_have(key) for tier in self.tiers)

    def rows(self, load: Load) -> Tensor | None:
        """As many blocks as there are, from the first on, on the pool's device; None if there is none, or computing
        them is faster."""
        runs = self._runs(load.keys, self.tiers)
        found: dict[str, int] = {}
        for tier, number in runs:
            found[tier.name] = found.get(tier.name, 0) + number
        num_found = sum(found.values())
        if not num_found or not self.cost.pays(found, load.first * self.block_size):
            return None
        host = self.device_copy.host_rows(num_found, self.block_bytes)
        num_read = self._read(load.keys[:num_found], runs, host)
        return self.device_copy.bring_in(host[:num_read]) if num_read else None

    def _runs(self, keys: Sequence[BlockKey], tiers: Sequence[Tier]) -> list[tuple[Tier, int]]:
        """Runs of blocks by tier, until a block is in none of them: each comes from the fastest tier that has it."""
        runs: list[tuple[Tier, int]] = []
        start = 0
        while start < len(keys):
            counts = ((index, tier.count(keys[start:])) for index, tier in enumerate(tiers))
            index, number = next(((index, number) for index, number in counts if number), (0, 0))
            if not number:
                break
            ends = (end for end in range(start + 1, start + number) if self._is_in(keys[end], tiers[:index]))
            end = next(ends, start + number)  # where a faster one goes on
            runs.append((tiers[index], end - start))
            start = end
        return runs

    def _is_in(self, key: BlockKey, tiers: Sequence[Tier]) -> bool:
        return any(tier.may_have(key) for tier in tiers)

    def _read(self, keys: Sequence[BlockKey], runs: list[tuple[Tier, int]], host: Tensor) -> int:
        """Reads blocks until one is missing; how many that are. What a tier has lost another one may have."""
        rows, tiers, num_read = host.numpy(), list(self.tiers), 0
        while runs:
            tier, number = runs.pop(0)
            begin, end = time.perf_counter(), num_read + number
            got = tier.read_blocks(keys[num_read:end], rows[num_read:end])
            self.cost.observe_load(tier.name, got, time.perf_counter() - begin)
            num_read += got
            if got < number:
                tiers.remove(tier)
                runs = self._runs(keys[num_read:], tiers)
        for tier in self.tiers:
            tier.touch(keys[:num_read])
        return num_read
