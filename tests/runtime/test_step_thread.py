"""The thread that steps the engine compiles nothing: every Python function that it calls is noted, while constraints of
all kinds, never seen before, come in on other threads and through the server's event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import phloem
from phloem.errors import ConstraintError
from phloem.fsm.collection import put_off
from phloem.runtime.constrain import spec as specs
from phloem.runtime.constrain.spec import ConstraintSpec
from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.request import SamplingParams

from .fakes import threaded_engine

FSM = Path(phloem.__file__).parent / "fsm"
COMPILES = ("compiler.py", "json_schema", "regex", "grammars", "tags", "network/positions.py", "network/any_order.py")
LIMITS = SamplingParams(max_tokens=60, temperature=1.0, seed=3)


class Watch:
    """What is called on a thread, of the modules in `fsm`."""

    def __init__(self) -> None:
        self.called: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(FSM)):
            self.called.add((str(Path(code.co_filename).relative_to(FSM)), code.co_name))

    @property
    def compiling(self) -> set[tuple[str, str]]:
        return {(file, name) for file, name in self.called if file.startswith(COMPILES) or name == "build_network"}


def constraints(number: int) -> list[ConstraintSpec]:
    """One of each kind, of which no other number has the like."""
    member = {"type": "object", "properties": {f"k{number}": {"type": "integer", "maximum": number + 9}}}
    schema = {"properties": {f"a{number}": {"pattern": f"^x{{1,{number + 2}}}$"}, "b": member}, "required": ["b"]}
    return [
        specs.regex(f"[ab]{{2,{number + 3}}}(?!c)[cd]"),
        specs.choice([f"yes {number}", f"no {number}", "é" * (number + 1)]),
        specs.json_schema({"type": "object", **schema}),
        specs.json_schema({"type": "object", **schema}, key_order="any", whitespace="flexible"),
        specs.grammar(f'root ::= "(" root ")" | [a-z]{{1,{number + 2}}}'),
        specs.grammar(f'start: NAME (NAME)~{number + 1}\nNAME: /[a-z]{{1,3}}/\n%ignore " "'),
        specs.structural_tag([{"begin": f"<f{number}>", "schema": member, "end": "</f>"}], at_least_one=True),
    ]


@pytest.fixture
def served() -> Iterator[AsyncEngine]:
    """An engine that has loaded its compiled loops, as a server has when it says that it is ready.

    Python's garbage collector is off meanwhile: on whichever thread it runs, it closes the generators that a
    compilation elsewhere has left, which counts as a call of them.
    """
    engine = AsyncEngine(threaded_engine(num_blocks=512))
    engine.engine.compiler.warm_up()
    for spec in constraints(9):
        engine.submit([9], LIMITS, spec).result()
    with put_off():
        yield engine
    engine.stop()


def test_constraints_are_compiled_on_the_threads_that_bring_them(served: AsyncEngine) -> None:
    step, others = Watch(), Watch()
    served.call(lambda: sys.setprofile(step)).result(timeout=120)

    def ask(number: int) -> None:
        sys.setprofile(others)
        try:
            for spec in constraints(number):
                served.submit([number], LIMITS, spec).result()
        finally:
            sys.setprofile(None)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    served.call(lambda: sys.setprofile(None)).result(timeout=120)
    assert ("compiler.py", "_build") in others.compiling, "the watch sees compiling where it happens"
    assert any(file.startswith("json_schema") for file, _ in others.compiling)
    assert any(file == "cursor.py" for file, _ in step.called), "the watch sees the step thread at work"
    assert not step.compiling


def test_nor_does_it_compile_what_coroutines_ask_for_or_what_is_refused(served: AsyncEngine) -> None:
    step = Watch()
    served.call(lambda: sys.setprofile(step)).result(timeout=120)
    refused = specs.json_schema({"not": {"multipleOf": 1e-17}})

    async def ask() -> None:
        await asyncio.gather(*(served.complete([1, 2], LIMITS, spec) for spec in constraints(7)))
        with pytest.raises(ConstraintError):
            await served.complete([1, 2], LIMITS, refused)

    asyncio.run(ask())
    served.call(lambda: sys.setprofile(None)).result(timeout=120)
    assert step.called and not step.compiling
