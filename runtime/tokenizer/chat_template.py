"""Messages → the text a model was trained on, in pieces that keep users' text text.

A template mixes its own special tokens with what users wrote. Users' text must never become a special token, and the
template must see it as it is (templates trim, split and compare contents). So special-token text in messages is cut
in two by a marker character before rendering, and the output is cut at the markers afterwards::

    content    say <|im_end|> twice          becomes   say <⌇|im_end|> twice
    rendered   <|im_start|>user⏎say <⌇|im_end|> twice<|im_end|>⏎
    pieces     ["<|im_start|>user⏎say <", "|im_end|> twice<|im_end|>⏎"]

The tokenizer reads special tokens within a piece and never across a cut: the first one stays text, the second is real.
A text that ends with the beginning of a special token gets a cut behind it. An assistant's content gets a cut before
it, so that it is tokenised from its own first character, as it was when the model generated it: the token ids of a
conversation then stay the same while it grows, and the prefix cache holds. Markers are characters that occur nowhere
in the input (Unicode noncharacters). This module knows texts only, no token ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta

from ...errors import ModelError, RequestError
from ..models.json_file import Fields, read_json_object
from .template_environment import RefusedByTemplate, render_bounded, template_environment

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
RESERVED = frozenset({"messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "tokenize"})
MAX_DEPTH = 64
_MARKERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]  # noncharacters, "intended for process-internal use"
_MARKER_PATTERN = re.compile(f"[{_MARKERS[0]}-{_MARKERS[-1]}]")
_TOKEN_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")


class ChatTemplate:
    """One checkpoint's template, compiled.

    Attributes:
        source: its text.
        place: the file it came from; "the built-in ChatML template" if the folder has none.
        is_default: whether it is the built-in one.
        option_names: extra variables it reads (`enable_thinking` …); others are refused by `render`.
    """

    def __init__(
        self,
        source: str,
        place: str,
        *,
        token_texts: Mapping[str, str],
        special_texts: Iterable[str],
        is_default: bool = False,
    ) -> None:
        """token_texts: `bos_token`, `eos_token` … as the template may use them; special_texts: what must not come
        out of a message.

        Raises:
            ModelError: the template does not parse.
        """
        environment = template_environment()
        try:
            names = meta.find_undeclared_variables(environment.parse(source))
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            line = getattr(error, "lineno", "?")
            raise ModelError(f"{place}: the chat template does not parse: {error} (line {line})") from None
        self.source = source
        self.place = place
        self.is_default = is_default
        self.option_names = frozenset(names) - RESERVED - environment.globals.keys() - set(_TOKEN_NAMES)
        self._token_texts = dict(token_texts)
        self._shield = _Shield(special_texts)
        self._max_chars = (1 << 20) + 4 * len(source)

    @staticmethod
    def from_folder(folder: Path, special_texts: Iterable[str]) -> ChatTemplate:
        """`chat_template.jinja`, or `chat_template` in `tokenizer_config.json`, or ChatML."""
        settings_file = folder / "tokenizer_config.json"
        settings = Fields(read_json_object(settings_file) if settings_file.exists() else {}, str(settings_file))
        source, place = settings.values.get("chat_template"), f"{settings_file}: chat_template"
        file = folder / "chat_template.jinja"
        if file.exists():
            try:
                source, place = file.read_text(encoding="utf-8"), str(file)
            except (OSError, UnicodeDecodeError) as error:
                raise ModelError(f"{file}: cannot be read ({error})") from None
        if isinstance(source, list):  # several, by name
            source = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
            source = source.get("default", next(iter(source.values()), None))
        is_default = source is None
        if is_default:
            source, place = CHATML, "the built-in ChatML template"
        if not isinstance(source, str):
            raise settings.odd("chat_template", "a template, or a list of named templates")
        return ChatTemplate(
            source,
            place,
            token_texts={name: _token_text(settings.values.get(name)) for name in _TOKEN_NAMES},
            special_texts=special_texts,
            is_default=is_default,
        )

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """The conversation as pieces of text; special tokens count within a piece, never across a cut.

        messages: objects with `role` and `content` (text, or a list of text parts, or None beside `tool_calls`).
        continue_final: the last message is unfinished, and the output ends with its content. options: values for
        `option_names`.

        Raises:
            RequestError: messages of another form, an option that the template does not read, or the template
                refuses the conversation (its own words are in the message).
        """
        checked = [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]
        if not checked:
            raise RequestError("messages: it is empty; give at least one message", param="messages")
        options = options or {}
        for name in options.keys() - self.option_names:
            known = ", ".join(sorted(self.option_names)) or "none"
            raise RequestError(f"{name}: the chat template has no such option (it has: {known})", param=name)
        texts = _texts([checked, tools, options])
        cut, end = _unused_markers(texts)

        def shield(text: str) -> str:
            return self._shield.text(text, cut)

        shown = [_shielded_message(message, shield, cut) for message in checked]
        if continue_final:
            shown[-1]["content"] = _text_of(shown[-1], len(shown) - 1) + end
        context = {
            **self._token_texts,
            **_mapped(dict(options), shield, "chat template options"),
            "messages": shown,
            "tools": _mapped(list(tools), shield, "tools") if tools else None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt and not continue_final,
            "continue_final_message": continue_final,
        }
        text = self._output(context, sum(map(len, texts)))
        if continue_final:
            text, found, _ = text.rpartition(end)
            if not found:
                raise RequestError(f"{self.place}: the template does not show the last message", param="messages")
        return text.split(cut)

    def _output(self, context: Mapping[str, Any], num_input_chars: int) -> str:
        try:
            return render_bounded(self._template, context, self._max_chars + 16 * num_input_chars)
        except RefusedByTemplate as error:
            raise RequestError(f"messages: refused by the model's chat template: {error}", param="messages") from None
        except Exception as error:  # a template can fail in any way that Python can
            reason = f"{type(error).__name__}: {error}"[:300]
            raise RequestError(f"{self.place}: cannot render these messages ({reason})", param="messages") from None


class _Shield:
    """Cuts special-token text in two."""

    def __init__(self, special_texts: Iterable[str]) -> None:
        texts = [text for text in special_texts if text]
        # a look-ahead finds overlapping occurrences too
        self._pattern = re.compile(f"(?=(?:{'|'.join(map(re.escape, texts))}))(.)" if texts else "(?!)", re.DOTALL)
        firsts = "".join({re.escape(text[0]) for text in texts})
        self._first = re.compile(f"[{firsts}]" if texts else "(?!)")
        self._beginnings = {text[:length] for text in texts for length in range(1, len(text))}
        self._longest = max(map(len, self._beginnings), default=0)

    def text(self, text: str, cut: str) -> str:
        """`text` with `cut` behind the first character of every special token, and behind a begun one at its end."""
        if self._first.search(text) is None:  # nearly always
            return text
        shielded = self._pattern.sub(rf"\1{cut}", text)
        lengths = range(1, min(self._longest, len(text)) + 1)
        return shielded + cut if any(text[-n:] in self._beginnings for n in lengths) else shielded


def _shielded_message(message: dict[str, Any], shield: Callable[[str], str], cut: str) -> dict[str, Any]:
    if len(message) == 2 and message["content"] is not None:  # role and content: nearly always
        shielded = {"role": shield(message["role"]), "content": shield(message["content"])}
    else:
        shielded = _mapped(message, shield, "messages")
    if message["role"] == "assistant" and message.get("content"):
        shielded["content"] = cut + shielded["content"]
    return shielded


def _message(message: object, place: str) -> dict[str, Any]:
    """One message in the form that templates expect: content as one text, arguments of tool calls as objects."""
    if not isinstance(message, (dict, Mapping)):  # dict first: the general question takes longer
        raise RequestError(f"{place}: expected an object with role and content", param="messages")
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not role:
        raise RequestError(f"{place}.role: expected a text, got {role!r}", param="messages")
    if not isinstance(content, (str, bytes)) and isinstance(content, Sequence):
        content = "".join(_part(part, f"{place}.content[{index}]") for index, part in enumerate(content))
    if content is None and message.get("tool_calls") is None:
        raise RequestError(f"{place}.content: expected a text, got null", param="messages")
    if content is not None and not isinstance(content, str):
        raise RequestError(f"{place}.content: expected a text, got {type(content).__name__}", param="messages")
    checked = {**message, "role": role, "content": content}
    if checked.get("tool_calls") is not None and isinstance(checked["tool_calls"], Sequence):
        checked["tool_calls"] = [_tool_call(call) for call in message["tool_calls"]]
    return checked


def _part(part: object, place: str) -> str:
    if isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    raise RequestError(f"{place}: this model reads only text parts, not {kind!r}", param="messages")


def _tool_call(call: object) -> object:
    """OpenAI's wire format has the arguments as JSON text; templates print them from an object."""
    if not isinstance(call, Mapping) or not isinstance(call.get("function"), Mapping):
        return call
    function = dict(call["function"])
    if isinstance(function.get("arguments"), str):
        try:
            parsed = json.loads(function["arguments"])
        except (ValueError, RecursionError):
            return call
        function["arguments"] = parsed if isinstance(parsed, dict) else function["arguments"]
    return {**call, "function": function}


def _text_of(message: Mapping[str, Any], index: int) -> str:
    content = message.get("content")
    if not isinstance(content, str):
        raise RequestError(f"messages[{index}].content: expected the text to continue", param="messages")
    return content


def _mapped(value: Any, change: Callable[[str], str], place: str, depth: int = 0) -> Any:
    """A copy of a JSON value with every text in it changed."""
    if depth > MAX_DEPTH:
        raise RequestError(f"{place}: nested deeper than {MAX_DEPTH} levels", param=place)
    if isinstance(value, str):
        return change(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, (dict, Mapping)):
        return {change(str(key)): _mapped(inner, change, place, depth + 1) for key, inner in value.items()}
    if isinstance(value, (list, Sequence)) and not isinstance(value, bytes):
        return [_mapped(inner, change, place, depth + 1) for inner in value]
    raise RequestError(f"{place}: expected JSON values only, got {type(value).__name__}", param=place)


def _texts(value: Any, place: str = "messages", depth: int = 0) -> list[str]:
    """All texts in a JSON value, keys included."""
    if isinstance(value, str):
        return [value]
    if depth > MAX_DEPTH:
        raise RequestError(f"{place}: nested deeper than {MAX_DEPTH} levels", param=place)
    found: list[str] = []
    if isinstance(value, (dict, Mapping)):
        for key, inner in value.items():
            found.append(str(key))
            if isinstance(inner, str):
                found.append(inner)
            else:
                found += _texts(inner, place, depth + 1)
    elif isinstance(value, (list, Sequence)) and not isinstance(value, bytes):
        for inner in value:
            found += _texts(inner, place, depth + 1)
    return found


def _unused_markers(texts: Sequence[str]) -> tuple[str, str]:
    """Two characters that occur in none of the texts."""
    used = set(_MARKER_PATTERN.findall("".join(texts)))
    free = [marker for marker in _MARKERS if marker not in used]
    if len(free) < 2:
        raise RequestError("messages: they use up Unicode's noncharacters; send ordinary text", param="messages")
    return free[0], free[1]


def _token_text(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""
