"""What an interpreter has to do, and what it is doing. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from ..request import SamplingParams
from .expression import Expression, variable_of
from .place import Place
from .run import DeltaStream
from .transcript import Mark


@dataclass(frozen=True, slots=True)
class Task:
    """An expression to run, and the line that asked for it.

    Attributes:
        sampling: for a `Gen`, the run's parameters with its own.
        stream: the request of a `Gen` that was begun by another state.
    """

    atom: Expression
    place: Place
    sampling: SamplingParams | None = None
    stream: DeltaStream | None = None


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A generation that has begun, and where in the transcript."""

    task: Task
    stream: DeltaStream
    mark: Mark

    @property
    def name(self) -> str | None:
        """Of the variable that it sets."""
        return variable_of(self.task.atom)
