"""KV on its way from the tiers back into the pool.

::

    step thread    ask ──► others go on …            ──► take in ──► the request is admitted: a hit
    reader            └──► find, weigh, read, bring ──┘

A request that is next to be admitted, and would have to compute whole blocks that a tier has, is passed over while they
are read, if reading is faster (`load_cost`). When they are there they go into the tree like computed ones, and the
request is admitted as one that hits. A large prefix comes in portions. A request that needs what is just being read for
another waits for that. What is being read takes none of the pool's blocks, so a request may end at any moment; but no
more is read at a time than the pool could take in, or one would push out what was read for the other. Where groups of
layers need parts of blocks too (`parts`), all comes at once, and so may parts alone.

Nothing that goes wrong where it is read fails a request: it is a miss. A reader from which nothing is heard for
`PATIENCE` seconds is not waited for, and not asked again until it answers.

Belongs to the step's thread. Knows requests as objects that ask, keys and tiers; it knows no tree.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from . import BlockKey, Tier
from .background import Background, Failures, logger
from .block_key import BlockKeys
from .device_copy import DeviceCopy
from .load_cost import LoadCost
from .parts import PartRules, PoolPrefix
from .shelf import Load, Shelf

PORTION_BYTES = 64 << 20  # read before the step hears of it
MOST_LOADS = 4  # under way at a time
MOST_LOOKS = 16  # at requests that have not asked before, in a step: their keys take a microsecond per block
MOST_BLOCKS = 1 << 31  # of a prefix
PATIENCE = 5.0  # seconds without a finished load


@dataclass(slots=True)
class _Asker:
    """What is known of a waiting request.

    Attributes:
        keys: of all whole blocks that it might not have to compute.
        load: what it waits for.
        reached: index of the block up to which what was read for it goes.
        num_loaded: blocks that were read for it.
        is_settled: there is nothing more to be had.
        num_unusable: tokens up to the end of keys that are of no use without a part; 0: there were none.
    """

    keys: list[BlockKey]
    load: Load | None = None
    reached: int = 0
    num_loaded: int = 0
    is_settled: bool = False
    num_unusable: int = 0


class Loads:
    """What waiting requests get from the tiers.

    Args:
        tiers: fastest first.
        keys: what blocks are called in the tiers.
        block_size: tokens per block.
        block_bytes: bytes of a block's KV.
        rules: of parts; None: the keys of all tokens are all that is needed.
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
        rules: PartRules | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cost = cost
        self.num_loaded = 0
        self._shelf = Shelf(tiers, device_copy, cost, block_size, block_bytes, rules)
        self._device_copy = device_copy
        self._failures = failures
        self._keys = keys
        self._block_size = block_size
        self._portion = max(1, PORTION_BYTES // block_bytes) if rules is None else MOST_BLOCKS
        self._clock = clock
        self._thread = Background("phloem-tier-reader", failures)
        self._askers: dict[object, _Asker] = {}
        self._under_way: list[Load] = []
        self._bell = threading.Condition()  # rings when a load is done
        self._heard_at = clock()
        self._num_looks = 0  # in this step

    def delays(self, asker: object, namespace: str, in_pool: Callable[[], PoolPrefix], num_available: int) -> bool:
        """Whether a request is to wait, since what it would have to compute is being read; begins that if it can.

        Args:
            asker: the request; whatever it is, it is the same until `forget`.
            in_pool: tells what it might not have to compute, and what of that is in the pool.
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
            found = in_pool()
        except Exception:  # it changes nothing
            self._failures.note("what is cached is not known")
            return False
        if state is None:
            self._num_looks += 1
            state = self._askers[asker] = _Asker(self._keys.of_prefix(found.tokens, namespace))
        first, start = found.num_cached // self._block_size, found.num_resumable // self._block_size
        prefix = state.keys[: first + self._portion]
        missing, wanted = prefix[first:], prefix[start:]
        if wanted and not is_late and any(load.brings(wanted[0]) for load in self._under_way):
            return True
        if len(missing) > num_available:
            return False  # nor is there room to compute it: it will ask again
        is_there = any(index >= start for index in found.below) or (missing and self._shelf.may_have(missing[0]))
        # what was read and is gone again is not read twice
        if is_late or not is_there or first < state.reached:
            state.is_settled = True
        elif not is_full and len(missing) + sum(len(load.keys) for load in self._under_way) <= num_available:
            state.load = Load(namespace, found, prefix, first, start, self._clock())
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
                shelf.read(load)
            finally:
                with bell:
                    load.is_done = True
                    bell.notify_all()

        self._thread.do(read)
        self._under_way.append(load)

    def take_in(self, adopt: Callable[[str, bytes, int, Tensor | None, Mapping[int, Tensor]], int]) -> None:
        """Hands over what was read since the last call.

        adopt: given namespace, packed tokens up to the end of what was read, index of the first block, rows, and parts
            by the index of their block, puts them into the tree and the pool; returns how many blocks it has put there.
        """
        self._num_looks = 0
        for load in [load for load in self._under_way if load.is_done]:
            self._under_way.remove(load)
            self._heard_at = self._clock()
            state = next((state for state in self._askers.values() if state.load is load), None)
            if state is None:
                continue  # the request has ended, or waited for too long
            num_adopted = 0
            if load.rows is not None or load.parts:
                tokens = load.in_pool.tokens[: 4 * self._block_size * (load.first + load.num_blocks)]
                receive = self._device_copy.receive
                try:
                    rows = None if load.rows is None else receive(load.rows)
                    parts = {index: receive(part) for index, part in load.parts.items()}
                    num_adopted = adopt(load.namespace, tokens, load.first, rows, parts)
                except Exception:  # which may have left the pool in disorder: the step puts it in order, and goes on
                    self._failures.note("KV that was read could not be used")
                    raise
            self.num_loaded += num_adopted
            state.load = None
            state.num_loaded += num_adopted
            state.reached = load.first + load.num_blocks
            state.is_settled = not load.keys or load.num_blocks < len(load.keys)  # that was all there is
            state.num_unusable = load.num_unusable

    def give_up(self, askers: Container[object]) -> None:
        """After a fault: these wait no longer, and compute instead; all others are forgotten."""
        self._askers = {asker: state for asker, state in self._askers.items() if asker in askers}
        for state in self._askers.values():
            state.load, state.is_settled = None, True

    def num_unusable(self, asker: object) -> int:
        """Tokens up to the end of keys for a request that are of no use, since no tier had what else it needs."""
        state = self._askers.get(asker)
        return 0 if state is None else state.num_unusable

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
