"""Harmony's channels: constraints after free reasoning, calls, and the server. (How they are read: `test_readers`.)"""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest

from phloem.errors import RequestError
from phloem.runtime.config import EngineConfig
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.server.formats.harmony import MARKS, speaks_harmony

from ..models.test_mxfp4_models import publish
from ..tokenizer.harmony import harmony_folder
from .conftest import serving
from .fakes import CharTokenizer, FakeAsyncEngine, FakeTemplate
from .samples import JSON_FORMAT, WEATHER
from .samples import OBJECT as SCHEMA
from .test_readers import CALL, FINAL, THOUGHT
from .test_thoughts import ThinkTokenizer
from .valid_answers import check_answers
from .wire import Client, client


class EffortTemplate(FakeTemplate):
    option_names = frozenset({"reasoning_effort"})


class HarmonyTokenizer(CharTokenizer):
    chat_template = EffortTemplate()
    special_ids: ClassVar[dict[str, int]] = dict.fromkeys(MARKS, 0)


def asked(reply: str) -> Client:
    engine = FakeAsyncEngine(reply)
    engine.engine.tokenizer = HarmonyTokenizer()
    return client(engine)


def test_a_chat_is_answered_with_reasoning_apart() -> None:
    assert speaks_harmony(HarmonyTokenizer.special_ids) and not speaks_harmony(["<|start|>", "<|end|>"])
    http = asked(THOUGHT + FINAL)
    [choice] = http.chat().json()["choices"]
    assert choice["message"] == {
        "role": "assistant",
        "content": "Hello <b>!",
        "refusal": None,
        "reasoning_content": "They greet.",
    }
    assert choice["finish_reason"] == "stop"
    assert http.engine.calls[0]["shows_special"]


def test_calls_are_calls_where_tools_were_offered() -> None:
    text = THOUGHT + "<|start|>assistant" + CALL
    [choice] = asked(text).chat(tools=[WEATHER]).json()["choices"]
    [call] = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": '{"city":"Oslo"}'}
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert "tool_calls" not in asked(text).chat().json()["choices"][0]["message"]


def sources(**fields: Any) -> tuple[Any, FakeAsyncEngine]:
    """The form that was asked for, and the engine that was asked."""
    http = asked(THOUGHT + FINAL)
    assert http.chat(**fields).status == 200
    [call] = http.engine.calls
    return json.loads(call["constraint"].source)["format"], http.engine


FINAL_FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "json_schema": (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": SCHEMA},
                "key_order": "any",
            }
        },
        {"type": "json_schema", "json_schema": SCHEMA, "any_order": True, "extra_keys": "never"},
    ),
    "json_object": (
        {"response_format": {"type": "json_object"}},
        {"type": "json_schema", "json_schema": {"type": "object"}, "any_order": False, "extra_keys": "schema"},
    ),
    "regex": ({"regex": "[0-9]+"}, {"type": "regex", "pattern": "[0-9]+"}),
    "grammar": ({"ebnf": 'root ::= "x"'}, {"type": "grammar", "grammar": 'root ::= "x"'}),
    "choice": (
        {"guided_choice": ["yes", "no"]},
        {"type": "or", "elements": [{"type": "const_string", "value": text} for text in ("yes", "no")]},
    ),
}


@pytest.mark.parametrize("case", FINAL_FORMS)
def test_a_constraint_holds_in_the_final_message_after_free_reasoning(case: str) -> None:
    fields, form = FINAL_FORMS[case]
    found, _ = sources(**fields)
    thoughts, final = found["elements"]
    assert thoughts["type"] == "star"
    assert final["elements"][1:] == [
        {"type": "const_string", "value": "final"},
        {"type": "token", "token": "<|message|>"},
        form,
    ]


def test_a_text_that_is_continued_is_read_as_it_stands() -> None:
    fields = {"continue_final_message": True, "add_generation_prompt": False}
    http = asked("12")
    assert http.chat(regex="[0-9]+", tools=[WEATHER], **fields).json()["choices"][0]["message"]["content"] == "12"
    assert http.engine.calls[0]["constraint"].kind == "regex"
    answer = asked("Hello <|end|>").chat(**fields).json()
    assert answer["choices"][0]["message"]["content"] == "Hello "


def test_a_structural_tag_is_left_alone() -> None:
    tag = {"type": "structural_tag", "format": {"type": "any_text"}}
    http = asked(THOUGHT + FINAL)
    message = http.chat(response_format=tag).json()["choices"][0]["message"]
    assert message["content"] == THOUGHT + FINAL


@pytest.mark.parametrize("tokenizer", [HarmonyTokenizer(), ThinkTokenizer()], ids=["channels", "tags"])
def test_a_broken_schema_is_pointed_at_as_it_was_sent(tokenizer: CharTokenizer) -> None:
    engine = FakeAsyncEngine(broken={json.dumps(SCHEMA): RequestError("no", param="json_schema")})
    engine.engine.tokenizer = tokenizer
    answer = client(engine).chat(response_format=JSON_FORMAT)
    assert (answer.status, answer.error["param"]) == (400, "response_format")


@pytest.fixture(scope="module")
def gpt_oss(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A random model with harmony's vocabulary."""
    folder = tmp_path_factory.mktemp("gpt-oss")
    publish(folder, vocab_size=700)
    harmony_folder(folder)
    return load(EngineConfig(model=str(folder), device="cpu", dtype="float32"))


@pytest.mark.parametrize("seed", range(2))
def test_whatever_the_model_thinks_the_answer_is_valid(gpt_oss: LoadedModel, seed: int) -> None:
    with serving(gpt_oss, num_blocks=256) as served, served.client() as http:
        check_answers(http, seed, 150, {})


def test_the_effort_is_an_option_of_the_template() -> None:
    http = asked(THOUGHT + FINAL)
    assert http.chat(reasoning_effort="high").status == 200
    assert http.post("/v1/responses", {"input": "Hi", "reasoning": {"effort": "low"}}).status == 200
    prompts = [call["prompt"] for call in http.engine.calls]
    assert prompts == [f"<user>Hi<reasoning_effort={effort}><assistant>" for effort in ("high", "low")]
    http = client()
    assert http.chat(reasoning_effort="high").status == 200
    assert http.engine.calls[0]["prompt"] == "<user>Hi<assistant>"


def test_one_of_several_tools_may_be_called() -> None:
    http = asked(THOUGHT + "<|start|>assistant<|channel|>commentary to=functions.clock json<|message|>{}<|call|>")
    clock = {"type": "function", "function": {"name": "clock"}}
    message = http.chat(tools=[WEATHER, clock], tool_choice="required").json()["choices"][0]["message"]
    assert message["tool_calls"][0]["function"] == {"name": "clock", "arguments": "{}"}


def test_beside_a_response_format_there_is_a_call_or_a_final_message_of_that_format() -> None:
    form = JSON_FORMAT
    for choice, num_endings in (("auto", 2), ("required", 1)):
        http = asked(THOUGHT + "<|start|>assistant" + CALL)
        message = http.chat(response_format=form, tools=[WEATHER], tool_choice=choice).json()["choices"][0]["message"]
        assert message["tool_calls"][0]["function"]["arguments"] == '{"city":"Oslo"}'
        source = http.engine.calls[0]["constraint"].source
        assert ("final" in source) == (num_endings == 2)
        assert (json.dumps(SCHEMA["properties"]) in source) == (num_endings == 2)
        assert "commentary" not in json.dumps(json.loads(source)["format"]["elements"][0]), (
            "what is announced is content"
        )


@pytest.mark.parametrize("stop", ["assistant", "final", "channel", "message"])
def test_headers_are_no_text_to_stop_at(stop: str) -> None:
    answer = asked(THOUGHT + FINAL).chat(stop=stop).json()["choices"][0]["message"]
    assert (answer["reasoning_content"], answer["content"]) == ("They greet.", "Hello <b>!")


def test_a_text_is_stopped_and_a_call_is_not() -> None:
    assert asked(THOUGHT + FINAL).chat(stop="lo").json()["choices"][0]["message"]["content"] == "Hel"
    [choice] = asked(CALL).chat(stop="city", tools=[WEATHER]).json()["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"city":"Oslo"}'
    assert choice["finish_reason"] == "tool_calls"
