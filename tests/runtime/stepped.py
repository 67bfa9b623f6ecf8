"""An engine without a step thread: for tests that say when a step is made, and always see the same."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from phloem.runtime.engine.engine import Engine
from phloem.runtime.engine.engine_core import EngineCore
from phloem.runtime.engine.statistics import EngineStatistics
from phloem.runtime.engine.step_thread import Command, StepThread
from phloem.runtime.request import Delta


class OwnSteps(StepThread):
    """Commands are executed at once, and whoever waits steps.

    Attributes:
        unclaimed: deltas of requests that no stream reads.
    """

    def __init__(self, core: EngineCore) -> None:
        super().__init__(core)
        self.unclaimed: list[Delta] = []

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        command = Command(function)
        if self._has_ended:
            command.refuse(self._stopped())
        else:
            command.execute()
        return command.future

    def step(self) -> None:
        self._queue_backlog()
        for delta in self._core.step():
            if delta.request_id in self._sinks:
                self._dispatch(delta)
            else:
                self.unclaimed.append(delta)

    def wait(self, bell: queue.SimpleQueue[None]) -> None:
        while bell.empty():
            assert self._core.has_work or self._backlog, "it waits for ever"
            self.step()
        bell.get()

    def stop(self, *, waits: bool = True) -> None:
        if not self._has_ended:
            self._end()


class SteppedEngine(Engine):
    """All that an engine and its core can do."""

    step_thread: OwnSteps

    def _begin(self, core: EngineCore, step_thread: StepThread) -> None:
        super()._begin(core, OwnSteps(core))

    def step(self) -> list[Delta]:
        """Runs one step; returns what no stream has taken."""
        self.step_thread.step()
        found, self.step_thread.unclaimed = self.step_thread.unclaimed, []
        return found

    def statistics(self) -> EngineStatistics:
        self.core.pins.end_expired()
        return super().statistics()

    def __getattr__(self, name: str) -> Any:
        if name == "core":
            raise AttributeError(name)
        return getattr(self.core, name)
