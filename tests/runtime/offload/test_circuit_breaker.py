"""The circuit breaker, by a clock that the test turns."""

from __future__ import annotations

from phloem.runtime.offload.circuit_breaker import LONGEST, Breaker


def test_pauses_double_up_to_half_a_minute_and_end_with_a_success() -> None:
    now = 100.0
    breaker = Breaker(lambda: now)
    pauses = []
    for _ in range(8):
        assert not breaker.is_open
        breaker.fail()
        breaker.fail()  # of another thread, at the same time
        begin = now
        while breaker.is_open:
            now += 0.25
        pauses.append(now - begin)
    assert pauses == [1, 2, 4, 8, 16, LONGEST, LONGEST, LONGEST]
    breaker.fail()
    breaker.succeed()
    assert not breaker.is_open
    breaker.fail()
    now += 1
    assert not breaker.is_open, "it began anew"
