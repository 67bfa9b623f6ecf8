"""Calls whose arguments are XML: which templates show them, what is constrained, how they are read, whole and cut."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import phloem as ph
from phloem.errors import EmptyLanguage, UnsupportedSchema
from phloem.fsm import Compiler, Constraint, Vocabulary
from phloem.runtime.execute.loading import LoadedModel
from phloem.runtime.server.protocol import ChatRequest
from phloem.runtime.server.tool_calls import Arguments, CallBegun, Content, gathered
from phloem.runtime.server.tool_format import FORMATS, tool_format_of
from phloem.runtime.server.tools import ToolPlan, tool_plan

from .conftest import serving
from .fakes import FakeAsyncEngine
from .wire import client

NAMES = ("qwen3_coder", "glm45", "glm47")
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "unit": {"anyOf": [{"type": "string", "maxLength": 4}, {"type": "null"}, {"$ref": "#/$defs/pair"}]},
        "tags": {"type": "array", "items": {"enum": ["a", "]}", '"\\']}, "maxItems": 3},
        "where": {"type": "object", "properties": {"x": {"type": "number"}}, "additionalProperties": False},
    },
    "required": ["city"],
    "$defs": {"pair": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}},
}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
CLOCK = {"type": "function", "function": {"name": "clock"}}
WEATHER_2 = {
    "type": "function",
    "function": {"name": "weather2", "parameters": {"properties": {"n": {"type": "null"}}}},
}
COMPILER = Compiler(Vocabulary([bytes([byte]) for byte in range(256)] + [b""], [256]))
QWEN = "<tool_call>\n<function=weather>\n<parameter=city>\n{}\n</parameter>\n</function>\n</tool_call>"
GLM = "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>{}</arg_value>\n</tool_call>"
GLM_47 = "<tool_call>weather<arg_key>city</arg_key><arg_value>{}</arg_value></tool_call>"
CALLS = dict(zip(NAMES, (QWEN, GLM, GLM_47), strict=True))
CLOCKS = {
    "qwen3_coder": "<tool_call>\n<function=clock>\n</function>\n</tool_call>",
    "glm45": "<tool_call>clock\n</tool_call>",
    "glm47": "<tool_call>clock</tool_call>",
}


LIKED = {*b'"[]{}\\</>\n', 256}


def plan_of(name: str, *tools: Any, **fields: Any) -> ToolPlan:
    body = {
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": list(tools) or [WEATHER, CLOCK, WEATHER_2],
        **fields,
    }
    plan = tool_plan(ChatRequest.model_validate(body), FORMATS[name])
    assert plan is not None
    return plan


def constraint_of(plan: ToolPlan) -> Constraint:
    assert isinstance(plan.spec.source, str)
    return COMPILER.structural_tag(plan.spec.source, whitespace=plan.spec.whitespace or "compact")


def read(plan: ToolPlan, text: str, cuts: list[int]) -> tuple[str, list[tuple[str, str]]]:
    """Content and calls of a text that arrives in pieces."""
    reader, content, calls = plan.reader(), "", []
    ends = [*sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    pieces = [
        piece
        for begin, end in zip([0, *ends], ends, strict=False)
        for piece in reader.push(text[begin:end], is_last=False)
    ]
    for piece in [*pieces, *reader.push("", is_last=True)]:
        if isinstance(piece, Content):
            content += piece.text
        elif isinstance(piece, CallBegun):
            assert piece.index == len(calls)
            calls.append([piece.name, ""])
        else:
            assert isinstance(piece, Arguments) and piece.index == len(calls) - 1
            calls[-1][1] += piece.text
    return content, [(name, arguments) for name, arguments in calls]


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


@pytest.mark.parametrize(
    ("template", "name"),
    [
        (
            "{{ '\\n<tool_call>\\n<function=' + f + '>\\n<parameter=' + k + '>\\n' + v + '\\n</parameter>' }}",
            "qwen3_coder",
        ),
        ("<tool_call>\n<function={{ f }}>\n<parameter={{ k }}>\n{{ v }}\n</parameter>", "qwen3_coder"),
        ("<tool_call>{{ f }}\n<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v }}</arg_value>\n</tool_call>", "glm45"),
        ("<tool_call>{{ f }}<arg_key>{{ k }}</arg_key><arg_value>{{ v }}</arg_value></tool_call>", "glm47"),
        ("<tool_call><function={{ f }}><parameter={{ k }}>{{ v }}</parameter></tool_call>", None),
        ("<seed:tool_call><function={{ f }}><parameter={{ k }}>\n{{ v }}\n</parameter>", None),
    ],
)
def test_the_format_is_what_the_template_shows(template: str, name: str | None) -> None:
    assert tool_format_of(template, []) == (FORMATS[name] if name else None)
    marked = tool_format_of(template, ["<tool_call>", "<arg_key>"])
    assert (marked is not None) == (name is not None)
    assert marked is None or "<tool_call>" in marked.special


@pytest.mark.parametrize("name", NAMES)
def test_calls_are_written_as_the_templates_write_them(name: str) -> None:
    one, clock = CALLS[name].format("Oslo"), CLOCKS[name]
    constraint = constraint_of(plan_of(name))
    for text in ("", "No.", "<tool", f"Hm. {one}\n{clock}\nDone"):
        assert constraint.accepts(text.encode()), text
    for text in ("<tool_call>", one.replace("weather", "other"), one.replace("city", "town"), one[:-1]):
        assert not constraint.accepts(text.encode()), text
    forced = constraint_of(plan_of(name, tool_choice="required", parallel_tool_calls=False))
    assert forced.accepts(one.encode()) and forced.accepts(clock.encode())
    assert not any(forced.accepts(text.encode()) for text in ("", f"x{one}", one + clock))
    named = constraint_of(plan_of(name, tool_choice={"type": "function", "function": {"name": "clock"}}))
    assert named.accepts(clock.encode()) and not named.accepts(one.encode())


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


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(FORMATS)), TOOLS, st.integers(0, 1 << 30), st.lists(st.integers(0, 500), max_size=12))
def test_whatever_is_written_is_read_as_valid_calls_in_any_pieces(
    name: str, schemas: dict[str, Any], seed: int, cuts: list[int]
) -> None:
    tools = [{"type": "function", "function": {"name": tool, "parameters": schemas[tool]}} for tool in schemas]
    plan = plan_of(name, *tools, tool_choice="required")
    try:
        constraint = constraint_of(plan)
    except (EmptyLanguage, UnsupportedSchema):  # a key is needed that is not named, or is forbidden
        assume(False)
    text = walk(constraint, random.Random(seed), max(250, constraint.min_tokens()))
    content, calls = read(plan, text, cuts)
    whole = gathered(plan.reader(), text)
    assert content == whole.content
    assert calls == [(call["function"]["name"], call["function"]["arguments"]) for call in whole.calls]
    assert calls
    for tool, arguments in calls:
        jsonschema.Draft202012Validator(schemas[tool]).validate(json.loads(arguments))


TEXTS = st.text(alphabet='a"\\ <>/\n]{é', max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NAMES), TEXTS, TEXTS, st.lists(st.integers(0, 500), max_size=9), st.integers(0, 200))
def test_text_arguments_are_read_as_they_stand_and_cut_short_as_far_as_they_go(
    name: str, city: str, before: str, cuts: list[int], end: int
) -> None:
    plan = plan_of(name)
    text = f"{before}.{CALLS[name].format(city)}\nBye"
    assert read(plan, text, cuts) == (f"{before}.Bye", [("weather", json.dumps({"city": city}, ensure_ascii=False))])
    content, calls = read(plan, text[:end], cuts)
    whole = gathered(plan.reader(), text[:end])
    assert (content, len(calls)) == (whole.content, len(whole.calls))
    if calls:
        assert json.dumps({"city": city}, ensure_ascii=False).startswith(calls[0][1])
        assert calls[0][1] == whole.calls[0]["function"]["arguments"]


@pytest.mark.parametrize(
    ("unit", "value"),
    [
        ("C", "C"),
        ("null", None),
        ('"null"', "null"),
        ("[true, false]", [True, False]),
        ('"[]"', "[]"),
        ("7up", "7up"),
        ("a\nb", "a\nb"),
        ("", ""),
    ],
)
def test_values_are_typed_by_the_schema(unit: str, value: object) -> None:
    plan = plan_of("qwen3_coder")
    arguments = f"7\n</parameter>\n<parameter=unit>\n{unit}"
    text = QWEN.format(arguments)
    assert constraint_of(plan).accepts(text.encode())
    assert json.loads(read(plan, text, [40, 90])[1][0][1]) == {"city": "7", "unit": value}


def test_what_only_looks_like_a_call_is_content() -> None:
    plan = plan_of("glm45")
    for text in (
        "<tool_call>",
        "<tool_call>weatherman says",
        "a <tool_call>other\n</tool_call> b",
        "<tool_call>weather x",
    ):
        assert read(plan, text, [5, 12]) == (text, [])


def test_a_text_argument_arrives_as_it_is_written() -> None:
    plan = plan_of("qwen3_coder")
    reader = plan.reader()
    reader.push(QWEN.partition("{}")[0], is_last=False)
    read = [reader.push(word, is_last=False) for word in ("Once", " upon\n", "a", ' "time"')]
    assert [piece.text for pieces in read for piece in pieces if isinstance(piece, Arguments)] == [
        "Once",
        " upon",
        "\\na",
        ' \\"time\\"',
    ]


@pytest.mark.parametrize("name", NAMES)
def test_the_server_finds_calls_whole_and_streamed(name: str) -> None:
    reply = "Let me look.\n" + CALLS[name].format("Ørsta <3") + "\n" + CLOCKS[name]
    asked = client(FakeAsyncEngine(reply=reply), tool_call_format=name)
    choice = asked.chat(tools=[WEATHER, CLOCK]).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "Let me look."
    calls = [call["function"] for call in choice["message"]["tool_calls"]]
    assert calls == [
        {"name": "weather", "arguments": '{"city": "Ørsta <3"}'},
        {"name": "clock", "arguments": "{}"},
    ]
    streamed = ["", ""]
    for event in asked.chat(tools=[WEATHER, CLOCK], stream=True).events()[:-1]:
        for part in event["choices"][0]["delta"].get("tool_calls", []):
            streamed[part["index"]] += part["function"]["arguments"]
    assert streamed == [call["arguments"] for call in calls]


def test_parameters_that_cannot_be_written_as_xml_are_refused() -> None:
    engine = ph.Engine("nano", device="cpu")
    plan = plan_of("qwen3_coder", {"type": "function", "function": {"name": "f", "parameters": {"minProperties": 1}}})
    with pytest.raises(ph.ConstraintError, match="minProperties"):
        engine.request_factory.compile(plan.spec)


@pytest.mark.parametrize("name", ["qwen3_coder", "glm47"])
def test_the_bundled_model_calls_through_the_official_client(nano: LoadedModel, name: str) -> None:
    ask: dict[str, Any] = {
        "model": "nano",
        "messages": [{"role": "user", "content": "How is the weather in Quolsat?"}],
        "tools": [WEATHER, CLOCK],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "temperature": 0,
        "max_tokens": 120,
    }
    with serving(nano, tool_call_format=name, num_blocks=512, device="cpu") as served, served.client() as asked:
        whole = asked.chat.completions.create(**ask).choices[0].message.tool_calls
        with asked.chat.completions.create(**ask, stream=True) as stream:
            chunks = [chunk.choices[0].delta.tool_calls or [] for chunk in stream if chunk.choices]
    assert whole is not None and len(whole) == 1 and whole[0].function.name == "weather"
    jsonschema.Draft202012Validator(PARAMETERS).validate(json.loads(whole[0].function.arguments))
    parts = [part.function.arguments or "" for delta in chunks for part in delta]
    assert "".join(parts) == whole[0].function.arguments
