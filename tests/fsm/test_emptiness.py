"""Constraints that no text satisfies: the error names the place, and says what to do there."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from phloem.errors import ConstraintTooLarge, EmptyLanguage
from phloem.fsm import Compiler, emptiness
from phloem.fsm.compile_time import CompileTime
from phloem.fsm.network.dead_rules import dead_rules
from phloem.fsm.network.expression import ByteSet, Embed, Expression, Literal, Repeat, Rule, Sequence, alternation
from phloem.fsm.text.dfa import no_text

from .vocabularies import BYTES

COMPILER = Compiler(BYTES)


def refused(compile_one: Any, source: Any) -> EmptyLanguage:
    with pytest.raises(EmptyLanguage) as caught:
        compile_one(source)
    assert "; " in str(caught.value), "it says what to do"
    return caught.value


@pytest.mark.parametrize(
    ("pattern", "offset"),
    [
        ("a^b", 1),
        ("(?!)", 0),
        (r"\ud800", 0),
        ("\ud800", 0),
        (r"x(a^b|[^\w\W])y", 1),
        (r"abc$d", 4),
        (r"[ab]+(?<!a|b)c", 5),
        (r"é\b\Bx", 3),
    ],
)
def test_a_pattern_that_nothing_matches_has_its_offset(pattern: str, offset: int) -> None:
    error = refused(COMPILER.regex, pattern)
    assert error.pointer == f"offset {offset}"
    assert f"from offset {offset} on" in str(error)
    if "\ud800" in pattern:
        return
    tag = {"format": {"type": "sequence", "elements": [{"type": "regex", "pattern": pattern}]}}
    assert refused(COMPILER.structural_tag, tag).pointer == "/format/elements/0/pattern"
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}, "required": ["a"]}
    assert refused(COMPILER.json_schema, schema).pointer == "/properties/a/pattern"


def test_a_pattern_is_blamed_only_for_the_element_that_it_is_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tenth element is not in the first, though its pointer begins like it; the first takes too long to look at."""
    monkeypatch.setattr(emptiness, "_is_impossible", lambda pattern, time: pattern == "b^c")
    elements: list[Any] = [{"type": "const_string", "value": "x"}] * 10 + [{"type": "regex", "pattern": "b^c"}]
    elements[1] = {"type": "tag", "begin": "<", "content": {"type": "regex", "pattern": "a^b"}, "end": ">"}
    tag = {"format": {"type": "sequence", "elements": elements}}
    assert refused(COMPILER.structural_tag, tag).pointer == "/format/elements/1"


def test_all_patterns_of_a_tag_share_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def counted(max_seconds: float) -> CompileTime:
        asked.append(max_seconds)
        return CompileTime(max_seconds)

    monkeypatch.setattr(emptiness, "CompileTime", counted)
    elements = [{"type": "regex", "pattern": "a"}] * 5 + [{"type": "regex", "pattern": "a^b"}]
    assert refused(COMPILER.structural_tag, {"format": {"type": "sequence", "elements": elements}})
    assert asked == [emptiness.MAX_SECONDS]


@pytest.mark.parametrize(
    ("grammar", "place", "said"),
    [
        ('root ::= "a" root', "line 1, column 1", "'root' never ends"),
        ('root ::= "x" b\n b ::= "a" b | b "c"\nc ::= "d"', "line 2, column 2", "'b' never ends"),
        ('root ::= a | c\na ::= "(" b ")"\nb ::= "[" a "]"\nc ::= c "x"', "line 3, column 1", "a -> b -> a"),
        ('root ::= "a" b\nb ::= "x" [^\\x00-\\U0010ffff]', "line 2, column 1", "'b' has no text"),
        ('start: "a" x\nx: "b" x', "line 2, column 1", "'x' never ends"),
        ('start: x\n?x: "a" y | x "b"\ny.2: "(" y ")"', "line 3, column 1", "'y' never ends"),
        (
            'start: "a" %json {"required": ["a"], "properties": {"a": false}, "type": "object"}',
            "line 1, column 12",
            "value",
        ),
    ],
)
def test_a_grammar_without_texts_has_the_rule_that_is_to_blame(grammar: str, place: str, said: str) -> None:
    error = refused(COMPILER.grammar, grammar)
    assert error.pointer == place
    assert str(error).startswith(f"grammar, {place}: ")
    assert said in str(error)
    tag = {"format": {"type": "tag", "begin": "<a>", "content": {"type": "grammar", "grammar": grammar}, "end": "</a>"}}
    assert refused(COMPILER.structural_tag, tag).pointer == "/format/content/grammar"


def test_a_schema_in_a_tag_has_its_place() -> None:
    schema = {"type": "object", "properties": {"a": False}, "required": ["a"]}
    tags = [{"begin": "<a>", "schema": schema, "end": "</a>"}]
    error = refused(COMPILER.structural_tag, {"structures": tags, "triggers": ["<a>"], "at_least_one": True})
    assert error.pointer.startswith("/structures/0")


def test_the_rule_that_is_named_is_one_that_never_ends() -> None:
    rng = random.Random(4)
    num_empty = 0
    for _ in range(150):
        rules = {
            name: [
                [rng.choice(("a", "b", "c", '"x"')) for _ in range(rng.randint(1, 2))] for _ in range(rng.randint(1, 2))
            ]
            for name in ("root", "a", "b", "c")
        }
        text = "\n".join(f"{name} ::= {' | '.join(map(' '.join, options))}" for name, options in rules.items())
        ending: set[str] = {'"x"'}
        for _ in rules:
            ending |= {name for name, options in rules.items() if any(ending.issuperset(option) for option in options)}
        if "root" in ending:
            COMPILER.grammar(text)
            continue
        num_empty += 1
        error = refused(COMPILER.grammar, text)
        named = re.search(r"the rule '(\w+)' never ends", str(error))
        assert named is not None, text
        assert named[1] not in ending
        assert error.pointer == f"line {list(rules).index(named[1]) + 1}, column 1"
    assert num_empty > 30


def test_a_long_cycle_is_named_by_its_ends_and_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    search = emptiness._offset
    monkeypatch.setattr(emptiness, "_offset", lambda name, text: asked.append(name) or search(name, text))
    text = "\n".join(["root ::= r0", *(f'r{n} ::= "a" r{(n + 1) % 1000}' for n in range(1000))])
    error = refused(COMPILER.grammar, text)
    assert error.pointer == "line 1001, column 1"
    assert "(r0 -> r1 -> " in str(error) and " -> … -> " in str(error) and " -> r999 -> r0)" in str(error)
    assert len(str(error)) < 400
    assert asked == ["r999"]


def test_dead_rules_are_those_without_a_complete_text() -> None:
    bodies: dict[str, tuple[Expression, bool]] = {
        "empty set": (ByteSet(0), True),
        "empty language": (Embed(no_text()), True),
        "no option": (alternation(), True),
        "none of it": (Repeat(ByteSet(0), 0, 3), False),
        "some of it": (Repeat(ByteSet(0), 1, 3), True),
        "text": (Literal(b""), False),
        "calls": (Sequence((Literal(b"a"), Rule("text"))), False),
        "calls in vain": (Sequence((Rule("text"), Rule("no option"))), True),
        "itself": (Rule("itself"), True),
    }
    found = dead_rules({name: body for name, (body, _) in bodies.items()})
    assert found == {name for name, (_, is_dead) in bodies.items() if is_dead}


def test_no_multiple_of_a_step_that_is_too_fine_is_refused() -> None:
    with pytest.raises(ConstraintTooLarge, match="no multiple of 1e-17: it has too many remainders for an automaton"):
        COMPILER.json_schema({"not": {"multipleOf": 1e-17}})


def test_terminals_that_take_each_others_text_are_placed_at_the_start() -> None:
    with pytest.raises(EmptyLanguage, match=r"line 1, column 1: the rule 'start' has no text: .*longest match"):
        COMPILER.grammar("start: A A\nA: /a+/")
