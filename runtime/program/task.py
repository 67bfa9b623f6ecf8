"""What an interpreter has to do, and what it is doing. Values only."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from ...errors import PhloemError
from ..request import SamplingParams
from .expression import Expression, Gen, variable_of
from .place import SourceLine, label, located
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
    place: SourceLine
    sampling: SamplingParams | None = None
    stream: DeltaStream | None = None


def task_of(atom: Expression, place: SourceLine, program: str, sampling: SamplingParams) -> Task:
    """`sampling` is what a `Gen` uses for arguments it was not given.

    Raises:
        ProgramError: a sampling parameter of a `Gen` is out of range.
    """
    if not isinstance(atom, Gen):
        return Task(atom, place)
    if not atom.sampling:
        return Task(atom, place, sampling)
    try:
        sampling = replace(sampling, **atom.sampling)  # type: ignore[arg-type]  # names and types from `gen`
    except PhloemError as error:
        raise located(error, program, place, label(atom)) from error
    return Task(atom, place, sampling)


def sampling_of_fork(sampling: SamplingParams, number: int) -> SamplingParams:
    """What the fork of that number uses. The noise of a seed is a function of the position, so two forks of one state
    would say the same under the same seed, word for word; each has its own, made from the parent's."""
    if sampling.seed is None:
        return sampling
    digest = hashlib.blake2b(b"%d %d" % (sampling.seed, number), digest_size=8).digest()
    return replace(sampling, seed=int.from_bytes(digest) >> 1)


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
