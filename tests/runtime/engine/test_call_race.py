"""A call that meets the end of its engine is answered, however close the two are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from phloem.errors import EngineStopped
from phloem.runtime.engine.async_engine import AsyncEngine

from ..fakes import fake_engine


@pytest.mark.parametrize("when", ["before it is queued", "after it is queued"])
def test_a_call_next_to_a_stop_is_answered(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = AsyncEngine(fake_engine())

    class Closing:
        """The lock of `call`, which another thread's `stop` precedes or follows."""

        def __init__(self) -> None:
            self.real = driver._closing
            self.stops: Callable[[], None] | None = driver.stop

        def __enter__(self) -> None:
            stop, self.stops = self.stops, None
            if stop is not None and when == "before it is queued":
                stop()
            self.real.acquire()
            if stop is not None and when == "after it is queued":
                self.stops_after = stop

        def __exit__(self, *_: object) -> None:
            self.real.release()
            stop = self.__dict__.pop("stops_after", None)
            if stop is not None:
                stop()

    monkeypatch.setattr(driver, "_closing", Closing())
    future = driver.call(lambda: 7)
    try:
        assert future.result(timeout=60) == 7
    except EngineStopped:
        assert when == "before it is queued"
    driver.stop()
