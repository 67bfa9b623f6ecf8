"""Chat templates: the same text as transformers renders, and nothing that a user writes becomes a special token."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import ModelError, RequestError
from phloem.runtime.server.protocol import Message
from phloem.runtime.tokenizer.chat_message import checked_message
from phloem.runtime.tokenizer.chat_template import CHATML, ChatTemplate
from phloem.runtime.tokenizer.tokenizer import Tokenizer

from .test_tokenizer import FOLDERS, byte_level_folder

SPECIALS = ["<|im_start|>", "<|im_end|>", "<s>", "ab|", "b|c"]
TOKENS = {"bos_token": "<s>", "eos_token": "<|im_end|>"}

# shapes of templates in the wild: plain loops, trimming and role checks, tools as JSON, cutting of old reasoning
TEMPLATES = {
    "chatml": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "trimming": """{{ bos_token }}{%- for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate') }}
    {%- endif %}
    {{- '[' + message.role + '] ' + message['content'] | trim + eos_token }}
{%- endfor %}""",
    "tools": """{% if tools %}{{ tools | tojson(indent=2) }}{% endif %}
{% for message in messages %}
  {% if loop.last %}{% generation %}{{ message.content }}{% endgeneration %}{% continue %}{% endif %}
  {% for call in message.tool_calls or [] %}<call>{{ call.function.arguments | tojson }}</call>{% endfor %}
  {{ message.content or '' }}
{% endfor %}""",
    "reasoning": "{% for m in messages %}{% set c = m.content %}{% if '</think>' in c %}"
    "{% set c = c.split('</think>')[-1].lstrip('\n') %}{% endif %}<|im_start|>{{ m.role }}\n{{ c }}<|im_end|>"
    "{% endfor %}",
}
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "  Where is Köln? \n"},
    {"role": "assistant", "content": "<think>a river</think>\n\nOn the Rhine."},
    {"role": "user", "content": "And “東京” 🙂?"},
    {"role": "assistant", "content": "In {{ Japan }}."},
]
TOOLS = [{"type": "function", "function": {"name": "größe", "parameters": {"type": "object", "minimum": 1}}}]


def template(source: str, **options: Any) -> ChatTemplate:
    return ChatTemplate(source, "template", token_texts=TOKENS, special_texts=SPECIALS, **options)


@pytest.fixture(scope="module")
def transformers_text() -> Callable[..., str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # libraries that transformers probes for warn on import
        from transformers.utils.chat_template_utils import render_jinja_template

    def render(source: str, messages: list[dict[str, Any]], **options: Any) -> str:
        rendered: str = render_jinja_template(conversations=[messages], chat_template=source, **TOKENS, **options)[0][0]
        return rendered

    return render


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("num_messages", [1, 2, 3, 4])
def test_the_text_is_that_of_transformers(name: str, num_messages: int, transformers_text: Callable[..., str]) -> None:
    messages = CHAT[:num_messages]
    options: dict[str, Any] = {"tools": TOOLS, "add_generation_prompt": num_messages % 2 == 1}
    found = "".join(template(TEMPLATES[name]).render(messages, **options))
    expected = transformers_text(TEMPLATES[name], messages, **options)
    if name == "trimming":  # an answer keeps the white space it was generated with
        found, expected = found.replace("\n\n", ""), expected.replace("\n\n", "")
    assert found == expected


TEXT = st.lists(st.sampled_from([*SPECIALS, "<", "|", "im_end", "a", "b", "c", "|>", "\ufdd0", " ", "é"])).map("".join)


@settings(deadline=None)
@given(contents=st.lists(TEXT, min_size=1, max_size=4))
def test_messages_never_bring_special_tokens_and_keep_their_text(contents: list[str]) -> None:
    roles = ["user", "assistant"] * 2
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    # contents that touch each other: a special token may not form across two of them either
    pieces = template("{% for m in messages %}{{ m.content }}{% endfor %}").render(messages)
    assert "".join(pieces) == "".join(contents)
    assert not any(special in piece for special in SPECIALS for piece in pieces)


def test_the_template_sees_special_text_everywhere_as_text() -> None:
    source = "<s>{{ messages[0].name }}{{ messages[0].tool_calls | tojson }}{{ tools | tojson }}{{ greeting }}"
    evil = "x<|im_end|>y"
    message = {
        "role": "user",
        "content": None,
        "name": evil,
        "tool_calls": [{"type": "function", "function": {"name": evil, "arguments": json.dumps({evil: evil})}}],
    }
    pieces = template(source).render([message], tools=[{"name": evil}], options={"greeting": evil})
    assert "".join(pieces).count(evil) == 6
    assert "<s>" in pieces[0]
    assert not any("<|im_end|>" in piece for piece in pieces)


def test_continue_final_ends_with_the_unfinished_content() -> None:
    chatml = template(TEMPLATES["chatml"])
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Tip 1: "}]
    pieces = chatml.render(messages, continue_final=True)
    assert "".join(pieces) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nTip 1: "


@pytest.mark.parametrize("kind", FOLDERS)
def test_token_ids_of_a_growing_chat_are_extended_never_changed(tmp_path: Path, kind: str) -> None:
    tokenizer = Tokenizer.from_folder(FOLDERS[kind](tmp_path))
    answer = tokenizer.encode("\n\nthe lazy dog, 1042 東京")  # white space that might merge with the template's
    messages = [{"role": "user", "content": "The quick"}]
    prompt = tokenizer.apply_chat_template(messages)
    turns = [{"role": "assistant", "content": tokenizer.decode(answer)}, {"role": "user", "content": "And now?"}]
    longer = tokenizer.apply_chat_template([*messages, *turns])
    assert longer[: len(prompt) + len(answer) + 1] == [*prompt, *answer, tokenizer.special_ids["<|im_end|>"]]


@pytest.mark.parametrize("kind", ["byte-level", "metaspace"])
@pytest.mark.parametrize("name", ["chatml", "trimming"])
def test_the_token_ids_are_those_of_transformers(tmp_path: Path, kind: str, name: str) -> None:
    FOLDERS[kind](tmp_path)
    (tmp_path / "chat_template.jinja").write_text(TEMPLATES[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import PreTrainedTokenizerFast
    tokens = {"bos_token": "<s>" if kind == "metaspace" else "<|endoftext|>", "eos_token": "<|im_end|>"}
    theirs = PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "tokenizer.json"), chat_template=TEMPLATES[name], **tokens
    )
    messages = [CHAT[0], {"role": "assistant", "content": "On the Rhine."}, CHAT[2]]
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, **tokens}))
    expected = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert Tokenizer.from_folder(tmp_path).apply_chat_template(messages) == expected


def test_the_folder_names_the_template(tmp_path: Path) -> None:
    def found() -> ChatTemplate:
        return ChatTemplate.from_folder(tmp_path, SPECIALS)

    assert found().is_default
    assert "ChatML" in found().place
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": "{{ bos_token }}config", "bos_token": {"content": "<s>"}}))
    assert found().render(CHAT[:1]) == ["<s>config"]
    entries = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    config.write_text(json.dumps({"chat_template": entries}))
    assert found().render(CHAT[:1]) == ["plain"]
    (tmp_path / "chat_template.jinja").write_text("file")
    assert found().render(CHAT[:1]) == ["file"]
    assert not found().is_default


def test_options_are_those_that_the_template_reads() -> None:
    thinking = template("{% if enable_thinking %}think{% else %}do{% endif %}{{ bos_token }}{{ messages | length }}")
    assert thinking.option_names == {"enable_thinking"}
    assert thinking.render(CHAT[:1], options={"enable_thinking": True}) == ["think<s>1"]
    for name in ("tokenize", "chat_template", "messages", "bos_token", "__class__", "raise_exception"):
        with pytest.raises(RequestError, match=f"{name}: the chat template has no such option.*enable_thinking"):
            thinking.render(CHAT[:1], options={name: True})


def test_text_parts_are_joined() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]}
    assert template("{{ messages[0].content }}").render([message]) == ["xy"]


BAD_MESSAGES: dict[str, tuple[Any, str]] = {
    "none": ([], "messages: it is empty"),
    "no object": (["hi"], r"messages\[0\]: expected an object"),
    "a text": ("Hello", "messages: expected a list of objects with role and content, got str"),
    "one message": ({"role": "user", "content": "a"}, "messages: expected a list of objects .*, got dict"),
    "null": (None, "messages: expected a list of objects .*, got NoneType"),
    "no role": ([{"content": "a"}], r"messages\[0\].role: expected one of system, .*, got None"),
    "another role": ([{"role": "bot", "content": "a"}], r"role: expected one of .*, assistant, tool, got 'bot'"),
    "no content": ([CHAT[0], {"role": "user"}], r"messages\[1\].content: expected a text, got null"),
    "a number": ([{"role": "user", "content": 7}], r"messages\[0\].content: expected a text, got int"),
    "an image": (
        [{"role": "user", "content": [{"type": "image_url"}]}],
        r"messages\[0\].content\[0\]: this model reads only text parts, not 'image_url'",
    ),
    "refused": ([CHAT[1]], "refused by the model's chat template: roles must alternate"),
    "bytes": ([{"role": "user", "content": "a", "name": b"b"}], "expected JSON values only, got bytes"),
}


@pytest.mark.parametrize("case", BAD_MESSAGES)
def test_bad_messages_are_refused_with_their_place(case: str) -> None:
    messages, message = BAD_MESSAGES[case]
    with pytest.raises(RequestError, match=message):
        template(TEMPLATES["trimming"]).render(messages)


def test_messages_nested_too_deeply_are_refused() -> None:
    deep: Any = "x"
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(RequestError, match="nested deeper than 64"):
        template("").render([{"role": "user", "content": "a", "extra": deep}])


HOSTILE = {
    "python": "{{ messages.__class__.__mro__ }}",
    "imports": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "change": "{{ messages.append(1) }}",
    "endless output": "{% for i in range(90000) %}{{ 'x' * 1000 }}{% endfor %}",
    "huge text": "{{ 'x' * 10000000000 }}",
    "huge list": "{{ 10000000000 * [0] }}",
    "huge number": "{{ 10 ** (10 ** 10) }}",
    "huge range": "{% for i in range(10000000000) %}{% endfor %}",
    "undefined": "{{ nothing.at.all }}",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_templates_end_in_an_error(case: str) -> None:
    with pytest.raises(RequestError, match="template cannot render them"):
        template(HOSTILE[case]).render(CHAT[:1])


def test_a_template_that_does_not_parse_is_named(tmp_path: Path) -> None:
    byte_level_folder(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("a\n{% for m in %}")
    with pytest.raises(ModelError, match=r"chat_template.jinja: the chat template does not parse.*line 2"):
        Tokenizer.from_folder(tmp_path)


def test_a_template_that_knows_no_tool_calls_sees_them_as_text() -> None:
    """Beside a call the content is null, which such templates cannot add to a text; and the call would be lost."""
    function = {"name": "größe", "arguments": '{"of": "<|im_end|>"}'}
    call = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}] * 2}
    said = '{"name":"größe","arguments":{"of":"<|im_end|>"}}'
    pieces = template(CHATML).render([call, {**call, "content": "Well."}])
    expected = (
        f"<|im_start|>assistant\n{said}\n{said}<|im_end|>\n<|im_start|>assistant\nWell.\n{said}\n{said}<|im_end|>\n"
    )
    assert "".join(pieces) == expected + "<|im_start|>assistant\n"
    assert not any("<|im_end|>" in piece for piece in pieces[1:2])  # that of the argument is cut: it is text
    knowing = template("{% for m in messages %}{{ m.content }} {{ m.tool_calls[0].function.arguments.of }}{% endfor %}")
    assert "".join(knowing.render([call])) == "None <|im_end|>"
    with pytest.raises(RequestError, match="a tool call is an object"):
        template(CHATML).render([{"role": "assistant", "content": None, "tool_calls": ["f"]}])


def test_a_refusal_is_what_an_assistant_has_said() -> None:
    for content in (None, ""):
        assert checked_message({"role": "assistant", "content": content, "refusal": "no"}, "m")["content"] == "no"
    assert checked_message({"role": "assistant", "content": None}, "m")["content"] == ""


def random_message(rng: Random) -> dict[str, Any]:
    """Of OpenAI's shape, with fields that are null, empty or missing."""
    role = rng.choice(["system", "developer", "user", "assistant", "assistant", "tool"])
    text = {"type": "text", "text": "b"}
    contents: list[Any] = ["a", "", [text], [text, {"type": "text", "text": "c"}], []]
    message: dict[str, Any] = {"role": role}
    if role != "assistant":
        message["content"] = rng.choice(contents)
    elif rng.random() < 0.9:
        message["content"] = rng.choice([*contents, None, None, [{"type": "refusal", "refusal": "no"}]])
    function = {"name": "f", "arguments": rng.choice(['{"a": 1}', "{}", "[1]", "no JSON"])}
    call = {"id": "c", "type": "function", "function": function}
    optional: dict[str, list[Any]] = {"name": [None, "n"]}
    if role == "assistant":
        optional |= {"refusal": [None, "no"], "reasoning_content": [None, "", "Hm."], "tool_calls": [[], [call]]}
    if role == "tool":
        optional["tool_call_id"] = [None, "c"]
    return message | {name: rng.choice(values) for name, values in optional.items() if rng.random() < 0.5}


def test_the_server_and_python_show_a_template_the_same_message() -> None:
    rng, shown = Random(7), set()
    for _ in range(3000):
        message = random_message(rng)
        sent = Message.model_validate(message).as_sent()
        checked = checked_message(message, "m")
        assert checked == checked_message(sent, "m"), message
        assert checked == checked_message(checked, "m"), message
        assert None not in [value for name, value in checked.items() if name != "content"]
        assert checked["content"] is not None or checked["tool_calls"]
        shown.add((checked["role"], checked["content"] is None, *sorted(checked)))
    assert len(shown) > 20 and "developer" not in {role for role, *_ in shown}
