"""At its switching length a request has the short frequencies, with one token more the long ones."""

from __future__ import annotations

import pytest

from phloem.runtime.schedule.rope_switch import RopeSwitch, inherit, outgrows

from .test_waiting_line import request

SWITCHES_AT = 5


@pytest.mark.parametrize("length", [SWITCHES_AT - 1, SWITCHES_AT, SWITCHES_AT + 1])
def test_what_a_request_begins_with_is_that_of_its_length(length: int) -> None:
    switch = RopeSwitch(SWITCHES_AT)
    asked = request(0, [*range(length)])
    plain = asked.namespace
    switch.begin(asked)
    assert asked.first_row == (SWITCHES_AT if length > SWITCHES_AT else 0)
    assert asked.namespace == switch.namespace(asked.token_ids, plain)
    assert (asked.namespace == plain) == (length <= SWITCHES_AT)
    assert not outgrows(asked)


def test_a_request_outgrows_its_frequencies_once() -> None:
    asked = request(0, [*range(SWITCHES_AT)])
    RopeSwitch(SWITCHES_AT).begin(asked)
    asked.token_ids.append(1)
    assert outgrows(asked)
    RopeSwitch(asked.switches_at).begin(asked)
    assert not outgrows(asked) and asked.first_row == SWITCHES_AT
    child = request(1, list(asked.token_ids))
    inherit(child, asked)
    assert (child.first_row, child.switches_at, child.namespace) == (SWITCHES_AT, None, asked.namespace)


def test_without_a_switch_nothing_changes() -> None:
    asked = request(0, [*range(9)])
    RopeSwitch(None).begin(asked)
    assert (asked.first_row, asked.switches_at, outgrows(asked)) == (0, None, False)
    assert RopeSwitch(None).namespace(asked.token_ids, "a") == "a"
