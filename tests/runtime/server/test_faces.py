"""One answer in eight forms: chats, completions, responses and messages, whole and streamed, agree, whatever the model
wrote and however it came."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response
from pydantic_core import from_json

from phloem.runtime.server.formats.call_formats import CALL_FORMATS

from .fakes import CharTokenizer, FakeAsyncEngine
from .samples import CLOCK, WEATHER, WRITTEN
from .test_harmony import HarmonyTokenizer
from .test_readers import EXPECTED, PARTS
from .test_thoughts import ThinkTokenizer
from .wire import Client, client

REPLIES = st.one_of(
    st.lists(st.sampled_from([*PARTS, "Let me see. ", "<think>\nLong.\n</think>\n\n"]), max_size=6).map("".join),
    st.sampled_from([text for _, text, _ in EXPECTED]),
)
SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=4)  # tokens that come at a time
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


TOKENIZERS = st.sampled_from([CharTokenizer, ThinkTokenizer, HarmonyTokenizer])


def asked(reply: str, tokenizer: CharTokenizer, sizes: Sequence[int] = (1,), calls: str = "hermes") -> Client:
    engine = FakeAsyncEngine(reply=reply, sizes=sizes)
    engine.engine.tokenizer = tokenizer
    return client(engine, tool_call_format=calls)


def built_up_chat(events: list[Any]) -> dict[str, Any]:
    """The body that a client puts together from the chunks of a chat or a completion."""
    assert events.pop() == "[DONE]"
    body: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for event in events:
        assert event["object"] in ("chat.completion.chunk", "text_completion") and event["id"] == events[0]["id"]
        body |= {name: value for name, value in event.items() if name != "choices"}
        for chunk in event["choices"]:
            found = choices.setdefault(chunk["index"], {"index": chunk["index"], "logprobs": None})
            assert not found.get("finish_reason"), "nothing follows the finish reason"
            found["finish_reason"] = chunk["finish_reason"]
            found |= {name: chunk[name] for name in ("stop_reason", "prompt_token_ids") if name in chunk}
            if "token_ids" in chunk:
                found["token_ids"] = found.get("token_ids", []) + chunk["token_ids"]
            if chunk["logprobs"] is not None:
                before = found["logprobs"] or {}
                lists = {name: value for name, value in chunk["logprobs"].items() if value is not None}
                found["logprobs"] = chunk["logprobs"] | {name: before.get(name, []) + lists[name] for name in lists}
            if "text" in chunk:
                found["text"] = found.get("text", "") + chunk["text"]
            else:
                add_to(found.setdefault("message", {"role": "", "content": None}), chunk["delta"])
    return body | {"choices": [choices[index] for index in sorted(choices)]}


def add_to(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        if name == "tool_calls":
            calls = message.setdefault("tool_calls", [])
            for part in value:
                if "id" in part:
                    assert part["index"] == len(calls)
                    calls.append({"id": part["id"], "type": part["type"], "function": {**part["function"]}})
                else:
                    calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
        elif name in ("content", "reasoning_content"):
            message[name] = (message.get(name) or "") + value if value is not None else message.get(name)
        else:
            message[name] = value


def shown_chat(body: dict[str, Any], index: int = 0) -> tuple[Shown, str]:
    choice = body["choices"][index]
    message = choice["message"]
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", [])]
    shown = message.get("reasoning_content", ""), message["content"] or "", calls, choice["finish_reason"] == "length"
    return shown, choice["finish_reason"]


def same(body: dict[str, Any]) -> dict[str, Any]:
    """Without what is new in every answer, or says that it is a stream."""
    text = json.dumps({**body, "id": 0, "created": 0, "object": body["object"].removesuffix(".chunk")})
    kept = json.loads(text)
    for choice in kept["choices"]:
        if "message" in choice:
            choice["message"]["content"] = choice["message"]["content"] or ""
            for call in choice["message"].get("tool_calls", []):
                assert call.pop("id").startswith("call_")
        if choice["logprobs"] == {"content": [], "refusal": None}:
            choice["logprobs"] = None
    return kept


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


@given(REPLIES, SIZES, FIELDS, TOKENIZERS, st.sampled_from(sorted(CALL_FORMATS)))
@settings(max_examples=120, deadline=None)
def test_all_faces_show_the_same(
    reply: str, sizes: list[int], fields: dict[str, Any], tokenizer: type[CharTokenizer], calls: str
) -> None:
    http = asked(reply, tokenizer(), sizes, calls)
    whole = http.chat(**fields).json()
    shown, reason = shown_chat(whole)
    assert shown_chat(built_up_chat(http.chat(**fields, stream=True).events())) == (shown, reason)
    theirs = {("max_output_tokens" if name == "max_tokens" else name): value for name, value in fields.items()}
    if "tools" in theirs:
        theirs["tools"] = [{"type": "function", **tool["function"]} for tool in theirs["tools"]]
    answer = http.post("/v1/responses", {"input": "Hi", **theirs}).json()
    assert shown_response(answer) == shown
    events = http.post("/v1/responses", {"input": "Hi", **theirs, "stream": True}).events()
    built = built_up(events)
    assert shown_response(built) == shown and built["usage"] == answer["usage"]
    num_reasoning = whole["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert answer["usage"]["output_tokens_details"]["reasoning_tokens"] == num_reasoning >= bool(shown[0])
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


@given(REPLIES, SIZES, FIELDS, TOKENIZERS, st.sampled_from([None, 0, 2]), st.integers(1, 3))
@settings(max_examples=80, deadline=None)
def test_a_stream_is_the_whole_answer_in_pieces(
    reply: str,
    sizes: list[int],
    fields: dict[str, Any],
    tokenizer: type[CharTokenizer],
    num_logprobs: int | None,
    n: int,
) -> None:
    """Field by field: texts, calls, tokens and their log-probabilities, what stopped them, usage."""
    http = asked(reply, tokenizer(), sizes)
    fields = {**fields, "n": n, "return_token_ids": True}
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    scored = {} if num_logprobs is None else {"logprobs": True, "top_logprobs": num_logprobs}
    whole = http.chat(**fields, **scored).json()
    assert same(whole) == same(built_up_chat(http.chat(**fields, **scored, **streamed).events()))
    assert whole["usage"]["completion_tokens"] == sum(len(choice["token_ids"]) for choice in whole["choices"])
    fields = {name: value for name, value in fields.items() if name != "tools"} | {"logprobs": num_logprobs}
    fields |= {"echo": num_logprobs is None}
    whole = http.complete(["Hi", "Ho"], **fields).json()
    assert same(whole) == same(built_up_chat(http.complete(["Hi", "Ho"], **fields, **streamed).events()))
    assert [bytes(choice["prompt_token_ids"]) for choice in whole["choices"]] == [b"Hi"] * n + [b"Ho"] * n
    assert whole["usage"]["completion_tokens"] == sum(len(choice["token_ids"]) for choice in whole["choices"])


def test_the_items_of_an_answer_are_the_messages_of_the_next_request() -> None:
    """What a client sends back is what the chat endpoint's client would have sent."""
    reply = "<think>\nLong.\n</think>\n\nLet me see.\n" + WRITTEN["hermes"][0] + "\n" + WRITTEN["hermes"][1]
    http = asked(reply, ThinkTokenizer())
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
