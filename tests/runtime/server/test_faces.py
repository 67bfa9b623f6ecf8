"""One answer in six forms: chat, responses and messages, whole and streamed, agree, whatever the model wrote."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response
from pydantic_core import from_json

from phloem.runtime.server.think import BEGIN

from .fakes import CharTokenizer, FakeAsyncEngine, FakeTemplate
from .test_harmony import ANSWERS, HarmonyTokenizer
from .tool_specs import CLOCK, WEATHER, hermes
from .wire import Client, client

CALLS = [hermes("weather", '{"city": "Ørsta"}'), hermes("clock", "{}"), hermes("other", "{}"), "<tool_call>"]
PARTS = st.sampled_from([*CALLS, "Let me see. ", "\n\n", "Hm", "<think>\nLong.\n</think>\n\n", "<think>", "ö <"])
REPLIES = st.one_of(st.lists(PARTS, max_size=5).map("".join), st.sampled_from([text for text, _ in ANSWERS.values()]))
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "tools": st.just([WEATHER, CLOCK]),
        "max_tokens": st.integers(1, 80),
        "stop": st.sampled_from(["e", "clock"]),
    },
)
MESSAGES = [{"role": "user", "content": "Hi"}]
SCHEMAS = [WEATHER["function"]["parameters"], {}]  # type: ignore[index]
Shown = tuple[str, str, list[tuple[str, str]], bool]  # reasoning, content, calls, whether the budget ended it


class ThinkingTemplate(FakeTemplate):
    source = BEGIN


class ThinkingTokenizer(CharTokenizer):
    chat_template = ThinkingTemplate()


def asked(reply: str, tokenizer: CharTokenizer) -> Client:
    engine = FakeAsyncEngine(reply=reply)
    engine.engine.tokenizer = tokenizer
    return client(engine, tool_call_format="hermes")


def whole_chat(answer: dict[str, Any]) -> tuple[Shown, str]:
    [choice] = answer["choices"]
    message = choice["message"]
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", [])]
    shown = message.get("reasoning_content", ""), message["content"] or "", calls, choice["finish_reason"] == "length"
    return shown, choice["finish_reason"]


def streamed_chat(events: list[Any]) -> tuple[Shown, str]:
    reasoning, content, calls, reason = "", "", list[list[str]](), ""
    assert events.pop() == "[DONE]"
    for event in events:
        [choice] = event["choices"]
        assert not reason, "nothing follows the finish reason"
        delta, reason = choice["delta"], choice["finish_reason"] or ""
        reasoning += delta.get("reasoning_content", "")
        content += delta.get("content") or ""
        for call in delta.get("tool_calls", []):
            if "id" in call:
                calls.append([call["function"]["name"], ""])
            calls[call["index"]][1] += call["function"]["arguments"]
    return (reasoning, content, [(name, arguments) for name, arguments in calls], reason == "length"), reason


def shown_response(answer: dict[str, Any]) -> Shown:
    Response.model_validate(answer)
    texts = {"reasoning": "", "message": ""}
    calls = []
    for item in answer["output"]:
        if item["type"] == "function_call":
            calls.append((item["name"], item["arguments"]))
        else:
            texts[item["type"]] += "".join(part["text"] for part in item["content"])
    return texts["reasoning"], texts["message"], calls, answer["status"] == "incomplete"


def built_up(events: list[Any]) -> dict[str, Any]:
    """The response that a client puts together from the events, checked against what they repeat."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    items: list[dict[str, Any]] = []
    for event in events[2:-1]:
        kind = event["type"].removeprefix("response.")
        assert event.get("item_id") in (None, items[-1]["id"] if items else None), "one item at a time"
        if kind == "output_item.added":
            assert event["output_index"] == len(items) and event["item"]["status"] == "in_progress"
            items.append(event["item"])
            continue
        item = items[event["output_index"]]
        if kind == "content_part.added":
            item["content"].append(event["part"])
        elif kind == "function_call_arguments.delta":
            item["arguments"] += event["delta"]
        elif kind.endswith(".delta"):
            item["content"][0]["text"] += event["delta"]
        elif kind == "function_call_arguments.done":
            assert (item["name"], item["arguments"]) == (event["name"], event["arguments"])
        elif kind == "content_part.done":
            assert item["content"] == [event["part"]]
        elif kind == "output_item.done":
            assert event["item"] == {**item, "status": event["item"]["status"]}
            items[-1] = event["item"]
        else:
            assert kind in ("output_text.done", "reasoning_text.done") and item["content"][0]["text"] == event["text"]
    final: dict[str, Any] = events[-1]["response"]
    assert final["output"] == items and events[-1]["type"] == f"response.{final['status']}"
    return final


def loose(arguments: str) -> Any:
    """What a client reads of arguments that may be cut short."""
    found = from_json(arguments, allow_partial=True) if arguments.strip() else {}
    return found if isinstance(found, dict) else {}


def shown_message(message: dict[str, Any]) -> tuple[str, str, list[tuple[str, Any]], bool]:
    texts, calls = {"thinking": "", "text": ""}, []
    for block in message["content"]:
        if block["type"] == "tool_use":
            calls.append((block["name"], block["input"]))
        else:
            texts[block["type"]] += block[block["type"]]
    return texts["thinking"], texts["text"], calls, message["stop_reason"] == "max_tokens"


def message_built_up(events: list[Any]) -> dict[str, Any]:
    message: dict[str, Any] = events[0]["message"]
    blocks, is_open, written = message["content"], False, ""
    for event in events[1:-2]:
        kind = event["type"]
        assert is_open == (kind != "content_block_start")
        if kind == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append(event["content_block"])
            is_open, written = True, ""
        elif kind == "content_block_stop":
            is_open = False
            if blocks[-1]["type"] == "tool_use":
                blocks[-1]["input"] = loose(written)
        elif event["delta"]["type"] == "input_json_delta":
            written += event["delta"]["partial_json"]
        else:
            name = event["delta"]["type"].removesuffix("_delta")
            blocks[-1][name] += event["delta"][name]
    assert not is_open and events[-1] == {"type": "message_stop"}
    return message | events[-2]["delta"]


@given(REPLIES, FIELDS, st.sampled_from([CharTokenizer, ThinkingTokenizer, HarmonyTokenizer]))
@settings(max_examples=60, deadline=None)
def test_all_faces_show_the_same(reply: str, fields: dict[str, Any], tokenizer: type[CharTokenizer]) -> None:
    http = asked(reply, tokenizer())
    shown, reason = whole_chat(http.chat(**fields).json())
    assert streamed_chat(http.chat(**fields, stream=True).events()) == (shown, reason)
    theirs = {("max_output_tokens" if name == "max_tokens" else name): value for name, value in fields.items()}
    if "tools" in theirs:
        theirs["tools"] = [{"type": "function", **tool["function"]} for tool in theirs["tools"]]
    answer = http.post("/v1/responses", {"input": "Hi", **theirs}).json()
    assert shown_response(answer) == shown
    events = http.post("/v1/responses", {"input": "Hi", **theirs, "stream": True}).events()
    assert shown_response(built_up(events)) == shown
    theirs.pop("tools", None)
    if "tools" in fields:
        theirs["tools"] = [
            {"name": tool["function"]["name"], "input_schema": SCHEMAS[i]} for i, tool in enumerate(fields["tools"])
        ]
    stops = [fields["stop"]] if "stop" in fields else []
    asked_so = {"messages": MESSAGES, "max_tokens": fields.get("max_tokens", 500), "stop_sequences": stops}
    if "tools" in theirs:
        asked_so["tools"] = theirs["tools"]
    message = http.post("/v1/messages", asked_so).json()
    expected = (*shown[:2], [(name, loose(arguments)) for name, arguments in shown[2]], shown[3])
    assert shown_message(message) == expected
    assert shown_message(message_built_up(http.post("/v1/messages", {**asked_so, "stream": True}).events())) == expected
    assert (message["stop_reason"] == "tool_use") == (reason == "tool_calls")
    complete = [item["status"] == "completed" for item in answer["output"] if item["type"] == "function_call"]
    assert all(complete[:-1])
    if reason == "tool_calls":
        assert complete[-1] and all(isinstance(json.loads(arguments), dict) for _, arguments in shown[2])
    if complete and reason == "stop":
        assert not complete[-1], "the finish reason shows that a call was cut short"


def test_the_items_of_an_answer_are_the_messages_of_the_next_request() -> None:
    """What a client sends back is what the chat endpoint's client would have sent."""
    reply = "<think>\nLong.\n</think>\n\nLet me see.\n" + CALLS[0] + "\n" + CALLS[1]
    http = asked(reply, ThinkingTokenizer())
    tools = [{"type": "function", **tool["function"]} for tool in (WEATHER, CLOCK)]
    output = http.post("/v1/responses", {"input": "Hi", "tools": tools}).json()["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "function_call", "function_call"]
    results = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": f"r{index}"}
        for index, item in enumerate(output[2:])
    ]
    answer = http.post(
        "/v1/responses", {"input": [{"role": "user", "content": "Hi"}, *output, *results], "tools": tools}
    )
    message = http.chat(tools=[WEATHER, CLOCK]).json()["choices"][0]["message"]
    for index, call in enumerate(message["tool_calls"]):
        call["id"] = output[2 + index]["call_id"]
    again = [{"role": "user", "content": "Hi"}, message] + [
        {"role": "tool", "tool_call_id": result["call_id"], "content": result["output"]} for result in results
    ]
    chat = http.post("/v1/chat/completions", {"messages": again, "tools": [WEATHER, CLOCK]})
    assert answer.status == chat.status == 200
    seen = http.engine.engine
    assert seen.chats[1] == seen.chats[3] and seen.tools[1] == seen.tools[3]


def test_a_template_sees_the_same_tools_whoever_describes_them() -> None:
    http = asked("Hm", CharTokenizer())
    function = {"name": "f", "description": "It is.", "parameters": {"type": "object", "properties": {"a": {}}}}
    bare = {"name": "g", "parameters": {"type": "object"}}
    named = [{"type": "function", "function": found} for found in (function, bare)]
    theirs = [
        {"name": found["name"], "input_schema": found["parameters"]}
        | ({"description": found["description"]} if "description" in found else {})
        for found in (function, bare)
    ]
    assert http.chat(tools=named).status == 200
    flat = [{"type": "function", **found} for found in (function, bare)]
    assert http.post("/v1/responses", {"input": "Hi", "tools": flat}).status == 200
    assert http.post("/v1/messages", {"messages": MESSAGES, "max_tokens": 5, "tools": theirs}).status == 200
    seen = http.engine.engine
    assert seen.tools[0] == seen.tools[1] == seen.tools[2] == named
    assert seen.chats[0] == seen.chats[1] == seen.chats[2]
