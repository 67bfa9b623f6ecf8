"""Which state of recurrent layers goes when slots run short: ranks counted anew each time, and each rule by itself."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phloem.runtime.cache.kept_state import KeptState, ResumePoint
from phloem.runtime.cache.part_books import StateParts
from phloem.runtime.cache.state_slots import StateSlots
from phloem.runtime.cache.state_store import StateStore
from phloem.runtime.request import Request

BLOCK = 4
Tokens = tuple[int, ...]


@dataclass(eq=False)
class Asked:
    """What a store of states looks at in a request."""

    token_ids: Tokens
    num_prompt_tokens: int
    is_probe: bool = False
    blocks: array[int] = field(default_factory=lambda: array("i"))
    num_computed_tokens: int = 0
    request_id: str = "one"


class RankedSlots(StateSlots):
    """The slots with a second count of uses, floors and states on a path; each eviction is checked against it."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots, BLOCK)
        self.uses: dict[KeptState, int] = {}
        self.floors: dict[KeptState, float] = {}
        self.before: dict[KeptState, KeptState | None] = {}  # on its path, when it was kept
        self.ends: dict[KeptState, bool] = {}
        self.highest = 0.0
        self.leaving: list[int] = []  # blocks at whose ends a state left, for a tier
        self.notes.watch(self.leaving.append)

    def states(self) -> list[KeptState]:
        return [state for states in self.kept.values() for state in states.values()]

    def rank(self, state: KeptState) -> float:
        kept, before = self.states(), self.before[state]
        while before is not None and before not in kept:
            before = self.before[before]
        return self.floors[state] + self.uses[state] * (state.num_tokens - (before.num_tokens if before else 0))

    def keep(self, blocks: Sequence[int], num_tokens: int, slot: int, num_uses: int, *, is_end: bool = False) -> bool:
        before = self.states()
        is_new = super().keep(blocks, num_tokens, slot, num_uses, is_end=is_end)
        for state in self.states():
            if state not in before:
                on_path = set(blocks[: -(-num_tokens // BLOCK)])
                earlier = [one for block in on_path for one in self.kept.get(block, {}).values()]
                self.uses[state], self.floors[state], self.ends[state] = num_uses, self.highest, is_end
                shorter = [one for one in earlier if one.num_tokens < num_tokens]
                self.before[state] = max(shorter, key=lambda one: one.num_tokens, default=None)
        return is_new

    def _evict(self, *, only_unused: bool) -> bool:
        before = self.states()
        free_to_go = [one for one in before if self.num_holders[one.slot] == 1 and not (only_unused and self.uses[one])]
        ranks = {one: self.rank(one) for one in before}
        self.leaving.clear()
        if not super()._evict(only_unused=only_unused):
            assert not free_to_go
            return False
        (gone,) = set(before) - set(self.states())
        assert gone in free_to_go
        assert len(self.leaving) == (gone.num_tokens % BLOCK == 0)
        assert ranks[gone] == min(ranks[one] for one in free_to_go)
        self.highest = max(self.highest, ranks[gone])
        return True


class Ranked(StateStore):
    """The store over such slots."""

    slots: RankedSlots

    def __init__(self, slots: RankedSlots, **options: Any) -> None:
        super().__init__(slots, **options)
        self.went_on: dict[Request, KeptState] = {}

    def resume(self, request: Request, point: ResumePoint | None, num_keys: int) -> None:
        super().resume(request, point, num_keys)
        if point is None or request.is_probe:
            return
        state = self.slots.kept[point.block][(point.num_tokens - 1) % BLOCK + 1]
        self.slots.uses[state] += 1
        self.slots.floors[state] = self.slots.highest
        if self.slots.ends[state]:
            self.went_on[request], self.slots.ends[state] = state, False

    def keep_last(self, request: Request) -> None:
        super().keep_last(request)
        last = self.went_on.pop(request, None)
        if last is not None and self.slots.uses[last] <= 2 and last.num_tokens < request.num_computed_tokens:
            self.slots.uses[last] = 0


class Runs:
    """Requests one step at a time, over blocks that are numbered by the tokens up to their end, as in a tree."""

    def __init__(self, num_slots: int, interval: int = 0, *, at_blocks: bool = False) -> None:
        self.store = Ranked(RankedSlots(num_slots), interval=interval, keeps=True, at_blocks=at_blocks)
        self.numbers: dict[Tokens, int] = {}  # of whole blocks that are in the tree
        self.open: list[Asked] = []
        self.count = 0

    def number(self, key: Tokens) -> int:
        if key not in self.numbers:
            self.numbers[key] = self.count
            self.count += 1
        return self.numbers[key]

    def begin(self, prompt: Sequence[int], num_new: int = 1, *, is_probe: bool = False) -> Asked:
        tokens = (*prompt, *range(1000, 1000 + num_new))
        one = Asked(tokens, len(prompt), is_probe)
        found = [key for end in range(BLOCK, len(prompt), BLOCK) if (key := tokens[:end]) in self.numbers]
        request = cast(Request, one)
        point = self.store.slots.find([self.numbers[key] for key in found], -1, 0)
        self.store.resume(request, point, len(found) * BLOCK)
        one.num_computed_tokens = 0 if point is None else point.num_tokens
        ends = range(BLOCK, len(tokens) + BLOCK, BLOCK)
        one.blocks = array("i", [self.number(tokens[:end]) for end in ends])
        self.open.append(one)
        return one

    def step(self, one: Asked) -> None:
        """The rest of the prompt, or the rest of the output."""
        start, request = one.num_computed_tokens, cast(Request, one)
        end = one.num_prompt_tokens if start < one.num_prompt_tokens else len(one.token_ids)
        self.store.begin_step()
        self.store.plan([(request, request.num_computed_tokens, end, end)])
        one.num_computed_tokens = end
        self.store.settle(request, start)

    def end(self, one: Asked) -> None:
        self.store.keep_last(cast(Request, one))
        self.store.end(cast(Request, one))
        self.open.remove(one)
        self.audit()

    def run(self, prompt: Sequence[int], num_new: int = 1, *, is_probe: bool = False) -> int:
        """Where the request began."""
        one = self.begin(prompt, num_new, is_probe=is_probe)
        start = one.num_computed_tokens
        while one.num_computed_tokens < len(one.token_ids):
            self.step(one)
        self.end(one)
        return start

    def forget(self, source: random.Random) -> None:
        """A block that no request holds, with those after it."""
        held = {block for one in self.open for block in one.blocks}
        loose = [key for key, number in self.numbers.items() if number not in held]
        if loose:
            gone = source.choice(loose)
            after = [key for key in self.numbers if key[: len(gone)] == gone]
            self.store.slots.forget([self.numbers[key] for key in after])
            for key in after:
                del self.numbers[key]

    def audit(self) -> None:
        self.store.audit([cast(Request, one) for one in self.open], self.numbers.values())


@given(st.integers(0, 10_000), st.sampled_from([3, 4, 6, 9]), st.sampled_from([0, 3]))
def test_the_state_of_the_lowest_rank_goes(seed: int, num_slots: int, interval: int) -> None:
    source = random.Random(seed)
    runs, prompts = Runs(num_slots, interval), [tuple(source.choices(range(3), k=20)) for _ in range(3)]
    for _ in range(30):
        kind = source.random()
        if kind < 0.1:
            runs.forget(source)
        elif kind < 0.3 and len(runs.open) * 2 + 2 < num_slots:
            runs.begin(source.choice(prompts)[: source.randrange(1, 20)])
        elif runs.open and kind < 0.5:
            one = source.choice(runs.open)
            runs.step(one) if one.num_computed_tokens < len(one.token_ids) else runs.end(one)
        elif len(runs.open) * 2 + 2 < num_slots:
            runs.run(source.choice(prompts)[: source.randrange(1, 20)], is_probe=source.random() < 0.1)
        runs.audit()


def test_states_within_a_prompt_leave_the_ends_of_others() -> None:
    runs = Runs(3, interval=2)
    runs.run(range(8), 4)
    runs.run(range(100, 160), 4)
    assert runs.run([*range(8), 1000, 1001, 1002, 1003, 7]) == 12


def test_a_chat_holds_one_state() -> None:
    runs = Runs(12)
    chat: list[int] = list(range(40))
    for turn in range(5):
        runs.run(chat, 4)
        chat += [*range(1000, 1004), *range(turn, turn + 4)]
    assert [state.num_tokens for state in runs.store.slots.states() if state.num_uses and state.is_end] == [76]
    assert sum(state.num_uses > 0 for state in runs.store.slots.states()) == 1


def test_an_end_that_two_went_on_from_stays() -> None:
    runs = Runs(12)
    runs.run(range(4), 4)
    said = [*range(4), *range(1000, 1004)]
    first, second = runs.begin([*said, 1, 1, 1]), runs.begin([*said, 2, 2, 2])
    for one in (first, second, first, second):
        runs.step(one)
    runs.end(first)
    runs.end(second)
    assert [state.num_uses for state in runs.store.slots.states() if state.num_tokens == 8] == [3]


def test_where_prompts_part_and_before_the_last_token_of_one_a_request_resumes() -> None:
    runs, shared = Runs(12), list(range(8))
    assert [runs.run([*shared, number, 1, 2], 2) for number in (20, 30, 40, 40)] == [0, 0, 8, 8]
    assert [state.num_uses for state in runs.store.slots.states() if state.num_tokens == 8] == [3]
    assert runs.run(list(range(300, 309)), 4) == 0
    assert runs.run(list(range(300, 309)), 4) == 8


def test_a_probe_leaves_no_trace() -> None:
    runs = Runs(4)
    runs.run(range(8), 4)
    before = {state: (state.num_uses, state.floor, state.is_end) for state in runs.store.slots.states()}
    for _ in range(5):
        assert runs.run([*range(8), *range(1000, 1004), 7], is_probe=True) == 12
    assert {state: (state.num_uses, state.floor, state.is_end) for state in runs.store.slots.states()} == before


def test_what_a_fault_leaves_without_a_block_was_given_up() -> None:
    runs = Runs(6)
    runs.run(range(8), 4)
    (state,) = [one for one in runs.store.slots.states() if one.is_end]
    runs.store.reclaim([])
    assert not state.is_kept
    assert runs.store.slots.num_kept == 0
    runs.store.audit([], [])


def test_a_request_that_resumed_and_computed_nothing_leaves_the_end_as_it_was() -> None:
    runs = Runs(12)
    runs.run(range(8), 4)
    runs.end(runs.begin([*range(8), *range(1000, 1004), 7]))
    assert [state.num_uses for state in runs.store.slots.states() if state.num_tokens == 12] == [2]


@pytest.mark.parametrize("num_prompt", range(5, 14))
def test_with_tiers_states_are_kept_at_ends_of_blocks_too(num_prompt: int) -> None:
    """Before the prompt's last token and before the end; such a state has been asked for by nothing yet."""
    runs = Runs(12, at_blocks=True)
    runs.run(range(num_prompt), 3)
    last, end = num_prompt - 1, num_prompt + 3
    uses = {state.num_tokens: state.num_uses for state in runs.store.slots.states()}
    stepped = [number for number in (num_prompt, end) if number % BLOCK == 0]  # where a step has ended
    kept = {last // BLOCK * BLOCK, last, *stepped}
    assert uses == {**dict.fromkeys(kept, 0), end: 1}


def test_a_state_that_moves_to_a_block_of_the_tree_is_new_there() -> None:
    runs = Runs(12)
    parts = StateParts(runs.store.slots)
    parts.notes.watch(lambda block: None)
    runs.run(range(5), 3)
    (block,) = parts.notes.take_kept()[-1:]
    slot = parts.part_of(block)
    runs.store.slots.merge(block, 99)
    assert (parts.notes.take_kept(), parts.part_of(block), parts.part_of(99)) == ([99], -1, slot)
    assert slot >= 0


@pytest.mark.parametrize("wrong", ["block", "place", "request"])
def test_an_audit_finds_what_is_wrong(wrong: str) -> None:
    runs = Runs(6)
    runs.run(range(8), 4)
    one = runs.begin([*range(8), *range(1000, 1004), 7])
    blocks = list(runs.numbers.values())
    if wrong == "block":
        blocks = []
    elif wrong == "place":
        runs.store.slots.states()[0].num_tokens += 1
    else:
        one.num_computed_tokens -= 1
    with pytest.raises(AssertionError):
        runs.store.audit([cast(Request, one)], blocks)
