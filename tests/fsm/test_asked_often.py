"""The time of a compilation is asked for wherever work may grow: between two questions little is done.

Counted are steps of the interpreter (lines and calls), not seconds; what compiled loops do is bounded where they are.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from phloem.errors import ConstraintError, ConstraintTooLarge
from phloem.fsm import Compiler
from phloem.fsm.collection import put_off
from phloem.fsm.compile_time import FEW, CompileTime
from phloem.fsm.grammars import text_to_grammar
from phloem.fsm.json_schema import schema_to_grammar
from phloem.fsm.network.network import build_network
from phloem.fsm.regex.regex import regex_to_expression
from phloem.fsm.tags.structural_tags import structural_tag_to_grammar
from phloem.fsm.text.free_text import free_text
from phloem.fsm.text.literals import literal_dfa

from .vocabularies import BYTES

MOST_STEPS = 40_000  # between two questions: some milliseconds

Compile = Callable[[CompileTime], object]


class Steps:
    """Counts what the interpreter does between two questions for the time. `most`: the most of it so far.

    Python's garbage collector is off meanwhile: its callbacks and finalizers would count, and belong to other tests.
    """

    def __init__(self) -> None:
        self.count = self.most = self.num_asked = 0

    def asked(self) -> float:
        """The clock that is asked: no time ever passes."""
        self.most, self.count = max(self.most, self.count), 0
        self.num_asked += 1
        return 0.0

    def of(self, compiled: Compile) -> None:
        """Compiles something, and counts."""
        compile_time = CompileTime(1.0, clock=self.asked, wall=self.asked)
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            with suppress(ConstraintError), put_off():
                compiled(compile_time)
        finally:
            sys.settrace(before)
        self.asked()

    def _trace(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        self.count += 1
        return self._trace


def schema(described: Any) -> Compile:
    return lambda time: build_network(schema_to_grammar(described, compile_time=time), time)


def grammar(text: str) -> Compile:
    return lambda time: build_network(text_to_grammar(text, compile_time=time), time)


def tags(form: Any) -> Compile:
    return lambda time: structural_tag_to_grammar({"format": form}, compile_time=time)


KEYS = {f"key {n}": {"type": "integer"} for n in range(1500)}
IDEOGRAPHS = "".join(chr(n) for n in range(0x4E00, 0x4E00 + 2000, 2))
NEXT = itertools.count(0x20000)  # what was compiled before is not compiled again
MARKS = [f"<f{n}>" for n in range(600)]
CASES: dict[str, Compile] = {
    "items that are counted": schema(
        {"allOf": [{"contains": {"minimum": n}, "minContains": 2, "maxContains": 4} for n in range(4)]}
    ),
    "items that may count in many ways": schema(
        {"allOf": [{"contains": {"const": n}, "minContains": 1, "maxContains": 2} for n in range(6)]}
    ),
    "many numbers": schema({"enum": list(range(5000))}),
    "many keys that must be there": schema({"required": [f"k{n}" for n in range(1500)]}),
    "one of many numbers": schema({"oneOf": [{"const": n} for n in range(800)]}),
    "conditions on one key": schema(
        {
            "properties": {"a": {"type": "string"}},
            "allOf": [
                {"if": {"properties": {"a": {"const": f"v{n}"}}, "required": ["a"]}, "then": {"required": [f"k{n}"]}}
                for n in range(100)
            ],
        }
    ),
    "many keys under patterns": schema({"properties": KEYS, "patternProperties": {"^k": True, "7": {"minimum": 7}}}),
    "a large class in any case": lambda time: regex_to_expression(
        f"(?i)[{IDEOGRAPHS}{chr(next(NEXT))}]+", compile_time=time
    ),
    "a large class of a grammar": grammar("root ::= [" + "ab" * 10_000 + "]"),
    "a literal of escapes": grammar('root ::= "' + r"\n" * 10_000 + '"'),
    "comments": grammar("# nothing\n" * 10_000 + 'root ::= "a"'),
    "rules that double": grammar(
        "root ::= r0\n" + "\n".join(f'r{n} ::= r{n + 1} r{n + 1} | "{n}"' for n in range(500)) + '\nr500 ::= "z"'
    ),
    "a long rule of Lark's": grammar("start: " + " | ".join(f'"{n}"' for n in range(1500))),
    "Lark's terminals next to each other": grammar(
        "start: A*\nA: /[a-z]+/\n" + "\n".join(f"%ignore /[{chr(0x100 + n)} ]+{n}/" for n in range(12))
    ),
    "many tags": tags(
        {
            "type": "triggered_tags",
            "triggers": MARKS,
            "tags": [{"begin": mark, "content": {"type": "any_text"}, "end": "</f>"} for mark in MARKS],
        }
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_little_is_done_between_two_questions(name: str) -> None:
    steps = Steps()
    with suppress(ConstraintError):  # that is an answer as well
        CASES[name](CompileTime())  # tables that are made once in a process
    steps.of(CASES[name])
    assert steps.num_asked > 10
    assert steps.most <= MOST_STEPS


def test_loops_over_many_things_ask_now_and_then() -> None:
    steps = Steps()
    time = CompileTime(1.0, clock=steps.asked, wall=steps.asked)
    steps.num_asked = 0
    assert list(time.over(range(3 * FEW))) == list(range(3 * FEW))
    assert steps.num_asked == 3


@pytest.mark.parametrize(
    ("place", "message"),
    [({}, "compiling took"), ({"pointer": "/a"}, "/a: compiling"), ({"name": "rule r"}, "rule r: compiling")],
)
def test_loops_are_left_off_at_their_place(place: dict[str, str], message: str) -> None:
    now = iter(range(100, 10_000, 100))
    time = CompileTime(0.5, clock=lambda: float(next(now)), wall=lambda: float(next(now)))
    with pytest.raises(ConstraintTooLarge, match=message) as caught:
        list(time.over([1], **place))
    assert caught.value.pointer == place.get("pointer", "")


def test_marks_of_very_many_characters_are_refused() -> None:
    with pytest.raises(ConstraintTooLarge, match="marks in free text have too many characters"):
        free_text(("ab" * 200_000,))
    with pytest.raises(ConstraintTooLarge, match="different ones"):
        free_text(tuple(chr(0x4E00 + n) for n in range(10_000)))


def test_texts_of_very_many_characters_are_refused() -> None:
    with pytest.raises(ConstraintTooLarge, match="characters in all"):
        literal_dfa(["ab" * 600_000])


def test_a_choice_of_very_many_characters_is_refused() -> None:
    with pytest.raises(ConstraintTooLarge, match="characters in all") as caught:
        Compiler(BYTES).choice(["ab" * 1_100_000, "cd" * 1_100_000])
    assert caught.value.param == "choice"
    with pytest.raises(ConstraintTooLarge, match="2000000 options") as caught:
        Compiler(BYTES).choice([""] * 2_000_000)
    assert caught.value.param == "choice"
