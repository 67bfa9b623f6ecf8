"""Values of a type as one call: programs of one message, for any backend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeVar, Unpack, cast

from .api import assistant, gen, system, user
from .function import function
from .options import RunOptions
from .state import ProgramState

T = TypeVar("T")
SYSTEM = "You read documents. Answer briefly, or give JSON."
DEFAULTS = RunOptions(max_tokens=512, temperature=0.0)


def generate(kind: type[T], prompt: str, *, system: str | None = None, **options: Unpack[RunOptions]) -> T:
    """The model's answer to `prompt` as a value of `kind`: a pydantic class, a dataclass, `list[Person]` …

    Args:
        system: a system message.
        options: as for `Program.run`; `max_tokens` is 512 and `temperature` 0 unless they say otherwise.

    Raises:
        ProgramError: the backend fails, or what it wrote is no such value.
    """
    state = value_of.run(kind, prompt, system, **cast("dict[str, Any]", {**DEFAULTS, **options}))
    return cast(T, state["value"])


def extract(
    kind: type[T],
    documents: Iterable[str],
    *,
    instruction: str | None = None,
    system: str | None = SYSTEM,
    num_threads: int | Literal["auto"] = "auto",
    **options: Unpack[RunOptions],
) -> Iterator[T]:
    """A value of `kind` from each document, in order, as they are done. `documents` may be endless: it is read
    `num_threads` ahead.

    Args:
        instruction: what is asked after each document; without it, to extract what the type is called.
        system, options: as for `generate`.

    Raises:
        ProgramError: of the first document, in order, that failed, with its number as a note.
    """
    asked = instruction or f"Extract the {getattr(kind, '__name__', 'data').lower()} as JSON."
    items = ((kind, f"{document.strip()}\n\n{asked}", system) for document in documents)
    states = value_of.run_batch(
        items, num_threads=num_threads, generator_style=True, **RunOptions(**{**DEFAULTS, **options})
    )
    return (cast(T, state["value"]) for state in states)


@function
def value_of(s: ProgramState, kind: Any, prompt: str, role: str | None) -> None:
    if role is not None:
        s += system(role)
    s += user(prompt) + assistant(gen("value", type=kind))
