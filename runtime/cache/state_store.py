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

If slots run short the state with the lowest rank goes: GreedyDual-Size-Frequency (Cherkasova, 1998) over the tokens
that would have to be computed again without it, times how often it was asked for; all states have one size. Those
within prompts that nothing has asked for yet only take the slots of other such states. Where a request went on
from the end of another, its own end takes that one's place: a chat holds one state, however many turns it has. Marconi
(arXiv 2411.19379) admits and evicts by branches and by computation saved, too: see `bench/studies/hybrid_cache.py`.

A state is never changed: a step reads one slot and writes another, so a step that failed, or whose draft was refused,
has left the state from which it can be computed again; forks and resumed requests share slots without a copy. A step
that runs ahead reads what the one before it writes last, and is planned only if it finds slots of its own.

Knows blocks and requests; it knows no tree and no tensors. Probes leave no trace. Invariant (`audit`): a slot has
as many holders as it counts, a state's block is in the tree or of a request, and a request that has computed anything
holds the state at `num_computed_tokens`. Cost: O(points) per step, and O(states) where one must go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from ...radix import Match
from ..request import Request
from .kept_state import NONE, KeptState, LostStates, ResumePoint, StatePoint


class StateStore:
    """Who holds which of `num_slots` slots.

    Args:
        interval: tokens; 0: no states within prompts but at branches.
        keeps: whether states outlive their requests.
        at_blocks: whether states at the ends of blocks are of use where those after them are not.

    Attributes:
        on_leave: called with a block at whose end a state is that is about to be written over; None: that is of no
            interest, nor is which are kept.
        lost: where states were that have made room.
    """

    def __init__(self, num_slots: int, block_size: int, *, interval: int, keeps: bool, at_blocks: bool = False) -> None:
        self.num_slots = num_slots
        self._block_size = block_size
        self._interval = interval
        self._keeps = keeps
        self._at_blocks = at_blocks and keeps
        self.on_leave: Callable[[int], None] | None = None
        self._fresh: list[int] = []  # blocks at whose ends states were kept since that was last asked for
        self._at_block: dict[Request, StatePoint] = {}  # the last at the end of a block
        self._free = list(range(num_slots - 1, -1, -1))
        self._holders = [0] * num_slots
        self._kept: dict[int, dict[int, KeptState]] = {}  # by block, by number of its tokens
        self._current: dict[Request, StatePoint] = {}
        self._planned: dict[Request, list[list[StatePoint]]] = {}  # by step that is under way
        self._branch: dict[Request, int] = {}
        self._resumed: dict[Request, KeptState] = {}
        self.lost = LostStates(block_size)
        self._floor = 0.0  # the highest rank that was evicted

    @property
    def num_kept(self) -> int:
        """States that outlive their requests."""
        return sum(map(len, self._kept.values()))

    # -- resuming ----------------------------------------------------------------------------------------------

    def find(self, blocks: Sequence[int], partial_block: int, num_partial_tokens: int) -> ResumePoint | None:
        """The last state on a path: of whole blocks, and of the first tokens of the block after them."""
        points = self._kept.get(partial_block, {})
        within = max((number for number in points if number <= num_partial_tokens), default=0)
        if within:
            return ResumePoint(len(blocks) * self._block_size + within, partial_block, points[within].slot)
        for index in range(len(blocks) - 1, -1, -1):
            points = self._kept.get(blocks[index], {})
            if points:
                within = max(points)
                return ResumePoint(index * self._block_size + within, blocks[index], points[within].slot)
        return None

    def resume(self, request: Request, point: ResumePoint | None, num_keys: int) -> None:
        """The request goes on from a state that was found; num_keys: tokens whose keys were found in whole blocks."""
        start = 0
        if point is not None:
            start = point.num_tokens
            state = self._kept[point.block][(start - 1) % self._block_size + 1]
            if not request.is_probe:
                state.num_uses += 1
                state.floor = self._floor
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
            self._holders[point.slot] += 1
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

    def has_room(self, num_requests: int) -> bool:
        """Whether there are slots for a step of n requests that runs ahead, some of them maybe after an eviction."""
        while len(self._free) < num_requests:
            if not self._evict():
                return False
        return True

    def plan(self, requests: Sequence[tuple[Request, int, int, int]]) -> list[tuple[int, list[StatePoint]]]:
        """Slots for the states of a step: by request the one that is read, and those that are written, in order.

        Each request computes tokens from the first number on, known ones up to the second, and those of a draft up to
        the third. Of a request of which a step is under way that is what follows it.
        """
        last = [self._take() for _ in requests]
        found = []
        for (request, start, known, end), slot in zip(requests, last, strict=True):
            points = []
            for number in self._points(request, start, known, end):
                is_needed = number in (known, self._branch.get(request))
                if self._free or self._evict(only_unused=not is_needed):
                    points.append(StatePoint(number, self._take()))
            under_way = self._planned.setdefault(request, [])
            current = under_way[-1][-1] if under_way else self._current.get(request)
            under_way.append([*points, StatePoint(end, slot)])
            found.append((NONE if current is None else current.slot, under_way[-1]))
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
            self._drop(point.slot)
        request.num_computed_tokens = reached[-1].num_tokens if reached else start
        request.num_taken_back = num_computed - request.num_computed_tokens
        if not reached:
            return
        self._leave(request)
        ends = [point for point in reached if self._at_blocks and point.num_tokens % self._block_size == 0]
        if ends:
            self._leave_block(request)
            self._at_block[request] = ends[-1]
            self._holders[ends[-1].slot] += 1
        self._current[request] = reached[-1]
        wanted = self._wanted(request, start, request.num_prompt_tokens)
        for point in reached:
            if point.num_tokens in wanted:
                self._keep(request, point, int(point.num_tokens == self._branch.get(request)))
        for point in reached[:-1]:
            self._drop(point.slot)

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

    # -- blocks ------------------------------------------------------------------------------------------------

    def forget(self, blocks: Iterable[int]) -> None:
        """These blocks are free."""
        for block in blocks:
            self.lost.forget(block)
            for state in self._kept.pop(block, {}).values():
                self._give_up(state)

    def merge(self, source: int, target: int) -> None:
        """Both blocks hold the same tokens, as far as both are filled: `target` takes over what it does not have."""
        if source == target or source not in self._kept:
            return
        if self.on_leave is not None:
            self._fresh.append(target)
        kept = self._kept.setdefault(target, {})
        for number, state in self._kept.pop(source).items():
            if number in kept:
                self._give_up(state)
            else:
                kept[number] = state

    def reclaim(self, blocks: Collection[int]) -> None:
        """After a fault: no request holds anything, and states stay with these blocks alone."""
        self._current.clear()
        self._at_block.clear()
        self._planned.clear()
        self._branch.clear()
        self._resumed.clear()
        self.lost.clear()
        for block in self._kept.keys() - set(blocks):
            for state in self._kept.pop(block).values():
                state.is_kept = False
        held = Counter(state.slot for states in self._kept.values() for state in states.values())
        self._holders = [held[slot] for slot in range(self.num_slots)]
        self._free = [slot for slot in range(self.num_slots - 1, -1, -1) if not held[slot]]

    def audit(self, requests: Iterable[Request], blocks: Collection[int]) -> None:
        """Raises AssertionError if a slot is lost, or a state or a request is not where it should be.

        blocks: those that are in the tree or of a request.
        """
        assert self._kept.keys() <= set(blocks), "a state of a free block"
        for states in self._kept.values():
            for number, state in states.items():
                assert number == (state.num_tokens - 1) % self._block_size + 1, "a state that is filed at another token"
                assert state.is_kept, "a state that was given up"
        held = Counter(state.slot for states in self._kept.values() for state in states.values())
        held.update(point.slot for point in (*self._current.values(), *self._at_block.values()))
        held.update(point.slot for steps in self._planned.values() for points in steps for point in points)
        assert [held[slot] for slot in range(self.num_slots)] == self._holders, "a state's holders are miscounted"
        assert sorted(self._free) == [slot for slot in range(self.num_slots) if not held[slot]], "a state is lost"
        for request in requests:
            point = self._current.get(request, StatePoint(0, NONE))
            assert point.num_tokens == request.num_computed_tokens, f"request {request.request_id}: not at its state"

    # -- what tiers have (`lower_parts`) -----------------------------------------------------------------------

    def needed(self, num_blocks: int) -> range:
        """Blocks whose states a request needs to go on after `num_blocks`."""
        return range(num_blocks - 1, num_blocks)

    def resumable(self, match: Match) -> int:
        """After how many tokens of a match a request can go on."""
        point = self.find(match.blocks, match.partial_block, match.num_partial_tokens)
        return 0 if point is None else point.num_tokens

    def there(self, blocks: Sequence[int]) -> list[int]:
        """Indices of those blocks at whose ends states are."""
        return [index for index, block in enumerate(blocks) if self.part_of(block) != NONE]

    def part_of(self, block: int) -> int:
        """The slot of the state at the end of a block; -1: there is none."""
        state = self._kept.get(block, {}).get(self._block_size)
        return NONE if state is None else state.slot

    def take_kept(self) -> list[int]:
        """Blocks at whose ends states have been kept since the last call."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def adopt_part(self, blocks: Sequence[int], index: int) -> int:
        """A slot for the state at the end of a block on a path of the tree; -1: it has one, or there is no room."""
        if self.part_of(blocks[index]) != NONE or not (self._free or self._evict()):
            return NONE
        num_tokens = (index + 1) * self._block_size
        before = self._last_before(blocks, num_tokens)
        slot = self._take()
        kept = KeptState(slot, num_tokens, before, 1, self._floor, is_end=False)
        self._kept.setdefault(blocks[index], {})[self._block_size] = kept
        return slot

    # -- slots -------------------------------------------------------------------------------------------------

    def _keep(self, request: Request, point: StatePoint, num_uses: int, *, is_end: bool = False) -> None:
        num_tokens, slot = point.num_tokens, point.slot
        block = request.blocks[(num_tokens - 1) // self._block_size]
        number = (num_tokens - 1) % self._block_size + 1
        if number not in self._kept.get(block, {}):
            self._holders[slot] += 1
            before = self._last_before(request.blocks, num_tokens)
            kept = KeptState(slot, num_tokens, before, num_uses, self._floor, is_end)
            self._kept.setdefault(block, {})[number] = kept
            if self.on_leave is not None:
                self._fresh.append(block)

    def _last_before(self, blocks: Sequence[int], num_tokens: int) -> KeptState | None:
        """Where a request with these blocks that needs a state would resume without it."""
        for index in range((num_tokens - 1) // self._block_size, -1, -1):
            states = self._kept.get(blocks[index], {})
            earlier = [state for state in states.values() if state.num_tokens < num_tokens]
            if earlier:
                return max(earlier, key=lambda state: state.num_tokens)
        return None

    def _hold(self, request: Request, point: StatePoint) -> None:
        self._current[request] = point
        self._holders[point.slot] += 1

    def _leave(self, request: Request) -> None:
        point = self._current.pop(request, None)
        if point is not None:
            self._drop(point.slot)

    def _drop_planned(self, request: Request) -> None:
        for points in self._planned.pop(request, []):
            for point in points:
                self._drop(point.slot)

    def _leave_block(self, request: Request) -> None:
        point = self._at_block.pop(request, None)
        if point is not None:
            self._drop(point.slot)

    def _take(self) -> int:
        """A slot that nothing else holds."""
        if not self._free and not self._evict():
            raise AssertionError("there are states for all that may run, and one more for each")
        slot = self._free.pop()
        self._holders[slot] = 1
        return slot

    def _evict(self, *, only_unused: bool = False) -> bool:
        """Frees a slot, by giving up the state of the lowest rank that no request holds; False if there is none."""
        found = [
            (state.rank(), block, number)
            for block, states in self._kept.items()
            for number, state in states.items()
            if self._holders[state.slot] == 1 and not (only_unused and state.num_uses)
        ]
        if not found:
            return False
        rank, block, number = min(found)
        self._floor = max(self._floor, rank)
        if number == self._block_size and self.on_leave is not None:
            self.on_leave(block)
        state = self._kept[block].pop(number)
        self.lost.add(block, state.num_tokens)
        self._give_up(state)
        if not self._kept[block]:
            del self._kept[block]
        return True

    def _give_up(self, state: KeptState) -> None:
        state.is_kept = False
        self._drop(state.slot)

    def _drop(self, slot: int) -> None:
        self._holders[slot] -= 1
        if not self._holders[slot]:
            self._free.append(slot)
