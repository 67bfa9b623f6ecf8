"""Which states of recurrent layers are kept, at which tokens of which blocks, and who reads and writes which slot.

A model whose layers are not all attention can go on from token t only where all keys before t *and the state at t* are
there. Keys are there for every token of the tree; a state is kept where it is likely to be wanted again, and belongs to
the block that holds the token before it; when that block is freed the state is given up::

    blocks of the tree    [system prompt ─────────]┬[question 1 ─────][answer ──]
    states                                         ●               ●           ●
                                        two requests parted here   the prompt, but for its last token; the end

A request that finds the keys of n tokens resumes at the last state before n and computes the rest. Kept are states

* where a request found more keys than it could resume at (a branch of the tree: the next one resumes there),
* of a prompt but for its last token (the same prompt again: the last token is always computed, for its logits),
* every `interval` tokens of a prompt,
* of all that a request has computed when it ends or is preempted,
* with tiers below the pool, which have whole blocks, at the last end of a block before each of the last two.

Those within prompts that nothing has asked for yet only take the slots of other such states (`state_slots`). Where a
request went on from the end of another, its own end takes that one's place: a chat holds one state, however many turns
it has. Marconi (arXiv 2411.19379) admits and evicts by branches and by computation saved, too: see
`bench/studies/hybrid_cache.py`.

A state is never changed: a step reads one slot and writes another, so a step that failed, or whose draft was refused,
has left the state from which it can be computed again; forks and resumed requests share slots without a copy. A step
that runs ahead reads what the one before it writes last, and is planned only if it finds slots of its own.

Knows blocks and requests; it knows no tree and no tensors. Probes leave no trace. Invariant (`audit`): a slot has
as many holders as it counts, a state's block is in the tree or of a request, and a request that has computed anything
holds the state at `num_computed_tokens`. Cost: O(points) per step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from ..request import Request
from .kept_state import KeptState, ResumePoint, StatePoint
from .slot import NO_SLOT
from .state_slots import StateSlots


class StateStore:
    """Which request is at which state, and which of its states are kept for others.

    Args:
        slots: where states are.
        interval: tokens; 0: no states within prompts but at branches.
        keeps: whether states outlive their requests.
        at_blocks: whether states at the ends of blocks are of use where those after them are not.
    """

    def __init__(self, slots: StateSlots, *, interval: int, keeps: bool, at_blocks: bool = False) -> None:
        self.slots = slots
        self._block_size = slots.block_size
        self._interval = interval
        self._keeps = keeps
        self._at_blocks = at_blocks and keeps
        self._at_block: dict[Request, StatePoint] = {}  # the last at the end of a block
        self._current: dict[Request, StatePoint] = {}
        self._planned: dict[Request, list[list[StatePoint]]] = {}  # by step that is under way
        self._branch: dict[Request, int] = {}
        self._resumed: dict[Request, KeptState] = {}

    # -- resuming ----------------------------------------------------------------------------------------------

    def resume(self, request: Request, point: ResumePoint | None, num_keys: int) -> None:
        """The request goes on from a state that was found; num_keys: tokens whose keys were found in whole blocks."""
        start = 0
        if point is not None:
            start = point.num_tokens
            state = self.slots.kept[point.block][(start - 1) % self._block_size + 1]
            if not request.is_probe:
                state.num_uses += 1
                state.floor = self.slots.floor
                if state.is_end:
                    self._resumed[request], state.is_end = state, False
            self._hold(request, StatePoint(start, point.slot))
        if num_keys > start:
            self._branch[request] = num_keys

    def fork(self, parent: Request, child: Request) -> None:
        """The child goes on from where the parent is."""
        if parent in self._current:
            self._hold(child, self._current[parent])

    def lend(self, request: Request) -> StatePoint | None:
        """The request's state, which is kept until `take_back`, though the request ends meanwhile."""
        point = self._current.get(request)
        if point is not None:
            self.slots.hold(point.slot)
        return point

    def take_back(self, request: Request, point: StatePoint) -> None:
        """The request goes on from the state that it has lent."""
        self._current[request] = point

    def end(self, request: Request) -> None:
        """The request holds nothing any more."""
        self._leave(request)
        self._leave_block(request)
        self._drop_planned(request)
        self._branch.pop(request, None)
        self._resumed.pop(request, None)

    # -- a step ------------------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        """What earlier steps have written and nothing has taken is free: none is under way."""
        for request in tuple(self._planned):
            self._drop_planned(request)

    def make_room(self, num_requests: int) -> bool:
        """Frees slots for a step of n requests that runs ahead; False if that cannot be."""
        return self.slots.make_room(num_requests)

    def plan(self, requests: Sequence[tuple[Request, int, int, int]]) -> list[tuple[int, list[StatePoint]]]:
        """Slots for the states of a step: by request the one that is read, and those that are written, in order.

        Each request computes tokens from the first number on, known ones up to the second, and those of a draft up to
        the third. Of a request of which a step is under way that is what follows it.
        """
        last = [self.slots.take() for _ in requests]
        found = []
        for (request, start, known, end), slot in zip(requests, last, strict=True):
            points = []
            for number in self._points(request, start, known, end):
                is_needed = number in (known, self._branch.get(request))
                if self.slots.make_room(1, only_unused=not is_needed):
                    points.append(StatePoint(number, self.slots.take()))
            under_way = self._planned.setdefault(request, [])
            current = under_way[-1][-1] if under_way else self._current.get(request)
            under_way.append([*points, StatePoint(end, slot)])
            found.append((NO_SLOT if current is None else current.slot, under_way[-1]))
        return found

    def _points(self, request: Request, start: int, known: int, end: int) -> list[int]:
        """After which tokens before the end of a step a state is written besides: in order."""
        points = {known} | self._wanted(request, start, min(known, request.num_prompt_tokens))
        return sorted(number for number in points if start < number <= known and number != end)

    def _wanted(self, request: Request, start: int, end: int) -> set[int]:
        """After which tokens of a prompt, of those in (start, end], a state is kept for others."""
        if not self._keeps or request.is_probe:
            return set()
        last = request.num_prompt_tokens - 1
        points = {self._branch.get(request, 0), last}
        if self._at_blocks:
            points.add(last // self._block_size * self._block_size)
        if self._interval:
            points |= set(range((start // self._interval + 1) * self._interval, end + 1, self._interval))
        return {point for point in points if start < point <= end}

    def settle(self, request: Request, start: int) -> None:
        """After a step: the request is where the last of its states is that is not beyond `num_computed_tokens`.

        start: where the step began.
        """
        points, num_computed = self._planned[request].pop(0), request.num_computed_tokens
        reached = [point for point in points if point.num_tokens <= request.num_computed_tokens]
        for point in points[len(reached) :]:
            self.slots.drop(point.slot)
        request.num_computed_tokens = reached[-1].num_tokens if reached else start
        request.num_taken_back = num_computed - request.num_computed_tokens
        if not reached:
            return
        self._leave(request)
        ends = [point for point in reached if self._at_blocks and point.num_tokens % self._block_size == 0]
        if ends:
            self._leave_block(request)
            self._at_block[request] = ends[-1]
            self.slots.hold(ends[-1].slot)
        self._current[request] = reached[-1]
        wanted = self._wanted(request, start, request.num_prompt_tokens)
        for point in reached:
            if point.num_tokens in wanted:
                self._keep(request, point, int(point.num_tokens == self._branch.get(request)))
        for point in reached[:-1]:
            self.slots.drop(point.slot)

    def keep_last(self, request: Request) -> None:
        """The request leaves: its state stays with its last block, in place of the end where it alone resumed."""
        current = self._current.get(request)
        if current is None or not self._keeps or request.is_probe:
            return
        self._keep(request, current, 1, is_end=True)
        if request in self._at_block:
            self._keep(request, self._at_block[request], 0)
        last = self._resumed.pop(request, None)
        if last is not None and last.num_uses <= 2 and last.num_tokens < request.num_computed_tokens:
            last.num_uses = 0

    # -- all requests ------------------------------------------------------------------------------------------

    def reclaim(self, blocks: Collection[int]) -> None:
        """After a fault: no request holds anything, and states stay with these blocks alone."""
        self._current.clear()
        self._at_block.clear()
        self._planned.clear()
        self._branch.clear()
        self._resumed.clear()
        self.slots.reclaim(blocks)

    def audit(self, requests: Iterable[Request], blocks: Collection[int]) -> None:
        """Raises AssertionError if a slot is lost, or a state or a request is not where it should be.

        blocks: those that are in the tree or of a request.
        """
        held = Counter(point.slot for point in (*self._current.values(), *self._at_block.values()))
        held.update(point.slot for steps in self._planned.values() for points in steps for point in points)
        self.slots.audit(held, blocks)
        for request in requests:
            point = self._current.get(request, StatePoint(0, NO_SLOT))
            assert point.num_tokens == request.num_computed_tokens, f"request {request.request_id}: not at its state"

    # -- one request -------------------------------------------------------------------------------------------

    def _keep(self, request: Request, point: StatePoint, num_uses: int, *, is_end: bool = False) -> None:
        kept = self.slots.keep(request.blocks, point.num_tokens, point.slot, num_uses, is_end=is_end)
        if kept:
            self.slots.notes.is_kept(request.blocks[(point.num_tokens - 1) // self._block_size])

    def _hold(self, request: Request, point: StatePoint) -> None:
        self._current[request] = point
        self.slots.hold(point.slot)

    def _leave(self, request: Request) -> None:
        point = self._current.pop(request, None)
        if point is not None:
            self.slots.drop(point.slot)

    def _drop_planned(self, request: Request) -> None:
        for points in self._planned.pop(request, []):
            for point in points:
                self.slots.drop(point.slot)

    def _leave_block(self, request: Request) -> None:
        point = self._at_block.pop(request, None)
        if point is not None:
            self.slots.drop(point.slot)
