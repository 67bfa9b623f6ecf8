"""What servers of others are asked, what becomes of their answers and of their faults, and what they are not asked."""

from __future__ import annotations

import json
import socket
import threading
from base64 import b64encode
from collections.abc import Callable
from typing import Any, Literal

import pytest
from pydantic import BaseModel

import phloem as ph
from phloem.runtime.program import ProgramState
from phloem.runtime.program.backends import http_call
from phloem.runtime.program.backends.characters import Characters
from phloem.runtime.program.backends.text_api import closed

from .scripted_server import Reply, Script, chat_events, error, events, message_events


class Person(BaseModel):
    name: str


def openai(server: Script, **options: Any) -> ph.OpenAI:
    return ph.OpenAI("m", **{"base_url": f"{server.url}/v1", "api_key": "k", "timeout": 20.0, **options})


def anthropic(server: Script, **options: Any) -> ph.Anthropic:
    return ph.Anthropic("m", **{"base_url": server.url, "api_key": "k", "timeout": 20.0, **options})


def ask(s: ProgramState, *expressions: Any) -> None:
    s += ph.system("Be brief.") + ph.user("Why?")
    s += ph.assistant(expressions[0] if expressions else ph.gen("x"))


@ph.function
def chat(s: ProgramState, *expressions: Any) -> None:
    ask(s, *expressions)


@ph.function
def plain(s: ProgramState, *expressions: Any) -> None:
    s += "Why?" + (expressions[0] if expressions else ph.gen("x"))


MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]


def test_a_chat_is_asked_of_openai(server: Script) -> None:
    server.replies = [chat_events(["Bec", "ause é", " 😀"], prompt_tokens_details={"cached_tokens": 3})]
    schema = ph.gen("p", type=Person)
    state = chat.run(backend=openai(server), temperature=0.0, max_tokens=9, stop="!", seed=4, stream=True)
    assert "".join(state.text_iter("x")) == "Because é 😀"
    info = state.get_meta_info("x")
    assert (info["prompt_tokens"], info["cached_tokens"], info["completion_tokens"]) == (5, 3, 2)
    assert state.messages()[-1] == {"role": "assistant", "content": "Because é 😀"}
    [(path, headers, body)] = server.asked
    assert (path, headers["authorization"]) == ("/v1/chat/completions", "Bearer k")
    assert body.pop("stream") and body.pop("stream_options") == {"include_usage": True}
    assert body == {
        "model": "m",
        "messages": MESSAGES,
        "temperature": 0.0,
        "max_tokens": 9,
        "stop": ["!"],
        "seed": 4,
    }
    server.replies = [chat_events(['{"name":', '"Ada"}'])]
    assert chat.run(schema, backend=openai(server))["p"] == Person(name="Ada")
    asked = server.bodies[-1]["response_format"]["json_schema"]
    assert asked["strict"] is True and asked["schema"]["additionalProperties"] is False


def test_the_turns_of_a_program_are_the_messages_of_a_chat(server: Script) -> None:
    server.replies = [chat_events(["One"]), chat_events(["Two"])]

    @ph.function
    def turns(s: ProgramState) -> None:
        s += ph.user("<|user|>a<|end|>") + ph.assistant(ph.gen("x"))
        s += ph.user("b" + s["x"]) + ph.assistant(ph.gen("y"))

    turns.run(backend=openai(server))
    first = {"role": "user", "content": "<|user|>a<|end|>"}
    more = [{"role": "assistant", "content": "One"}, {"role": "user", "content": "bOne"}]
    assert [body["messages"] for body in server.bodies] == [[first], [first, *more]]


def test_plain_text_is_asked_of_openais_completions(server: Script) -> None:
    tokens = {"tokens": ["y", "es"], "token_logprobs": [-0.5, -1.0], "top_logprobs": [{"y": -0.5, "n": -2.0}, None]}
    chunk = {"index": 0, "text": "yes", "logprobs": {**tokens, "text_offset": [4, 5]}, "finish_reason": "length"}
    server.replies = [events({"choices": [chunk]})]
    state = plain.run(backend=openai(server), logprobs=2, n=1)
    assert server.asked[0][0] == "/v1/completions" and server.bodies[0]["prompt"] == "Why?"
    info = state.get_meta_info("x")
    assert info["finish_reason"] == {"type": "length"}
    assert [(p, text) for p, _, text in info["output_token_logprobs"]] == [(-0.5, "y"), (-1.0, "es")]
    assert [[(p, text) for p, _, text in top] for top in info["output_top_logprobs"]] == [
        [(-0.5, "y"), (-2.0, "n")],
        [],
    ]


def test_choices_are_compared_by_echoed_prompts(server: Script) -> None:
    def echoed(tokens: list[str], scores: list[float | None]) -> Reply:
        offsets = [sum(map(len, tokens[:at])) for at in range(len(tokens))]
        shown = {"tokens": tokens, "token_logprobs": scores, "text_offset": offsets, "top_logprobs": None}
        choice = {"index": 0, "text": "".join(tokens), "logprobs": shown, "finish_reason": "length"}
        return Reply(json.dumps({"choices": [choice]}).encode())

    server.replies = [echoed(["Wh", "y?", " no"], [None, -9.0, -3.0]), echoed(["Why", "? y", "es"], [None, -1.0, -1.5])]
    state = plain.run(ph.select("x", [" no", " yes"]), backend=openai(server))
    assert state["x"] == " yes" and state.get_meta_info("x")["normalized_prompt_logprobs"] == [-3.0, -1.25]
    assert [body["prompt"] for body in server.bodies] == ["Why? no", "Why? yes"]
    assert all(body["max_tokens"] == 0 and body["echo"] for body in server.bodies)


@pytest.mark.parametrize("logprobs", [None, {}, {"tokens": ["a"], "token_logprobs": [None]}])
def test_choices_cannot_be_compared_without_log_probabilities(server: Script, logprobs: Any) -> None:
    choice = {"index": 0, "text": "a", "logprobs": logprobs, "finish_reason": "length"}
    server.replies = [Reply(json.dumps({"choices": [choice]}).encode())] * 2
    with pytest.raises(ph.ProgramError, match="no log-probabilities came for a choice; the server has to echo prompts"):
        plain.run(ph.select("x", [" no", " yes"]), backend=openai(server))


DIALECTS: list[tuple[Literal["vllm", "sglang"], Any, dict[str, Any]]] = [
    ("vllm", ph.regex("a|b"), {"structured_outputs": {"regex": "a|b"}}),
    ("vllm", ph.choice(["a", "b."]), {"structured_outputs": {"choice": ["a", "b."]}}),
    ("vllm", ph.grammar('root ::= "a"'), {"structured_outputs": {"grammar": 'root ::= "a"'}}),
    ("sglang", ph.regex("a|b"), {"regex": "a|b"}),
    ("sglang", ph.choice(["a -", "b.\\"]), {"regex": r"a -|b\.\\"}),
    ("sglang", ph.grammar('root ::= "a"'), {"ebnf": 'root ::= "a"'}),
]


@pytest.mark.parametrize(("dialect", "constraint", "fields"), DIALECTS)
def test_what_a_dialect_knows_besides(
    dialect: Literal["vllm", "sglang"], constraint: Any, fields: dict[str, Any], server: Script
) -> None:
    server.replies = [chat_events(["a"])]
    gen = "It is " + ph.gen("x", constraint=constraint, top_k=5, min_p=0.1)
    assert chat.run(gen, backend=openai(server, dialect=dialect))["x"] == "a"
    [body] = server.bodies
    assert {**body, **fields} == body and (body["top_k"], body["min_p"]) == (5, 0.1)
    assert body["continue_final_message"] is True and body["add_generation_prompt"] is False
    assert body["messages"][-1] == {"role": "assistant", "content": "It is "}


def test_a_chat_is_asked_of_anthropic(server: Script) -> None:
    server.replies = [message_events(["Bec", "ause"]), message_events(['{"name":"Ada"}'], "stop_sequence")]
    state = chat.run(
        "Well, " + ph.gen("x", stop="!", top_k=3, temperature=0.5), backend=anthropic(server), max_tokens=9
    )
    info = state.get_meta_info("x")
    assert state["x"] == "Because"
    assert (info["prompt_tokens"], info["cached_tokens"], info["completion_tokens"]) == (7, 4, 9)
    path, headers, body = server.asked[0]
    assert (path, headers["x-api-key"], headers["anthropic-version"]) == ("/v1/messages", "k", "2023-06-01")
    assert body == {
        "model": "m",
        "stream": True,
        "max_tokens": 9,
        "system": "Be brief.",
        "temperature": 0.5,
        "top_k": 3,
        "messages": [MESSAGES[1], {"role": "assistant", "content": "Well, "}],
        "stop_sequences": ["!"],
    }
    assert chat.run(ph.gen("p", type=Person), backend=anthropic(server))["p"] == Person(name="Ada")
    assert server.bodies[-1]["output_config"]["format"]["schema"]["additionalProperties"] is False


def test_keys_and_addresses_come_from_the_environment(server: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"BASE_URL": server.url, "API_KEY": "secret"}.items():
        monkeypatch.setenv(f"OPENAI_{name}", value)
        monkeypatch.setenv(f"ANTHROPIC_{name}", value)
    server.replies = [chat_events(["a"]), message_events(["b"])]
    assert [chat.run(backend=name)["x"] for name in ("openai:m", "anthropic:m")] == ["a", "b"]
    assert server.asked[0][1]["authorization"] == "Bearer secret" and server.asked[1][1]["x-api-key"] == "secret"


def test_proxies_of_the_environment_are_used(server: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, server.url)
    monkeypatch.setenv("no_proxy", "other.example")
    server.replies = [chat_events(["a"])]
    assert chat.run(backend=ph.OpenAI("m", base_url="http://model.example/v1"))["x"] == "a"
    assert server.asked[0][0] == "http://model.example/v1/chat/completions"
    tunnel = http_call.HttpClient("https://model.example/v1").connect()
    direct = http_call.HttpClient("https://other.example/v1").connect()
    assert f"http://{tunnel.host}:{tunnel.port}" == server.url and direct.host == "other.example"


def test_a_proxy_gets_its_name_and_password_and_no_other_server(
    server: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_name = server.url.replace("//", "//me%40home:a:b@")
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, with_name)
    monkeypatch.setenv("no_proxy", server.url.removeprefix("http://"))
    expected = f"Basic {b64encode(b'me@home:a:b').decode()}"
    server.replies = [chat_events(["a"]), chat_events(["b"])]
    for base_url, found in (("http://model.example/v1", expected), (f"{server.url}/v1", None)):
        chat.run(backend=ph.OpenAI("m", base_url=base_url))
        assert server.asked[-1][1].get("proxy-authorization") == found
    tunnel = http_call.HttpClient("https://model.example/v1").connect()
    assert tunnel._tunnel_headers["Proxy-Authorization"] == expected  # type: ignore[attr-defined]


Make = Callable[[Script], Any]
START = ph.system("Be brief.") + ph.user("Why?")
TAG = ph.structural_tag([{"begin": "<a>", "schema": {"type": "integer"}, "end": "</a>"}])
GAIN = ph.unconditional_likelihood_normalized
SPACED = ph.json_schema({"type": "object"}, whitespace="spaced")
REFERRING = ph.json_schema({"$ref": "https://example.org/a"}, resources={"https://example.org/a": {"enum": [1]}})
REFUSALS: list[tuple[Make, Any, dict[str, Any], str]] = [
    (openai, START + ph.assistant(ph.gen("x", regex="a")), {}, "no way to constrain an answer by regex"),
    (openai, START + ph.assistant(ph.gen("x", constraint=ph.grammar('root ::= "a"'))), {}, "by grammar"),
    (openai, START + ph.assistant(ph.gen("x", constraint=TAG)), {}, "by structural_tag"),
    (openai, START + ph.assistant(ph.gen("x", constraint=SPACED)), {}, "no way to lay JSON out by whitespace='spaced'"),
    (openai, START + ph.assistant(ph.gen("x", constraint=REFERRING)), {}, "no way to take resources="),
    (anthropic, START + ph.assistant(ph.gen("x", constraint=SPACED)), {}, "no way to lay JSON out"),
    (anthropic, START + ph.assistant(ph.gen("x", constraint=REFERRING)), {}, "no way to take resources="),
    (openai, START + ph.assistant(ph.select("x", ["a", "b"])), {}, "no way to score a given text in a chat"),
    (openai, START + ph.assistant("It " + ph.gen("x")), {}, "go on with an assistant's message that has.*dialect="),
    (openai, START + ph.assistant(ph.gen("x", top_k=5, min_p=0.5)), {}, "no way to say min_p, top_k"),
    (openai, START + ph.assistant(ph.gen("x")), {"namespace": "n", "adapter": "a"}, "to say namespace, adapter"),
    (openai, START + ph.user_begin() + ph.gen("x"), {}, "gen in user message"),
    (openai, START + ph.gen("x"), {}, "gen in no message"),
    (openai, "Why?" + ph.gen("x", max_tokens=0, logprob_start_len=0), {}, "no way to say logprob_start_len"),
    (openai, "Why?" + ph.select("x", ["a"], choices_method=GAIN), {}, "a BOS token"),
    (openai, "Why?" + ph.user("b") + ph.assistant(ph.gen("x")), {}, "'Why.' stands outside of messages"),
    (anthropic, "Why?" + ph.gen("x"), {}, "no way to go on with plain text"),
    (anthropic, START + ph.assistant(ph.select("x", ["a", "b"])), {}, "no way to ask for log-probabilities"),
    (anthropic, START + ph.assistant(ph.gen("x", regex="a")), {}, "no way to constrain an answer by regex"),
    (anthropic, START + ph.assistant(ph.gen("x", n=2, seed=3, logprobs=1)), {}, "no way to say logprobs, n, seed"),
    (anthropic, START + ph.assistant(ph.gen("x")), {"max_tokens": None}, "no way to leave max_tokens open"),
    (anthropic, START + ph.system("Now.") + ph.assistant(ph.gen("x")), {}, "say a system message after others"),
]


@pytest.mark.parametrize(("make", "expression", "options", "message"), REFUSALS)
def test_what_an_api_cannot_do_is_refused_at_its_line(
    make: Make, expression: Any, options: dict[str, Any], message: str, server: Script
) -> None:
    def body(s: ProgramState) -> None:
        s += expression

    with pytest.raises(ph.ProgramError, match=rf"program body, {__file__}:\d+, .*{message}"):
        ph.function(body).run(backend=make(server), **options)
    assert not server.asked


def test_no_generation_of_others_can_be_forked_inside(server: Script) -> None:
    server.replies = [events({"choices": [{"index": 0, "delta": {"content": "a"}}]}, done=False, stays=True)]

    def inside(s: ProgramState) -> None:
        ask(s)
        s.fork(2, inside="x")

    with pytest.raises(ph.ProgramError, match="no way to go on within a generation") as caught:
        ph.function(inside).run(backend=openai(server))
    assert f"program inside, {__file__}:" in caught.value.__notes__[0]
    assert not server.asked or server.left.wait(60)


FAULTS: list[tuple[Reply, str]] = [
    (error(400, "Unrecognized request argument"), "/v1/chat/completions answered 400: Unrecognized request argument"),
    (
        error(401, "Incorrect API key"),
        "answered 401: Incorrect API key; give the key: backend=phloem.OpenAI(model, api_key=",
    ),
    (error(404, "The model `m` does not exist"), "answered 404: The model `m` does not exist"),
    (Reply(b"<html>no</html>", 502, {"Content-Type": "text/html"}), "answered 502: <html>no</html>"),
    (Reply(b'{"detail": "Not Found"}', 404), "answered 404: Not Found"),
    (Reply(b"", 301, {"Location": "https://elsewhere"}), "answered 301: Moved Permanently"),
    (Reply(b"hello"), "the answer broke off or is none"),
    (Reply(b"[3]"), "is none of this API's"),
    (events({"choices": [{"index": 0, "delta": {"content": "a"}}]}), "ended its answer before it was complete"),
    (events({"error": {"message": "out of memory"}}), "failed: out of memory"),
    (chat_events(["a"], "content_filter"), "the answer ended early: content_filter"),
    (events({"choices": [{"index": 0, "delta": {"refusal": "I will not"}}]}), "the model refuses: I will not"),
]


@pytest.mark.parametrize(("reply", "message"), FAULTS)
def test_a_servers_fault_is_an_error_at_the_line(reply: Reply, message: str, server: Script) -> None:
    server.replies = [reply]
    with pytest.raises(ph.ProgramError) as caught:
        chat.run(backend=openai(server))
    assert message in str(caught.value) and f"{__file__}:" in str(caught.value) and "gen('x')" in str(caught.value)
    assert len(server.asked) == 1


def test_a_server_that_is_busy_is_asked_again(server: Script) -> None:
    busy = error(429, "Slow down", **{"Retry-After": "0"})
    server.replies = [busy, busy, chat_events(["a"])]
    assert chat.run(backend=openai(server))["x"] == "a"
    server.replies = [busy]
    with pytest.raises(ph.ProgramError, match="answered 429: Slow down"):
        chat.run(backend=openai(server))
    assert len(server.asked) == 6


def test_a_server_that_is_silent_is_not_waited_for(server: Script) -> None:
    server.replies = [events({"choices": [{"index": 0, "delta": {"content": "a"}}]}, done=False, stays=True)]
    with pytest.raises(ph.ProgramError, match=r"no answer within 0\.05 s"):
        chat.run(backend=openai(server, timeout=0.05))


@pytest.mark.parametrize("backend", ["http", "endpoint"])
def test_a_server_that_is_not_there(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"  # bound, and nothing listens
        with pytest.raises(ph.ProgramError, match=rf"{__file__}:\d+, .*{url}/.* cannot be reached: .*refused"):
            chat.run(backend=url if backend == "http" else ph.RuntimeEndpoint(f"{url}/v1/"))


def test_a_server_that_is_not_phloems(server: Script) -> None:
    server.replies = [Reply(b'{"detail": "Not Found"}', 404)]
    with pytest.raises(
        ph.ProgramError, match=rf"{__file__}:\d+, .* 404: Not Found; is it phloem's.*phloem\.OpenAI"
    ) as e:
        chat.run(backend=server.url)
    assert "template" not in str(e.value)
    server.replies = [Reply(b'{"object": "list"}')]
    with pytest.raises(ph.ProgramError, match=rf"{__file__}:\d+, .*this is no phloem server"):
        chat.run(backend=ph.RuntimeEndpoint(server.url))


def test_connecting_takes_no_longer_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(connection: http_call.HTTPConnection) -> None:
        raise TimeoutError(connection.timeout)  # type: ignore[attr-defined]

    monkeypatch.setattr(http_call.HTTPConnection, "connect", connect)
    with pytest.raises(ph.ProgramError, match=r"127\.0\.0\.1/v1/chat/completions: no answer within 10 s") as caught:
        chat.run(backend=ph.OpenAI("m", base_url="http://127.0.0.1/v1"))
    assert "TimeoutError(10.0)" in repr(caught.value.__cause__.__cause__)  # type: ignore[union-attr]


@pytest.mark.parametrize("when", ["before the answer", "within it"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_run_that_ends_early_closes_its_connection(when: str, stream: bool, server: Script) -> None:
    if when == "within it":
        server.replies = [events({"choices": [{"index": 0, "delta": {"content": "a"}}]}, done=False, stays=True)]
    else:
        server.replies = [Reply(stays=True)]

    def body(s: ProgramState) -> None:
        ask(s)
        while not server.asked:
            threading.Event().wait(0.002)
        raise KeyError("of its own")

    program = ph.function(body)
    if stream:
        state = program.run(backend=openai(server), stream=True)
        with pytest.raises(ph.ProgramError, match=r"of its own|cancelled"):
            state.sync()
    else:
        with pytest.raises(KeyError, match="of its own"):
            program.run(backend=openai(server))
    assert server.left.wait(60)


def test_a_name_that_is_no_backend() -> None:
    for name in ("host:8000", "ftp://x", ""):
        with pytest.raises(ph.ProgramError, match="names no backend; give a server's URL"):
            chat.run(backend=name)
    with pytest.raises(ph.ProgramError, match="is no URL of a server"):
        ph.RuntimeEndpoint("localhost")
    with pytest.raises(ph.ProgramError, match="dialect: 'tgi' is not one of openai, vllm, sglang"):
        ph.OpenAI("m", dialect="tgi")  # type: ignore[arg-type]
    with pytest.raises(ph.ProgramError, match="flush_cache: OpenAI has no cache"):
        ph.flush_cache(ph.OpenAI("m"))


def test_characters_are_tokens() -> None:
    tokens = Characters()
    text = "<|user|> é😀\ud800"
    assert tokens.decode(tokens.encode(text)) == text
    ids = tokens.encode_pieces(["<|user|>", "a", "<|end|>"])
    assert len(ids) == 3 and tokens.decode(ids) == "a" and tokens.token_text(ids[0]) == "<|user|>"
    numbers = [tokens.number(name) for name in ("un", "like", "un")]
    assert (
        numbers[0] == numbers[2] and tokens.decode(numbers) == "unlikeun" and tokens.token_bytes(numbers[1]) == b"like"
    )


def test_a_schema_is_closed_where_it_does_not_say() -> None:
    inner = {"type": "object", "properties": {"a": {"enum": [{"type": "object", "properties": {}}]}}}
    schema = {"anyOf": [inner, {**inner, "additionalProperties": True}, {"type": "object"}]}
    found = closed(schema)
    assert [one.get("additionalProperties") for one in found["anyOf"]] == [False, True, None]
    assert found["anyOf"][0]["properties"] == inner["properties"]
