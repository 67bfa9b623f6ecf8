"""Calls in free text: what a template shows, what is constrained, and how calls are read, whole and in pieces."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import phloem as ph
from phloem.errors import ConfigError
from phloem.runtime.server import ServerSettings
from phloem.runtime.server.protocol import ChatRequest
from phloem.runtime.server.tool_calls import Arguments, CallBegun, Content, TagReader, gathered
from phloem.runtime.server.tool_format import FORMATS, tool_format_of
from phloem.runtime.server.tools import tool_plan

from .fakes import FakeAsyncEngine
from .tool_specs import CLOCK, WEATHER, accepts, hermes, spec_of
from .wire import client

HERMES = FORMATS["hermes"]


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ('{{ \'<tool_call>\\n{"name": "\' + tool.name + \'", "arguments": \' }}', "hermes"),
        ("{{ '<function=' + tool.name + '>' }}", "function_tag"),
        ('Respond in the format {"name": function name, "parameters": dictionary}', "llama3_json"),
        ("<tool_call><function=x><parameter=y> arguments", None),
        ("<tool_call><arg_key> arguments", None),
        ("{{ messages }}", None),
    ],
)
def test_the_format_of_calls_is_what_the_template_shows(template: str, name: str | None) -> None:
    assert tool_format_of(template, []) == (FORMATS[name] if name else None)
    assert tool_format_of(template, ["<s><tool_call>", "<s><function=", '<s>{"name": "']) is None, "no part of a token"


def test_what_of_a_format_is_a_special_token_is_written_as_that_token() -> None:
    template = FORMATS["hermes"].begin("f") + "arguments"
    hermes = tool_format_of(template, ["<s>", "<tool_call>", "</tool_call>"])
    assert hermes is not None and hermes.special == {"<tool_call>", "</tool_call>"}
    assert hermes.parts(hermes.end) == [
        {"type": "const_string", "value": "}\n"},
        {"type": "token", "token": "</tool_call>"},
    ]
    assert tool_format_of(template, ["</tool_call>"]) is None, "a call that cannot be distinguished from text"
    mistral = tool_format_of("[TOOL_CALLS]{{ f }}[ARGS]", ["[TOOL_CALLS]", "[ARGS]"])
    assert mistral is not None
    assert [part["type"] for part in mistral.parts(mistral.begin("f"))] == ["token", "const_string", "token"]


@pytest.mark.parametrize(
    ("fields", "allowed", "refused"),
    [
        (
            {},
            [
                "",
                "No.",
                "<tool",
                "Wait " + hermes("weather", '{"city": "Oslo", "days": 3}') + "\n" + hermes("clock", "{}") + " bye",
            ],
            [
                "<tool_call>",
                hermes("weather", '{"days": 3}'),
                hermes("weather", '{"city": "Oslo", "days": 0}'),
                hermes("other", "{}"),
                hermes("clock", '{"a": 1}'),
            ],
        ),
        ({"parallel_tool_calls": False}, ["x" + hermes("clock", "{}")], [hermes("clock", "{}") + "x"]),
        ({"tool_choice": "required"}, [hermes("clock", "{}") * 2], ["", "x" + hermes("clock", "{}")]),
        (
            {"tool_choice": {"type": "function", "function": {"name": "clock"}}},
            [hermes("clock", "{}")],
            [hermes("weather", '{"city": "Oslo"}'), hermes("clock", "{}") * 2, ""],
        ),
    ],
)
def test_calls_are_constrained_and_text_is_free(fields: Any, allowed: list[str], refused: list[str]) -> None:
    spec = spec_of(**fields)
    assert [text for text in allowed if not accepts(spec, text)] == []
    assert [text for text in refused if accepts(spec, text)] == []
    assert spec_of(tool_choice="none") is None


def test_other_formats_of_calls() -> None:
    assert accepts(spec_of("llama3_json"), '{"name": "weather", "parameters": {"city": "Ur"}}')
    assert accepts(spec_of("function_tag"), 'Look: <function=weather>{"city": "Ur"}</function>.')
    assert not accepts(spec_of("function_tag"), "<function=weather>{}</function>")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "clock"}}])
def test_calls_between_special_tokens_are_written_with_them_and_read(choice: Any) -> None:
    marked = replace(FORMATS["mistral"], trigger="<|user|>", before_name="<|user|>", before_arguments="<|system|>")
    engine = ph.Engine("nano", device="cpu", jump="verified")
    tool_format = marked.with_special(engine.tokenizer.special_ids)
    assert tool_format is not None and tool_format.special == {"<|user|>", "<|system|>"}
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": [WEATHER, CLOCK], "tool_choice": choice}
    plan = tool_plan(ChatRequest.model_validate(body), tool_format)
    assert plan is not None
    prompt = engine.tokenizer.apply_chat_template([{"role": "user", "content": "How is the weather in Oslo?"}])
    for seed in range(4):
        params = ph.SamplingParams(max_tokens=60, temperature=1.0, seed=seed)
        done = engine.generate(prompt, params, constraint=plan.spec)
        found = gathered(plan.reader(), done.text)
        num_marks = done.token_ids.count(engine.tokenizer.special_ids["<|user|>"])
        assert len(found.calls) == num_marks == done.text.count("<|user|>") >= 1
        for call in found.calls:
            arguments = json.loads(call["function"]["arguments"])
            assert ("city" in arguments) == (call["function"]["name"] == "weather")
            assert choice == "required" or call["function"]["name"] == "clock"


def read(text: str, cuts: list[int]) -> tuple[str, list[tuple[str, str]]]:
    """Content and calls of a text that arrives in pieces."""
    names = {HERMES.begin(name): name for name in ("weather", "clock")}
    reader = TagReader(HERMES.trigger, names, HERMES.end)
    content, calls = "", []
    ends = [*sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    for begin, end in zip([0, *ends], ends, strict=False):
        for piece in reader.push(text[begin:end], is_last=False):
            if isinstance(piece, Content):
                content += piece.text
            elif isinstance(piece, CallBegun):
                assert piece.index == len(calls) and piece.id.startswith("call_")
                calls.append([piece.name, ""])
            else:
                assert isinstance(piece, Arguments) and piece.index == len(calls) - 1
                calls[-1][1] += piece.text
    for piece in reader.push("", is_last=True):
        assert isinstance(piece, Content), "only text can wait for the end"
        content += piece.text
    return content, [(name, arguments) for name, arguments in calls]


ARGUMENTS = ["{}", '{"city": "a}\\"]{"}', '{"a": [{"b": 1}], "c": "</tool_call>"}']
SEGMENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["weather", "clock"]), st.sampled_from(ARGUMENTS)),
        st.sampled_from(["Hello", "a <tool", "<", "x <tool_call y", "}", "two words"]),
    ),
    max_size=5,
)


@settings(max_examples=150, deadline=None)
@given(SEGMENTS, st.lists(st.integers(0, 400), max_size=12))
def test_a_stream_is_read_as_the_whole_answer_is(segments: list[Any], cuts: list[int]) -> None:
    text = "".join(segment if isinstance(segment, str) else hermes(*segment) + "\n" for segment in segments)
    content, calls = read(text, cuts)
    assert (content, calls) == read(text, [])
    assert calls == [segment for segment in segments if not isinstance(segment, str)]
    assert content.strip() == "".join(s if isinstance(s, str) else "" for s in segments).strip()


def test_what_only_looks_like_a_call_is_content() -> None:
    for text in ("<tool_call>", '<tool_call>\n{"name": "other", "arguments": {}}', "a <tool_call>x</tool_call> b"):
        assert read(text, [5, 12]) == (text, [])


def test_cut_short_calls_keep_what_there_is() -> None:
    whole = hermes("weather", '{"city": "Oslo"}')
    for length in range(len(whole)):
        content, calls = read("Hm. " + whole[:length], [length // 2])
        if calls:
            assert (content, calls[0][0]) == ("Hm.", "weather") and '{"city": "Oslo"}'.startswith(calls[0][1])
        else:
            assert content == "Hm. " + whole[:length]


def tools_client(reply: str) -> Any:
    return client(FakeAsyncEngine(reply=reply), tool_call_format="hermes")


def test_auto_finds_calls_in_a_whole_answer() -> None:
    reply = "Let me look.\n" + hermes("weather", '{"city": "Oslo"}') + "\n" + hermes("clock", "{}")
    asked = tools_client(reply)
    choice = asked.chat(tools=[WEATHER, CLOCK]).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "Let me look."
    calls = [call["function"] for call in choice["message"]["tool_calls"]]
    assert calls == [{"name": "weather", "arguments": '{"city": "Oslo"}'}, {"name": "clock", "arguments": "{}"}]
    assert len({call["id"] for call in choice["message"]["tool_calls"]}) == 2
    assert asked.engine.calls[0]["constraint"].kind == "structural_tag"
    choice = tools_client("Just text").chat(tools=[WEATHER]).json()["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "Just text", "refusal": None}
    assert choice["finish_reason"] == "stop"
    only_calls = tools_client(hermes("clock", "{}")).chat(tools=[CLOCK], tool_choice="required").json()["choices"][0]
    assert only_calls["message"]["content"] is None and only_calls["finish_reason"] == "tool_calls"


def test_auto_streams_text_and_calls() -> None:
    reply = "Let me look.\n" + hermes("weather", '{"city": "Ørsta"}') + "\n" + hermes("clock", "{}") + "\nDone"
    events = tools_client(reply).chat(tools=[WEATHER, CLOCK], stream=True, n=2).events()[:-1]
    for index in (0, 1):
        choices = [event["choices"][0] for event in events if event["choices"][0]["index"] == index]
        deltas = [choice["delta"] for choice in choices]
        assert deltas[0] == {"role": "assistant", "content": "", "refusal": None}
        assert "".join(delta.get("content") or "" for delta in deltas) == "Let me look.Done"
        calls: list[dict[str, str]] = []
        for delta in deltas:
            for part in delta.get("tool_calls", []):
                if "id" in part:
                    assert part["index"] == len(calls) and part["type"] == "function"
                    calls.append({"name": part["function"]["name"], "arguments": ""})
                calls[part["index"]]["arguments"] += part["function"]["arguments"]
        assert calls == [{"name": "weather", "arguments": '{"city": "Ørsta"}'}, {"name": "clock", "arguments": "{}"}]
        assert choices[-1]["finish_reason"] == "tool_calls"
        assert sum("tool_calls" in delta for delta in deltas) > 10, "arguments arrive as they are written"


def test_a_call_that_was_begun_is_finished_whatever_stops_a_text() -> None:
    call = hermes("weather", '{"city": "Oslo"}')
    for stop in ("city", "Oslo", "name", "\n", "weather", "}"):
        choice = tools_client(call + "No").chat(tools=[WEATHER], stop=stop).json()["choices"][0]
        assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] == "No"
        assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"city": "Oslo"}'
    choice = tools_client("Hm city" + call).chat(tools=[WEATHER], stop="city").json()["choices"][0]
    assert choice["message"]["content"] == "Hm " and choice["finish_reason"] == "stop"
    choice = tools_client("Hm. " + call).chat(tools=[WEATHER], stop="<tool_call>").json()["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "Hm. ", "refusal": None}
    choice = tools_client(call + " city").chat(tools=[WEATHER], stop=" city").json()["choices"][0]
    assert choice["message"]["content"] is None and choice["finish_reason"] == "tool_calls"
    for tools, reply in (
        ([WEATHER], '{"city":"Oslo"}'),
        ([WEATHER, CLOCK], '{"name":"weather","arguments":{"city":1}}'),
    ):
        asked = client(FakeAsyncEngine(reply=reply))  # a format without marks: the answer is the call
        choice = asked.chat(tools=tools, tool_choice="required", stop="city").json()["choices"][0]
        assert choice["finish_reason"] == "tool_calls" and choice["message"]["tool_calls"][0]["function"]["name"]


def test_a_call_that_is_cut_short_is_no_reason_to_call() -> None:
    """The end token can come anywhere in an answer that nothing constrains."""
    cut = hermes("weather", '{"city": "Oslo"}')[:-20]
    for fields in ({}, {"stream": True}):
        answer = tools_client(cut).chat(tools=[WEATHER], **fields)
        choices = [event["choices"][0] for event in answer.events()[:-1]] if fields else answer.json()["choices"]
        assert choices[-1]["finish_reason"] == "stop"


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def test_only_allowed_tools_are_called_and_all_are_shown() -> None:
    """So that the prompt stays as it was."""
    for mode, without in (("auto", True), ("required", False)):
        spec = spec_of(tool_choice=allowed(mode, "clock"))
        assert accepts(spec, hermes("clock", "{}")) and not accepts(spec, hermes("weather", '{"city": "Oslo"}'))
        assert accepts(spec, "No.") == without
    assert spec_of(tool_choice=allowed("required", "clock", "weather")) == spec_of(tool_choice="required")
    prompts = set()
    for choice in ("auto", "required", allowed("auto", "clock"), allowed("required", "weather")):
        asked = tools_client("Hm")
        assert asked.chat(tools=[WEATHER, CLOCK], tool_choice=choice).status == 200
        prompts.add(asked.engine.calls[0]["prompt"])
    assert len(prompts) == 1
    choice = client(FakeAsyncEngine(reply="{}")).chat(tools=[WEATHER, CLOCK], tool_choice=allowed("required", "clock"))
    assert choice.json()["choices"][0]["finish_reason"] == "tool_calls", "a call of one tool, though it was not named"


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


OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
JSON_FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": OBJECT}}
CITY_CALL = hermes("weather", '{"city": "Oslo"}')


@pytest.mark.parametrize(
    ("fields", "allowed", "refused"),
    [
        ({}, ['{"a": 1}', CITY_CALL, CITY_CALL * 2, CITY_CALL + "\n" + CITY_CALL], ["", "Hm", CITY_CALL + '{"a": 1}']),
        ({"parallel_tool_calls": False}, ['{"a": 1}', CITY_CALL], [CITY_CALL * 2, CITY_CALL + " "]),
        ({"tool_choice": "required"}, [CITY_CALL, CITY_CALL * 2], ['{"a": 1}', CITY_CALL + "Hm"]),
    ],
)
@pytest.mark.parametrize("special", [False, True])
def test_beside_a_response_format_there_are_calls_or_content_of_that_format(
    fields: dict[str, Any], allowed: list[str], refused: list[str], special: bool
) -> None:
    asked = tools_client("Hm")
    assert asked.chat(tools=[WEATHER, CLOCK], response_format=JSON_FORMAT, **fields).status == 200
    spec = asked.engine.calls[0]["constraint"]
    for texts, is_allowed in ((allowed, True), (refused, False)):
        for text in texts:
            assert accepts(spec, text) == is_allowed, text


@pytest.mark.parametrize("reply", ['{"a": 1}', '{"a": "<tool_call>"}', CITY_CALL, CITY_CALL + "\n" + CITY_CALL, ""])
def test_what_is_beside_a_response_format_is_read_whole_and_in_pieces(reply: str) -> None:
    asked = tools_client(reply)
    message = asked.chat(tools=[WEATHER], response_format=JSON_FORMAT).json()["choices"][0]["message"]
    calls = [call["function"]["arguments"] for call in message.get("tool_calls", [])]
    assert calls == ['{"city": "Oslo"}'] * reply.count(CITY_CALL)
    assert (message["content"] or "") == ("" if calls else reply)
    events = asked.chat(tools=[WEATHER], response_format=JSON_FORMAT, stream=True).events()[:-1]
    deltas = [event["choices"][0]["delta"] for event in events]
    assert "".join(delta.get("content") or "" for delta in deltas) == (message["content"] or "")


def test_other_constraints_are_those_of_the_whole_output() -> None:
    asked = tools_client("a")
    answer = asked.chat(tools=[WEATHER], regex="a").json()["choices"][0]
    assert answer["message"]["content"] == "a" and asked.engine.calls[0]["constraint"].kind == "regex"
    refused = asked.chat(tools=[WEATHER], tool_choice="required", regex="a")
    assert refused.status == 400 and refused.error["code"] == "conflicting_constraints"
    asked = client(FakeAsyncEngine(reply='{"a":1}'))  # a model that shows no calls
    assert asked.chat(tools=[WEATHER], response_format=JSON_FORMAT).status == 200
    assert asked.engine.calls[0]["constraint"].kind == "json_schema"
    named = {"type": "function", "function": {"name": "weather"}}
    answer = asked.chat(tools=[WEATHER], response_format=JSON_FORMAT, tool_choice=named).json()["choices"][0]
    assert answer["message"]["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"a":1}'}


def test_structural_tags_are_asked_for_in_every_spelling() -> None:
    tag = {"begin": "<f>", "schema": {}, "end": "</f>", "extra_keys": "never"}  # as the server would have it anyway
    older = {"structures": [tag], "triggers": ["<f"]}
    newer = {"format": {"type": "any_text"}}
    for fields in (
        {"response_format": {"type": "structural_tag", **older}},
        {"response_format": {"type": "structural_tag", **newer}},
        {"structural_tag": older},
        {"structured_outputs": {"structural_tag": json.dumps(newer)}},
    ):
        asked = client()
        assert asked.chat(**fields).status == 200
        spec = asked.engine.calls[0]["constraint"]
        assert spec.kind == "structural_tag" and json.loads(spec.source) in (older, newer)


def test_an_unknown_format_of_calls_is_refused() -> None:
    with pytest.raises(ConfigError, match="tool_call_format"):
        ServerSettings(tool_call_format="morse")  # type: ignore[arg-type]


def test_all_tools_of_a_request_share_one_limit_on_time(monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[object] = []

    def noted(schema: object, marks: object, compile_time: object) -> frozenset[str]:
        times.append(compile_time)
        return frozenset()

    monkeypatch.setattr("phloem.runtime.server.tools.raw_keys", noted)
    made = [
        {"type": "function", "function": {"name": f"tool{n}", "parameters": {"title": f"one limit {n}"}}}
        for n in range(3)
    ]
    body = ChatRequest.model_validate({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": made})
    assert tool_plan(body, FORMATS[next(name for name, form in FORMATS.items() if form.marks is not None)])
    assert len(times) == 3 and all(time is times[0] for time in times)
