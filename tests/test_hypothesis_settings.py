"""Hypothesis on a machine that is slow or busy: no example fails because of the time that it takes."""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def test_examples_and_making_them_may_take_their_time() -> None:
    assert settings().deadline is None and HealthCheck.too_slow in settings().suppress_health_check
