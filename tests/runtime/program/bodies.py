"""Functions of a state, run as programs."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import phloem as ph
from phloem.runtime.program import ProgramState

from .fakes import FakeBackend


def run(body: Callable[[ProgramState], Any], backend: FakeBackend | None = None, **options: Any) -> ProgramState:
    """Runs a function of `s` as a program."""

    def program(s: ProgramState) -> Any:
        return body(s)

    return ph.function(program).run(backend=backend or FakeBackend(), **options)


def echo(prompt: str) -> str:
    """Answers with the digits of the prompt, added up."""
    return str(sum(map(int, re.findall(r"\d", prompt))))
