"""The Responses API: shapes, events, the official client."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from openai import OpenAI
from openai.types.responses import FunctionToolParam, Response, ResponseFunctionToolCall
from openai.types.responses.response_input_param import FunctionCallOutput
from pydantic import BaseModel

from phloem.runtime.server.response_request import ResponsesRequest

from .fakes import FakeAsyncEngine
from .wire import Answer, Client, client

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}


def respond(asked: Client, **fields: object) -> Answer:
    return asked.post("/v1/responses", {"input": "Hi", **fields})


def test_a_response_has_openais_shape() -> None:
    asked = client()
    body = respond(asked, instructions="Be brief.", metadata={"a": "b"}).json()
    assert Response.model_validate(body).output_text == "Hello wörld"
    assert (body["status"], body["model"], body["metadata"]) == ("completed", "fake", {"a": "b"})
    assert body["usage"]["input_tokens"] == len("<system>Be brief.<user>Hi<assistant>")
    assert body["usage"]["input_tokens_details"]["cached_tokens"] > 0
    assert asked.engine.calls[0]["prompt"] == "<system>Be brief.<user>Hi<assistant>"


def test_reasoning_belongs_to_the_answer_after_it_or_to_one_without_words() -> None:
    thoughts = [{"type": "reasoning", "content": [{"type": "reasoning_text", "text": text}]} for text in "abc"]
    user, assistant = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}
    messages = (
        ResponsesRequest.model_validate({"input": [thoughts[0], user, thoughts[1], assistant, thoughts[2]]})
        .as_chat()
        .messages
    )
    said = [(message.role, message.content, message.reasoning_content) for message in messages]
    assert said == [
        ("assistant", "", "a"), ("user", "Hi", None), ("assistant", "Yes", "b"), ("assistant", "", "c")
    ]  # fmt: skip


def test_the_budget_ends_a_response_incomplete() -> None:
    body = respond(client(), max_output_tokens=5).json()
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    events = respond(client(), max_output_tokens=5, stream=True).events()
    assert events[-1]["type"] == "response.incomplete"


def test_events_build_the_response_up() -> None:
    answer = respond(client(), stream=True)
    events = answer.events()
    names = [event["type"].removeprefix("response.") for event in events]
    opening = ["created", "in_progress", "output_item.added", "content_part.added"]
    closing = ["output_text.done", "content_part.done", "output_item.done", "completed"]
    assert names[:4] == opening and names[-4:] == closing and set(names[4:-4]) == {"output_text.delta"}
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert "".join(event["delta"] for event in events[4:-4]) == events[-4]["text"] == "Hello wörld"
    assert f"event: {events[0]['type']}\n" in answer.body.decode()


def test_messages_and_parts_are_read() -> None:
    asked = client()
    items = [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Ho"}]},
        {"role": "user", "content": "Hum"},
    ]
    assert respond(asked, input=items).status == 200
    assert asked.engine.calls[0]["prompt"] == "<system>Be brief.<user>Hi<assistant>Ho<user>Hum<assistant>"


def test_a_schema_becomes_the_constraint() -> None:
    asked = client(FakeAsyncEngine(reply="{}"))
    wanted = {"type": "json_schema", "name": "x", "strict": True, "schema": {"type": "object"}}
    assert respond(asked, text={"format": wanted}).status == 200
    spec = asked.engine.calls[0]["constraint"]
    assert json.loads(spec.source) == {"type": "object"} and spec.extra_keys == "never"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, None),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [{"type": "function_call_output"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]}, "input[0].arguments"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"type": "reasoning", "encrypted_content": "x"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content"),
        ({"input": "word " * 9000}, "input"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "schema": []}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_object"}}, "regex": "a"}, "text.format"),
        ({"tools": [{"type": "web_search", "name": "f"}]}, "tools[0].type"),
        ({"tools": [FUNCTION, FUNCTION]}, "tools"),
        ({"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [FUNCTION], "tool_choice": "sometimes"}, "tool_choice"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"n": 2}, "n"),
    ],
)
def test_errors_name_the_callers_field(fields: dict[str, object], param: str | None) -> None:
    answer = respond(client(), **fields)
    assert answer.status == (200 if param is None else 400)
    if param is not None:
        assert answer.error["param"] == param
        assert not re.search("array.* but got an array", answer.error["message"])


class City(BaseModel):
    name: str


def test_the_official_client_reads_responses(openai_client: OpenAI) -> None:
    plain = openai_client.responses.create(model="nano", input="Hello", temperature=0, max_output_tokens=20)
    with openai_client.responses.stream(model="nano", input="Hello", temperature=0, max_output_tokens=20) as stream:
        final = stream.get_final_response()
    assert plain.output_text == final.output_text != ""
    parsed = openai_client.responses.parse(model="nano", input="Hello", text_format=City, max_output_tokens=40)
    assert isinstance(parsed.output_parsed, City)


CLOCK: FunctionToolParam = {
    "type": "function",
    "name": "clock",
    "strict": True,
    "parameters": {"type": "object", "properties": {"zone": {"type": "string", "maxLength": 9}}, "required": ["zone"]},
}


def test_the_official_client_calls_tools_and_answers_calls(openai_client: OpenAI) -> None:
    first = openai_client.responses.create(
        model="nano", input="Hello", tools=[CLOCK], tool_choice="required", max_output_tokens=60, temperature=0
    )
    [call] = first.output
    assert isinstance(call, ResponseFunctionToolCall) and call.name == "clock" and call.status == "completed"
    assert list(json.loads(call.arguments)) == ["zone"]
    with openai_client.responses.stream(
        model="nano", input="Hello", tools=[CLOCK], tool_choice="required", max_output_tokens=60, temperature=0
    ) as stream:
        kinds = [event.type for event in stream]
        [again] = stream.get_final_response().output
    assert isinstance(again, ResponseFunctionToolCall) and again.arguments == call.arguments
    assert kinds[-3:] == ["response.function_call_arguments.done", "response.output_item.done", "response.completed"]
    result: FunctionCallOutput = {"type": "function_call_output", "call_id": call.call_id, "output": "12"}
    said: list[Any] = [{"role": "user", "content": "Hello"}, *first.output, result]
    second = openai_client.responses.create(model="nano", input=said, tools=[CLOCK], max_output_tokens=20)
    assert second.output_text and second.usage is not None
    assert second.usage.input_tokens > (first.usage.input_tokens if first.usage is not None else 0)


def test_a_prompt_is_counted_without_an_answer() -> None:
    asked = client()
    fields = {"input": "Hi", "instructions": "Be brief.", "tools": [FUNCTION]}
    counted = asked.post("/v1/responses/input_tokens", fields).json()
    assert not asked.engine.calls
    usage = asked.post("/v1/responses", fields).json()["usage"]
    assert counted == {"object": "response.input_tokens", "input_tokens": usage["input_tokens"]}
