"""The line against a plain list: which request was overtaken how often, and in which order those that arrived together
go.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.radix import common_prefix, pack
from phloem.runtime.request import Request, SamplingParams
from phloem.runtime.sample.output_text import OutputText
from phloem.runtime.schedule.waiting_line import WaitingLine

from ..fakes import ByteTokenizer
from .plain_line import PlainLine

TOKENS = st.lists(st.sampled_from([1, 2, 256]), min_size=1, max_size=4)  # as bytes 256 comes before 1
# True: a step begins; a number: the next in order, after n that must wait; else one arrives
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
        output=OutputText(ByteTokenizer().detokenizer(), ()),
        **options,  # type: ignore[arg-type]
    )
    found.ticket = ticket
    return found


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_it_is_the_line_of_its_description(data: st.DataObject) -> None:
    """Arrivals, steps, time, admissions in and out of turn, removals, deadlines, against plain lists."""
    bound = data.draw(st.sampled_from([None, 0, 1, 2, 5]))
    now = 0.0
    found = WaitingLine(max_overtakes=bound, max_wait_seconds=8.0, clock=lambda: now)
    truth = PlainLine(bound, 8.0)
    requests: dict[int, Request] = {}
    for _ in range(data.draw(st.integers(0, 40))):
        what = data.draw(st.sampled_from(["add", "add", "add", "step", "step", "remove"]))
        if what == "add":
            one = request(
                len(requests),
                data.draw(TOKENS),
                priority=data.draw(st.sampled_from([0, 0, 0, 1, 2])),
                namespace=data.draw(st.sampled_from(["", "", "b"])),
                deadline_seconds=data.draw(st.sampled_from([None, None, 3.0, 12.0])),
            )
            requests[one.ticket] = one
            found.add(one)
            truth.add(one, now)
        elif what == "remove" and len(found):
            one = data.draw(st.sampled_from([*found]))
            found.remove(one)
            truth.remove(one)
        elif what == "step":
            now += data.draw(st.sampled_from([0.0, 0.0, 1.0, 4.0]))
            assert {*map(id, found.begin_step())} == {*map(id, truth.begin_step(now))}
            for _ in range(data.draw(st.integers(0, 3))):
                entries = [*found.in_order()]
                assert [entry.request.ticket for entry in entries] == [one.ticket for one in truth.order(now)]
                if entries:
                    index = data.draw(st.integers(0, min(2, len(entries) - 1)))
                    found.admit(entries[index].request, entries[0].key)
                    truth.admit(entries[index].request, entries[0].request)
        assert {one.ticket for one in found} == {place.request.ticket for place in truth.places}
        assert all((one in found) == any(place.request is one for place in truth.places) for one in requests.values())


@given(HAPPENINGS, st.integers(0, 5))
def test_none_is_overtaken_more_often_than_the_bound(happenings: list[object], bound: int) -> None:
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


@pytest.mark.parametrize("seed", range(2))
def test_without_a_set_bound_it_is_256_or_as_many_as_have_waited_since_the_oldest_came(seed: int) -> None:
    """Hot traffic without an end, in lines of all lengths; some are left waiting for as long as may be."""
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


@given(st.lists(st.tuples(TOKENS, st.integers(0, 1), st.sampled_from(["", "b"])), max_size=8), TOKENS)
def test_what_is_needed_of_a_prefix_is_what_the_closest_of_all_begins_with(
    traffic: list[tuple[list[int], int, str]], token_ids: list[int]
) -> None:
    waiting_line = line()
    for ticket, (tokens, priority, namespace) in enumerate(traffic):
        waiting_line.add(request(ticket, tokens, priority=priority, namespace=namespace))
    wanted = [common_prefix(pack(tokens), pack(token_ids)) >> 2 for tokens, _, space in traffic if space == "b"]
    assert waiting_line.count_needed("b", pack(token_ids)) == max(wanted, default=0)
