"""Hypothesis on a machine that is slow or busy: no example fails because of the time that it takes."""

from __future__ import annotations

import time

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

SECONDS = 0.3  # more than an example may take by Hypothesis's own settings


@settings(max_examples=1, phases=[Phase.generate])
@given(st.none())
def test_an_example_may_take_its_time(_: None) -> None:
    time.sleep(SECONDS)


def test_so_may_making_examples() -> None:
    assert settings().deadline is None and HealthCheck.too_slow in settings().suppress_health_check
