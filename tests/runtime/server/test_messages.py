"""Anthropic's messages API: shapes, events, errors. (What it shows agrees with the chat's: `test_faces`.)"""

from __future__ import annotations

import json
from typing import Any

import pytest

from phloem.errors import RequestError

from .fakes import FakeAsyncEngine
from .samples import hermes
from .wire import Answer, Client, client

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"name": "weather", "description": "It rains.", "input_schema": SCHEMA}
CALL = hermes("weather", '{"city": "Oslo"}')


def say(asked: Client, **fields: Any) -> Answer:
    return asked.post("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100, **fields})


def test_a_message_has_anthropics_shape() -> None:
    asked = client()
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    body = say(asked, system=system, metadata={"user_id": "u"}, service_tier="auto").json()
    assert body.pop("id").startswith("msg_")
    prompt = "<system>Be brief.<user>Hi<assistant>"
    assert asked.engine.calls[0]["prompt"] == prompt
    assert body == {
        "type": "message",
        "role": "assistant",
        "model": "fake",
        "content": [{"type": "text", "text": "Hello wörld"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": len(prompt) - len(prompt) // 2,
            "cache_read_input_tokens": len(prompt) // 2,
            "cache_creation_input_tokens": 0,
            "output_tokens": len("Hello wörld".encode()) + 1,
        },
    }


def test_events_begin_and_end_a_message() -> None:
    answer = say(client(), stream=True)
    events = answer.events()
    assert [event["type"] for event in events[:2]] == ["message_start", "content_block_start"]
    assert [event["type"] for event in events[-3:]] == ["content_block_stop", "message_delta", "message_stop"]
    assert events[0]["message"]["content"] == [] and events[0]["message"]["stop_reason"] is None
    assert events[0]["message"]["usage"]["input_tokens"] > 0
    assert events[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert events[-2]["usage"]["output_tokens"] == len("Hello wörld".encode()) + 1
    assert "event: message_start\n" in answer.body.decode() and "[DONE]" not in answer.body.decode()


@pytest.mark.parametrize(
    ("fields", "reply", "ending"),
    [
        ({"max_tokens": 3}, "Hello", ("max_tokens", None)),
        ({"stop_sequences": ["x", "lo"]}, "Hello", ("stop_sequence", "lo")),
        ({"stop_sequences": ["x"]}, "Hello", ("end_turn", None)),
        ({"tools": [TOOL]}, CALL, ("tool_use", None)),
        ({"tools": [TOOL], "stop_sequences": ["city"]}, CALL, ("tool_use", None)),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "weather"}}, CALL, ("tool_use", None)),
        ({"tools": [TOOL], "max_tokens": len(CALL) - 20}, CALL, ("max_tokens", None)),
        ({"tools": [TOOL]}, CALL[:-20], ("end_turn", None)),
    ],
)
def test_the_reason_to_stop_is_given(fields: dict[str, Any], reply: str, ending: tuple[str, str | None]) -> None:
    asked = client(FakeAsyncEngine(reply=reply), tool_call_format="hermes")
    body = say(asked, **fields).json()
    assert (body["stop_reason"], body["stop_sequence"]) == ending
    delta = say(asked, **fields, stream=True).events()[-2]["delta"]
    assert (delta["stop_reason"], delta["stop_sequence"]) == ending


def test_blocks_are_the_chats_messages() -> None:
    asked = client(tool_call_format="hermes")
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                {"type": "text", "text": "C"},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}},
                {"type": "tool_use", "id": "c2", "name": "weather", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "Rain"}]},
                {"type": "tool_result", "tool_use_id": "c2", "is_error": True},
                {"type": "text", "text": "D"},
            ],
        },
    ]
    assert say(asked, messages=turns, tools=[TOOL]).status == 200
    [chat] = asked.engine.engine.chats
    assert [message["role"] for message in chat] == ["user", "assistant", "tool", "tool", "user"]
    assert chat[0]["content"] == "AB" and chat[4]["content"] == "D"
    assert (chat[1]["content"], chat[1]["reasoning_content"]) == ("C", "Hm.")
    calls = [(call["id"], call["function"]["arguments"]) for call in chat[1]["tool_calls"]]
    assert calls == [("c1", {"city": "Oslo"}), ("c2", {})]
    assert [(message["tool_call_id"], message["content"]) for message in chat[2:4]] == [("c1", "Rain"), ("c2", "")]


def test_a_last_message_of_the_assistants_is_gone_on_with() -> None:
    asked = client()
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well"}]
    assert say(asked, messages=turns).status == 200
    assert asked.engine.calls[0]["prompt"] == "<user>Hi<assistant>Well"


def test_thinking_is_an_option_of_the_template_and_a_schema_is_a_constraint() -> None:
    asked = client(FakeAsyncEngine(reply='{"city":"Oslo"}'))
    for kind, is_on in (("disabled", False), ("enabled", True), ("adaptive", True)):
        kept = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
        assert say(asked, thinking={"type": kind, "budget_tokens": 1024}, context_management=kept).status == 200
        assert f"<enable_thinking={is_on}>" in asked.engine.calls[-1]["prompt"]
    for fields in (
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        {"output_format": {"type": "json_schema", "schema": SCHEMA}},
    ):
        assert say(asked, **fields).status == 200
        assert json.loads(asked.engine.calls[-1]["constraint"].source) == SCHEMA


def test_a_prompt_is_counted_without_an_answer() -> None:
    asked = client()
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": [TOOL], "system": "Be brief."}
    counted = asked.post("/v1/messages/count_tokens", body).json()
    assert not asked.engine.calls
    usage = asked.post("/v1/messages", {**body, "max_tokens": 5}).json()["usage"]
    assert counted == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "system", "content": "Hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "thinking", "thinking": "x"}]}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": "word " * 900}]}, "messages"),
        ({"tools": [{"type": "bash_20250124", "name": "bash", "input_schema": {}}]}, "tools[0].type"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "other"}}, "tool_choice"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "sometimes"}}, "tool_choice.type"),
        ({"thinking": {"type": "often"}}, "thinking.type"),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management.edits[0].type"),
        ({"stop": ["x"]}, "stop"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"stop_token_ids": [9999]}, "stop_token_ids"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"n": 2}, "n"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"a": 1}}}}, "output_config.format"),
    ],
)
def test_errors_have_anthropics_shape_and_name_the_callers_field(fields: dict[str, Any], param: str) -> None:
    broken = {json.dumps({"a": 1}): RequestError("no", param="json_schema")}
    answer = say(client(FakeAsyncEngine(broken=broken)), **fields)
    body = answer.json()
    assert answer.status == 400 and body["type"] == "error"
    assert (body["error"]["type"], body["error"]["param"]) == ("invalid_request_error", param)


def test_other_errors_have_the_types_that_its_clients_know() -> None:
    assert say(client(), model="other").json()["error"]["type"] == "not_found_error"
    guarded = client(api_keys=("sk-one",))
    assert say(guarded).json()["error"]["type"] == "authentication_error"
    fields = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
    assert guarded.post("/v1/messages", fields, headers={"x-api-key": "sk-one"}).status == 200
    assert guarded.post("/v1/messages", fields, headers={"x-api-key": "sk-two"}).status == 401
    events = say(client(FakeAsyncEngine(failure=RuntimeError("no"))), stream=True).events()
    assert events[-1]["type"] == "error" and events[-1]["error"]["type"] == "api_error"
