"""Which blocks have the keys and values of layers with a window, and in which slots these lie.

A layer with a window of W tokens reads the last W keys and no others, so a model can go on from token t where all
blocks before t are there *and the blocks of the last W tokens have slots*. Layers without a window find their keys by
block, those with one by `slot_of[block]`, in tensors with as many blocks as there are slots::

    blocks of a path    [ 0 ][ 1 ][ 2 ][ 3 ][ 4 ][ 5 ][ 6 ][ 7 ]   all keys of layers without a window
    slots                 -    -    9    4    -    -    7    2     keys of layers with one
                                  └─ W ──┘          └─ W ──┘
                                 others resumed here    a request is here

Blocks of the last W tokens of a running request are *held*. A block that it leaves behind keeps its slot until another
needs it, longer if it lies in the window of a resume point (`window_slots`). Resume points are

* where a request found more keys than it could resume at (a branch of the tree: the next one resumes there),
* where it resumed, unless that was the end of another to which none but it has returned: a chat keeps one window,
* a prompt but for its last token (the same prompt again),
* the end of all that a request has computed when it ends or is preempted.

A request that finds the keys of n tokens resumes at n if the blocks of the window before n have slots, to the token;
else at the end of the last block for which they have, and computes the rest. What it computes anew of keys that the
tree has is a duplicate, whose slot goes over to the tree's block (`merge`).

Knows blocks and requests; it knows no tree and no tensors. Probes leave no trace. Invariants (`audit`): a slot has one
block, which is in the tree or of a request; all that is computed of a block with a slot is there; a running request
holds all its blocks from the first one in its window on. Cost: O(blocks) where a request begins, O(1) per block later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from ..capacity.window_memory import chunk_blocks, most_blocks, room_for_windows
from ..request import Request
from .slot import NO_SLOT
from .window_slots import WindowSlots


def _place(request: Request) -> int:
    """Where in its blocks the request's next token has its keys."""
    return request.num_computed_tokens - request.num_dropped_tokens


class WindowStore:
    """Which blocks requests hold, and after which tokens others may resume.

    Args:
        slots: where the keys of these blocks are.
        window: tokens, the own one among them, that the layer with the widest window sees.
        in_chunks: a token sees those of its chunk of `window` tokens, which are among its window.
        max_batch_tokens: that a step may compute, if there are slots for as many.
        keeps: whether windows outlive their requests.
    """

    def __init__(
        self,
        slots: WindowSlots,
        block_size: int,
        window: int,
        *,
        in_chunks: bool = False,
        max_batch_tokens: int,
        keeps: bool,
    ) -> None:
        self.slots = slots
        self.block_size = block_size
        self.window = window
        self.in_chunks = in_chunks
        self._max_batch_tokens = max_batch_tokens
        self._keeps = keeps
        self._held: dict[Request, tuple[int, int]] = {}  # first and end of its blocks
        self._points: dict[Request, set[int]] = {}  # tokens after which another may resume
        self._resumed: dict[Request, tuple[int, int]] = {}  # in which block, after which token; until it has gone on

    @property
    def most_step_tokens(self) -> int:
        """Tokens that a step may compute, for whose blocks there are slots besides those of windows."""
        num_blocks = chunk_blocks(self.slots.num_slots, self.block_size, self._max_batch_tokens)
        return min(self._max_batch_tokens, num_blocks * self.block_size)

    def first_block(self, num_tokens: int) -> int:
        """The first block whose keys are needed to go on after `num_tokens`."""
        return max(0, num_tokens - self.window + 1) // self.block_size

    def fits(self, own: Iterable[int]) -> bool:
        """Whether there are slots for the windows of requests, besides those for a step's tokens.

        own: how many blocks each will have in the end that it does not share now. What is shared is counted once.
        """
        most = most_blocks(self.window, self.block_size)
        needed = np.count_nonzero(self.slots.num_holders > 1) + sum(min(most, count) for count in own)
        return bool(needed <= room_for_windows(self.slots.num_slots, self.block_size, self._max_batch_tokens))

    # -- resuming ----------------------------------------------------------------------------------------------

    def find(self, blocks: Sequence[int]) -> int:
        """How many tokens of a path of whole blocks a request can resume after; whole blocks too."""
        end = len(blocks)
        for last in np.flatnonzero(self.slots.slot_of[np.asarray(blocks, np.int64)] == NO_SLOT)[::-1].tolist():
            if self.first_block(end * self.block_size) > last:
                break
            end = last
        return end * self.block_size

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
        return num_blocks - first <= self.slots.num_available

    def hold(self, request: Request) -> None:
        """Holds the request's blocks from its window on; those that are new get slots."""
        first = self.first_block(_place(request))
        begin, end = self._held.get(request, (first, first))
        for block in request.blocks[end:]:
            self.slots.hold(block)
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
            self.slots.let_go(block)
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
            last = request.blocks[(request.num_computed_tokens - 1) // self.block_size]
            if self.slots.slot_of[last] != NO_SLOT:  # a window of one token does not reach back to it
                self.slots.ends.add(last)
        begin, end = self._held.pop(request)
        for block in reversed(request.blocks[begin:end]):  # the last one goes first: the window before stays whole
            self.slots.let_go(block)
        self._points.pop(request, None)
        self._resumed.pop(request, None)

    def _settle_resumed(self, request: Request) -> None:
        """It has gone on: where it resumed at the end of another, the window there is wanted no more."""
        block, num_tokens = self._resumed.pop(request, (NO_SLOT, 0))
        if block in self.slots.ends and request in self._points:
            self.slots.ends.discard(block)
            self._points[request].discard(num_tokens)
            begin, end = self._held[request]
            for held in request.blocks[begin:end]:
                self.slots.keep_no_more(held)

    def _mark(self, request: Request, point: int) -> None:
        """Keeps those of its held blocks that are needed to resume at a point, or at the end of the block before."""
        begin, end = self._held[request]
        first = self.first_block(point // self.block_size * self.block_size)
        for block in request.blocks[max(begin, first) : min(end, -(-point // self.block_size))]:
            self.slots.keep(block)

    # -- all requests ------------------------------------------------------------------------------------------

    def reclaim(self, blocks: Collection[int]) -> None:
        """After a fault: no request holds anything, and slots stay with these blocks alone."""
        self._held.clear()
        self._points.clear()
        self._resumed.clear()
        self.slots.reclaim(blocks)

    def audit(self, requests: Iterable[Request], blocks: Collection[int]) -> None:
        """Raises AssertionError if a slot is lost, or a request does not hold its window.

        blocks: those that are in the tree or of a request.
        """
        held: Counter[int] = Counter()
        for request in requests:
            if request.blocks:
                begin, end = self._held[request]
                assert begin <= self.first_block(_place(request)), "a request does not hold its window"
                assert end == len(request.blocks), "a request does not hold its last blocks"
                held.update(request.blocks[begin:end])
        self.slots.audit(held, blocks)
