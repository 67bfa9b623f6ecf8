"""Calls of tools: which format a template shows, what a request lets the model write, and what the server answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

import phloem as ph
from phloem.errors import ConfigError
from phloem.runtime.constrain.spec import ConstraintSpec
from phloem.runtime.execute.loading import LoadedModel
from phloem.runtime.server import ServerSettings
from phloem.runtime.server.formats.call_formats import CALL_FORMATS, call_format_of
from phloem.runtime.server.formats.call_plan import call_plan

from .conftest import serving
from .fakes import FakeAsyncEngine
from .samples import (
    CITY,
    CLOCK,
    JSON_FORMAT,
    WEATHER,
    WRITTEN,
    accepts,
    constraint_of,
    hermes,
    plan_of,
    read,
    request_of,
    tools_client,
)
from .wire import client

NAMED = {"type": "function", "function": {"name": "clock"}}
CITY_CALL = hermes("weather", '{"city": "Oslo"}')


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ('{{ \'<tool_call>\\n{"name": "\' + tool.name + \'", "arguments": \' }}', "hermes"),
        ("{{ '<function=' + tool.name + '>' }}", "function_tag"),
        ('Respond in the format {"name": function name, "parameters": dictionary}', "llama3_json"),
        ("[TOOL_CALLS]{{ f }}[ARGS]", "mistral"),
        ("'\\n<tool_call>\\n<function=' + f + '>\\n<parameter=' + k + '>\\n' + v + '\\n</parameter>'", "qwen3_coder"),
        ("<tool_call>\n<function={{ f }}>\n<parameter={{ k }}>\n{{ v }}\n</parameter>", "qwen3_coder"),
        ("<tool_call>{{ f }}\n<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v }}</arg_value>\n</tool_call>", "glm45"),
        ("<tool_call>{{ f }}<arg_key>{{ k }}</arg_key><arg_value>{{ v }}</arg_value></tool_call>", "glm47"),
        ("<tool_call><function={{ f }}><parameter={{ k }}>{{ v }}</parameter></tool_call> arguments", None),
        ("<seed:tool_call><function={{ f }}><parameter={{ k }}>\n{{ v }}\n</parameter>", None),
        ("<tool_call><arg_key> arguments", None),
        ("[TOOL_CALLS] <tool_call> arguments", None),
        ("{{ messages }}", None),
    ],
)
def test_the_format_of_calls_is_what_the_template_shows(template: str, name: str | None) -> None:
    assert call_format_of(template, []) == (CALL_FORMATS[name] if name else None)
    trigger = CALL_FORMATS[name].trigger if name else ""
    assert call_format_of(template, [f"<s>{trigger}"]) is None, "no part of a token"
    marked = call_format_of(template, [trigger, "<arg_key>"]) if name else None
    assert marked is None or trigger in marked.special


def test_what_of_a_format_is_a_special_token_is_written_as_that_token() -> None:
    marked = CALL_FORMATS["hermes"].with_special(["<s>", "<tool_call>", "</tool_call>"])
    assert marked is not None and marked.special == {"<tool_call>", "</tool_call>"}
    end = [{"type": "const_string", "value": "}\n"}, {"type": "token", "token": "</tool_call>"}]
    assert marked.parts(marked.end) == end
    assert CALL_FORMATS["hermes"].with_special(["</tool_call>"]) is None, "a call that cannot be told from text"


def test_an_unknown_format_of_calls_is_refused_and_each_of_the_table_is_a_setting() -> None:
    with pytest.raises(ConfigError, match="tool_call_format"):
        ServerSettings(tool_call_format="morse")
    assert all(ServerSettings(tool_call_format=name) for name in ("auto", "none", *CALL_FORMATS))


# -- what may be written -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CALL_FORMATS)
def test_calls_are_constrained_and_text_is_free(name: str) -> None:
    weather, clock = WRITTEN[name]
    trigger = CALL_FORMATS[name].trigger
    cases: list[tuple[dict[str, Any], list[str], list[str]]] = [
        (
            {},
            ["", "No.", trigger[:4], f"Hm. {weather}\n{clock}\nDone"],
            [trigger, weather.replace("weather", "other"), weather.replace("city", "town"), f"{clock[:-1]}x"],
        ),
        ({"parallel_tool_calls": False}, ["x" + clock], [clock + "x"]),
        ({"tool_choice": "required"}, [weather, clock * 2], ["", "x" + clock]),
        ({"tool_choice": "required", "parallel_tool_calls": False}, [weather, clock], ["", "x" + clock, clock * 2]),
        ({"tool_choice": NAMED}, [clock], [weather, clock * 2, ""]),
    ]
    for fields, allowed, refused in cases:
        constraint = constraint_of(plan_of(name, **fields).spec)
        assert [text for text in allowed if not constraint.accepts(text.encode())] == []
        assert [text for text in refused if constraint.accepts(text.encode())] == []
    assert call_plan(request_of(tool_choice="none"), CALL_FORMATS[name]) is None


@pytest.mark.parametrize(
    ("fields", "allowed", "refused"),
    [
        ({}, ['{"a": 1}', CITY_CALL, CITY_CALL * 2, CITY_CALL + "\n" + CITY_CALL], ["", "Hm", CITY_CALL + '{"a": 1}']),
        ({"parallel_tool_calls": False}, ['{"a": 1}', CITY_CALL], [CITY_CALL * 2, CITY_CALL + " "]),
        ({"tool_choice": "required"}, [CITY_CALL, CITY_CALL * 2], ['{"a": 1}', CITY_CALL + "Hm"]),
    ],
)
def test_next_to_a_response_format_there_are_calls_or_content_of_that_format(
    fields: dict[str, Any], allowed: list[str], refused: list[str]
) -> None:
    asked = tools_client("Hm")
    assert asked.chat(tools=[WEATHER, CLOCK], response_format=JSON_FORMAT, **fields).status == 200
    spec = asked.engine.calls[0]["constraint"]
    assert all(accepts(spec, text) for text in allowed) and not any(accepts(spec, text) for text in refused)


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_calls_between_special_tokens_are_written_with_them_and_read(choice: Any) -> None:
    marked = replace(CALL_FORMATS["mistral"], trigger="<|user|>", before_name="<|user|>", before_arguments="<|system|>")
    engine = ph.Engine("nano", device="cpu", jump="verified")
    calls = marked.with_special(engine.tokenizer.special_ids)
    assert calls is not None and calls.special == {"<|user|>", "<|system|>"}
    plan = call_plan(request_of(tool_choice=choice), calls)
    assert plan is not None
    prompt = engine.tokenizer.apply_chat_template([{"role": "user", "content": "How is the weather in Oslo?"}])
    for seed in range(4):
        params = ph.SamplingParams(max_tokens=60, temperature=1.0, seed=seed)
        done = engine.generate(prompt, params, constraint=plan.spec)
        found = read(plan.new_reader(), done.text).calls
        num_marks = done.token_ids.count(engine.tokenizer.special_ids["<|user|>"])
        assert len(found) == num_marks == done.text.count("<|user|>") >= 1
        for name, arguments in found:
            assert ("city" in json.loads(arguments)) == (name == "weather")
            assert choice == "required" or name == "clock"


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def test_only_allowed_tools_are_called_and_all_are_shown() -> None:
    """So that the prompt stays as it was."""
    for mode, without in (("auto", True), ("required", False)):
        spec = plan_of("hermes", tool_choice=allowed(mode, "clock")).spec
        assert accepts(spec, hermes("clock", "{}")) and not accepts(spec, CITY_CALL)
        assert accepts(spec, "No.") == without
    both = plan_of("hermes", tool_choice=allowed("required", "clock", "weather"))
    assert both.spec == plan_of("hermes", tool_choice="required").spec
    prompts = set()
    for choice in ("auto", "required", allowed("auto", "clock"), allowed("required", "weather")):
        asked = tools_client("Hm")
        assert asked.chat(tools=[WEATHER, CLOCK], tool_choice=choice).status == 200
        prompts.add(asked.engine.calls[0]["prompt"])
    assert len(prompts) == 1
    answer = client(FakeAsyncEngine(reply="{}")).chat(tools=[WEATHER, CLOCK], tool_choice=allowed("required", "clock"))
    assert answer.json()["choices"][0]["finish_reason"] == "tool_calls", "a call of one tool, though it was not named"


@pytest.mark.parametrize(
    "choice",
    [
        allowed("none", "clock"),
        allowed("auto"),
        allowed("auto", "other"),
        {"type": "allowed_tools"},
        {"type": "allowed_tools", "allowed_tools": 5},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "mcp"}]}},
        {"type": "function"},
        {"type": "custom", "custom": {"name": "clock"}},
        "any",
        5,
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(choice: Any) -> None:
    answer = tools_client("Hm").chat(tools=[WEATHER, CLOCK], tool_choice=choice)
    assert answer.status == 400 and answer.error["param"] == "tool_choice"


# -- parameters --------------------------------------------------------------------------------------------------


def tool(name: str, parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def forced(*tools: Any) -> ConstraintSpec:
    """The constraint of a required call by a model that has no format for calls."""
    return plan_of(None, *tools, tool_choice="required").spec


def takes(arguments: str, *tools: Any) -> bool:
    """Whether a call of f may have these arguments: alone, or where there are other tools."""
    written = arguments if len(tools) == 1 else f'{{"name":"f","arguments":{arguments}}}'
    return accepts(forced(*tools), written)


@pytest.mark.parametrize("kind", [{}, {"type": ["object", "null"]}], ids=str)
def test_arguments_are_an_object_whether_the_schema_says_so_or_not(kind: dict[str, Any]) -> None:
    described = {**kind, "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
    for tools in ([tool("f", described)], [tool("f", described), tool("g", {})]):
        assert takes('{"a":5}', *tools)
        assert not any(takes(arguments, *tools) for arguments in ("5", "null", "{}"))


@pytest.mark.parametrize("others", [{}, {"additionalProperties": True}], ids=str)
def test_arguments_have_other_keys_only_where_the_parameters_speak_of_them(others: dict[str, Any]) -> None:
    described = tool("f", {"type": "object", "properties": {"a": {"type": "integer"}}, **others})
    for tools in ([described], [described, tool("g", {"type": "object"})]):
        assert takes('{"a":1}', *tools) and takes('{"b":1}', *tools) == bool(others)
    assert accepts(forced(described, tool("g", {"type": "object"})), '{"name":"g","arguments":{"b":1}}')
    for name in ("hermes", "function_tag"):
        spec = plan_of(name, described, tool_choice="required").spec
        begin, end = CALL_FORMATS[name].begin("f"), CALL_FORMATS[name].end
        assert accepts(spec, f'{begin}{{"a": 1}}{end}') and accepts(spec, f'{begin}{{"b": 1}}{end}') == bool(others)


def test_a_tool_without_parameters_takes_none_however_that_is_written() -> None:
    for parameters in (None, {}, {"type": "object", "properties": {}, "required": [], "title": "clock_args"}):
        spec = plan_of("hermes", tool("clock", parameters), tool_choice="required").spec
        assert accepts(spec, hermes("clock", "{}")) and not accepts(spec, hermes("clock", '{"a": 1}'))
    anything = tool("clock", {"properties": {}, "additionalProperties": True})
    assert accepts(plan_of("hermes", anything, tool_choice="required").spec, hermes("clock", '{"a": 1}'))


def test_parameters_that_cannot_be_are_refused() -> None:
    refused = client().chat(tools=[tool("f", {"type": "array"})], tool_choice="required")
    assert (refused.status, refused.error["param"], refused.error["code"]) == (400, "tools", "invalid_json_schema")
    assert "the tool 'f'" in refused.error["message"] and '"array"' in refused.error["message"]
    as_xml = plan_of("qwen3_coder", tool("f", {"minProperties": 1}))
    with pytest.raises(ph.ConstraintError, match="minProperties"):
        ph.Engine("nano", device="cpu").request_factory.compile(as_xml.spec)


@pytest.mark.parametrize(
    "parameters",
    [
        {
            "$id": "https://tools.example/f",
            "$defs": {"z": {"type": "integer"}},
            "properties": {"a": {"$ref": "#/$defs/z"}},
        },
        {"$defs": {"z": {"$anchor": "q", "type": "integer"}}, "properties": {"a": {"$ref": "#q"}}},
        {"$defs": {"z": {"type": "integer"}}, "properties": {"default": {"$ref": "#/$defs/z"}}},
        {"properties": {"a": {"properties": {"const": {"$ref": "#"}}}}},
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "properties": {"a": {"type": "integer", "minimum": 3, "exclusiveMinimum": True}},
        },
    ],
    ids=["$id", "$anchor", "a key named default", "a key named const", "another draft"],
)
def test_references_mean_the_same_next_to_other_tools(parameters: Any) -> None:
    alone, other = tool("f", parameters), tool("g", {"$defs": {"z": {"$anchor": "q", "type": "string"}}})
    for arguments in (
        *("{}", '{"a":4}', '{"a":3}', '{"a":"x"}', '{"default":1}', '{"default":"x"}', '{"a":{"const":{"a":5}}}'),
    ):
        assert takes(arguments, alone) == takes(arguments, alone, other), arguments


def test_all_tools_of_a_request_share_one_limit_on_time(monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[object] = []

    def noted(schema: object, marks: object, compile_time: object) -> frozenset[str]:
        times.append(compile_time)
        return frozenset()

    monkeypatch.setattr("phloem.runtime.server.formats.call_plan.raw_keys", noted)
    plan_of("glm45", *(tool(f"tool{n}", {"title": f"one limit {n}"}) for n in range(3)))
    assert len(times) == 3 and all(time is times[0] for time in times)


# -- the server --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CALL_FORMATS)
def test_the_server_finds_calls_in_every_format(name: str) -> None:
    weather, clock = WRITTEN[name]
    asked = tools_client(f"Let me look.\n{weather}\n{clock}", name)
    [choice] = asked.chat(tools=[WEATHER, CLOCK]).json()["choices"]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "Let me look."
    calls = [call["function"] for call in choice["message"]["tool_calls"]]
    assert calls == [{"name": "weather", "arguments": '{"city": "Oslo"}'}, {"name": "clock", "arguments": "{}"}]
    assert asked.engine.calls[0]["constraint"].kind == "structural_tag"
    [choice] = tools_client(clock, name).chat(tools=[CLOCK], tool_choice="required").json()["choices"]
    assert choice["message"]["content"] is None and choice["finish_reason"] == "tool_calls"


def test_a_model_without_a_format_calls_with_its_whole_output() -> None:
    engine = FakeAsyncEngine(reply='{"city":"Ur"}')
    choice_of_tool = {"type": "function", "function": {"name": "weather"}}
    [choice] = client(engine).chat(tools=[WEATHER, CLOCK], tool_choice=choice_of_tool).json()["choices"]
    [call] = choice["message"]["tool_calls"]
    assert choice["message"]["content"] is None and choice["finish_reason"] == "stop", "a tool that was named"
    assert call["function"] == {"name": "weather", "arguments": '{"city":"Ur"}'}
    assert json.loads(engine.calls[0]["constraint"].source) == CITY
    assert engine.calls[0]["prompt"].startswith("<tools>['weather', 'clock']")
    engine = FakeAsyncEngine(reply='{"name":"clock","arguments":{"a":"ö"}}')
    [choice] = client(engine).chat(tools=[WEATHER, CLOCK], tool_choice="required").json()["choices"]
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "clock", "arguments": '{"a":"ö"}'}
    assert choice["finish_reason"] == "tool_calls"


def test_tools_leave_the_output_of_such_a_model_free_unless_one_is_required() -> None:
    asked = client()
    assert asked.chat(tools=[WEATHER], tool_choice="auto").json()["choices"][0]["message"]["content"] == "Hello wörld"
    assert asked.chat(tools=[WEATHER], tool_choice="none").status == 200
    assert [call["constraint"] for call in asked.engine.calls] == [None, None]
    assert ["<tools>" in call["prompt"] for call in asked.engine.calls] == [True, False]


def test_a_call_that_was_begun_is_finished_whatever_stops_a_text() -> None:
    for stop in ("city", "Oslo", "name", "\n", "weather", "}"):
        [choice] = tools_client(CITY_CALL + "No").chat(tools=[WEATHER], stop=stop).json()["choices"]
        assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "No"
        assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"city": "Oslo"}'
    for reply, stop, content, reason in (
        ("Hm city" + CITY_CALL, "city", "Hm ", "stop"),
        ("Hm. " + CITY_CALL, "<tool_call>", "Hm. ", "stop"),
        (CITY_CALL + " city", " city", None, "tool_calls"),
    ):
        [choice] = tools_client(reply).chat(tools=[WEATHER], stop=stop).json()["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == (content, reason)
    for tools, reply in (
        ([WEATHER], '{"city":"Oslo"}'),
        ([WEATHER, CLOCK], '{"name":"weather","arguments":{"city":1}}'),
    ):
        asked = client(FakeAsyncEngine(reply=reply))  # a format without marks: the answer is the call
        [choice] = asked.chat(tools=tools, tool_choice="required", stop="city").json()["choices"]
        assert choice["finish_reason"] == "tool_calls" and choice["message"]["tool_calls"][0]["function"]["name"]


def test_other_constraints_are_those_of_the_whole_output() -> None:
    asked = tools_client("a")
    [choice] = asked.chat(tools=[WEATHER], regex="a").json()["choices"]
    assert choice["message"]["content"] == "a" and asked.engine.calls[0]["constraint"].kind == "regex"
    refused = asked.chat(tools=[WEATHER], tool_choice="required", regex="a")
    assert refused.status == 400 and refused.error["code"] == "conflicting_constraints"
    asked = client(FakeAsyncEngine(reply='{"a":1}'))  # a model that shows no calls
    assert asked.chat(tools=[WEATHER], response_format=JSON_FORMAT).status == 200
    assert asked.engine.calls[0]["constraint"].kind == "json_schema"
    named = {"type": "function", "function": {"name": "weather"}}
    [choice] = asked.chat(tools=[WEATHER], response_format=JSON_FORMAT, tool_choice=named).json()["choices"]
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"a":1}'}


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
    jsonschema.Draft202012Validator(CITY).validate(json.loads(whole[0].function.arguments))
    parts = [part.function.arguments or "" for delta in chunks for part in delta]
    assert "".join(parts) == whole[0].function.arguments
