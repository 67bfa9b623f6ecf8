"""Chat completions: shapes of answers and chunks, usage, log-probabilities, tools."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from phloem.errors import PromptTooLong, QueueFull, RequestError
from phloem.runtime.constrain.spec import ConstraintSpec

from .fakes import FakeAsyncEngine
from .wire import client


def test_an_answer_has_openais_shape() -> None:
    answer = client().chat("Hi", temperature=0, max_tokens=50)
    assert answer.status == 200
    body = answer.json()
    assert body["object"] == "chat.completion" and body["model"] == "fake" and body["id"].startswith("chatcmpl-")
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello wörld", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    usage = body["usage"]
    assert usage["prompt_tokens"] == len("<user>Hi<assistant>") and usage["completion_tokens"] == 13
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] // 2
    assert usage["completion_tokens_details"]["jumped_tokens"] == 0


@pytest.mark.parametrize("default", ["never", "schema"])
def test_a_schema_is_laid_out_as_asked_and_closed_unless_the_server_says_otherwise(default: str) -> None:
    asked = client(extra_keys=default)
    for ours, wanted in [
        ({"strict": True}, (None, "never")),
        ({"strict": False}, (None, default)),
        ({"strict": False, "extra_keys": "schema"}, (None, "schema")),
        ({"strict": True, "extra_keys": "schema", "whitespace": "flexible"}, ("flexible", "schema")),
    ]:
        outside = {name: value for name, value in ours.items() if name != "strict"}
        nested = {"name": "x", "strict": ours["strict"], "schema": {"type": "object"}}
        asked.chat(response_format={"type": "json_schema", "json_schema": nested, **outside})
        spec = asked.engine.calls[-1]["constraint"]
        assert (spec.whitespace, spec.extra_keys) == wanted
    asked.chat(response_format={"type": "json_object", "whitespace": "spaced"})
    assert asked.engine.calls[-1]["constraint"].whitespace == "spaced"


def test_the_budget_ends_an_answer_with_length() -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        choice = client().chat(**{name: 5}).json()["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("Hello", "length")


def test_logprobs_name_tokens_bytes_and_alternatives() -> None:
    body = client().chat(logprobs=True, top_logprobs=2).json()
    content = body["choices"][0]["logprobs"]["content"]
    assert bytes(byte for entry in content for byte in entry["bytes"]).decode() == "Hello wörld"
    assert content[0]["logprob"] == -9999.0 and content[1]["logprob"] == -0.5
    assert [entry["logprob"] for entry in content[1]["top_logprobs"]] == [-1.0, -2.0]


@pytest.mark.parametrize(
    ("fields", "seen"),
    [
        ({}, {"max_tokens": None, "kv_budget": None, "kv_policy": "snapkv"}),
        ({"temperature": 0.5, "top_p": 0.9, "top_k": 5, "seed": 7, "presence_penalty": 1.0}, {}),
        ({"stop": ["x"], "logit_bias": {"65": 3}}, {"stop": ("x",), "logit_bias": {65: 3.0}}),
        ({"allowed_token_ids": [97, 98], "bad_words": ["ab"]}, {"allowed_token_ids": (97, 98), "bad_words": ("ab",)}),
        ({"kv_budget": 64, "kv_policy": "sinks", "beyond_context": True, "max_tokens": 10**6}, {}),
    ],
    ids=lambda value: "+".join(value),
)
def test_fields_reach_the_engine(fields: dict[str, Any], seen: dict[str, Any]) -> None:
    """As they were sent, unless another form is named."""
    asked = client()
    assert asked.chat(**fields).status == 200
    sampling = asked.engine.calls[0]["sampling"]
    assert {name: getattr(sampling, name) for name in fields | seen} == fields | seen


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("refusal", "status", "code"),
    [
        (PromptTooLong("prompt: 9 tokens do not fit 8", param="prompt"), 400, "context_length_exceeded"),
        (QueueFull("8 requests are waiting"), 429, "rate_limit_exceeded"),
        (RequestError("max_tokens: too few", param="max_tokens"), 400, "invalid_value"),
        (RequestError("the step failed: secret"), 500, "internal_error"),
        (ZeroDivisionError("secret"), 500, "internal_error"),
    ],
)
def test_a_refused_request_gets_a_status_even_if_streamed(
    refusal: Exception, status: int, code: str, streamed: bool
) -> None:
    answer = client(FakeAsyncEngine(refusal=refusal)).chat(stream=streamed)
    assert (answer.status, answer.error["code"]) == (status, code)
    assert "secret" not in answer.error["message"]
    assert ("retry-after" in answer.headers) == (status == 429)
    assert "x-request-id" in answer.headers


def test_a_failure_in_mid_stream_is_an_error_frame() -> None:
    answer = client(FakeAsyncEngine(failure=RequestError("the step failed: secret"))).chat(stream=True)
    events = answer.events()
    assert answer.status == 200 and events[-1] == "[DONE]"
    assert events[-2]["error"]["type"] == "server_error" and "secret" not in events[-2]["error"]["message"]


def test_template_options_are_those_that_the_template_reads() -> None:
    asked = client()
    options = {"enable_thinking": False, "tokenize": True, "__class__": 1}
    assert asked.chat(chat_template_kwargs=options).status == 200
    refused = asked.chat(chat_template="{{ 1 / 0 }}")
    assert (refused.status, refused.error["param"]) == (400, "chat_template")
    assert asked.engine.calls[0]["prompt"] == "<user>Hi<enable_thinking=False><assistant>"


def test_the_servers_defaults_hold_where_a_request_says_nothing() -> None:
    defaults = {"temperature": 0.6, "top_k": 20}
    asked = client(sampling_defaults=defaults)
    asked.chat()
    asked.chat(temperature=None, top_k=5)
    asked.chat(temperature=1.0)
    asked.complete("Hi")
    found = [(call["sampling"].temperature, call["sampling"].top_k) for call in asked.engine.calls]
    assert found == [(0.6, 20), (0.6, 5), (1.0, 20), (0.6, 20)]
    assert asked.post("/v1/responses", {"input": "Hi"}).json()["temperature"] == 0.6
    assert asked.engine.calls[-1]["sampling"].top_k == 20


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
OLDER_TAG = {"structures": [{"begin": "", "schema": SCHEMA, "end": ""}], "triggers": [""]}
SPELLINGS: list[dict[str, Any]] = [
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
    {"response_format": {"type": "json_object", "schema": SCHEMA}},
    {"json_schema": SCHEMA},
    {"json_schema": json.dumps(SCHEMA)},
    {"guided_json": SCHEMA},
    {"structured_outputs": {"json": SCHEMA}},
    {"structural_tag": {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": SCHEMA}}},
    {"structural_tag": json.dumps(OLDER_TAG)},
    {"structured_outputs": {"structural_tag": json.dumps(OLDER_TAG)}},
    {"response_format": {"type": "structural_tag", **OLDER_TAG}},
    {
        "response_format": {
            "type": "structural_tag",
            "format": {"type": "or", "elements": [{"type": "json_schema", "json_schema": SCHEMA}]},
        }
    },
]


def extra_keys_of(spec: ConstraintSpec) -> str:
    """What the constraint says of other keys."""
    if spec.kind == "json_schema":
        return spec.extra_keys
    [said] = re.findall(r'"extra_keys": "(\w+)"', str(spec.source))
    return str(said)


@pytest.mark.parametrize("fields", SPELLINGS, ids=lambda fields: "+".join(fields))
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_every_spelling_of_a_schema_has_the_servers_default(path: str, fields: dict[str, Any]) -> None:
    prompt = {"prompt": "Hi"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "Hi"}]}
    for settings, wanted in (({}, "never"), ({"extra_keys": "schema"}, "schema")):
        asked = client(**settings)
        assert asked.post(path, prompt | fields).status == 200
        assert extra_keys_of(asked.engine.calls[-1]["constraint"]) == wanted


DOCUMENTS = {"http://a.test/x": SCHEMA}
REFERRING = {"$ref": "http://a.test/x#"}
NESTED_FORMAT = {"type": "json_schema", "json_schema": {"schema": REFERRING}}
REFERRING_FORMAT = {"type": "json_schema", "schema": REFERRING, "resources": DOCUMENTS}
CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (CHAT, {"response_format": {**NESTED_FORMAT, "resources": DOCUMENTS}}),
        (CHAT, {"json_schema": REFERRING, "resources": DOCUMENTS}),
        (CHAT, {"guided_json": json.dumps(REFERRING), "resources": DOCUMENTS}),
        (CHAT, {"structured_outputs": {"json": REFERRING, "resources": DOCUMENTS}}),
        ("/v1/responses", {"input": "Hi", "text": {"format": REFERRING_FORMAT}}),
        ("/v1/messages", {"max_tokens": 9, "output_config": {"format": REFERRING_FORMAT}}),
    ],
)
def test_a_request_brings_the_documents_that_its_schema_refers_to(path: str, fields: dict[str, Any]) -> None:
    asked = client()
    messages = {"messages": [{"role": "user", "content": "Hi"}]} if "input" not in fields else {}
    assert asked.post(path, messages | fields).status == 200
    assert json.loads(asked.engine.calls[-1]["constraint"].resources) == DOCUMENTS


def test_a_structural_tag_keeps_what_it_says_itself_and_its_schemas_are_left_alone() -> None:
    odd = {"type": "object", "properties": {"json_schema": {"const": {"begin": "", "schema": 1}}}}
    form = {"type": "json_schema", "json_schema": odd, "extra_keys": "schema"}
    asked = client()
    assert asked.chat(structural_tag={"type": "structural_tag", "format": form}).status == 200
    assert json.loads(asked.engine.calls[-1]["constraint"].source)["format"] == form


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ({"content": None, "refusal": "I cannot."}, "I cannot."),
        ({"content": None, "refusal": None}, ""),
        ({"content": "So.", "refusal": None, "annotations": [], "audio": None, "function_call": None}, "So."),
        ({"content": [{"type": "refusal", "refusal": "I can"}, {"type": "text", "text": "not."}]}, "I cannot."),
        ({"content": None, "reasoning_content": "Hm."}, ""),
    ],
    ids=["refusal", "nothing", "all fields", "parts", "thought"],
)
def test_what_a_client_got_may_be_sent_back(message: dict[str, Any], shown: str) -> None:
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", **message}, {"role": "user", "content": "So?"}]
    asked = client()
    assert asked.post("/v1/chat/completions", {"messages": history}).status == 200
    assert asked.engine.calls[-1]["prompt"] == f"<user>Hi<assistant>{shown}<user>So?<assistant>"
    assert asked.post("/v1/responses", {"input": history}).status == 200
    assert asked.engine.calls[-1]["prompt"] == f"<user>Hi<assistant>{shown}<user>So?<assistant>"


def test_an_answer_of_nothing_may_be_sent_back_in_anthropics_words() -> None:
    asked = client(FakeAsyncEngine(reply=""))
    body = {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    said = asked.post("/v1/messages", body).json()["content"]
    again = [*body["messages"], {"role": "assistant", "content": said}, {"role": "user", "content": "So?"}]  # type: ignore[misc]
    assert asked.post("/v1/messages", {**body, "messages": again}).status == 200
    assert asked.engine.calls[-1]["prompt"] == "<user>Hi<assistant><user>So?<assistant>"
    empty = {**body, "messages": [{"role": "user", "content": []}]}
    assert asked.post("/v1/messages", empty).status == 400
