"""Values of a type as one call: programs of one message, for any backend.

Errors have the line of the call, which programs of a batch, each on a thread of the pool, cannot find by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal, TypeVar, Unpack, cast, overload

from ...errors import ConstraintError, ProgramError
from ..constrain.python_type import is_python_type
from .api import assistant, gen, system, user
from .expression import Expression, concat
from .function import function
from .options import RunOptions, check_names, num_threads_of
from .place import SourceLine, place_of_caller
from .state import ProgramState

T = TypeVar("T")
SYSTEM = "You read documents. Answer briefly, or give JSON."
DEFAULTS = RunOptions(max_tokens=512, temperature=0.0)


def generate(kind: type[T], prompt: str, *, system: str | None = None, **options: Unpack[RunOptions]) -> T:
    """The model's answer to `prompt` as a value of `kind`: a pydantic class, a dataclass, `list[Person]` …

    Args:
        system: a system message.
        options: as for `Program.run`, but without `stream`; `max_tokens` is 512 and `temperature` 0 unless they say
            otherwise.

    Raises:
        ProgramError: an argument is none, the backend fails, or what it wrote is no such value.
    """
    check_names("generate", options)
    place = place_of_caller()
    answer = _answer("generate", kind, place)
    if not isinstance(prompt, str):
        raise ProgramError(f"generate: prompt: expected text, got {_named(prompt)}")
    place = replace(place, call="generate")
    state = value_of.run(answer, prompt, system, place, **cast("dict[str, Any]", {**DEFAULTS, **options}))
    return cast(T, state["value"])


@overload
def extract(
    kind: type[T],
    documents: Iterable[str],
    *,
    instruction: str | None = None,
    system: str | None = SYSTEM,
    num_threads: int | Literal["auto"] = "auto",
    return_errors: Literal[False] = False,
    **options: Unpack[RunOptions],
) -> Iterator[T]: ...


@overload
def extract(
    kind: type[T],
    documents: Iterable[str],
    *,
    instruction: str | None = None,
    system: str | None = SYSTEM,
    num_threads: int | Literal["auto"] = "auto",
    return_errors: bool,
    **options: Unpack[RunOptions],
) -> Iterator[T | ProgramError]: ...


def extract(
    kind: type[T],
    documents: Iterable[str],
    *,
    instruction: str | None = None,
    system: str | None = SYSTEM,
    num_threads: int | Literal["auto"] = "auto",
    return_errors: bool = False,
    **options: Unpack[RunOptions],
) -> Iterator[T | ProgramError]:
    """A value of `kind` from each document, in order, as they are done. `documents` may be endless: it is read
    `num_threads` ahead.

    Args:
        instruction: what is asked after each document; without it, to extract what a class is called, in words, or
            "the data" of another type.
        system, options: as for `generate`.
        return_errors: a document that fails, or an item that is no text, does not raise: the error comes in the place
            of its value, and the documents after it are read.

    Raises:
        ProgramError: an argument is none; of the first document, in order, that failed, with its number as a note.
        Exception: what `documents` has raised, after all documents before it.
    """
    check_names("extract", options)
    num_threads = num_threads_of("extract", num_threads)
    place = place_of_caller()
    answer = _answer("extract", kind, place)
    if isinstance(documents, (str, bytes)):
        raise ProgramError("extract: documents: expected several texts, got one; give it as [text]")
    try:
        numbered = enumerate(documents)
    except TypeError:
        raise ProgramError(f"extract: documents: expected texts, got {_named(documents)}") from None
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", kind.__name__).lower() if isinstance(kind, type) else "data"
    asked = instruction or f"Extract the {name} as JSON."

    def prompt_of(number: int, document: object) -> str | ProgramError:
        if isinstance(document, str):
            return f"{document.strip()}\n\n{asked}"
        return ProgramError(
            f"{place}: extract: documents: item {number}: expected text, got {_named(document)}", place=str(place)
        )

    states = value_of.run_batch(
        (
            (answer, prompt_of(number, document), system, replace(place, call=f"extract, item {number}"))
            for number, document in numbered
        ),
        num_threads=num_threads,
        generator_style=True,
        return_errors=return_errors,
        **RunOptions(**{**DEFAULTS, **options}),
    )
    return (cast(T, state["value"]) if (error := state.error()) is None else error for state in states)


@function
def value_of(
    s: ProgramState, answer: Expression, prompt: str | ProgramError, role: str | None, place: SourceLine
) -> None:
    """prompt: an error instead is what the run fails with; place: the line that is said to have asked."""
    if isinstance(prompt, ProgramError):
        raise prompt
    asked = concat(user(prompt), answer)
    s._interpreter.append((asked if role is None else concat(system(role), asked)).atoms(), place)


def _answer(call: str, kind: Any, place: SourceLine) -> Expression:
    if not is_python_type(kind):
        raise ProgramError(f"{call}: kind: expected a type such as a pydantic class or list[int], got {kind!r}")
    try:
        return assistant(gen("value", type=kind))
    except ConstraintError as error:  # of a schema that is refused
        raise ProgramError(f"{place}, {call}: kind: {error}", place=str(place)) from error


def _named(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
