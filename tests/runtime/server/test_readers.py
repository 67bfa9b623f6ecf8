"""Readers of outputs: whatever a model writes, and however it is cut, it is read as the whole text is."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from phloem.errors import EmptyLanguage, UnsupportedSchema
from phloem.fsm import Constraint
from phloem.runtime.server.formats.call_formats import CALL_FORMATS
from phloem.runtime.server.formats.call_reader import CallObjectReader, CallReader, WholeCallReader
from phloem.runtime.server.formats.events import OutputReader
from phloem.runtime.server.formats.harmony import MARKS, HarmonyReader
from phloem.runtime.server.formats.output_format import Thought
from phloem.runtime.server.formats.reasoning_tokens import ReasoningTokens
from phloem.runtime.server.formats.thoughts import BEGIN, END, GAP, ThoughtReader

from .fakes import CharTokenizer
from .samples import CITY, CLOCK, WEATHER, WRITTEN, Read, constraint_of, hermes, pieces, plan_of, read

NAMES = ("weather", "clock")
CUTS = st.lists(st.integers(0, 300), max_size=9)
THOUGHTS: tuple[Thought, ...] = ("unsaid", "open", "closed")


def calls_reader(name: str, *, is_exclusive: bool = False) -> OutputReader:
    raw_keys = {"weather": frozenset({"city"})}
    return CallReader(CALL_FORMATS[name], NAMES, raw_keys, is_exclusive=is_exclusive)


def harmony(*, is_inside: bool = False) -> OutputReader:
    return HarmonyReader(NAMES, is_inside=is_inside)


READERS: dict[str, Callable[[], OutputReader]] = {
    **{name: partial(calls_reader, name) for name in CALL_FORMATS},
    "calls or an answer": partial(calls_reader, "hermes", is_exclusive=True),
    "one call": partial(WholeCallReader, "weather"),
    "one of several calls": CallObjectReader,
    **{thought: partial(ThoughtReader, thought) for thought in THOUGHTS},
    **{f"{thought}, then calls": lambda t=thought: ThoughtReader(t, calls_reader("hermes")) for thought in THOUGHTS},
    "open, a gap, one call": lambda: ThoughtReader("open", WholeCallReader("f"), has_gap=True),
    "harmony": harmony,
    "harmony, inside": partial(harmony, is_inside=True),
}
HEADERS = [
    "to=functions.weather",
    " to=functions.clock",
    "<|channel|>analysis",
    "<|channel|>final",
    "assistant",
    "json",
]
PARTS = [
    *(call for calls in WRITTEN.values() for call in calls),
    *("<tool_call>", "</tool_call>", '{"name": "', "<function=", "[TOOL_CALLS]", "<arg_key>", "weather", "weatherman"),
    *('{"city": "a}\\"]{"}', "{}", '{"name":"clock","arguments":{}}', '"', "}", "]", "\\"),
    *(BEGIN, END, "<", "</", "think>", "\n", "\n\n", " ", "x", "é", "two words"),
    *(*MARKS, "<|call|>", "<|return|>", "<|constrain|>", "<|", *HEADERS),
]
ANALYSIS, MESSAGE = "<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>"


@settings(max_examples=1500, deadline=None)
@given(st.sampled_from(sorted(READERS)), st.lists(st.sampled_from(PARTS), max_size=8), CUTS, st.integers(0, 300))
def test_any_split_of_a_text_says_the_same(name: str, parts: list[str], cuts: list[int], end: int) -> None:
    """The text may also be cut short."""
    for text in ("".join(parts), "".join(parts)[:end]):
        whole = read(READERS[name](), text)
        assert read(READERS[name](), text, cuts) == read(READERS[name](), text, range(len(text))) == whole
        if name == "harmony":
            shown = whole.content + whole.reasoning + "".join(arguments for _, arguments in whole.calls)
            assert not re.search(r"<\|(start|channel|end|call|return)\|>", shown)


OSLO = '{"city":"Oslo"}'
THOUGHT, FINAL = f"{ANALYSIS}They greet.<|end|>", f"{MESSAGE}final<|message|>Hello <b>!"
CALL = f"<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{OSLO}"
BROWSER = '<|start|>assistant<|channel|>analysis to=browser.search code<|message|>{"q":1}<|end|>'
PREAMBLE = f"{MESSAGE}commentary<|message|>One moment.<|end|>"
GREETED = Read("Hello <b>!", "They greet.")
CALLED = [("weather", OSLO)]
EXPECTED: list[tuple[str, str, Read]] = [
    ("harmony", THOUGHT + FINAL, GREETED),
    ("harmony", THOUGHT + FINAL + "<|return|>", GREETED),
    ("harmony", "<|channel|>final<|message|>Hi", Read("Hi")),
    ("harmony", f"{ANALYSIS}They gr", Read("", "They gr")),
    ("harmony", f"{THOUGHT}<|start|>assistant<|chan", Read("", "They greet.")),
    ("harmony", f"{THOUGHT}{FINAL} <|en", Read("Hello <b>! <|en", "They greet.")),
    ("harmony", f"{THOUGHT}<|start|>assistant{CALL}", Read("", "They greet.", CALLED, [True])),
    ("harmony", f"{CALL}<|call|>", Read("", "", CALLED, [True])),
    ("harmony", CALL[:-2], Read("", "", [("weather", OSLO[:-2])], [False])),
    ("harmony", " to=functions.clock<|channel|>commentary<|message|>{}", Read("", "", [("clock", "{}")], [True])),
    (
        "harmony",
        f'{CALL}<|call|><|start|>assistant to=functions.clock<|channel|>commentary json<|message|>{{"a":[1]}}<|call|>',
        Read("", "", [*CALLED, ("clock", '{"a":[1]}')], [True, True]),
    ),
    ("harmony", THOUGHT + PREAMBLE + FINAL, Read("One moment.\n\nHello <b>!", "They greet.")),
    ("harmony", THOUGHT + BROWSER + FINAL, Read("Hello <b>!", 'They greet.\n\n{"q":1}')),
    ("harmony", "Hello < you", Read("Hello < you")),
    ("harmony", "to", Read("to")),
    ("harmony", f"{ANALYSIS}Hm.<|channel|>final<|message|>Yes.", Read("Yes.", "Hm.")),
    ("harmony, inside", "Hello <|end|>", Read("Hello ")),
    ("unsaid", "<think>\nThey greet.\n</think>\n\nHello <b>!", GREETED),
    ("open", "They greet.\n</think>\n\nHello!", Read("Hello!", "They greet.")),
    ("open", "\n<think>\nThey greet.</think>Hello!", Read("Hello!", "They greet.")),
    ("unsaid", "Hello </b>!", Read("Hello </b>!")),
    ("unsaid", "\n  Hello\n", Read("\n  Hello\n")),
    ("unsaid", "<think>\n\n</think>\n\nHello!", Read("Hello!")),
    ("closed", "\n\nHello </think>", Read("Hello </think>")),
    ("unsaid", "<think>\n\n  a\n\n b \n </think>\n \n  c\n", Read("  c\n", "  a\n\n b")),
    ("unsaid", "<think>They gr", Read("", "They gr")),
    ("open", "They </thi", Read("", "They </thi")),
    ("unsaid", "<thi", Read("<thi")),
    ("open", "a </thin> <</think>b", Read("b", "a </thin> <")),
    ("unsaid", "<think>a</think>b<think>c</think>d", Read("b<think>c</think>d", "a")),
    ("open", " \n", Read()),
    ("unsaid", " \n", Read(" \n")),
    ("open, a gap, one call", "Hm", Read("", "Hm")),
    ("hermes", "<tool_call>", Read("<tool_call>")),
    ("hermes", hermes("other", "{}"), Read(hermes("other", "{}"))),
    ("hermes", "a <tool_call>x</tool_call> b", Read("a <tool_call>x</tool_call> b")),
    ("glm45", "<tool_call>weatherman says", Read("<tool_call>weatherman says")),
    ("glm45", "<tool_call>weather x", Read("<tool_call>weather x")),
    ("calls or an answer", '{"a": "<tool_call>"}', Read('{"a": "<tool_call>"}')),
    ("calls or an answer", hermes("clock", "{}"), Read("", "", [("clock", "{}")], [True])),
    ("one call", '{"city":"U', Read("", "", [("weather", '{"city":"U')], [False])),
    ("one of several calls", '{"name":"f","arguments":{"a":"ö"}}', Read("", "", [("f", '{"a":"ö"}')], [True])),
    ("one of several calls", '{"name":"f","arg', Read("", "", [("", '{"name":"f","arg')], [False])),
]


@pytest.mark.parametrize(("name", "text", "expected"), EXPECTED, ids=lambda value: str(value)[:40])
def test_outputs_are_read_as_they_were_meant(name: str, text: str, expected: Read) -> None:
    assert read(READERS[name](), text) == expected


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("harmony", [("<|channel|>final<|message|>", ""), ("He", "He"), ("llo <", "llo "), ("3", "<3")]),
        ("unsaid", [("<think>\n", ""), ("He", "He"), ("llo <", "llo"), ("/b", " </b"), (END, ""), ("\nHi <", "Hi <")]),
        (
            "qwen3_coder",
            [
                ("<tool_call>\n<function=weather>\n<parameter=city>\n", '{"city": "'),
                *(("Once", "Once"), (" upon\n", " upon"), ("a", "\\na"), (' "time"', ' \\"time\\"')),
            ],
        ),
    ],
)
def test_what_is_certain_is_shown_as_it_comes(name: str, said: list[tuple[str, str]]) -> None:
    reader = READERS[name]()
    for text, expected in said:
        assert "".join(event.text for event in reader.push(text) if hasattr(event, "text")) == expected


def taken_apart(thought: Thought, text: str, has_gap: bool) -> Read:
    """Reasoning and content of a whole text, by search."""
    reasoning, content = "", text
    if thought != "closed":
        begun = re.match(rf"\s*{BEGIN}", text)
        if begun is None and thought == "unsaid":
            return Read(text)
        reasoning, mark, content = text[begun.end() if begun else 0 :].partition(END)
        reasoning = re.sub(r"\A(\s*\n)?", "", reasoning.rstrip())
        if not mark:
            return Read("", reasoning)
    if has_gap:
        return Read("" if GAP.startswith(content) else content.removeprefix(GAP), reasoning)
    return Read(re.sub(r"\A(\s*\n)?", "", content) if content.strip() else "", reasoning)


THOUGHT_TEXTS = st.lists(st.sampled_from([BEGIN, END, "\n", " ", "<", "</", "think>", "x", "é"]), max_size=12).map(
    "".join
)


@settings(max_examples=500, deadline=None)
@given(THOUGHT_TEXTS, CUTS, st.sampled_from(THOUGHTS), st.booleans())
def test_thoughts_are_taken_apart(text: str, cuts: list[int], thought: Thought, has_gap: bool) -> None:
    assert read(ThoughtReader(thought, has_gap=has_gap), text, cuts) == taken_apart(thought, text, has_gap)


@settings(max_examples=100, deadline=None)
@given(CUTS, st.sampled_from(["unsaid", "open"]))
def test_a_call_in_a_thought_is_no_call(cuts: list[int], thought: Thought) -> None:
    call = hermes("clock", "{}")
    text = f"{BEGIN if thought == 'unsaid' else ''}a{call}\n{END}\n\nb {call}"
    expected = Read("b", f"a{call}", [("clock", "{}")], [True])
    assert read(READERS[f"{thought}, then calls"](), text, cuts) == expected


@pytest.mark.parametrize("name", CALL_FORMATS)
def test_a_call_that_is_cut_short_keeps_what_there_is(name: str) -> None:
    weather, clock = WRITTEN[name]
    whole = f"Hm. {weather}\n{clock} Done."
    everything = Read("Hm.Done.", "", [("weather", '{"city": "Oslo"}'), ("clock", "{}")], [True, True])
    assert read(READERS[name](), whole) == everything
    for length in range(len(f"Hm. {weather}")):
        found = read(READERS[name](), whole[:length], [length // 2])
        if found.calls:
            assert (found.content, found.calls[0][0]) == ("Hm.", "weather")
            assert '{"city": "Oslo"}'.startswith(found.calls[0][1])
        else:
            assert found.content == whole[:length]


def num_counted(new_reader: Callable[[], OutputReader], tokens: list[str]) -> int:
    """Tokens of reasoning, where each of these texts is a token."""

    class Shown(CharTokenizer):
        eos_ids = ()

        def show(self, token_ids: Any) -> str:
            return "".join(tokens[token_id] for token_id in token_ids)

    counter = ReasoningTokens(new_reader, Shown())
    counter.push(0, range(len(tokens)))
    return counter.total


@settings(max_examples=300, deadline=None)
@given(THOUGHT_TEXTS, CUTS, st.sampled_from(THOUGHTS))
def test_tokens_are_counted_up_to_where_the_thought_is_read(text: str, cuts: list[int], thought: Thought) -> None:
    new_reader = partial(ThoughtReader, thought)
    for tokens in (pieces(text, cuts), list(text)):
        num_tokens = num_counted(new_reader, tokens)
        assert read(new_reader(), "".join(tokens[:num_tokens])).reasoning == read(new_reader(), text).reasoning
        reader = new_reader()
        reader.push("".join(tokens[: max(0, num_tokens - 1)]))
        assert reader.num_thoughts == 0, "the mark is the last that counts"


@pytest.mark.parametrize(
    ("text", "reasoning"),
    [
        (THOUGHT + FINAL, THOUGHT),
        (THOUGHT + PREAMBLE + FINAL, THOUGHT),
        (THOUGHT + BROWSER + FINAL, THOUGHT + BROWSER),
        (f"{ANALYSIS}Hm.<|channel|>final<|message|>Yes.", f"{ANALYSIS}Hm."),
        (f"{THOUGHT}<|start|>assistant{CALL}", THOUGHT),
        (FINAL, ""),
        ("Hello", ""),
        (f"{THOUGHT}<|start|>assistant{THOUGHT}", f"{THOUGHT}<|start|>assistant{THOUGHT}"),
    ],
)
def test_tokens_of_harmonys_reasoning_are_counted_with_their_headers(text: str, reasoning: str) -> None:
    """Every mark is a token, and every other character."""
    tokens = re.compile(r"<\|\w+\|>|.", re.DOTALL)
    assert num_counted(harmony, tokens.findall(text)) == len(tokens.findall(reasoning))


# -- calls as the constraints have them written ------------------------------------------------------------------

PARAMETERS: dict[str, Any] = {
    **CITY,
    "properties": {
        **CITY["properties"],
        "unit": {"anyOf": [{"type": "string", "maxLength": 4}, {"type": "null"}, {"$ref": "#/$defs/pair"}]},
        "tags": {"type": "array", "items": {"enum": ["a", "]}", '"\\']}, "maxItems": 3},
        "where": {"type": "object", "properties": {"x": {"type": "number"}}, "additionalProperties": False},
    },
    "$defs": {"pair": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}},
}
VALUES: list[Any] = [
    *PARAMETERS["properties"].values(),
    {"type": ["string", "null"]},
    {"enum": ["a", 1, "1", None, "null"]},
    {"type": "string", "pattern": "^[<>/a\n]*$"},
    {"type": "string", "minLength": 2},
    {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    True,
]
TOOLS = st.dictionaries(
    st.sampled_from(["f", "fa", "get"]),
    st.fixed_dictionaries(
        {
            "type": st.just("object"),
            "properties": st.dictionaries(st.sampled_from(["a", "ab", "x y", "é", 'q"']), st.sampled_from(VALUES)),
            "$defs": st.just(PARAMETERS["$defs"]),
        },
        optional={"required": st.just(["a"]), "additionalProperties": st.just(False), "minProperties": st.just(1)},
    ),
    min_size=1,
)
LIKED = {*b'"[]{}\\</>\n', 256}


def walk(constraint: Constraint, rng: random.Random, num_tokens: int) -> str:
    """A whole text, bytes that are often brackets and quotes, which ends in time."""
    cursor, data = constraint.cursor(), b""
    for left in range(num_tokens, 0, -1):
        mask = cursor.row_within(left)
        allowed = [token for token in range(257) if mask[token >> 5] >> (token & 31) & 1]
        liked = [token for token in allowed if token in LIKED]
        printable = [token for token in allowed if 32 <= token < 127]
        token = rng.choice(liked if liked and rng.random() < 0.3 else printable or allowed)
        assert cursor.advance(token)
        if token == 256:
            break
        data += bytes([token])
    return data.decode()


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(CALL_FORMATS)), TOOLS, st.integers(0, 1 << 30), CUTS)
def test_whatever_is_written_is_read_as_valid_calls_in_any_pieces(
    name: str, schemas: dict[str, Any], seed: int, cuts: list[int]
) -> None:
    tools = [{"type": "function", "function": {"name": tool, "parameters": schemas[tool]}} for tool in schemas]
    plan = plan_of(name, *tools, tool_choice="required")
    try:
        constraint = constraint_of(plan.spec)
    except (EmptyLanguage, UnsupportedSchema):  # a key is needed that is not named, or is forbidden
        assume(False)
    text = walk(constraint, random.Random(seed), max(250, constraint.min_tokens()))
    found = read(plan.new_reader(), text, cuts)
    assert found == read(plan.new_reader(), text) and found.calls and all(found.is_whole)
    for tool, arguments in found.calls:
        jsonschema.Draft202012Validator(schemas[tool]).validate(json.loads(arguments))


TEXTS = st.text(alphabet='a"\\ <>/\n]{é', max_size=12)
XML = [name for name, calls in CALL_FORMATS.items() if calls.style != "json"]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(XML), TEXTS, TEXTS, CUTS)
def test_text_arguments_are_read_as_they_stand(name: str, city: str, before: str, cuts: list[int]) -> None:
    text = f"{before}.{WRITTEN[name][0].replace('Oslo', city)}\nBye"
    arguments = json.dumps({"city": city}, ensure_ascii=False)
    expected = Read(f"{before}.Bye", "", [("weather", arguments)], [True])
    assert read(plan_of(name, WEATHER, CLOCK).new_reader(), text, cuts) == expected


@pytest.mark.parametrize(
    ("unit", "value"),
    [
        *(("C", "C"), ("null", None), ('"null"', "null"), ("[true, false]", [True, False]), ('"[]"', "[]")),
        *(("7up", "7up"), ("a\nb", "a\nb"), ("", "")),
    ],
)
def test_values_are_typed_by_the_schema(unit: str, value: object) -> None:
    plan = plan_of("qwen3_coder", {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}})
    text = WRITTEN["qwen3_coder"][0].replace("Oslo", f"7\n</parameter>\n<parameter=unit>\n{unit}")
    assert constraint_of(plan.spec).accepts(text.encode())
    [(_, arguments)] = read(plan.new_reader(), text, [40, 90]).calls
    assert json.loads(arguments) == {"city": "7", "unit": value}
