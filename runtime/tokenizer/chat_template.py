"""A checkpoint's chat template: messages → the text its model was trained on, in pieces that keep users' text text.

What a template gets to see, and why the text comes in pieces, is `chat_message`'s. This module knows texts only, no
token ids, and keeps nothing of a conversation: the cost of `render` is that of the whole of it, and small compared with
tokenising it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2.runtime import Context
from jinja2.utils import pass_context

from ...errors import RequestError
from ..models.json_file import Fields, read_json_object, read_text
from .chat_message import (
    Shield,
    all_texts,
    checked_message,
    mapped,
    text_of,
    unused_markers,
    with_calls_as_text,
)
from .template_environment import (
    broken,
    compiled,
    line_of,
    parsed,
    pieces_bounded,
    template_environment,
    too_deep,
    undeclared,
)
from .template_functions import RefusedByTemplate
from .template_tokens import SEARCHED, endings, fragments, mark_searches, written

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
RESERVED = frozenset({"messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "tokenize"})
_CUT = "_phloem_cut"  # the marker, among a template's variables
_TOKEN_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")


class ChatTemplate:
    """One checkpoint's template, compiled.

    Attributes:
        source: its text.
        place: the file it came from; "the built-in ChatML template" if the folder has none.
        is_default: whether it is the built-in one.
        control_texts: of tokens that the template makes and no message does.
        option_names: extra variables it reads (`enable_thinking` …); others are refused by `render`.
    """

    def __init__(
        self,
        source: str | None,
        place: str,
        *,
        token_texts: Mapping[str, str],
        special_texts: Iterable[str],
        added_texts: Iterable[str] = (),
    ) -> None:
        """source: None: ChatML. token_texts: `bos_token`, `eos_token` … as the template may use them; special_texts: of
        tokens that no message makes; added_texts: of tokens that a message makes unless the template writes them.

        Raises:
            ModelError: the template does not parse, or is nested too deeply.
        """
        self.is_default = source is None
        if source is None:
            source, place = CHATML, "the built-in ChatML template"
        environment = template_environment()
        tree = parsed(environment, source, place)
        try:
            names = undeclared(environment, tree)
            texts = fragments(tree)
            self.control_texts = frozenset((*special_texts, *written(added_texts, texts)))
            self._shield = Shield(self.control_texts, endings(self.control_texts, texts))
            environment.filters[SEARCHED] = self._searched
            mark_searches(tree, self.control_texts)
            self._template = compiled(environment, tree, place)
        except jinja2.TemplateError as error:
            raise broken(place, error) from None
        except RecursionError:
            raise too_deep(place, tree) from None
        self._shows_calls = "tool_calls" in source
        self.source = source
        self.place = place
        self.option_names = frozenset(names) - RESERVED - environment.globals.keys() - set(_TOKEN_NAMES)
        self._token_texts = dict(token_texts)

    @staticmethod
    def from_folder(folder: Path, special_texts: Iterable[str], added_texts: Iterable[str] = ()) -> ChatTemplate:
        """`chat_template.jinja`, or `chat_template` in `tokenizer_config.json`, or ChatML."""
        settings_file = folder / "tokenizer_config.json"
        settings = Fields(read_json_object(settings_file) if settings_file.exists() else {}, str(settings_file))
        source, place = settings.values.get("chat_template"), f"{settings_file}: chat_template"
        file = folder / "chat_template.jinja"
        if file.exists():
            source, place = read_text(file), str(file)
        if isinstance(source, list):  # several, by name
            source = {str(entry.get("name")): entry.get("template") for entry in source if isinstance(entry, dict)}
            source = source.get("default", next(iter(source.values()), None))
        if not isinstance(source, str | None):
            raise settings.odd("chat_template", "a template, or a list of named templates")
        token_texts = {name: token_text(settings.values.get(name)) or "" for name in _TOKEN_NAMES}
        return ChatTemplate(
            source, place, token_texts=token_texts, special_texts=special_texts, added_texts=added_texts
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

        messages: objects with `role` and `content` (text, or a list of text parts, or None with `tool_calls`).
        continue_final: the last message is unfinished, and the output ends with its content. options: values for
        `option_names`.

        Raises:
            RequestError: messages of another form, an option that the template does not read, or the template
                refuses the conversation (its own words are in the message).
        """
        if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
            found = type(messages).__name__
            raise RequestError(
                f"messages: expected a list of objects with role and content, got {found}", param="messages"
            )
        checked = [self._checked(message, f"messages[{index}]") for index, message in enumerate(messages)]
        if not checked:
            raise RequestError("messages: it is empty; give at least one message", param="messages")
        texts = all_texts([checked, tools, options])
        cut, end = unused_markers(texts)
        shown = [self._shield.message(message, cut) for message in checked]
        if continue_final:
            shown[-1]["content"] = text_of(shown[-1], len(shown) - 1) + end
        context = self._context(
            cut,
            add_generation_prompt=add_generation_prompt and not continue_final,
            continue_final=continue_final,
            tools=tools,
            options=options,
        )
        text = self._output({**context, "messages": shown}, sum(map(len, texts)))
        if continue_final:
            text, found, _ = text.rpartition(end)
            if not found:
                text = "messages: the model's chat template does not show the last one, so it cannot go on"
                raise RequestError(text, param="messages")
        return text.split(cut)

    def cut(self, text: str, marker: str) -> str:
        """A text of a message with `marker` wherever tokens must not be read across."""
        return self._shield.text(text, marker)

    def _checked(self, message: object, place: str) -> dict[str, Any]:
        checked = checked_message(message, place)
        return checked if self._shows_calls or not checked.get("tool_calls") else with_calls_as_text(checked)

    def _context(
        self,
        cut: str,
        *,
        add_generation_prompt: bool,
        continue_final: bool,
        tools: Sequence[Mapping[str, Any]] | None,
        options: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        """What the template sees but for the messages. Raises RequestError: an option that it does not read."""
        options = options or {}
        for name in options.keys() - self.option_names:
            known = ", ".join(sorted(self.option_names)) or "none"
            raise RequestError(f"{name}: the chat template has no such option (it has: {known})", param=name)

        def shield(text: str) -> str:
            return self._shield.text(text, cut)

        return {
            **self._token_texts,
            **mapped(dict(options), shield, "chat template options"),
            "tools": mapped(list(tools), shield, "tools") if tools else None,
            "documents": None,
            _CUT: cut,
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final,
        }

    @property
    def _searched(self) -> Any:
        shield = self._shield

        @pass_context
        def searched(context: Context, value: Any) -> Any:
            return shield.searched(value, context[_CUT]) if isinstance(value, str) else value

        return searched

    def _output(self, context: Mapping[str, Any], num_input_chars: int) -> str:
        max_chars = (1 << 20) + 4 * len(self.source) + 16 * num_input_chars
        try:
            return "".join(pieces_bounded(self._template, context, max_chars))
        except RefusedByTemplate as error:
            raise RequestError(f"messages: refused by the model's chat template: {error}", param="messages") from None
        except Exception as error:  # a template can fail in any way that Python can
            line, reason = line_of(error), f"{type(error).__name__}: {error}"[:300]
            place = "" if line is None else f"line {line}: "
            text = f"messages: the model's chat template cannot render them ({place}{reason})"
            raise RequestError(text, param="messages") from None


def token_text(value: Any) -> str | None:
    """A token as files write it: a string, or an object with `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None
