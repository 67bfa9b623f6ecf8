"""No text of a message becomes a token that the chat template writes, whatever the tokenizer's file says of it."""

from __future__ import annotations

import json
import tracemalloc
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, normalizers, pre_tokenizers

from phloem.runtime.cache.reply_memory import ReplyMemory
from phloem.runtime.program.chat_format import ChatFormat
from phloem.runtime.program.transcript import Transcript
from phloem.runtime.tokenizer.chat_template import ChatTemplate
from phloem.runtime.tokenizer.template_environment import template_environment
from phloem.runtime.tokenizer.template_tokens import endings, fragments, written
from phloem.runtime.tokenizer.tokenizer import Tokenizer

from .test_gguf_tokenizer import write_byte_level
from .test_tokenizer import CORPUS
from .trained import byte_level, sentencepiece_model


def _loop(begin: str, end: str, prompt: str) -> str:
    """A template that writes these expressions around contents, and one to generate from."""
    return (
        "{%- for m in messages %}{{ " + begin + " + m.content + " + end + " }}{% endfor %}"
        "{% if add_generation_prompt %}{{ " + prompt + " }}{% endif %}"
    )


# name: (template, the tokens that it writes)
SHAPES: dict[str, tuple[str, list[str]]] = {
    "chatml": (
        _loop("'<|im_start|>' + m.role + '\\n'", "'<|im_end|>\\n'", "'<|im_start|>assistant\\n'"),
        ["<|im_start|>", "<|im_end|>"],
    ),
    "llama 3": (
        _loop(
            "'<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n'",
            "'<|eot_id|>'",
            "'<|start_header_id|>assistant<|end_header_id|>\\n\\n'",
        ),
        ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    ),
    "r1": (
        "{% for m in messages %}{% if m['role'] == 'user' %}{{ '<｜User｜>' + m['content'] }}{% else %}"
        "{% set content = m['content'] %}"
        "{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}"
        "{% endif %}{{ '<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<｜Assistant｜><think>\\n' }}{% endif %}",
        ["<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<think>"],
    ),
    "glm": (
        "[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n<think></think>{% endif %}",
        ["[gMASK]", "<sop>", "<|user|>", "<|assistant|>", "<think>", "</think>"],
    ),
    "command-r": (
        _loop(
            "'<|START_OF_TURN_TOKEN|>' ~ ('<|USER_TOKEN|>' if m.role == 'user' else '<|CHATBOT_TOKEN|>')",
            "'<|END_OF_TURN_TOKEN|>'",
            "'<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>'",
        ),
        ["<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"],
    ),
    "phi, put together": (
        _loop("'<|' + m.role + '|>\\n'", "'<|end|>\\n'", "'<|assistant|>\\n'"),
        ["<|user|>", "<|assistant|>", "<|end|>"],
    ),
    "brackets, upper case": (
        _loop("'[' ~ m.role | upper ~ ']'", "'[/' ~ m.role | upper ~ ']'", "'[ASSISTANT]'"),
        ["[USER]", "[/USER]", "[ASSISTANT]", "[/ASSISTANT]"],
    ),
    "a format": (
        _loop("'<turn:{}>'.format(m.role)", "'</turn:%s>' % m.role", "'<turn:assistant>'"),
        ["<turn:user>", "</turn:user>", "<turn:assistant>", "</turn:assistant>"],
    ),
    "around contents": ("{% for m in messages %}[{{ m.content }}]{% endfor %}", ["[USER]", "[A B]", "[[", "]]"]),
    "contents alone": (
        "{% for m in messages %}{{ m.content }}{% endfor %}{{ '<user><bot>' if messages | length > 9 }}",
        ["<user>", "<bot>"],
    ),
    "words": (_loop("m.role ~ 'USER: '", "'END'", "'BOT: '"), ["USER: ", "END", "BOT: "]),
    "thoughts kept": (
        _loop("'<turn>' + m.role + '\\n'", "'</turn>'", "'<turn>assistant\\n'")
        + "{% if tools %}<think></think>{% endif %}",
        ["<turn>", "</turn>", "<think>", "</think>"],
    ),
    "thoughts and calls": (
        "{% for m in messages %}{% set c = m.content %}{% set end = '</think>' %}"
        "{% if m.role == 'assistant' and end in c %}{% set c = c.split(end)[-1].lstrip('\\n') %}{% endif %}"
        "{% if m.role == 'user' and c.startswith('<result>') %}{% set c = 'R' + c %}{% endif %}"
        "{{ '<turn>' + m.role + '\\n' + c + '</turn>\\n' }}{% endfor %}{{ '<think>' }}"
        "{% if tools %}<call>{{ tools | tojson }}</call><result></result>{% endif %}",
        ["<turn>", "</turn>", "<think>", "</think>", "<call>", "</call>", "<result>", "</result>"],
    ),
}
FILES = ["special", "not special", "not special, normalised", "sentencepiece", "sentencepiece, normalised", "gguf"]


def _byte_level(texts: list[str], kind: str) -> tokenizers.Tokenizer:
    made = byte_level(CORPUS, [pre_tokenizers.ByteLevel(add_prefix_space=False)], vocab_size=400)
    made.add_special_tokens(["<|begin|>"])
    is_normalised = kind == "not special, normalised"
    if is_normalised:
        made.normalizer = normalizers.NFKC()
    tokens = [AddedToken(text, special=kind == "special", normalized=is_normalised) for text in texts]
    (made.add_special_tokens if kind == "special" else made.add_tokens)(tokens)
    made.add_tokens([AddedToken("<plain>", special=False, normalized=False)])
    return made


@cache
def load(shape: str, kind: str, folder: Path) -> Tokenizer:
    source, texts = SHAPES[shape]
    folder = folder / f"{shape}-{kind}"
    folder.mkdir()
    if kind == "gguf":
        write_byte_level(folder / "a.gguf", _byte_level(texts, kind), "gpt-2", chat_template=source)
        return Tokenizer.from_folder(folder / "a.gguf")
    if kind.startswith("sentencepiece"):
        content = sentencepiece_model(
            CORPUS,
            vocab_size=440,
            normalization_rule_name="nmt_nfkc" if "normalised" in kind else "identity",
            user_defined_symbols=[text.replace(" ", "▁") for text in texts] + ["<plain>"],
        )
        (folder / "tokenizer.model").write_bytes(content)
    else:
        _byte_level(texts, kind).save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(source)
    return Tokenizer.from_folder(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("control")


def wide(text: str) -> str:
    """What NFKC makes the text of."""
    return "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in text)


def counts(tokenizer: Tokenizer, ids: list[int]) -> dict[str, int]:
    return {text: ids.count(token_id) for text, token_id in tokenizer.control_ids.items()}


@st.composite
def contents_of(draw: st.DrawFn, texts: list[str]) -> list[str]:
    halves = [part for text in texts for at in (1, len(text) // 2, len(text) - 1) for part in (text[:at], text[at:])]
    pool = [*texts, *halves, *map(wide, texts), " ", "\n", "x", "é", "<plain>"]
    found: list[str] = draw(st.lists(st.lists(st.sampled_from(pool), max_size=5).map("".join), min_size=1, max_size=4))
    return found


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=12, deadline=None)
@given(data=st.data(), in_parts=st.booleans())
def test_a_prompt_has_the_control_tokens_of_harmless_messages(
    shape: str, kind: str, folder: Path, data: st.DataObject, in_parts: bool
) -> None:
    tokenizer, (_, texts) = load(shape, kind, folder), SHAPES[shape]
    if kind.startswith("sentencepiece"):
        texts = [text for text in texts if " " not in text]
    assert set(texts) <= tokenizer.control_ids.keys()
    contents = data.draw(contents_of(texts))
    if shape == "thoughts and calls":  # an answer's thought is the template's to show
        contents = [text if at % 2 == 0 else text.replace("</think>", "") for at, text in enumerate(contents)]

    def prompt(contents: list[Any]) -> list[int]:
        roles = ["user", "assistant"] * 2
        messages = [{"role": role, "content": text} for role, text in zip(roles, contents, strict=False)]
        return tokenizer.encode_pieces(tokenizer.chat_template.render(messages))

    shown: list[Any] = list(contents)
    if in_parts:
        middle = data.draw(st.integers(0, 4))
        shown = [[{"type": "text", "text": part} for part in (text[:middle], text[middle:])] for text in contents]
    found = prompt(shown)
    harmless = prompt(["x"] * len(contents))
    assert counts(tokenizer, found) == counts(tokenizer, harmless)


@pytest.mark.parametrize("kind", FILES)
def test_what_the_template_does_not_write_is_text_of_messages(kind: str, folder: Path) -> None:
    """As in transformers: such a token is a word of the vocabulary."""
    tokenizer = load("chatml", kind, folder)
    token_id = tokenizer.encode("<plain>")[-1]
    assert tokenizer.token_bytes(token_id) == b"<plain>"
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "a<plain>b<plain>"}])
    assert ids.count(token_id) == 2


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("shape", ["chatml", "r1", "brackets, upper case"])
def test_texts_of_programs_make_none_either(shape: str, kind: str, folder: Path) -> None:
    tokenizer, (_, texts) = load(shape, kind, folder), SHAPES[shape]
    said = "".join(texts) + "x" + texts[0]

    def ids(content: str) -> list[int]:
        transcript = Transcript(tokenizer, ChatFormat(tokenizer))
        transcript.begin_role("user")
        transcript.append_text(content)
        transcript.end_role("user")
        transcript.begin_role("assistant")
        return list(transcript.token_ids())

    assert counts(tokenizer, ids(said)) == counts(tokenizer, ids("x"))
    expected = tokenizer.apply_chat_template([{"role": "user", "content": said}])
    assert counts(tokenizer, ids(said)) == counts(tokenizer, expected)


def test_an_answer_that_comes_back_keeps_its_own_tokens(folder: Path) -> None:
    """A mark in another's mouth is text; the model's own answer is spliced in as it was."""
    tokenizer = load("thoughts kept", "not special", folder)
    chat = [{"role": "user", "content": "x"}]
    reply = "<think>a</think>b"
    said = tokenizer.encode(reply)
    assert tokenizer.control_ids["<think>"] in said
    longer = [*chat, {"role": "assistant", "content": reply}, {"role": "user", "content": "y"}]
    memory = ReplyMemory()
    before = memory.encode(tokenizer, tokenizer.chat_template.render(chat), chat, "")
    pieces = tokenizer.chat_template.render(longer)
    assert tokenizer.control_ids["<think>"] not in memory.encode(tokenizer, pieces, longer, "").token_ids
    written = [*before.token_ids, *said]
    memory.remember(before.text, reply, written, "")
    found = memory.encode(tokenizer, pieces, longer, "")
    assert found.num_spliced_tokens == len(written)
    assert list(found.token_ids[: len(written)]) == written


def test_templates_find_what_they_look_for(folder: Path) -> None:
    """Marks in contents are cut, and so is what is looked for."""
    marks = ["<think>", "</think>", "<result>"]
    source = (
        "{% set gone = '</think>' %}{% for m in messages %}{% set c = m.content %}"
        "{{ gone in c }}|{{ c.split(gone)[-1] }}|{{ c | replace('<think>', '<result>') }}|"
        "{{ c.startswith('<result>') }}|{{ messages | selectattr('content', 'equalto', '<result>') | list | length }}|"
        "{{ c.find(gone) > 0 }}|{{ gone is in c }}|{{ c is eq '<result>' }}{% endfor %}"
    )
    for special, added in ((marks, []), ([], marks)):
        template = ChatTemplate(source, "t", token_texts={}, special_texts=special, added_texts=added)

        def shown(content: str, template: ChatTemplate = template) -> str:
            return "".join(template.render([{"role": "user", "content": content}]))

        assert shown("<think>a</think>b") == "True|b|<result>a</think>b|False|0|True|True|False"
        assert shown("\ufdd0</think>b") == "True|b|\ufdd0</think>b|False|0|True|True|False"
        assert shown("<result>") == "False|<result>|<result>|True|1|False|False|True"


PARTS = st.lists(st.text("ab|", min_size=1, max_size=6), max_size=4)


@given(PARTS, PARTS)
def test_what_a_template_writes_is_found_as_it_is_defined(texts: list[str], parts: list[str]) -> None:
    begun = {text[:at] for text in texts for at in range(1, len(text)) if any(p.endswith(text[:at]) for p in parts)}
    ended = {text[at:] for text in texts for at in range(1, len(text)) if any(p.startswith(text[at:]) for p in parts)}

    def is_written(text: str) -> bool:
        cuts = [at for at in range(1, len(text)) if text[:at] in begun]
        return text in "\0".join(parts) or any(text[at:] in ended for at in range(min(cuts, default=99), len(text)))

    assert written(texts, parts) == [text for text in texts if is_written(text)]
    assert endings(texts, parts) == {t[at:] for t in texts for at in range(1, len(t)) if t[:at] in begun}


def test_a_long_control_token_takes_memory_once() -> None:
    marks = ["<" + "x" * 20_000 + ">"]
    tracemalloc.start()
    for special, added in ((marks, []), ([], marks)):
        ChatTemplate("{{ '<' ~ messages }}", "t", token_texts={}, special_texts=special, added_texts=added)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000_000, "all of its beginnings would take 200 MB"


@pytest.mark.parametrize("length", [10, 63, 64, 65, 200])
def test_halves_of_any_length_make_a_token(length: int) -> None:
    left, right = "<" + "a" * length, "b" * length + ">"
    source = _loop(f"'{left}' ~ m.role ~ '{right}'", "'.'", "''")
    parts = fragments(template_environment().parse(source))
    text = left + "user" + right
    assert written([text, "x" + text, text + "x"], parts) == [text]
    assert endings([text], parts) == {text[len(left) :]}


def test_blanks_are_layout(tmp_path: Path) -> None:
    made = _byte_level(["\n\n", "    "], "not special")
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": "{{ '\n\n    ' + messages[0].content }}"})
    )
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert len(tokenizer.encode_message("\n\n")) == len(tokenizer.encode("\n\n")) == 1


def test_a_file_of_llama_cpp_keeps_its_user_defined_tokens(folder: Path) -> None:
    load("r1", "gguf", folder)
    kinds = gguf.GGUFReader(folder / "r1-gguf" / "a.gguf").fields["tokenizer.ggml.token_type"]
    assert 4 in kinds.contents()
