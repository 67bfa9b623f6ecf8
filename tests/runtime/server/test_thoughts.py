"""Thoughts in `<think> … </think>`: what the prompt says of them, constraints after them, and the server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from phloem.errors import ConfigError
from phloem.runtime.server import ServerSettings
from phloem.runtime.server.formats.output_format import Thought
from phloem.runtime.server.formats.thoughts import BEGIN, END, GAP, is_inside_thought, thinks, thought_at_end

from .fakes import CharTokenizer, FakeAsyncEngine, FakeTemplate
from .samples import WEATHER, WRITTEN
from .wire import Client, client

# -- the prompt ------------------------------------------------------------------------------------------------


class ThinkTemplate(FakeTemplate):
    source = "{{ '<think>\n\n</think>\n\n' }}"


class ThinkTokenizer(CharTokenizer):
    """As Qwen 3's: `enable_thinking=False` closes the thought; True opens it, as other models' templates do."""

    chat_template = ThinkTemplate()

    def apply_chat_template(self, messages: Any, *, options: Any = None, **others: Any) -> list[int]:
        wanted = (options or {}).get("enable_thinking")
        opening = {None: "", True: "<think>\n", False: "<think>\n\n</think>\n\n"}[wanted]
        return super().apply_chat_template(messages, **others) + self.encode(opening)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("<|im_start|>assistant\n", "unsaid"),
        ("<|im_start|>assistant\n<think>\n", "open"),
        ("<｜Assistant｜><think>", "open"),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", "closed"),
        ("<|assistant|>\n<think></think>", "closed"),
        ("<｜Assistant｜></think>", "closed"),
        ("<think>\nHm.\n</think>\n\nYes.<|im_end|>\n<|im_start|>assistant\n", "unsaid"),
        ("", "unsaid"),
    ],
)
def test_what_the_template_has_done_is_seen_at_the_prompts_end(prompt: str, expected: Thought) -> None:
    tokenizer = ThinkTokenizer()
    assert thought_at_end(tokenizer, tokenizer.encode(prompt)) == expected


def test_an_answer_that_goes_on_is_inside_the_thought_that_it_opened() -> None:
    assert is_inside_thought("<think>\nLet me")
    assert not is_inside_thought("<think>\nHm.\n</think>\n\nYe") and not is_inside_thought("Ye")


def test_who_thinks_is_seen_in_the_template() -> None:
    class Bare(ThinkTokenizer):
        chat_template = FakeTemplate()

    class Ours(ThinkTokenizer):
        class chat_template(FakeTemplate):
            is_default = True

    class OursWithTokens(Ours):
        special_ids = {BEGIN: 1, END: 2}  # noqa: RUF012

    class BareWithTokens(Bare):
        special_ids = {BEGIN: 1, END: 2}  # noqa: RUF012

    assert thinks(ThinkTokenizer(), "auto") and not thinks(ThinkTokenizer(), "none")
    assert not thinks(Bare(), "auto") and thinks(Bare(), "think")
    assert not thinks(Ours(), "auto") and thinks(OursWithTokens(), "auto")
    assert not thinks(BareWithTokens(), "auto"), "instruct models have them in their vocabulary, too"
    with pytest.raises(ConfigError, match="reasoning_format"):
        ServerSettings(reasoning_format="morse")  # type: ignore[arg-type]


# -- the server ------------------------------------------------------------------------------------------------

REPLY = "<think>\nThey greet.\n</think>\n\nHello!"
CALL, ARGUMENTS = WRITTEN["hermes"][0], '{"city": "Oslo"}'


def asked(reply: str, **settings_: Any) -> Client:
    engine = FakeAsyncEngine(reply)
    engine.engine.tokenizer = ThinkTokenizer()
    return client(engine, **settings_)


def test_a_chat_is_answered_with_reasoning_apart() -> None:
    http = asked(REPLY)
    [choice] = http.chat().json()["choices"]
    assert (choice["message"]["reasoning_content"], choice["message"]["content"]) == ("They greet.", "Hello!")
    assert not http.engine.calls[0]["shows_special"], "the marks are text"
    cut_short = asked(REPLY).chat(max_tokens=12).json()["choices"][0]
    assert (cut_short["message"]["reasoning_content"], cut_short["message"]["content"]) == ("They", "")
    assert cut_short["finish_reason"] == "length"


def test_without_the_format_tags_are_content() -> None:
    message = asked(REPLY, reasoning_format="none").chat().json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": REPLY, "refusal": None}


def test_the_template_opens_and_closes_thoughts() -> None:
    opened = asked(REPLY.removeprefix("<think>\n")).chat(chat_template_kwargs={"enable_thinking": True})
    assert opened.json()["choices"][0]["message"]["reasoning_content"] == "They greet."
    closed = asked("Hello!").chat(chat_template_kwargs={"enable_thinking": False})
    assert closed.json()["choices"][0]["message"] == {"role": "assistant", "content": "Hello!", "refusal": None}


@pytest.mark.parametrize(
    ("reply", "fields", "options", "num_tokens"),
    [
        (REPLY, {}, {}, REPLY.index(END) + len(END)),
        (REPLY, {"max_tokens": 12}, {}, 12),
        ("Hello!", {}, {}, 0),
        (REPLY, {}, {"reasoning_format": "none"}, 0),
    ],
)
def test_tokens_of_the_thought_are_counted(
    reply: str, fields: dict[str, Any], options: dict[str, Any], num_tokens: int
) -> None:
    """Every byte is a token here. (Streams and other APIs say the same: `test_faces`.)"""
    usage = asked(reply, **options).chat(n=2, **fields).json()["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 2 * num_tokens


def form_of(http: Client, **fields: Any) -> Any:
    """The form that was asked for."""
    answer = http.chat(**fields)
    assert answer.status == 200, answer.body
    spec = http.engine.calls[-1]["constraint"]
    return json.loads(spec.source)["format"] if spec.kind == "structural_tag" else spec.kind


def thinking(value: bool) -> dict[str, Any]:
    return {"chat_template_kwargs": {"enable_thinking": value}}


def test_a_constraint_holds_after_the_thought() -> None:
    http = asked(REPLY)
    gap, pattern = {"type": "const_string", "value": GAP}, {"type": "regex", "pattern": "[0-9]+"}
    thought, found = form_of(http, regex="[0-9]+", **thinking(True))["elements"]
    assert (thought["elements"][1], found) == (gap, pattern)
    thought, found = form_of(http, regex="[0-9]+")["elements"]
    assert found == pattern
    assert (thought["type"], thought["content"]["elements"][1]) == ("optional", gap), "the model may not think"
    thought, _ = form_of(http, response_format={"type": "json_object"}, **thinking(True))["elements"]
    assert thought["elements"][1] == {"type": "regex", "pattern": "\\n{0,2}"}, "JSON does not begin with a line break"
    assert form_of(http, regex="[0-9]+", **thinking(False)) == "regex", "the constraint holds at once"
    message = asked("12").chat(regex="[0-9]+", **thinking(False)).json()["choices"][0]["message"]
    assert message["content"] == "12"
    tag = {"format": {"type": "any_text"}}
    assert form_of(http, structural_tag=tag, **thinking(True)) == tag["format"], "it describes the whole answer"


@pytest.mark.parametrize("gap", ["", "\n", "\n\n"])
def test_line_breaks_in_front_of_json_are_not_shown(gap: str) -> None:
    reply = f"\n<think>Hm.</think>{gap}{{}}"
    message = asked(reply).chat(response_format={"type": "json_object"}).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "{}")


def test_a_text_that_is_continued_is_read_as_it_stands() -> None:
    fields = {"continue_final_message": True}
    http = asked("\n12")
    assert http.chat(**fields).json()["choices"][0]["message"]["content"] == "\n12"
    assert http.engine.calls[0]["prompt"] == "<user>Hi"
    assert form_of(http, regex="[0-9]+", **fields) == "regex"
    [choice] = asked("Hm.</think>\n\nYes.").chat("<think>\nLet me", **fields).json()["choices"]
    assert (choice["message"]["reasoning_content"], choice["message"]["content"]) == ("Hm.", "Yes.")


def test_calls_stand_after_the_thought() -> None:
    text = f"<think>\nPerhaps {CALL}\n</think>\n\n{CALL}"
    http = asked(text, tool_call_format="hermes")
    [choice] = http.chat(tools=[WEATHER]).json()["choices"]
    [call] = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": ARGUMENTS}
    assert choice["message"]["reasoning_content"] == f"Perhaps {CALL}"
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")
    [in_thought_alone] = asked(f"<think>{CALL}", tool_call_format="hermes").chat(tools=[WEATHER]).json()["choices"]
    assert "tool_calls" not in in_thought_alone["message"]
    closed = asked("\n" + CALL, tool_call_format="hermes").chat(tools=[WEATHER], **thinking(False)).json()
    assert closed["choices"][0]["message"]["content"] is None


@pytest.mark.parametrize("tool_call_format", ["none", "hermes"])
def test_a_required_call_stands_after_a_thought_that_the_prompt_opened(tool_call_format: str) -> None:
    call = CALL if tool_call_format == "hermes" else ARGUMENTS
    fields = {"tools": [WEATHER], "tool_choice": "required"}
    for text, options, reasoning in ((f"Hm.\n{END}{GAP}{call}", thinking(True), "Hm."), (call, {}, None)):
        http = asked(text, tool_call_format=tool_call_format)
        [choice] = http.chat(**fields, **options).json()["choices"]
        assert choice["message"]["tool_calls"][0]["function"] == {"name": "weather", "arguments": ARGUMENTS}
        assert choice["message"].get("reasoning_content") == reasoning
        spec = http.engine.calls[0]["constraint"]
        assert (json.dumps(END) in spec.source) == bool(options)
