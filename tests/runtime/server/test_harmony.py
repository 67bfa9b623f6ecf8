"""Harmony's channels: what is reasoning, what is content, what is a call, whole and streamed, however it is cut."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import RequestError
from phloem.runtime.config import EngineConfig
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.server.harmony import MARKS, HarmonyReader, speaks_harmony
from phloem.runtime.server.thought_tokens import HarmonyTokens
from phloem.runtime.server.tool_calls import deltas_of, gathered

from ..models.test_mxfp4_models import publish
from ..tokenizer.harmony import harmony_folder
from .conftest import serving
from .fakes import CharTokenizer, FakeAsyncEngine, FakeTemplate
from .wire import Client, client

THOUGHT = "<|channel|>analysis<|message|>They greet.<|end|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>Hello <b>!"
CALL = '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city":"Oslo"}'
CALL_2 = '<|start|>assistant to=functions.clock<|channel|>commentary json<|message|>{"a":[1]}<|call|>'
BROWSER = '<|start|>assistant<|channel|>analysis to=browser.search code<|message|>{"q":1}<|end|>'
PREAMBLE = "<|start|>assistant<|channel|>commentary<|message|>One moment.<|end|>"

# text: (reasoning, content, calls)
ANSWERS: dict[str, tuple[str, tuple[str, str, list[tuple[str, str]]]]] = {
    "thought and answer": (THOUGHT + FINAL, ("They greet.", "Hello <b>!", [])),
    "the end is shown": (THOUGHT + FINAL + "<|return|>", ("They greet.", "Hello <b>!", [])),
    "answer at once": ("<|channel|>final<|message|>Hi", ("", "Hi", [])),
    "thought alone, cut short": ("<|channel|>analysis<|message|>They gr", ("They gr", "", [])),
    "cut short in a header": (THOUGHT + "<|start|>assistant<|chan", ("They greet.", "", [])),
    "cut short in a mark": (THOUGHT + FINAL + " <|en", ("They greet.", "Hello <b>! <|en", [])),
    "call": (THOUGHT + "<|start|>assistant" + CALL, ("They greet.", "", [("weather", '{"city":"Oslo"}')])),
    "call at once": (CALL + "<|call|>", ("", "", [("weather", '{"city":"Oslo"}')])),
    "recipient in front": (" to=functions.clock<|channel|>commentary<|message|>{}", ("", "", [("clock", "{}")])),
    "two calls": (
        CALL + "<|call|>" + CALL_2,
        ("", "", [("weather", '{"city":"Oslo"}'), ("clock", '{"a":[1]}')]),
    ),
    "preamble": (THOUGHT + PREAMBLE + FINAL, ("They greet.", "One moment.\n\nHello <b>!", [])),
    "a tool that was not offered": (THOUGHT + BROWSER + FINAL, ('They greet.\n\n{"q":1}', "Hello <b>!", [])),
    "no header at all": ("Hello < you", ("", "Hello < you", [])),
    "no header, though it may be one": ("to", ("", "to", [])),
    "nothing": ("", ("", "", [])),
    "no end before the next message": (
        "<|channel|>analysis<|message|>Hm.<|channel|>final<|message|>Yes.",
        ("Hm.", "Yes.", []),
    ),
}


def whole(text: str, cuts: list[int]) -> tuple[str, str, list[tuple[str, str]]]:
    """Read in pieces, and put together from the `delta` objects of chunks, as a client does."""
    reader = HarmonyReader({"weather", "clock"})
    ends = [*sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    pieces = [
        piece
        for begin, end in zip([0, *ends], ends, strict=False)
        for piece in reader.push(text[begin:end], is_last=False)
    ]
    reasoning, content, calls = "", "", []
    for delta in deltas_of([*pieces, *reader.push("", is_last=True)]):
        reasoning += delta.get("reasoning_content", "")
        content += delta.get("content", "")
        for call in delta.get("tool_calls", []):
            if "id" in call:
                calls.append([call["function"]["name"], ""])
            calls[call["index"]][1] += call["function"]["arguments"]
    return reasoning, content, [(name, arguments) for name, arguments in calls]


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_is_read_whole(case: str) -> None:
    text, (reasoning, content, calls) = ANSWERS[case]
    found = gathered(HarmonyReader({"weather", "clock"}), text)
    assert (found.reasoning, found.content) == (reasoning, content)
    assert [(call["function"]["name"], call["function"]["arguments"]) for call in found.calls] == calls


@settings(max_examples=300, deadline=None)
@given(case=st.sampled_from(sorted(ANSWERS)), cuts=st.lists(st.integers(0, 200), max_size=12))
def test_however_it_is_cut_it_says_the_same(case: str, cuts: list[int]) -> None:
    text, expected = ANSWERS[case]
    assert whole(text, cuts) == expected


PARTS = [
    *MARKS,
    "<|call|>",
    "<|constrain|>",
    "to=functions.weather",
    "analysis",
    "final",
    "<",
    "<|",
    " ",
    "x",
    "assistant",
]


@settings(max_examples=300, deadline=None)
@given(parts=st.lists(st.sampled_from(PARTS), max_size=12), cuts=st.lists(st.integers(0, 200), max_size=6))
def test_whatever_a_model_writes_is_read_without_marks(parts: list[str], cuts: list[int]) -> None:
    reasoning, content, calls = whole("".join(parts), cuts)
    assert whole("".join(parts), []) == (reasoning, content, calls)
    shown = content + reasoning + "".join(arguments for _, arguments in calls)
    assert not re.search(r"<\|(start|channel|end|call)\|>", shown)


def test_text_is_shown_as_it_comes() -> None:
    reader = HarmonyReader()
    assert reader.push("<|channel|>final<|message|>", is_last=False) == []
    assert deltas_of(reader.push("He", is_last=False)) == [{"content": "He"}]
    assert deltas_of(reader.push("llo <", is_last=False)) == [{"content": "llo "}]
    assert deltas_of(reader.push("3", is_last=False)) == [{"content": "<3"}]


class EffortTemplate(FakeTemplate):
    option_names = frozenset({"reasoning_effort"})


class HarmonyTokenizer(CharTokenizer):
    chat_template = EffortTemplate()
    special_ids: ClassVar[dict[str, int]] = dict.fromkeys(MARKS, 0)


WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


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


def test_a_stream_says_the_same() -> None:
    events = asked(THOUGHT + FINAL).chat(stream=True).events()
    deltas = [choice["delta"] for event in events[:-1] for choice in event["choices"]]
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "They greet."
    assert "".join(delta.get("content") or "" for delta in deltas) == "Hello <b>!"
    assert deltas[0]["role"] == "assistant"


def sources(**fields: Any) -> tuple[Any, FakeAsyncEngine]:
    """The form that was asked for, and the engine that was asked."""
    http = asked(THOUGHT + FINAL)
    assert http.chat(**fields).status == 200
    [call] = http.engine.calls
    return json.loads(call["constraint"].source)["format"], http.engine


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
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


def test_a_broken_schema_is_pointed_at_as_it_was_sent() -> None:
    engine = FakeAsyncEngine(broken={json.dumps(SCHEMA): RequestError("no", param="json_schema")})
    engine.engine.tokenizer = HarmonyTokenizer()
    answer = client(engine).chat(
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    )
    assert (answer.status, answer.error["param"]) == (400, "response_format")


@pytest.fixture(scope="module")
def gpt_oss(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A random model with harmony's vocabulary."""
    folder = tmp_path_factory.mktemp("gpt-oss")
    publish(folder, vocab_size=700)
    harmony_folder(folder)
    return load(EngineConfig(model=str(folder), device="cpu", dtype="float32"))


@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_model_thinks_the_answer_is_valid(gpt_oss: LoadedModel, seed: int) -> None:
    """A random model, through the real engine and the official client."""
    parameters = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]}
    tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
    common: dict[str, Any] = {"model": "nano", "seed": seed, "max_tokens": 150}
    common["messages"] = [{"role": "user", "content": "Hi"}]
    with serving(gpt_oss, num_blocks=256) as served, served.client() as http:
        common["model"] = http.models.list().data[0].id
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
        answer = http.chat.completions.create(**common, response_format=form).choices[0]
        assert isinstance(json.loads(answer.message.content)["a"], int)
        answer = http.chat.completions.create(**common, tools=[tool], tool_choice="required").choices[0]
        [call] = answer.message.tool_calls
        assert call.function.name == "weather"
        assert json.loads(call.function.arguments)["city"] in ("Oslo", "Rome")
        assert answer.finish_reason == "tool_calls"
        answer = http.chat.completions.create(**common, tools=[tool]).choices[0]
        assert answer.message.tool_calls or answer.message.content is not None
        assert "<|" not in (answer.message.content or "")
        both = http.chat.completions.create(**common, tools=[tool], response_format=form).choices[0].message
        for call in both.tool_calls or []:
            assert json.loads(call.function.arguments)["city"] in ("Oslo", "Rome") and not both.content
        assert both.tool_calls or isinstance(json.loads(both.content)["a"], int)
        free = http.chat.completions.create(**common)
        assert free.usage.completion_tokens > 0
        thought = getattr(free.choices[0].message, "reasoning_content", "")
        assert (free.usage.completion_tokens_details.reasoning_tokens > 0) >= bool(thought)
        response = http.responses.create(
            model=common["model"], input="Hi", max_output_tokens=150, extra_body={"seed": seed}
        )
        assert response.output_text == (free.choices[0].message.content or "")
        theirs, ours = response.usage.output_tokens_details, free.usage.completion_tokens_details
        assert theirs.reasoning_tokens == ours.reasoning_tokens


def test_the_effort_is_an_option_of_the_template() -> None:
    http = asked(THOUGHT + FINAL)
    assert http.chat(reasoning_effort="high").status == 200
    assert http.post("/v1/responses", {"input": "Hi", "reasoning": {"effort": "low"}}).status == 200
    prompts = [call["prompt"] for call in http.engine.calls]
    assert prompts == [f"<user>Hi<reasoning_effort={effort}><assistant>" for effort in ("high", "low")]
    http = client()
    assert http.chat(reasoning_effort="high").status == 200
    assert http.engine.calls[0]["prompt"] == "<user>Hi<assistant>"


def test_one_of_several_tools_may_be_called_and_a_tag_of_the_callers_own_stays_as_it_is() -> None:
    http = asked(THOUGHT + "<|start|>assistant<|channel|>commentary to=functions.clock json<|message|>{}<|call|>")
    clock = {"type": "function", "function": {"name": "clock"}}
    message = http.chat(tools=[WEATHER, clock], tool_choice="required").json()["choices"][0]["message"]
    assert message["tool_calls"][0]["function"] == {"name": "clock", "arguments": "{}"}
    tag = {"format": {"type": "any_text"}}
    assert http.chat(structural_tag=tag).status == 200
    source = json.loads(http.engine.calls[1]["constraint"].source)
    assert source["format"] == tag["format"], "a request that describes the whole answer describes its channels"


def test_beside_a_response_format_there_is_a_call_or_a_final_message_of_that_format() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
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


@pytest.mark.parametrize(
    ("answer", "reasoning"),
    [
        (THOUGHT + FINAL, THOUGHT),
        (THOUGHT + PREAMBLE + FINAL, THOUGHT),
        (THOUGHT + BROWSER + FINAL, THOUGHT + BROWSER),
        ("<|channel|>analysis<|message|>Hm.<|channel|>final<|message|>Yes.", "<|channel|>analysis<|message|>Hm"),
        (THOUGHT + "<|start|>assistant" + CALL, THOUGHT),
        (FINAL, ""),
        ("Hello", ""),
        (THOUGHT + THOUGHT.replace("<|ch", "<|start|>assistant<|ch"), THOUGHT * 2 + "<|start|>assistant"),
    ],
)
def test_tokens_of_reasoning_are_counted(answer: str, reasoning: str) -> None:
    """Every mark is a token, and every other character."""
    num_tokens = len(re.sub(r"<\|\w+\|>", "#", reasoning))
    tokens = re.findall(r"<\|\w+\|>|.", answer, re.DOTALL)

    class Shown(HarmonyTokenizer):
        eos_ids = ()

        def show(self, token_ids: Any) -> str:
            return "".join(tokens[token_id] for token_id in token_ids)

    counter = HarmonyTokens(HarmonyReader({"weather"}), Shown())
    counter.push(range(len(tokens)))
    held = 1 if "Hm" in reasoning else 0  # the end of a text may be the beginning of a mark until the next token
    assert counter.count == num_tokens + held


def test_usage_has_the_tokens_of_reasoning() -> None:
    http = asked(THOUGHT + FINAL)
    for fields in ({}, {"stream": True, "stream_options": {"include_usage": True}}):
        answer = http.chat(**fields)
        usage = (answer.events()[-2] if fields else answer.json())["usage"]
        assert usage["completion_tokens_details"]["reasoning_tokens"] == len(THOUGHT)
    usage = http.post("/v1/responses", {"input": "Hi"}).json()["usage"]
    assert usage["output_tokens_details"]["reasoning_tokens"] == len(THOUGHT)


def test_responses_show_what_is_for_the_user() -> None:
    http = asked(THOUGHT + FINAL)
    answer = http.post("/v1/responses", {"input": "Hi"}).json()
    assert [item["content"][0]["text"] for item in answer["output"]] == ["They greet.", "Hello <b>!"]
    body = http.post("/v1/responses", {"input": "Hi", "stream": True}).body.decode()
    events = [json.loads(line.removeprefix("data: ")) for line in body.splitlines() if line.startswith("data: {")]
    shown = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(shown) == "Hello <b>!"
