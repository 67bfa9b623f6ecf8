"""What an interpreter has to do, and what it is doing. Values only."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...errors import PhloemError
from ..request import SamplingParams
from .expression import Expression, Gen, variable_of
from .place import Place, label, located
from .run import DeltaStream, Run
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


def task_of(atom: Expression, place: Place, run: Run) -> Task:
    """Raises ProgramError: a sampling parameter of a `Gen` is out of range."""
    if not isinstance(atom, Gen):
        return Task(atom, place)
    if not atom.sampling:
        return Task(atom, place, run.sampling)
    try:
        sampling = replace(run.sampling, **atom.sampling)  # type: ignore[arg-type]  # names and types from `gen`
    except PhloemError as error:
        raise located(error, run.name, place, label(atom)) from error
    return Task(atom, place, sampling)


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
