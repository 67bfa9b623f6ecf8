"""Deltas put together again: each to its output, and what they say of its end."""

from __future__ import annotations

import pytest

from phloem.errors import RequestError
from phloem.runtime.constrain.spec import json_object
from phloem.runtime.engine.collector import Collector
from phloem.runtime.request import Delta, FinishReason, Usage


def delta(index: int, text: str, reason: FinishReason | None = None, error: RequestError | None = None) -> Delta:
    return Delta("name", index, text, tuple(text.encode()), reason, Usage(), error=error)


def test_outputs_come_in_their_order_whoever_ends_first() -> None:
    collector = Collector(2, None)
    pushed = [delta(1, "a"), delta(0, "x"), delta(1, "b", FinishReason.STOP), delta(0, "yz", FinishReason.LENGTH)]
    assert [collector.push(one) for one in pushed] == [False, False, False, True]
    assert [(one.index, one.text, bytes(one.token_ids)) for one in collector.completions()] == [
        (0, "xyz", b"xyz"),
        (1, "ab", b"ab"),
    ]


def test_what_has_ended_well_is_parsed_and_nothing_else() -> None:
    collector = Collector(3, json_object())
    collector.push(delta(0, "{}", FinishReason.STOP))
    collector.push(delta(1, "{", FinishReason.ABORT))
    collector.push(delta(2, "{", FinishReason.STOP))  # another stop string than the constraint's end
    good, aborted, cut = collector.completions()
    assert good.parsed == {} and aborted.parsed is None
    with pytest.raises(RequestError):
        _ = cut.parsed


def test_an_error_is_raised_where_the_outputs_are_waited_for() -> None:
    with pytest.raises(RequestError, match="lost"):
        Collector(1, None).push(delta(0, "", FinishReason.ERROR, RequestError("lost")))
