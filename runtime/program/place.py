"""Where in the source an expression was made, so that its errors name the place. Knows expressions only."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import CodeType

from ...errors import PhloemError, ProgramError
from .expression import Expression, Gen, RoleBegin, RoleEnd, ScopeBegin, ScopeEnd, Select, Text

PACKAGE = __name__.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the program.

    Attributes:
        call: the function of ours that it calls; errors name that, and not the program by which it works.
    """

    filename: str
    line: int
    call: str = ""

    def __str__(self) -> str:
        return f"{self.filename}:{self.line}"


def place_of_caller() -> SourceLine:
    """The nearest line outside this package that led here."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(PACKAGE):
        frame = frame.f_back
    return SourceLine(frame.f_code.co_filename, frame.f_lineno)


def place_of_error(error: BaseException, code: CodeType | None) -> SourceLine | None:
    """The line of `code` (a program's function) at which the error was raised or passed through; without one the last
    line outside this package. None if there is no such line."""
    outside = None
    found = None
    trace = error.__traceback__
    while trace is not None:
        place = SourceLine(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        if trace.tb_frame.f_code is code:
            found = place
        elif not trace.tb_frame.f_globals.get("__name__", "").startswith(PACKAGE):
            outside = place
        trace = trace.tb_next
    return found or outside


def located(error: BaseException, program: str, place: SourceLine | None = None, what: str = "") -> ProgramError:
    """The error with program, line and expression before its message, and itself as the cause."""
    cause = str(error) if isinstance(error, PhloemError) else f"{type(error).__name__}: {error}"
    parts = (place, place.call) if place is not None and place.call else (f"program {program}", place, what)
    found = ProgramError(f"{', '.join(str(part) for part in parts if part)}: {cause}", place=str(place or ""))
    found.__cause__ = error
    return found


def label(atom: Expression) -> str:
    """The expression as its author wrote it, in short."""
    match atom:
        case Gen(name) | Select(name):
            return f"{type(atom).__name__.lower()}({name!r})" if name else f"{type(atom).__name__.lower()}()"
        case RoleBegin(role):
            return f"{role}_begin()"
        case RoleEnd(role):
            return f"{role}_end()"
        case ScopeBegin(name) | ScopeEnd(name):
            return f"var_scope({name!r})"
        case Text(text):
            return f"text {text[:20]!r}"
    return type(atom).__name__
