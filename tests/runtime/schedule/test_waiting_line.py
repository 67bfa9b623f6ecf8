"""The line against a plain list: who was overtaken how often, and in which order those who arrived together go."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phloem.radix import common_prefix, pack
from phloem.runtime.output import OutputText
from phloem.runtime.request import Request, SamplingParams
from phloem.runtime.schedule.waiting_line import WaitingLine

from ..fakes import ByteDetokenizer

TOKENS = st.lists(st.sampled_from([1, 2]), min_size=1, max_size=4)
# True: a step begins; a number: the next in order, after so many that must wait; else one arrives
HAPPENINGS = st.lists(st.one_of(st.just(True), st.integers(0, 2).map(float), TOKENS), max_size=60)


def line(max_overtakes: int | None = 10**9, clock: Callable[[], float] = lambda: 0.0) -> WaitingLine:
    return WaitingLine(max_overtakes=max_overtakes, max_wait_seconds=100.0, clock=clock)


def request(ticket: int, token_ids: list[int], **options: object) -> Request:
    found = Request(
        request_id=str(ticket),
        index=0,
        token_ids=array("i", token_ids),
        num_prompt_tokens=len(token_ids),
        sampling=SamplingParams(),
        seed=0,
        output=OutputText(ByteDetokenizer(), ()),
        **options,  # type: ignore[arg-type]
    )
    found.ticket = ticket
    return found


@given(HAPPENINGS, st.integers(0, 5))
def test_nobody_is_overtaken_more_often_than_the_bound(happenings: list[object], bound: int) -> None:
    waiting_line = line(bound)
    arrived_in: dict[int, int] = {}
    waiting: dict[int, Request] = {}
    overtaken: dict[int, int] = {}
    step = 0
    for happening in happenings:
        if happening is True:
            waiting_line.begin_step()
            step += 1
        elif isinstance(happening, list):
            one = request(len(arrived_in), happening)
            waiting_line.add(one)
            waiting[one.ticket], arrived_in[one.ticket], overtaken[one.ticket] = one, step, 0
        else:
            assert isinstance(happening, float)
            entries = list(waiting_line.in_order())
            assert bool(entries) == bool(waiting)
            if not entries:
                continue
            chosen = entries[min(int(happening), len(entries) - 1)]
            waiting_line.admit(chosen.request, entries[0].key)
            del waiting[chosen.request.ticket]
            for ticket in waiting:
                overtaken[ticket] += arrived_in[chosen.request.ticket] > arrived_in[ticket]
        assert len(waiting_line) == len(waiting)
        assert all(count <= bound for count in overtaken.values())


@pytest.mark.parametrize("seed", range(4))
def test_without_a_set_bound_it_is_256_or_as_many_as_have_waited_since_the_oldest_came(seed: int) -> None:
    """Hot traffic without an end, in lines of all lengths; some are left behind for as long as may be."""
    source = random.Random(seed)
    waiting_line = line(None)
    waiting: dict[int, int] = {}  # when it came; oldest first
    overtaken: dict[int, int] = {}
    lengths: list[int] = []
    worst = num_beyond = 0
    for moment in range(2400):
        waiting_line.begin_step()
        wanted = 40 if moment % 1200 < 300 else 500
        for _ in range(2 if len(waiting) < wanted else source.randrange(2)):
            ticket = moment * 2 + len(overtaken) % 2
            if ticket not in waiting:
                waiting_line.add(request(ticket, [1 + (source.random() < 0.02), source.randrange(9)]))
                waiting[ticket], overtaken[ticket] = moment, 0
        lengths.append(len(waiting))
        if not waiting:
            continue
        entry = next(waiting_line.in_order())
        waiting_line.admit(entry.request, entry.key)
        longest = max(lengths[next(iter(waiting.values())) :], default=0)
        came = waiting.pop(entry.request.ticket)
        for ticket, then in waiting.items():
            overtaken[ticket] += came > then
            worst = max(worst, overtaken[ticket])
            num_beyond += overtaken[ticket] > max(256, longest)
    assert num_beyond == 0
    assert worst > 400  # the long line lets more pass than the short one would


@given(st.lists(TOKENS, min_size=1, max_size=12), st.data())
def test_no_subtree_is_left_while_somebody_waits_in_it(token_lists: list[list[int]], data: st.DataObject) -> None:
    """Wherever newcomers belong: next is one who shares as much as any with the last, those behind it first."""
    waiting_line = line()
    last: list[int] | None = None
    for ticket, token_ids in enumerate(token_lists):
        waiting_line.add(request(ticket, token_ids))
        if data.draw(st.booleans()):
            continue
        order = list(waiting_line.in_order())
        tokens = [list(entry.request.token_ids) for entry in order]
        assert len(tokens) == len(waiting_line)
        if last is not None:
            shared = [common_prefix(pack(one), pack(last), 0) for one in tokens]
            assert shared == sorted(shared, reverse=True)
            place = [(-many, one < last, one) for many, one in zip(shared, tokens, strict=True)]
            assert place == sorted(place)
        waiting_line.admit(order[0].request, order[0].key)
        last = tokens[0]


@given(st.lists(TOKENS, max_size=12), st.lists(TOKENS, max_size=4))
def test_those_who_arrived_together_go_in_the_order_of_their_tokens_whatever_the_bound(
    first: list[list[int]], later: list[list[int]]
) -> None:
    waiting_line = line(max_overtakes=0)
    for ticket, token_ids in enumerate(first):
        waiting_line.add(request(ticket, token_ids))
    waiting_line.begin_step()
    for ticket, token_ids in enumerate(later, len(first)):
        waiting_line.add(request(ticket, token_ids))
    order = []
    while len(waiting_line):
        entry = next(waiting_line.in_order())
        waiting_line.admit(entry.request, entry.key)
        order.append(list(entry.request.token_ids))
    assert order[: len(first)] == sorted(first, key=pack)


@given(st.lists(st.tuples(TOKENS, st.integers(0, 1), st.sampled_from(["", "b"])), max_size=8), TOKENS)
def test_what_is_needed_of_a_prefix_is_what_the_closest_of_all_begins_with(
    traffic: list[tuple[list[int], int, str]], token_ids: list[int]
) -> None:
    waiting_line = line()
    for ticket, (tokens, priority, namespace) in enumerate(traffic):
        waiting_line.add(request(ticket, tokens, priority=priority, namespace=namespace))
    wanted = [common_prefix(pack(tokens), pack(token_ids), 0) >> 2 for tokens, _, space in traffic if space == "b"]
    assert waiting_line.count_needed("b", pack(token_ids)) == max(wanted, default=0)


def test_age_counts_more_than_priority_and_the_oldest_still_go_in_order() -> None:
    now = [0.0]
    waiting_line = line(clock=lambda: now[0])
    old = [request(0, [9]), request(1, [3])]
    for one in old:
        waiting_line.add(one)
    waiting_line.begin_step()
    now[0] = 1.0
    waiting_line.add(request(2, [1], priority=9))
    assert [entry.request.ticket for entry in waiting_line.in_order()] == [2]
    now[0] = 100.0
    assert [entry.request.ticket for entry in waiting_line.in_order()] == [1, 0]


def test_those_who_have_waited_too_long_go_together_and_nobody_joins_them() -> None:
    now = [0.0]
    waiting_line = line(clock=lambda: now[0])
    for ticket, tokens in enumerate([[9], [3], [6]]):
        waiting_line.add(request(ticket, tokens))
        waiting_line.begin_step()
        now[0] += 1.0
    now[0] = 101.0  # the third has not waited for so long
    served = []
    for ticket in range(3, 5):
        entry = next(waiting_line.in_order())
        waiting_line.admit(entry.request, entry.key)
        served.append(entry.request.ticket)
        waiting_line.add(request(ticket, [4]))
        waiting_line.begin_step()
    assert served == [1, 0]
    assert [entry.request.ticket for entry in waiting_line.in_order()] == [3, 4, 2]  # the walk as ever


def test_the_oldest_is_not_overtaken_too_often_by_those_who_have_waited_too_long_with_it() -> None:
    now = [0.0]
    waiting_line = line(2, clock=lambda: now[0])
    for ticket, tokens in enumerate([[9], [8], [7], [6], [5]]):
        waiting_line.add(request(ticket, tokens))
        waiting_line.begin_step()
    now[0] = 200.0
    assert [entry.request.ticket for entry in waiting_line.in_order()] == [2, 1, 0]


def test_who_is_removed_is_overtaken_by_nobody_any_more() -> None:
    waiting_line = line(max_overtakes=1)
    old, new = request(0, [9]), [request(ticket, [ticket]) for ticket in range(1, 4)]
    waiting_line.add(old)
    waiting_line.begin_step()
    for one in new:
        waiting_line.add(one)
    first = next(waiting_line.in_order())
    waiting_line.admit(first.request, first.key)
    assert [entry.request for entry in waiting_line.in_order()] == [old]
    waiting_line.remove(old)
    assert [entry.request for entry in waiting_line.in_order()] == new[1:]
