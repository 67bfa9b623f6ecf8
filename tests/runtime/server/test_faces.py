"""One answer, four faces: chat and responses, whole and streamed, say the same, whatever the model wrote."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response

from phloem.runtime.server.think import BEGIN

from .fakes import CharTokenizer, FakeAsyncEngine, FakeTemplate
from .test_harmony import ANSWERS, HarmonyTokenizer
from .test_tools import CLOCK, WEATHER, hermes
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
    complete = [item["status"] == "completed" for item in answer["output"] if item["type"] == "function_call"]
    assert all(complete[:-1])
    if reason == "tool_calls":
        assert complete[-1] and all(isinstance(json.loads(arguments), dict) for _, arguments in shown[2])
    if complete and reason == "stop":
        assert not complete[-1], "the finish reason tells that a call was cut short"


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
    assert http.engine.engine.chats[1] == http.engine.engine.chats[3]
