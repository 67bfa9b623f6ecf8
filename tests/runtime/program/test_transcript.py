"""Text and ids of a state: they decode to each other, only grow, and follow the chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phloem.errors import ProgramError, RequestError
from phloem.runtime.program.chat_format import ChatFormat
from phloem.runtime.program.transcript import Transcript, kept_ids

from .fakes import END, FakeTokenizer, Templates, plain_template

TEXTS = st.text(alphabet="abc .\néthu", max_size=8)


def chatml(messages: Sequence[Mapping[str, str]], add_generation_prompt: bool) -> list[str]:
    """ChatML with a default system prompt."""
    shown = list(messages)
    if not shown or shown[0]["role"] != "system":
        shown.insert(0, {"role": "system", "content": "Be kind."})
    text = "".join(f"<|{m['role']}|>\n{m['content']}<|end|>\n" for m in shown)
    return [text + ("<|assistant|>\n" if add_generation_prompt else "")]


def llama2(messages: Sequence[Mapping[str, str]], add_generation_prompt: bool) -> list[str]:
    """The system message is shown inside the first user message; there is no generation prompt."""
    pieces, system = [], ""
    for message in messages:
        if message["role"] == "system":
            system = f"<<SYS>>\n{message['content']}\n<</SYS>>\n\n"
        elif message["role"] == "user":
            pieces.append(f"<s>[INST] {system}{message['content']} [/INST]")
            system = ""
        else:
            pieces.append(f" {message['content']} <|end|>")
    return ["".join(pieces)]


def gemma(messages: Sequence[Mapping[str, str]], add_generation_prompt: bool) -> list[str]:
    """Roles must alternate; there is no system role; the first turn carries BOS."""
    expected = "user"
    for message in messages:
        if message["role"] != expected:
            raise RequestError("Conversation roles must alternate user/assistant", param="messages")
        expected = "assistant" if expected == "user" else "user"
    return plain_template(messages, add_generation_prompt)


def with_history_rewritten(messages: Sequence[Mapping[str, str]], add_generation_prompt: bool) -> list[str]:
    """Earlier messages lose their end."""
    return [*(f"<|{m['role']}|>{m['content']}" for m in messages), f"[{len(messages)}]"]


def transcript(template: Templates = plain_template) -> Transcript:
    tokenizer = FakeTokenizer(template)
    return Transcript(tokenizer, ChatFormat(tokenizer))


CONVERSATION = [
    {"role": "system", "content": "S is S."},
    {"role": "user", "content": "the an"},
    {"role": "assistant", "content": "abc.\n"},
    {"role": "user", "content": " été "},
    {"role": "assistant", "content": " the"},
]


@pytest.mark.parametrize(
    ("template", "first"),
    [(plain_template, 0), (plain_template, 1), (chatml, 0), (chatml, 1), (llama2, 0), (llama2, 1), (gemma, 1)],
)
def test_a_conversation_has_the_templates_text(template: Templates, first: int) -> None:
    messages = CONVERSATION[first:]
    grown = transcript(template)
    for message in messages:
        role: Any = message["role"]
        grown.begin_role(role)
        if role == "assistant":
            ids = FakeTokenizer().encode(message["content"])
            grown.show(message["content"])
            grown.append_generated(kept_ids(FakeTokenizer(), [*ids, END], message["content"], ended=True))
        else:
            for character in message["content"]:  # piece by piece: they are one run all the same
                grown.append_text(character)
        grown.end_role(role)
    rendered = "".join(template(messages, False))
    assert grown.text == rendered
    assert grown.messages == messages
    ids = FakeTokenizer().encode_pieces([rendered])
    assert FakeTokenizer().decode(grown.token_ids()) == FakeTokenizer().decode(ids)
    if template is not llama2:  # whose assistant content joins the blank before it
        assert grown.token_ids().tolist() == ids


def test_an_assistant_opens_with_the_generation_prompt() -> None:
    grown = transcript(chatml)
    grown.begin_role("user")
    grown.append_text("Hi")
    grown.end_role("user")
    grown.begin_role("assistant")
    wanted = FakeTokenizer(chatml).apply_chat_template([{"role": "user", "content": "Hi"}])
    assert grown.prompt().tolist() == wanted


def test_an_assistant_may_speak_first() -> None:
    grown = transcript()
    grown.begin_role("assistant")
    assert grown.text == "<s><|assistant|>"


def test_what_the_template_refuses_is_refused_in_its_words() -> None:
    with pytest.raises(ProgramError, match="refuses system: Conversation roles must alternate"):
        transcript(gemma).begin_role("system")


def test_a_template_that_rewrites_history_is_refused() -> None:
    grown = transcript(with_history_rewritten)
    grown.begin_role("user")
    grown.end_role("user")
    with pytest.raises(ProgramError, match="rewrites earlier messages when user → user"):
        grown.begin_role("user")


def test_roles_after_plain_text_have_no_second_bos() -> None:
    grown = transcript()
    grown.append_text("Preface. ")
    grown.begin_role("user")
    assert grown.token_ids().tolist().count(256) == 1
    assert grown.text == "Preface. <|user|>"


@given(st.lists(st.tuples(st.sampled_from(["text", "gen", "cut", "copy"]), TEXTS), max_size=8))
def test_ids_decode_to_the_text_and_only_grow(steps: list[tuple[str, str]]) -> None:
    tokenizer = FakeTokenizer()
    grown = transcript()
    before: list[int] = []
    for kind, text in steps:
        if kind == "text":
            grown.append_text(text)
        elif kind == "copy":
            grown = grown.copy()
        else:
            before = grown.prompt().tolist()
            ids = [*tokenizer.encode(text + (" the stop" if kind == "cut" else "")), END]
            grown.show(text)
            grown.append_generated(kept_ids(tokenizer, ids, text, ended=True))
            assert grown.token_ids().tolist()[: len(before)] == before
        assert tokenizer.decode(grown.copy().token_ids()) == grown.text


@given(TEXTS, TEXTS)
def test_a_cut_keeps_every_token_that_is_whole(text: str, rest: str) -> None:
    tokenizer = FakeTokenizer()
    generated = tokenizer.encode(text + rest)
    kept = kept_ids(tokenizer, generated, text, ended=False)
    assert tokenizer.decode(kept) == text
    shared = 0
    while shared < len(kept) and kept[shared] == generated[shared]:
        shared += 1
    whole = next(
        count for count in range(len(generated), -1, -1) if text.startswith(tokenizer.decode(generated[:count]))
    )
    assert shared >= min(whole, len(kept))


def test_a_special_token_that_did_not_end_the_output_is_kept() -> None:
    tokenizer = FakeTokenizer()
    assert kept_ids(tokenizer, [97, END], "a", ended=False) == [97, END]
    assert kept_ids(tokenizer, [97, END], "a", ended=True) == [97]
    assert kept_ids(tokenizer, [], "", ended=True) == []


def test_bytes_that_are_no_text_are_kept_as_generated() -> None:
    tokenizer = FakeTokenizer()
    ids = [97, 0xE9, 98]
    assert kept_ids(tokenizer, ids, tokenizer.decode(ids), ended=False) == ids
