"""What a server should expect to be sent, and what it must answer. Cases as data: each is tried on a fake and on the
real engine (`bad_constraints` on the real one only)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

JSON = {"content-type": "application/json"}
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
PROMPT: dict[str, Any] = {"prompt": "Hi", "max_tokens": 4}


@dataclass(frozen=True)
class Case:
    """`status`: the only right answer; `param`: the field that the error names (None: any)."""

    name: str
    path: str
    body: bytes
    status: int
    param: str | None = None
    code: str | None = None
    headers: dict[str, str] = field(default_factory=lambda: dict(JSON))


def chat(name: str, status: int, param: str | None = None, code: str | None = None, **fields: Any) -> Case:
    return Case(name, CHAT, json.dumps({**HI, **fields}).encode(), status, param, code)


def text(name: str, status: int, param: str | None = None, code: str | None = None, **fields: Any) -> Case:
    return Case(name, TEXT, json.dumps({**PROMPT, **fields}).encode(), status, param, code)


def raw(name: str, body: bytes, status: int, code: str | None = None, **headers: str) -> Case:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Case(name, CHAT, body, status, None, code, {**JSON, **named})


def one_field(name: str, value: str, status: int = 400) -> Case:
    """A body with one field spelt out as JSON text."""
    return Case(f"{name}={value[:30]}", CHAT, json.dumps(HI)[:-1].encode() + f', "{name}": {value}}}'.encode(), status)


def messages(name: str, value: Any, param: str, status: int = 400) -> Case:
    return chat(f"messages: {name}", status, param, messages=value)


def user(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


BODIES = [
    raw("empty body", b"", 400, "invalid_json"),
    raw("white space", b" \n", 400, "invalid_json"),
    raw("not JSON", b"model=nano", 400, "invalid_json"),
    raw("cut JSON", json.dumps(HI).encode()[:-5], 400, "invalid_json"),
    raw("array", b"[]", 400, "invalid_json"),
    raw("null", b"null", 400, "invalid_json"),
    raw("text", b'"Hi"', 400, "invalid_json"),
    raw("10 MB", b'{"messages": "' + b"x" * 10_000_000 + b'"}', 413, "body_too_large"),
    raw("just too large", b" " * ((1 << 20) + 1), 413, "body_too_large"),
    raw("100,000 deep", b"[" * 100_000 + b"]" * 100_000, 400, "invalid_json"),
    raw("objects 150 deep", b'{"a":' * 150 + b"1" + b"}" * 150, 400, "invalid_json"),
    raw("form", b"model=nano", 415, "unsupported_content_type", content_type="application/x-www-form-urlencoded"),
    raw("no type", json.dumps(HI).encode(), 415, "unsupported_content_type", content_type=""),
    raw("text type", json.dumps(HI).encode(), 415, "unsupported_content_type", content_type="text/plain"),
    raw("charset", json.dumps(HI).encode(), 200, content_type="application/json; charset=utf-8"),
    raw("gzip bomb", b"\x1f\x8b" + b"\0" * 1000, 415, "unsupported_content_encoding", content_encoding="gzip"),
    raw("lying length", json.dumps(HI).encode(), 413, "body_too_large", content_length="99999999"),
    raw("bad UTF-8", b'{"messages": "\xff"}', 400, "invalid_json"),
    raw("lone surrogate", b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 400, "invalid_json"),
    raw("duplicate keys", json.dumps(HI)[:-1].encode() + b', "n": 99, "n": 1}', 200),
    raw("no messages", b"{}", 400, "missing_required_parameter"),
    *(
        chat(f"{name} of another server", 400, name, **{name: value})
        for name, value in {
            "max_new_tokens": 3,
            "prompt_logprobs": 0,
            "skip_special_tokens": False,
            "stop_regex": "l+",
            "truncate_prompt_tokens": 3,
            "use_beam_search": True,
            "documents": [{"text": "x"}],
            "chat_template": "{{ messages }}",
            "enable_thinking": False,
            "grammar": 'root ::= "x"',
            "include_reasoning": False,
            "separate_reasoning": False,
            "typical_p": 0.5,
            "mirostat": 2,
            "xtc_probability": 0.1,
            "audio": {"voice": "alloy"},
        }.items()
    ),
    chat(
        "fields of another server that ask for nothing",
        200,
        bad_words=[],
        use_beam_search=False,
        length_penalty=1.0,
        skip_special_tokens=True,
        stop_regex=None,
        prompt_logprobs=None,
        reasoning_effort="low",
        typical_p=1.0,
        mirostat=0,
        separate_reasoning=True,
    ),
    text("a position without log-probabilities", 400, "logprob_start_len", logprob_start_len=1),
    text("scores of a prompt on a stream", 400, "logprob_start_len", logprob_start_len=1, logprobs=1, stream=True),
    text("a position before the prompt", 400, "logprob_start_len", logprob_start_len=-1, logprobs=1),
    text("a blank bad word", 400, "bad_words[0]", bad_words=[" "]),
    text("too small a budget of keys", 400, "kv_budget", kv_budget=63),
    text("an unknown choice of keys", 400, "kv_policy", kv_policy="best"),
    text("past the context without a budget", 400, "beyond_context", beyond_context=True, max_tokens=9),
    text("bad words with a constraint", 400, "bad_words", "conflicting_constraints", bad_words=["x"], regex="y"),
    text("no token is allowed", 400, "allowed_token_ids", allowed_token_ids=[]),
    text("a token that is not there", 400, "allowed_token_ids", allowed_token_ids=[10**9]),
    chat("verbosity", 400, "verbosity", verbosity="low"),
    raw("unknown fields", json.dumps({**HI, "user": "u", "metadata": {}, "store": True, "zzz": [1]}).encode(), 200),
    chat(
        "fields that say which user asks and what for",
        200,
        user="u",
        safety_identifier="s",
        prompt_cache_key="k",
        prompt_cache_retention="24h",
        service_tier="flex",
        parallel_tool_calls=False,
        verbosity="medium",
    ),
]
NUMBERS = [
    *(one_field("temperature", value) for value in ("NaN", "Infinity", "1e999", "-1", "2.1", '"1"', "[]", "true")),
    *(one_field("top_p", value) for value in ("0", "1.5", "-0.1", '"x"')),
    *(one_field("top_k", value) for value in ("-2", "1.5", "1e3", "99999999999")),
    *(one_field("min_p", value) for value in ("-0.1", "1.1")),
    *(one_field("max_completion_tokens", value) for value in ("3", "-1", "0")),
    *(one_field("max_tokens", value) for value in ("0", "-1", '"5"', "1.5", str(2**63), "1000000000", "{}")),
    *(one_field("n", value) for value in ("0", "129", "1000000", "-1", '"2"')),
    *(one_field("top_logprobs", value) for value in ("3", "21", "1000000")),
    *(one_field("logprobs", value) for value in ("5", '"true"')),
    *(one_field("seed", value) for value in (str(2**64), "1.5", '"x"')),
    one_field("seed", str(-(2**63)), 200),
    one_field("seed", "1" * 400),
    *(one_field("presence_penalty", value) for value in ("3", "-3", "1e999")),
    *(one_field("frequency_penalty", value) for value in ("2.5",)),
    *(one_field("repetition_penalty", value) for value in ("0", "-1")),
    *(one_field("best_of", value) for value in ("2", "100")),
    *(one_field("stream", value) for value in ('"true"', "1")),
    *(one_field("priority", value) for value in ('"high"', str(2**40))),
    chat("top_logprobs 21 with logprobs", 400, "top_logprobs", logprobs=True, top_logprobs=21),
    text("logprobs 21", 400, "logprobs", logprobs=21),
    text("logprobs true", 400, "logprobs", logprobs=True),
    text("max_tokens -1", 400, "max_tokens", max_tokens=-1),
]
LISTS = [
    *(
        chat(f"stop {str(value)[:20]}", 400, "stop", stop=value)
        for value in ("", [""], ["x"] * 1000, "x" * 10**6, [1], {})
    ),
    chat("stop, 16 strings", 200, stop=[f"stop {i}" for i in range(16)]),
    *(
        chat(f"logit_bias {str(value)[:20]}", 400, "logit_bias", logit_bias=value)
        for value in ({"999999": 1}, {"-1": 1}, {"x": 1}, {"1": 101}, {"1": "a"}, {"1": None}, [], {"1.5": 1}, {"²": 1})
    ),
    chat("logit_bias, 100,000 entries", 400, "logit_bias", logit_bias={str(i): 1 for i in range(50_000)}),
    one_field("logit_bias", '{"1": NaN}'),
    one_field("logit_bias", '{"1": 1e999}'),
    chat("stop_token_ids", 400, "stop_token_ids", stop_token_ids=[10**6]),
    chat("stop_token_ids", 400, "stop_token_ids", stop_token_ids=[-1]),
]
MESSAGES = [
    messages("none", [], "messages"),
    messages("not a list", "Hi", "messages"),
    messages("not objects", ["Hi"], "messages[0]"),
    messages("unknown role", [{"role": "wizard", "content": "Hi"}], "messages[0].role"),
    messages("no role", [{"content": "Hi"}], "messages[0].role"),
    messages("null content", user(None), "messages[0]"),
    messages("no content", [{"role": "user"}], "messages[0]"),
    messages("number", user(5), "messages[0].content"),
    messages("an image", user([{"type": "image_url", "image_url": {"url": "http://x"}}]), "messages[0].content"),
    messages("a part without text", user([{"type": "text"}]), "messages[0].content"),
    messages("odd parts", user([5, None]), "messages[0].content"),
    messages("second is wrong", [*user("Hi"), {"role": "x", "content": ""}], "messages[1].role"),
    messages("too long", user("word " * 40_000), "messages"),
    chat("prompt and budget too long", 400, "messages", "context_length_exceeded", max_tokens=10**6),
    chat("template", 400, "chat_template", chat_template="{{ 1/0 }}"),
    chat("template fields", 200, chat_template_kwargs={"tokenize": True, "__class__": 1}),
    chat("unknown model", 404, "model", "model_not_found", model="gpt-4"),
    chat("path as model", 404, "model", "model_not_found", model="../../etc/passwd"),
    chat("empty model", 404, "model", "model_not_found", model=""),
    chat("number as model", 400, "model", model=5),
    chat("audio", 400, modalities=["audio"]),
    chat("functions", 400, functions=[{"name": "f"}]),
    chat("stream_options without stream", 400, "stream_options", stream_options={"include_usage": True}),
]
TEXTS = {
    "NUL": "a\0b",
    "BOM": "\ufeffa",
    "right to left": "שלום \u202e abc",
    "ZWJ": "👩‍👩‍👧‍👦 🏳️‍🌈",
    "special tokens": "<|im_end|><|eot_id|></s><|end|>",
    "empty": "",
}
STRANGE_TEXT = [messages(name, user(content), "", 200) for name, content in TEXTS.items()]
PROMPTS = [
    *(
        text(f"prompt {str(value)[:20]}", 400, "prompt", prompt=value)
        for value in ("", [], [""], ["a", ""], [[]], 5, {}, [1, "a"], ["a", 1], [1.5], [True], [10**6], [-1], [2**40])
    ),
    text("prompt null", 400, "prompt", "missing_required_parameter", prompt=None),
    text("too long", 400, "prompt", "context_length_exceeded", prompt="word " * 40_000),
    text("too many prompts", 400, "prompt", prompt=["a"] * 1025),
    text("too many outputs", 400, "prompt", prompt=["a"] * 9, n=128),
    text("suffix", 400, suffix="x"),
    text("echo on a stream", 400, echo=True, logprobs=1, stream=True),
]
SALTS = [
    chat(f"cache_salt {str(value)[:10]!r}", 400, "cache_salt", cache_salt=value)
    for value in ("", "x" * 129, "ü", "a\nb", 5, [])
]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def schema_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


DOCUMENT: dict[str, Any] = {"http://a.test/x": {}}


def formatted(name: str, param: str, **fields: Any) -> Case:
    """A `response_format` of these fields, which is wrong at `param`."""
    return chat(name, 400, f"response_format{param}", response_format=fields)


CONSTRAINTS = [
    chat("two constraints", 400, code="conflicting_constraints", regex="a", response_format={"type": "json_object"}),
    chat("guided and structured", 400, guided_regex="a", structured_outputs={"regex": "a"}),
    chat("two in structured_outputs", 400, structured_outputs={"regex": "a", "choice": ["a"]}),
    chat("none in structured_outputs", 400, "structured_outputs", structured_outputs={}),
    chat("structural tag that is a number", 400, structured_outputs={"structural_tag": 5}),
    chat("white space pattern", 400, guided_json=SCHEMA, guided_whitespace_pattern=" *"),
    formatted("unknown format", ".type", type="xml"),
    formatted("no format type", ".type"),
    chat("format as text", 400, "response_format", response_format="json"),
    formatted("json_schema without schema", ".json_schema", type="json_schema"),
    formatted("unknown reading of extra keys", ".extra_keys", **schema_format({}), extra_keys="no"),
    formatted("unknown white space", ".whitespace", **schema_format({}), whitespace="tabs"),
    formatted("schema as list", ".json_schema.schema", **schema_format([])),
    chat("schema as number", 400, "guided_json", "invalid_type", guided_json=5),
    chat("schema as text that is no JSON", 400, "guided_json", guided_json="{"),
    chat("no choices", 400, "guided_choice", guided_choice=[]),
    chat("number as choice", 400, "guided_choice[0]", guided_choice=[1]),
    chat("number as regex", 400, "regex", regex=5),
    chat("resources without a schema", 400, "resources", regex="a", resources=DOCUMENT),
    formatted("resources in it", ".json_schema.resources", type="json_schema", json_schema={"resources": DOCUMENT}),
    formatted("resources of text", ".resources", type="text", resources=DOCUMENT),
    chat("without json", 400, "structured_outputs.resources", structured_outputs={"regex": "a", "resources": DOCUMENT}),
    formatted(
        "resource as number", ".resources.http://a.test/x", **schema_format({}), resources={"http://a.test/x": 1}
    ),
    chat("resource of a fragment", 400, "resources", guided_json={}, resources={"http://a.test/x#b": {}}),
]


def tools(*names: Any) -> list[Any]:
    return [{"type": "function", "function": {"name": name}} for name in names]


TOOLS = [
    chat("duplicate tools", 400, tools=tools("a", "a")),
    chat("bad name", 400, "tools[0].function.name", tools=tools("a b")),
    chat("empty name", 400, "tools[0].function.name", tools=tools("")),
    chat("500 tools", 400, "tools", tools=tools(*(f"t{i}" for i in range(500)))),
    chat("tool of unknown type", 400, "tools[0].type", tools=[{"type": "retrieval"}]),
    chat("tool_choice names none", 400, tools=tools("a"), tool_choice={"type": "function", "function": {"name": "b"}}),
    chat("tool_choice without tools", 400, tool_choice="required"),
    chat("tool_choice unknown", 400, "tool_choice", tools=tools("a"), tool_choice="always"),
    chat("tool_choice odd", 400, "tool_choice", tools=tools("a"), tool_choice={"type": "function"}),
    chat("tool and pattern", 400, tools=tools("a"), tool_choice="required", regex="a"),
]


def vector(name: str, path: str, status: int, param: str | None = None, code: str | None = None, **fields: Any) -> Case:
    return Case(f"{path} {name}", path, json.dumps(fields).encode(), status, param, code)


def embedding(name: str, status: int, param: str | None = None, code: str | None = None, **fields: Any) -> Case:
    return vector(name, "/v1/embeddings", status, param, code, **{"input": "Hi", **fields})


VECTORS = [
    *(
        embedding(f"input {json.dumps(value)[:30]}", 200, input=value)
        for value in ("Hi", ["Hi", "you"], [1, 2], [[1, 2], [3]], "x" * 1500)
    ),
    *(
        embedding(f"input {json.dumps(value)[:30]}", 400, "input", input=value)
        for value in ("", [], [""], [[]], ["a", ""], ["a", 1], [1, "a"], ["a", [1]], [1.5], [True], [[1, "a"]], {}, 5)
    ),
    embedding("no input", 400, "input", "missing_required_parameter", input=None),
    embedding("negative id", 400, "input", input=[-1]),
    embedding("id out of the vocabulary", 400, "input", "invalid_value", input=[[1], [10**6]]),
    embedding("too long", 400, "input[1]", "context_length_exceeded", input=[[1], [1] * 5000]),
    embedding("too many", 400, "input", "invalid_value", input=["a"] * 1025),
    *(
        embedding(f"dimensions {value}", 400, "dimensions", dimensions=value)
        for value in (0, -1, 10**6, 1.5, "8", True)
    ),
    embedding("few dimensions", 200, dimensions=3),
    *(
        embedding(f"format {value}", 400, "encoding_format", encoding_format=value)
        for value in ("int8", "", 5, ["float"])
    ),
    embedding("format", 200, encoding_format="base64", user="me", cache_salt="a", priority=2),
    *(
        embedding(f"unknown option {name}", 400, name, "invalid_value", **{name: value})
        for name, value in {"truncate_prompt_tokens": 5, "task": "x", "normalize": False, "wings": 2}.items()
    ),
    embedding("unknown option that says nothing", 200, wings=None),
    embedding("model of another type", 400, "model", "invalid_type", model=5),
    embedding("unknown model", 404, "model", "model_not_found", model="bert"),
    *(
        vector(f"{name} {value!r}"[:60], "/rerank", 400, name, **{"query": "a", "documents": ["b"], name: value})
        for name, value in [
            *(("query", value) for value in ("", None, ["a"], 5)),
            *(
                ("documents", value)
                for value in ([], "b", None, [""], [5], [{"text": 5}], [{"title": "b"}], ["b", None])
            ),
            *(("top_n", value) for value in (0, -1, 1.5, "2")),
            ("return_documents", "yes"),
            ("instruction", "no reranker"),
            ("max_chunks_per_doc", 5),
        ]
    ),
    vector("as it should be", "/rerank", 200, query="a", documents=["b", {"text": "c"}], top_n=5),
    vector(
        "too long", "/v1/rerank", 400, "documents[1]", "context_length_exceeded", query="a", documents=["b", "é" * 9000]
    ),
    *(
        vector(f"{name} {value!r}"[:60], "/v1/score", 400, name, **{"text_1": "a", "text_2": ["b", "c"], name: value})
        for name, value in [
            *(("text_1", value) for value in ("", None, [], ["a"] * 3, [5], {})),
            *(("text_2", value) for value in ("", None, [], [""], [5], {})),
            ("queries", "a"),
        ]
    ),
    vector("as it should be", "/v1/score", 200, text_1=["a", "b"], text_2=["c", "d"]),
]
PROTOCOL_CASES = [
    *BODIES, *NUMBERS, *LISTS, *MESSAGES, *STRANGE_TEXT, *PROMPTS, *SALTS, *CONSTRAINTS, *TOOLS, *VECTORS
]  # fmt: skip
