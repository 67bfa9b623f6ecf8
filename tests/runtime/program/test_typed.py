"""Values of a type: as variables, as one call, and as type checkers see them."""

from __future__ import annotations

import inspect
import itertools
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import phloem as ph
from phloem.errors import RequestError
from phloem.runtime.cli import extract as command
from phloem.runtime.program import ProgramState, typed

from .fakes import FakeBackend

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = ("Meet Ravel Tamsen, 41 years old.", "Sela Orvin is a baker.")


class Person(BaseModel):
    name: str
    age: int = 3


@dataclass
class Town:
    name: str


def test_a_generation_of_a_type_is_a_value_of_it() -> None:
    @ph.function
    def body(s: ProgramState) -> None:
        s += "Q" + ph.gen("x", type=Person) + ph.gen("y", type=list[Person])

    state = body.run(
        backend=FakeBackend(lambda text: '[{"name": "Ada"}]' if text.count("Ada") == 1 else '{"name": "Ada"}')
    )
    assert state["x"] == Person(name="Ada") == state.parsed("x") and state["y"] == [Person(name="Ada")]
    assert state.text() == 'Q{"name": "Ada"}[{"name": "Ada"}]' and "".join(state.text_iter("x")) == '{"name": "Ada"}'
    with pytest.raises(ph.ProgramError, match=rf"{__file__}:\d+, gen\('y'\): the output is not the value"):
        body.run(backend=FakeBackend('{"name": "Ada"}'))


def test_an_output_that_is_no_value_fails_at_its_line() -> None:
    with pytest.raises(ph.ProgramError, match=rf"^{__file__}:\d+, generate: the output is not the value") as caught:
        ph.generate(Town, "Which town?", backend=FakeBackend('{"name": 3}'))
    assert isinstance(caught.value.__cause__, RequestError)
    for wrong in ({"type": "integer"}, "text", 3):
        with pytest.raises(ph.ProgramError, match="gen: type: expected a type"):
            ph.gen("x", type=wrong)
    with pytest.raises(ph.ProgramError, match="regex and type exclude each other"):
        ph.gen("x", type=int, regex="a")


def test_a_value_is_one_call() -> None:
    backend = FakeBackend('{"name": "Dorvik"}')
    assert ph.generate(Town, "Which town?", system="Be brief.", backend=backend) == Town("Dorvik")
    [asked] = backend.asked
    assert (asked.sampling.temperature, asked.sampling.max_tokens) == (0.0, 512)
    assert "Be brief." in backend.show(asked.prompt) and "Which town?" in backend.show(asked.prompt)
    ph.generate(Town, "Which town?", backend=backend, temperature=0.5, max_tokens=9)
    assert (backend.asked[-1].sampling.temperature, backend.asked[-1].sampling.max_tokens) == (0.5, 9)


def test_documents_are_read_as_values_are_taken() -> None:
    taken = itertools.count()
    backend = FakeBackend('{"name": "Ada"}')
    people = ph.extract(Person, (f"document {next(taken)}" for _ in itertools.count()), backend=backend, num_threads=3)
    assert [next(people) for _ in range(10)] == [Person(name="Ada")] * 10
    people.close()  # type: ignore[attr-defined]
    assert next(taken) <= 10 + 3
    prompts = [backend.show(asked.prompt) for asked in backend.asked]
    assert any("document 0\n\nExtract the person as JSON." in prompt for prompt in prompts)
    assert typed.SYSTEM == command.SYSTEM, "the command line asks the same"


@dataclass
class PurchaseOrder:
    name: str


@pytest.mark.parametrize(
    ("kind", "asked"), [(PurchaseOrder, "purchase order"), (list[PurchaseOrder], "data"), (Person | None, "data")]
)
def test_extract_asks_for_a_class_in_words(kind: Any, asked: str) -> None:
    backend = FakeBackend('[{"name": "Ada"}]' if kind == list[PurchaseOrder] else '{"name": "Ada"}')
    list(ph.extract(kind, ["a letter"], backend=backend))
    assert f"letter\n\nExtract the {asked} as JSON." in backend.show(backend.asked[0].prompt)


def test_an_error_of_extract_has_the_line_of_its_caller_and_the_number_of_the_document() -> None:
    line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    people = ph.extract(Person, ["fine", "REFUSE"], backend=FakeBackend('{"name": "Ada"}'))
    assert next(people) == Person(name="Ada")
    with pytest.raises(ph.ProgramError, match=rf"^{__file__}:{line}, extract, item 1: refused") as caught:
        next(people)
    assert caught.value.place == f"{__file__}:{line}" and caught.value.__notes__ == ["in item 1 of a batch"]


def test_errors_come_in_the_place_of_values_where_they_are_asked_for() -> None:
    documents: list[Any] = ["a", "REFUSE", "WRONG", 7, b"b", "c"]
    backend = FakeBackend(lambda text: "[]" if "WRONG" in text else '{"name": "Ada"}')
    found = list(ph.extract(Person, documents, backend=backend, return_errors=True))
    assert [str(one) for one in (found[0], found[-1])] == [str(Person(name="Ada"))] * 2
    for one, message in zip(
        found[1:-1], ("item 1: refused", "item 2: .*is not the value", "item 3: .*got int", "item 4"), strict=True
    ):
        assert isinstance(one, ph.ProgramError) and re.search(rf"test_typed\.py:\d+.*{message}", str(one)), one
    people = ph.extract(Person, ["a", documents[3]], backend=backend)
    assert next(people) == Person(name="Ada")
    with pytest.raises(ph.ProgramError, match="documents: item 1: expected text, got int"):
        next(people)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda **given: ph.extract(Person, "one text", **given), r"extract: documents: .* give it as \[text\]"),
        (lambda **given: ph.extract(["text"], Person, **given), "extract: kind: expected a type"),
        (
            lambda **given: ph.extract(Person, Person, **given),
            "extract: documents: expected texts, got the class Person",
        ),
        (lambda **given: ph.extract(Person, 3, **given), "extract: documents: expected texts, got int"),
        (lambda **given: ph.extract(Person, [], foo=1, **given), "^extract: foo: no such option"),
        (lambda **given: ph.extract(Person, [], num_threads=0, **given), "^extract: num_threads: expected"),
        (lambda **given: ph.extract(list[type], [], **given), r"test_typed\.py:\d+, extract: kind: "),
        (lambda **given: ph.generate(Person, "text", stream=True, **given), "^generate: stream: no such option"),
        (lambda **given: ph.generate("text", Person, **given), "generate: kind: expected a type"),
        (lambda **given: ph.generate(Person, None, **given), "generate: prompt: expected text, got NoneType"),
    ],
)
def test_wrong_arguments_are_refused_by_their_names(make: Callable[..., object], message: str) -> None:
    with pytest.raises(ph.ProgramError, match=message):
        make(backend=FakeBackend())


def test_the_bundled_model_reads_documents() -> None:
    with ph.Engine(num_blocks=256) as engine:
        people = list(ph.extract(Person, DOCUMENTS, backend=engine))
    assert people[0] == Person(name="Ravel Tamsen", age=41) and people[1].name == "Sela Orvin"


CHECKED = """
from dataclasses import dataclass
from typing import assert_type
import phloem as ph

@dataclass
class Person:
    name: str

@ph.function
def tip(s: ph.ProgramState, topic: str, size: int = 1) -> int:
    s += ph.gen(topic, type=Person)
    return size

@ph.function
def outer(s: ph.ProgramState) -> None:
    assert_type(tip(s, "sleep"), int)
    tip(s, 3)  # wrong

async def main() -> None:
    assert_type(await tip.run_async("a", temperature=0.5), ph.ProgramState)

assert_type(tip("sleep", size=2), ph.ProgramState)
assert_type(tip.run(topic="sleep", temperature=0.5), ph.ProgramState)
assert_type(ph.generate(Person, "x", temperature=0.5), Person)
assert_type(next(ph.extract(Person, ["a"])), Person)
assert_type(next(ph.extract(Person, ["a"], return_errors=True)), Person | ph.ProgramError)
tip(3)  # wrong
tip("a", sise=3)  # wrong
tip()  # wrong
ph.generate(Person, "x", temprature=1)  # wrong
ph.extract(Person, [3])  # wrong
"""
SKIPPED = [  # what the types of programs do not depend on
    *(f"phloem.{name}.*" for name in ("faces", "fsm", "kernels", "radix")),
    *("phloem.runtime.config", "phloem.runtime.explain", "phloem.runtime.readout", "phloem.runtime.program.backends.*"),
    *(f"phloem.runtime.{name}.*" for name in ("cache", "engine", "models", "offload", "sample", "speculate")),
    "phloem.runtime.constrain.python_types.*",
]


def test_a_program_keeps_the_signature_of_its_function(tmp_path: Path) -> None:
    config = tmp_path / "mypy.ini"
    config.write_text(
        f"[mypy]\nstrict = true\nmypy_path = {ROOT / 'src'}\nno_site_packages = true\nignore_missing_imports = true\n"
        f"follow_imports = silent\n[mypy-{','.join(SKIPPED)}]\nfollow_imports = skip\n",
        encoding="utf-8",
    )
    file = tmp_path / "checked.py"
    file.write_text(CHECKED, encoding="utf-8")
    mypy = [sys.executable, "-m", "mypy", "--config-file", str(config), "--cache-dir", str(tmp_path), str(file)]
    found = subprocess.run(mypy, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=600)
    faults = {int(line.split(":")[1]) for line in found.stdout.splitlines() if ": error: " in line}
    wrong = {number for number, line in enumerate(CHECKED.splitlines(), 1) if line.endswith("# wrong")}
    assert faults == wrong, found.stdout + found.stderr
