"""The official client against a real server with the bundled model, over loopback."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from phloem.errors import ConfigError
from phloem.runtime.cli import run
from phloem.runtime.cli.inspect import cache_of
from phloem.runtime.execute.loading import LoadedModel
from phloem.runtime.request import SamplingParams

from .conftest import KEY, Served, serving

SYSTEM = "You read documents. Answer briefly, or give JSON."
HELLO = [{"role": "user", "content": "Hello"}]
DOCUMENT = "Tarvin Ledmo is 42 years old and lives in Quolsat. Tarvin is a baker and works from home."


class Person(BaseModel):
    name: str
    age: int
    city: str


def test_a_chat_answers_as_the_engine_does(served: Served, openai_client: OpenAI) -> None:
    answer = openai_client.chat.completions.create(model="nano", messages=HELLO, temperature=0, max_tokens=20)
    engine = served.async_engine.engine
    token_ids = engine.tokenizer.apply_chat_template(HELLO)
    expected = served.async_engine.submit(token_ids, SamplingParams(max_tokens=20, temperature=0.0)).result()
    assert answer.choices[0].message.content == expected.text
    assert answer.usage is not None and answer.usage.prompt_tokens == len(token_ids)
    assert answer.usage.completion_tokens == expected.usage.completion_tokens


def test_the_cache_explains_itself_on_request(openai_client: OpenAI) -> None:
    ask = {"model": "nano", "max_tokens": 1, "temperature": 0}
    explain = {"extra_body": {"explain_cache": True, "cache_salt": "explained"}}
    once = [{"role": "user", "content": "Where is the green boat?"}]
    again = [{"role": "user", "content": "Where is the yellow house?"}]
    first = openai_client.chat.completions.create(**ask, messages=once, **explain).usage
    second = openai_client.chat.completions.create(**ask, messages=again, **explain).usage
    assert first is not None and second is not None
    found = second.prompt_tokens_details.model_dump()["cache_explanation"]
    assert first.prompt_tokens_details.model_dump()["cache_explanation"]["reason"] == "never_seen"
    assert found["reason"] == "never_seen" and found["num_cached_tokens"] == second.prompt_tokens_details.cached_tokens
    assert "Where is the" in found["agreed_text"] and "house" in found["differing_text"]
    assert "Where is the yellow" in found["agreed_text"] + found["differing_text"]
    usage = openai_client.completions.create(
        model="nano", prompt=["green", "red"], max_tokens=1, extra_body={"explain_cache": True}
    ).usage
    assert usage is not None and len(usage.prompt_tokens_details.model_dump()["cache_explanation"]) == 2
    response = openai_client.responses.create(model="nano", input="Hello", extra_body={"explain_cache": True})
    assert response.usage.input_tokens_details.model_dump()["cache_explanation"]["reason"] in ("complete", "never_seen")


def test_a_prompt_can_be_pinned_for_a_while(nano: LoadedModel) -> None:
    pin = {"pin_ttl": 60}
    prompt = "A prompt that many will come back to, of some length"
    with serving(nano, num_blocks=512, device="cpu") as served, served.client() as client:
        usage = client.completions.create(model="nano", prompt=prompt, max_tokens=1, extra_body=pin).usage
        assert usage is not None
        assert 0 < usage.prompt_tokens_details.model_dump()["pinned_tokens"] <= usage.prompt_tokens
        response = client.responses.create(model="nano", input=prompt, max_output_tokens=16, extra_body=pin)
        assert response.usage.input_tokens_details.model_dump()["pinned_tokens"] > 0
        with pytest.raises(openai.BadRequestError, match="pin_ttl"):
            client.completions.create(model="nano", prompt=prompt, extra_body={"pin_ttl": -1})


def test_inspect_draws_the_cache_of_a_server(served: Served, openai_client: OpenAI) -> None:
    openai_client.completions.create(model="nano", prompt="A picture of the cache", max_tokens=1)
    shown = cache_of(served.url, KEY)
    assert "pool of 4,096 blocks" in shown and "optimum, 0.5x" in shown and "default namespace" in shown
    with pytest.raises(ConfigError, match="--api-key"):
        cache_of(served.url, None)


def test_top_shows_a_server_and_what_it_does(
    served: Served, openai_client: OpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    openai_client.completions.create(model="nano", prompt="Something for top to show", max_tokens=2)
    assert run(["top", f"{served.url}/v1", "--api-key", KEY, "--once", "--interval", "0.1"]) == 0
    shown = capsys.readouterr().out
    assert "nano · phloem" in shown and "4,096 blocks of 16 tokens" in shown and "0 of " in shown
    assert re.search(r"between tokens +[0-9.]+ m?s", shown) and "since the start" in shown and "blocks   with" in shown
    assert "\x1b" not in shown
    assert run(["top", served.url, "--once"]) == 2
    assert "--api-key" in capsys.readouterr().err
    assert run(["top", f"{served.url}/nowhere", "--api-key", KEY, "--once"]) == 2
    assert "is it a phloem server?" in capsys.readouterr().err


def test_an_answer_parses_into_a_pydantic_class(openai_client: OpenAI) -> None:
    messages = [{"role": "user", "content": f"{DOCUMENT}\n\nExtract the person as JSON."}]
    for temperature in (0, 1):
        answer = openai_client.chat.completions.parse(
            model="nano", messages=messages, response_format=Person, temperature=temperature, max_tokens=60
        )
        assert isinstance(answer.choices[0].message.parsed, Person)
        assert answer.choices[0].finish_reason == "stop"
    with openai_client.chat.completions.stream(
        model="nano", messages=messages, response_format=Person, max_tokens=60
    ) as stream:
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Person)


def test_regex_choice_and_json_object_hold_at_any_temperature(openai_client: OpenAI) -> None:
    def ask(**extra: object) -> str:
        answer = openai_client.chat.completions.create(
            model="nano", messages=HELLO, temperature=2, max_tokens=40, extra_body=extra
        )
        return answer.choices[0].message.content or ""

    assert len(ask(regex=r"\d{4}-\d\d-\d\d")) == 10
    assert ask(guided_choice=["yes", "no"]) in ("yes", "no")
    assert ask(structured_outputs={"choice": ["yes", "no"]}) in ("yes", "no")
    assert isinstance(json.loads(ask(response_format={"type": "json_object"})), dict)


def test_forced_text_is_jumped_over(openai_client: OpenAI) -> None:
    schema = {"const": {"a_long_key_that_is_forced": "and a long value that is forced as well"}}
    answer = openai_client.chat.completions.create(
        model="nano", messages=HELLO, temperature=0, extra_body={"json_schema": schema}
    )
    assert json.loads(answer.choices[0].message.content or "") == schema["const"]
    details = answer.model_dump()["usage"]["completion_tokens_details"]
    assert details["drafted_tokens"] > 10
    assert details["sampled_tokens"] + details["jumped_tokens"] == answer.usage.completion_tokens


def test_a_predicted_answer_is_the_same_in_fewer_steps(openai_client: OpenAI) -> None:
    question = [{"role": "user", "content": f"{DOCUMENT}\n\nExtract the person as JSON."}]
    ask = {"model": "nano", "messages": question, "temperature": 0, "max_tokens": 60}
    salts = [{"extra_body": {"cache_salt": f"predicted {number}"}} for number in range(3)]
    plain = openai_client.chat.completions.create(**ask, **salts[0])
    content = plain.choices[0].message.content or ""
    for shown, salt in ((content, salts[1]), ([{"type": "text", "text": content}], salts[2])):
        answer = openai_client.chat.completions.create(**ask, **salt, prediction={"type": "content", "content": shown})
        assert answer.choices[0].message.content == content
        assert answer.usage is not None and plain.usage is not None
        details = answer.usage.completion_tokens_details
        assert details is not None and details.accepted_prediction_tokens > answer.usage.completion_tokens / 2
        before = plain.usage.completion_tokens_details
        assert before is not None and before.accepted_prediction_tokens == before.rejected_prediction_tokens == 0


def test_a_required_tool_is_called_with_valid_arguments(openai_client: OpenAI) -> None:
    tools = [openai.pydantic_function_tool(Person, name="person"), openai.pydantic_function_tool(Person, name="other")]
    messages = [{"role": "user", "content": DOCUMENT}]
    for choice in ("required", {"type": "function", "function": {"name": "person"}}):
        answer = openai_client.chat.completions.create(
            model="nano", messages=messages, tools=tools, tool_choice=choice, max_tokens=100
        )
        [call] = answer.choices[0].message.tool_calls
        assert call.function.name in ("person", "other")
        Person.model_validate_json(call.function.arguments)


def test_seeds_reproduce_samples_and_n_outputs_differ(openai_client: OpenAI) -> None:
    def ask(seed: int) -> list[str]:
        answer = openai_client.completions.create(
            model="nano", prompt="Once", temperature=2, seed=seed, n=4, max_tokens=24, extra_body={"ignore_eos": True}
        )
        return [choice.text for choice in answer.choices]

    first = ask(1)
    assert ask(1) == first != ask(2)
    assert len(set(first)) == 4


def test_logprobs_are_those_of_the_answer(openai_client: OpenAI) -> None:
    answer = openai_client.chat.completions.create(
        model="nano", messages=HELLO, temperature=0, logprobs=True, top_logprobs=3, max_tokens=20
    )
    content = answer.choices[0].logprobs.content
    text = b"".join(bytes(entry.bytes or []) for entry in content).decode()
    assert text == answer.choices[0].message.content
    for entry in content:
        assert entry.top_logprobs[0].token == entry.token and entry.logprob <= 0
        tops = [top.logprob for top in entry.top_logprobs]
        assert tops == sorted(tops, reverse=True)


@pytest.mark.parametrize("stream", [False, True])
def test_the_end_token_is_among_the_log_probabilities(served: Served, openai_client: OpenAI, stream: bool) -> None:
    """Evaluation harnesses leave the last one out, and take the others for the prompt's."""
    eos_id = min(served.async_engine.engine.tokenizer.eos_ids)
    token_ids = served.async_engine.engine.tokenizer.encode("Tarvin Ledmo is 42 years old.")
    ask: dict[str, Any] = dict(model="nano", prompt=token_ids, logprobs=1, logit_bias={str(eos_id): 100}, stream=stream)
    if stream:
        chunks = list(openai_client.completions.create(**ask, max_tokens=5))
        found = [score for chunk in chunks for score in chunk.choices[0].logprobs.token_logprobs]
        assert len(found) == 1 and chunks[-1].choices[0].finish_reason == "stop"
        return
    prompt = openai_client.completions.create(**{**ask, "logit_bias": None}, echo=True, max_tokens=0).choices[0]
    answer = openai_client.completions.create(**ask, echo=True, max_tokens=1).choices[0]
    assert prompt.logprobs is not None and answer.logprobs is not None
    assert answer.finish_reason == "stop" and answer.text == prompt.text
    assert len(answer.logprobs.tokens) == len(token_ids) + 1
    assert answer.logprobs.token_logprobs[:-1] == prompt.logprobs.token_logprobs
    assert answer.logprobs.text_offset[-1] == len(prompt.text)


def test_echo_scores_a_prompt_as_the_engine_does(served: Served, openai_client: OpenAI) -> None:
    token_ids = served.async_engine.engine.request_factory.token_ids(DOCUMENT)
    answer = openai_client.completions.create(model="nano", prompt=token_ids, echo=True, logprobs=0, max_tokens=0)
    scores = answer.choices[0].logprobs.token_logprobs
    [expected] = served.async_engine.score(token_ids[:1], [token_ids[1:]])
    assert scores[0] is None and scores[1:] == pytest.approx([entry.logprob for entry in expected], abs=1e-4)


def test_thirty_two_clients_at_once_share_the_system_prompt(served: Served, openai_client: OpenAI) -> None:
    system = {"role": "system", "content": SYSTEM + " " + DOCUMENT * 8}

    def ask(index: int) -> tuple[str | None, int]:
        messages = [system, {"role": "user", "content": f"Repeat: {index}"}]
        answer = openai_client.chat.completions.create(model="nano", messages=messages, temperature=0, max_tokens=16)
        return answer.choices[0].message.content, answer.usage.prompt_tokens_details.cached_tokens

    alone = [ask(index) for index in range(32)]
    with ThreadPoolExecutor(32) as pool:
        together = list(pool.map(ask, range(32)))
    assert [text for text, _ in together] == [text for text, _ in alone]
    shared = len(served.async_engine.engine.tokenizer.apply_chat_template([system], add_generation_prompt=False))
    assert all(cached >= shared // 16 * 16 - 16 for _, cached in together)
    served.settle()


def test_two_salts_share_nothing(openai_client: OpenAI) -> None:
    def cached(salt: str) -> int:
        messages = [{"role": "user", "content": "A salted prompt. " + DOCUMENT}]
        answer = openai_client.chat.completions.create(
            model="nano", messages=messages, max_tokens=1, extra_body={"cache_salt": salt}
        )
        return answer.usage.prompt_tokens_details.cached_tokens

    assert cached("one") == 0
    assert cached("one") > 0
    assert cached("two") == 0


def test_special_token_text_stays_text(served: Served, openai_client: OpenAI) -> None:
    engine = served.async_engine.engine
    names = "".join(engine.tokenizer.special_ids)
    plain = engine.tokenizer.apply_chat_template([{"role": "user", "content": ""}])
    shown = engine.tokenizer.apply_chat_template([{"role": "user", "content": names}])
    special = set(engine.tokenizer.special_ids.values())
    assert [t for t in shown if t in special] == [t for t in plain if t in special]
    answer = openai_client.chat.completions.create(
        model="nano", messages=[{"role": "user", "content": names}], max_tokens=1
    )
    assert answer.usage.prompt_tokens == len(shown)


def test_an_agents_loop_goes_on_after_its_call(openai_client: OpenAI) -> None:
    """The bundled model's template knows no calls: its own answer, sent back as it came, must do all the same."""
    parameters = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 9}}, "required": ["city"]}
    tools: Any = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
    messages: list[Any] = list(HELLO)
    for _ in range(2):
        answer = openai_client.chat.completions.create(
            model="nano", messages=messages, tools=tools, tool_choice="required", max_tokens=60, temperature=1, seed=1
        )
        message = answer.choices[0].message
        assert (
            message.content is None
            and message.tool_calls
            and "city" in json.loads(message.tool_calls[0].function.arguments)
        )
        messages.append(message.model_dump())
        messages.append({"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"})
    assert (
        openai_client.chat.completions.create(model="nano", messages=messages, max_tokens=5).choices[0].message.content
    )


def test_a_stop_string_may_stay_in_the_text(openai_client: OpenAI) -> None:
    def ask(**extra: object) -> tuple[str, str | None]:
        answer = openai_client.chat.completions.create(
            model="nano", messages=HELLO, temperature=0, max_tokens=40, stop=["elp", "u?"], extra_body=extra
        )
        return answer.choices[0].message.content or "", answer.choices[0].finish_reason

    cut = ask()
    assert cut[1] == "stop" and ask(include_stop_str_in_output=True) == ask(no_stop_trim=True) == (
        cut[0] + "elp",
        "stop",
    )


def test_a_completions_token_is_among_its_likeliest(openai_client: OpenAI) -> None:
    """Of `logprobs` there is one more where the token that was drawn is none of the likeliest."""
    for count in (0, 1, 3):
        answer = openai_client.completions.create(
            model="nano", prompt="Tarvin", temperature=2, seed=3, max_tokens=20, logprobs=count, echo=True
        )
        found = answer.choices[0].logprobs
        assert found and found.tokens and found.token_logprobs and found.top_logprobs and found.top_logprobs[0] is None
        for token, logprob, top in list(zip(found.tokens, found.token_logprobs, found.top_logprobs, strict=True))[1:]:
            assert top[token] == logprob and count <= len(top) <= count + 1


def test_a_prompt_formatted_by_hand_is_read_with_its_special_tokens(openai_client: OpenAI) -> None:
    """If the request says so; else whatever looks like one is text, as in a message."""

    def ask(prompt: str, **extra: object) -> Any:
        return openai_client.completions.create(
            model="nano", prompt=prompt, temperature=0, max_tokens=16, extra_body=extra
        )

    messages: Any = HELLO
    chat = openai_client.chat.completions.create(model="nano", messages=messages, temperature=0, max_tokens=16)
    assert chat.usage is not None
    formatted = "<|user|>Hello<|end|><|assistant|>"
    cases: list[tuple[str, dict[str, object]]] = [
        (formatted, {}),
        ("<s>" + formatted, {}),
        ("<s>" + formatted, {"add_special_tokens": False}),
    ]
    for prompt, extra in cases:
        found = ask(prompt, parse_special=True, **extra)
        assert found.choices[0].text == chat.choices[0].message.content
        assert found.usage.prompt_tokens == chat.usage.prompt_tokens
    assert ask(formatted).usage.prompt_tokens > chat.usage.prompt_tokens + 5
    bare = ask("Hello", add_special_tokens=False).usage.prompt_tokens
    assert bare == ask("Hello").usage.prompt_tokens - 1
