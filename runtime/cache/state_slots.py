"""Slots of states of recurrent layers: which hold kept states, at which tokens of which blocks, and which go first.

A state belongs to the block that holds the token before it, and is given up when that block is freed. If slots run
short the state with the lowest rank goes: GreedyDual-Size-Frequency (Cherkasova, 1998) over the tokens that would have
to be computed again without it, times how often it was asked for; all states have one size. Those that nothing has
asked for yet only take the slots of other such states.

Knows blocks and slots; it knows no requests, no tree and no tensors. Cost: O(states) where one must go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from .kept_state import KeptState, LostStates, ResumePoint
from .slot import PartNotes


class StateSlots:
    """Holders of `num_slots` slots: requests, which take and drop them, and the states that are kept here.

    Attributes:
        kept: states by block, by number of its tokens.
        num_holders: by slot.
        floor: the highest rank that was evicted.
        lost: where states were that have made room.
        notes: of the states at ends of blocks.
    """

    def __init__(self, num_slots: int, block_size: int) -> None:
        self.num_slots = num_slots
        self.block_size = block_size
        self.kept: dict[int, dict[int, KeptState]] = {}
        self.num_holders = [0] * num_slots
        self.floor = 0.0
        self.lost = LostStates(block_size)
        self.notes = PartNotes()
        self._free = list(range(num_slots - 1, -1, -1))

    @property
    def num_kept(self) -> int:
        """States that outlive their requests."""
        return sum(map(len, self.kept.values()))

    # -- slots -------------------------------------------------------------------------------------------------

    def make_room(self, num_slots: int, *, only_unused: bool = False) -> bool:
        """Frees slots until n are free; False if that cannot be. only_unused: of states with no uses."""
        while len(self._free) < num_slots:
            if not self._evict(only_unused=only_unused):
                return False
        return True

    def take(self) -> int:
        """A slot that nothing else holds."""
        if not self.make_room(1):
            raise AssertionError("there are states for all that may run, and one more for each")
        slot = self._free.pop()
        self.num_holders[slot] = 1
        return slot

    def hold(self, slot: int) -> None:
        """One holder more."""
        self.num_holders[slot] += 1

    def drop(self, slot: int) -> None:
        """One holder less."""
        self.num_holders[slot] -= 1
        if not self.num_holders[slot]:
            self._free.append(slot)

    def _evict(self, *, only_unused: bool) -> bool:
        """Frees a slot, by giving up the state of the lowest rank that no request holds; False if there is none."""
        found = [
            (state.rank(), block, number)
            for block, states in self.kept.items()
            for number, state in states.items()
            if self.num_holders[state.slot] == 1 and not (only_unused and state.num_uses)
        ]
        if not found:
            return False
        rank, block, number = min(found)
        self.floor = max(self.floor, rank)
        if number == self.block_size:
            self.notes.leaves(block)
        state = self.kept[block].pop(number)
        self.lost.add(block, state.num_tokens)
        self._give_up(state)
        if not self.kept[block]:
            del self.kept[block]
        return True

    def _give_up(self, state: KeptState) -> None:
        state.is_kept = False
        self.drop(state.slot)

    # -- kept states -------------------------------------------------------------------------------------------

    def find(self, blocks: Sequence[int], partial_block: int, num_partial_tokens: int) -> ResumePoint | None:
        """The last state on a path: of whole blocks, and of the first tokens of the block after them."""
        points = self.kept.get(partial_block, {})
        within = max((number for number in points if number <= num_partial_tokens), default=0)
        if within:
            return ResumePoint(len(blocks) * self.block_size + within, partial_block, points[within].slot)
        for index in range(len(blocks) - 1, -1, -1):
            points = self.kept.get(blocks[index], {})
            if points:
                within = max(points)
                return ResumePoint(index * self.block_size + within, blocks[index], points[within].slot)
        return None

    def keep(self, blocks: Sequence[int], num_tokens: int, slot: int, num_uses: int, *, is_end: bool = False) -> bool:
        """Keeps the state after n tokens of these blocks, which is in this slot, unless one is kept there."""
        block, number = blocks[(num_tokens - 1) // self.block_size], (num_tokens - 1) % self.block_size + 1
        if number in self.kept.get(block, {}):
            return False
        before = self._last_before(blocks, num_tokens)
        state = KeptState(slot, num_tokens, before, num_uses, self.floor, is_end)
        self.kept.setdefault(block, {})[number] = state
        self.hold(slot)
        return True

    def _last_before(self, blocks: Sequence[int], num_tokens: int) -> KeptState | None:
        """Where a request with these blocks that needs a state would resume without it."""
        for index in range((num_tokens - 1) // self.block_size, -1, -1):
            states = self.kept.get(blocks[index], {})
            earlier = [state for state in states.values() if state.num_tokens < num_tokens]
            if earlier:
                return max(earlier, key=lambda state: state.num_tokens)
        return None

    # -- blocks ------------------------------------------------------------------------------------------------

    def forget(self, blocks: Iterable[int]) -> None:
        """These blocks are free."""
        for block in blocks:
            self.lost.forget(block)
            for state in self.kept.pop(block, {}).values():
                self._give_up(state)

    def merge(self, source: int, target: int) -> None:
        """Both blocks hold the same tokens, as far as both are filled: `target` takes over what it does not have."""
        if source == target or source not in self.kept:
            return
        self.notes.is_kept(target)
        kept = self.kept.setdefault(target, {})
        for number, state in self.kept.pop(source).items():
            if number in kept:
                self._give_up(state)
            else:
                kept[number] = state

    def reclaim(self, blocks: Collection[int]) -> None:
        """After a fault: no request holds anything, and states stay with these blocks alone."""
        self.lost.clear()
        for block in self.kept.keys() - set(blocks):
            for state in self.kept.pop(block).values():
                state.is_kept = False
        held = Counter(state.slot for states in self.kept.values() for state in states.values())
        self.num_holders = [held[slot] for slot in range(self.num_slots)]
        self._free = [slot for slot in range(self.num_slots - 1, -1, -1) if not held[slot]]

    def audit(self, held: Counter[int], blocks: Collection[int]) -> None:
        """Raises AssertionError if a slot is lost, or a state is not where it should be.

        held: how often requests hold each slot. blocks: those that are in the tree or of a request.
        """
        assert self.kept.keys() <= set(blocks), "a state of a free block"
        for states in self.kept.values():
            for number, state in states.items():
                assert number == (state.num_tokens - 1) % self.block_size + 1, "a state that is filed at another token"
                assert state.is_kept, "a state that was given up"
        held = held + Counter(state.slot for states in self.kept.values() for state in states.values())
        assert [held[slot] for slot in range(self.num_slots)] == self.num_holders, "a state's holders are miscounted"
        assert sorted(self._free) == [slot for slot in range(self.num_slots) if not held[slot]], "a state is lost"
