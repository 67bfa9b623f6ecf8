"""Which blocks have the keys and values of layers with a window, and in which slots these lie.

A layer with a window of W tokens reads the last W keys and no others, so a model can go on from token t where all
blocks before t are there *and the blocks of the last W tokens have slots*. Layers without a window find their keys by
block, those with one by `slot_of[block]`, in tensors with as many blocks as there are slots::

    blocks of a path    [ 0 ][ 1 ][ 2 ][ 3 ][ 4 ][ 5 ][ 6 ][ 7 ]   all keys of layers without a window
    slots                 -    -    9    4    -    -    7    2     keys of layers with one
                                  └─ W ──┘          └─ W ──┘
                                 others resumed here    a request is here

Blocks of the last W tokens of a running request are *held*. A block that it leaves behind keeps its slot until another
needs it: first go those that lie in the window of no resume point, the one first that was left behind first; then those
that do, least recently used first. Since all blocks of a window are let go together, that is as good as an order of
resume points, and needs no list of them. Resume points are

* where a request found more keys than it could resume at (a branch of the tree: the next one resumes there),
* where it resumed, unless that was the end of another to which none but it has returned: a chat keeps one window,
* a prompt but for its last token (the same prompt again),
* the end of all that a request has computed when it ends or is preempted.

A request that finds the keys of n tokens resumes at n if the blocks of the window before n have slots, to the token;
else at the end of the last block for which they have, and computes the rest. What it computes anew of keys that the
tree has is a duplicate, whose slot goes over to the tree's block (`merge`).

Slot 0 belongs to no block and is never written: kernels find it where a table names a block outside of the window.

Knows blocks and requests; it knows no tree and no tensors. Probes leave no trace. Invariants (`audit`): a slot has one
block, which is in the tree or of a request; all that is computed of a block with a slot is there; a running request
holds all its blocks from the first one in its window on. Cost: O(blocks) where a request begins, O(1) per block later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from ...radix import Match
from ..capacity.window_memory import chunk_blocks, most_blocks, room_for_windows
from ..execute.window_view import EMPTY
from ..request import Request

NONE = -1  # of a block without a slot


def _place(request: Request) -> int:
    """Where in its blocks the request's next token has its keys."""
    return request.num_computed_tokens - request.num_dropped_tokens


class WindowStore:
    """Who holds which of the slots 1 to `num_slots - 1`.

    Args:
        window: tokens, the own one among them, that the layer with the widest window sees.
        in_chunks: a token sees those of its chunk of `window` tokens, which are among its window.
        max_batch_tokens: that a step may compute, if there are slots for as many.
        keeps: whether windows outlive their requests.

    Attributes:
        slot_of: int32 `[num_blocks]`; -1: the block has none.
        on_leave: called with a block in the window of a resume point whose slot is about to be taken; None: it is of no
            interest, nor is which have come there.
    """

    def __init__(
        self,
        num_slots: int,
        num_blocks: int,
        block_size: int,
        window: int,
        *,
        in_chunks: bool = False,
        max_batch_tokens: int,
        keeps: bool,
    ) -> None:
        self.num_slots = num_slots
        self.window = window
        self.in_chunks = in_chunks
        self.slot_of: npt.NDArray[np.int32] = np.full(num_blocks, NONE, np.int32)
        self._block_size = block_size
        self._max_batch_tokens = max_batch_tokens
        self._keeps = keeps
        self.on_leave: Callable[[int], None] | None = None
        self._fresh: list[int] = []  # blocks that came into the window of a resume point since that was last asked for
        self._free = list(range(num_slots - 1, EMPTY, -1))
        self._holders: npt.NDArray[np.int32] = np.zeros(num_blocks, np.int32)
        self._is_kept = bytearray(num_blocks)  # whether a block is in the window of a resume point
        self._passed: dict[int, None] = {}  # blocks that none holds, next to go first
        self._kept: dict[int, None] = {}  # the same, in the window of a resume point
        self._ends: set[int] = set()  # last blocks of requests that ended there, to which none has returned
        self._held: dict[Request, tuple[int, int]] = {}  # first and end of its blocks
        self._points: dict[Request, set[int]] = {}  # tokens after which another may resume
        self._resumed: dict[Request, tuple[int, int]] = {}  # in which block, after which token; until it has gone on

    @property
    def num_used(self) -> int:
        """Slots that blocks have."""
        return self.num_slots - 1 - len(self._free)

    @property
    def num_held(self) -> int:
        """Slots that running requests hold."""
        return self.num_used - len(self._passed) - len(self._kept)

    @property
    def num_needed_each(self) -> int:
        """Blocks that a request may hold at most, but for those of its tokens in a step."""
        return most_blocks(self.window, self._block_size)

    @property
    def most_step_tokens(self) -> int:
        """Tokens that a step may compute, for whose blocks there are slots besides those of windows."""
        num_blocks = chunk_blocks(self.num_slots, self._block_size, self._max_batch_tokens)
        return min(self._max_batch_tokens, num_blocks * self._block_size)

    def first_block(self, num_tokens: int) -> int:
        """The first block whose keys are needed to go on after `num_tokens`."""
        return max(0, num_tokens - self.window + 1) // self._block_size

    def fits(self, own: Iterable[int]) -> bool:
        """Whether there are slots for the windows of requests, besides those for a step's tokens.

        own: how many blocks each will have in the end that it does not share now. What is shared is counted once.
        """
        needed = np.count_nonzero(self._holders > 1) + sum(min(self.num_needed_each, count) for count in own)
        return bool(needed <= room_for_windows(self.num_slots, self._block_size, self._max_batch_tokens))

    # -- resuming ----------------------------------------------------------------------------------------------

    def find(self, blocks: Sequence[int]) -> int:
        """How many tokens of a path of whole blocks a request can resume after; whole blocks too."""
        end = len(blocks)
        for last in np.flatnonzero(self.slot_of[np.asarray(blocks, np.int64)] == NONE)[::-1].tolist():
            if self.first_block(end * self._block_size) > last:
                break
            end = last
        return end * self._block_size

    def resume(self, request: Request, last_block: int, num_tokens: int, num_keys: int) -> None:
        """The request, which has its blocks, goes on after `num_tokens`, the last of which is in `last_block`.

        num_keys: tokens whose keys were found.
        """
        points = {request.num_prompt_tokens - 1, num_keys}
        if num_tokens:
            points.add(num_tokens)
            self._resumed[request] = last_block, num_tokens
        if self._keeps and not request.is_probe:
            self._points[request] = points
        self.hold(request)

    # -- a request moves on ------------------------------------------------------------------------------------

    def has_room(self, request: Request, num_blocks: int) -> bool:
        """Whether there are slots for all blocks that the request needs, had it `num_blocks`."""
        first = max(len(request.blocks), self.first_block(_place(request)))
        return num_blocks - first <= len(self._free) + len(self._passed) + len(self._kept)

    def hold(self, request: Request) -> None:
        """Holds the request's blocks from its window on; those that are new get slots."""
        first = self.first_block(_place(request))
        begin, end = self._held.get(request, (first, first))
        for block in request.blocks[end:]:
            if self.slot_of[block] == NONE:
                self.slot_of[block] = self._take()
            self._holders[block] += 1
            self._passed.pop(block, None)
            self._kept.pop(block, None)
        self._held[request] = begin, max(end, len(request.blocks))

    def move_on(self, request: Request) -> None:
        """After a step: lets go of what is behind the window."""
        if request not in self._held:
            return
        self._settle_resumed(request)
        points = self._points.get(request, set())
        for point in [point for point in points if point <= request.num_computed_tokens]:
            self._mark(request, point)
            points.discard(point)
        begin, end = self._held[request]
        first = max(begin, min(end, self.first_block(_place(request))))
        for block in request.blocks[begin:first]:
            self._let_go(block)
        self._held[request] = first, end

    def cut(self, request: Request, num_blocks: int) -> None:
        """The request gives up its blocks after the first `num_blocks`, which are freed next."""
        if request in self._held:
            begin, end = self._held[request]
            self._held[request] = min(begin, num_blocks), min(end, num_blocks)

    def end(self, request: Request, *, keep: bool) -> None:
        """The request, which has its blocks still, holds nothing any more.

        keep: whether what it has computed is in the tree, so that another may resume at its end.
        """
        if request not in self._held:
            return
        if keep and self._keeps and not request.is_probe and request.num_computed_tokens:
            self._settle_resumed(request)
            self._mark(request, request.num_computed_tokens)
            last = request.blocks[(request.num_computed_tokens - 1) // self._block_size]
            if self.slot_of[last] != NONE:  # a window of one token does not reach back to it
                self._ends.add(last)
        begin, end = self._held.pop(request)
        for block in reversed(request.blocks[begin:end]):  # the last one goes first: the window before stays whole
            self._let_go(block)
        self._points.pop(request, None)
        self._resumed.pop(request, None)

    def _settle_resumed(self, request: Request) -> None:
        """It has gone on: where it resumed at the end of another, the window there is wanted no more."""
        block, num_tokens = self._resumed.pop(request, (NONE, 0))
        if block in self._ends and request in self._points:
            self._ends.discard(block)
            self._points[request].discard(num_tokens)
            begin, end = self._held[request]
            for held in request.blocks[begin:end]:
                self._is_kept[held] = False

    def _mark(self, request: Request, point: int) -> None:
        """Keeps those of its held blocks that are needed to resume at a point, or at the end of the block before."""
        begin, end = self._held[request]
        first = self.first_block(point // self._block_size * self._block_size)
        for block in request.blocks[max(begin, first) : min(end, -(-point // self._block_size))]:
            if not self._is_kept[block] and self.on_leave is not None:
                self._fresh.append(block)
            self._is_kept[block] = True

    # -- blocks ------------------------------------------------------------------------------------------------

    def forget(self, blocks: Iterable[int]) -> None:
        """These blocks are free."""
        for block in blocks:
            slot = int(self.slot_of[block])
            if slot != NONE:
                self._lose_slot(block)
                self._free.append(slot)

    def merge(self, source: int, target: int) -> None:
        """Both are filled with the same tokens; `target` takes the place of `source`, and its slot if it has none."""
        slot = int(self.slot_of[source])
        if source == target or slot == NONE:
            return
        holders, is_kept, is_end = int(self._holders[source]), self._is_kept[source], source in self._ends
        self._lose_slot(source)
        if self.slot_of[target] == NONE:
            self.slot_of[target] = slot
        else:
            self._free.append(slot)
        self._is_kept[target] |= is_kept
        if is_kept and self.on_leave is not None:
            self._fresh.append(target)
        if is_end:
            self._ends.add(target)
        self._holders[target] += holders + 1
        self._passed.pop(target, None)
        self._kept.pop(target, None)
        self._let_go(target)

    def reclaim(self, blocks: Collection[int]) -> None:
        """After a fault: no request holds anything, and slots stay with these blocks alone."""
        self._held.clear()
        self._points.clear()
        self._resumed.clear()
        self._holders[:] = 0
        is_left = np.zeros(len(self.slot_of), bool)
        is_left[list(blocks)] = True
        self.slot_of[~is_left] = NONE
        left = np.flatnonzero(self.slot_of != NONE).tolist()
        for block in np.flatnonzero(self.slot_of == NONE).tolist():
            self._is_kept[block] = False
        self._ends &= set(left)
        self._free = sorted(set(range(1, self.num_slots)) - set(self.slot_of[left].tolist()), reverse=True)
        before = [*self._passed, *self._kept]
        order = [*dict.fromkeys(block for block in [*before, *left] if self.slot_of[block] != NONE)]
        self._passed = {block: None for block in order if not self._is_kept[block]}
        self._kept = {block: None for block in order if self._is_kept[block]}

    def audit(self, requests: Iterable[Request], blocks: Collection[int]) -> None:
        """Raises AssertionError if a slot is lost, or a request does not hold its window.

        blocks: those that are in the tree or of a request.
        """
        slotted = np.flatnonzero(self.slot_of != NONE).tolist()
        assert set(slotted) <= set(blocks), "a slot of a free block"
        slots = [*self.slot_of[slotted].tolist(), *self._free]
        assert sorted(slots) == list(range(1, self.num_slots)), "a slot is lost, or has two blocks"
        held: Counter[int] = Counter()
        for request in requests:
            if request.blocks:
                begin, end = self._held[request]
                assert begin <= self.first_block(_place(request)), "a request does not hold its window"
                assert end == len(request.blocks), "a request does not hold its last blocks"
                held.update(request.blocks[begin:end])
        assert held == +Counter(dict(enumerate(self._holders.tolist()))), "a block's holders are miscounted"
        assert held.keys() <= set(slotted), "a block that is held has no slot"
        assert self._passed.keys() == {one for one in slotted if not held[one] and not self._is_kept[one]}
        assert self._kept.keys() == {one for one in slotted if not held[one] and self._is_kept[one]}
        assert self._ends <= set(slotted), "the end of a request has no slot"

    # -- what tiers have (`lower_parts`) -----------------------------------------------------------------------

    def needed(self, num_blocks: int) -> range:
        """Blocks that need slots for a request to go on after `num_blocks`."""
        return range(self.first_block(num_blocks * self._block_size), num_blocks)

    def resumable(self, match: Match) -> int:
        """After how many tokens of a match a request can go on."""
        return self.find(match.blocks)

    def there(self, blocks: Sequence[int]) -> list[int]:
        """Indices of those blocks that have slots."""
        found: list[int] = np.flatnonzero(self.slot_of[np.asarray(blocks, np.int64)] != NONE).tolist()
        return found

    def part_of(self, block: int) -> int:
        """The slot of a block in the window of a resume point; -1: it is in none, or has no slot."""
        return int(self.slot_of[block]) if self._is_kept[block] else NONE

    def take_kept(self) -> list[int]:
        """Blocks that have come into the window of a resume point since the last call."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def adopt_part(self, blocks: Sequence[int], index: int) -> int:
        """A slot for a block on a path of the tree; -1: it has one, or none can be taken."""
        block = blocks[index]
        if self.slot_of[block] != NONE or not (self._free or self._passed or self._kept):
            return NONE
        self.slot_of[block] = slot = self._take()
        self._is_kept[block] = True
        self._kept[block] = None
        return slot

    # -- slots -------------------------------------------------------------------------------------------------

    def _let_go(self, block: int) -> None:
        self._holders[block] -= 1
        if not self._holders[block]:
            (self._kept if self._is_kept[block] else self._passed)[block] = None

    def _take(self) -> int:
        """A slot for another block."""
        if self._free:
            return self._free.pop()
        block = next(iter(self._passed or self._kept))
        if self._is_kept[block] and self.on_leave is not None:
            self.on_leave(block)
        slot = int(self.slot_of[block])
        self._lose_slot(block)
        return slot

    def _lose_slot(self, block: int) -> None:
        self.slot_of[block] = NONE
        self._holders[block] = 0
        self._is_kept[block] = False
        self._passed.pop(block, None)
        self._kept.pop(block, None)
        self._ends.discard(block)
