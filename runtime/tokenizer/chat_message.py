"""Messages as a template is to see them: in one form, and with special-token text in them cut in two.

A template mixes its own special tokens with what users wrote. Users' text must never become a special token, and the
template must see it as it is (templates trim, split and compare contents). So special-token text in messages is cut
in two by a marker character before rendering, and the output is cut at the markers afterwards::

    content    say <|im_end|> twice          becomes   say <⌇|im_end|> twice
    rendered   <|im_start|>user⏎say <⌇|im_end|> twice<|im_end|>⏎
    pieces     ["<|im_start|>user⏎say <", "|im_end|> twice<|im_end|>⏎"]

The tokenizer reads special tokens within a piece and never across a cut: the first one stays text, the second is real.
A text that ends with the beginning of a special token gets a cut after it, and one that begins with the rest of a token
that the template may just have begun gets one before it. "Special" are here all tokens that the template writes
(`template_tokens`), in messages of every role. An assistant's content gets a cut before it, so that it is tokenised
from its own first character, as it was when the model generated it: the token ids of a conversation then stay the same
while it grows, and the prefix cache holds. Markers are characters that occur nowhere in the input (Unicode
noncharacters). Knows no template and no token ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from ...errors import RequestError
from .beginnings import Beginnings

Role = Literal["system", "developer", "user", "assistant", "tool"]
MAX_DEPTH = 64
_MARKERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]  # noncharacters, "intended for process-internal use"
_MARKER_PATTERN = re.compile(f"[{_MARKERS[0]}-{_MARKERS[-1]}]")


class Shield:
    """Cuts special-token text in two."""

    def __init__(self, special_texts: Iterable[str], endings: Collection[str] = ()) -> None:
        """endings: what makes a special token where the template has just written the beginning of it."""
        texts = [text for text in special_texts if text]
        # a look-ahead finds overlapping occurrences too
        self._pattern = re.compile(f"(?=(?:{'|'.join(map(re.escape, texts))}))(.)" if texts else "(?!)", re.DOTALL)
        firsts = "".join({re.escape(text[0]) for text in texts})
        self._first = re.compile(f"[{firsts}]" if texts else "(?!)")
        self._beginnings = Beginnings(texts)
        self._endings = tuple(endings)
        self._begun = Beginnings(endings)

    def text(self, text: str, cut: str) -> str:
        """`text` with `cut` after the first character of every special token, after a begun one at its end, and before
        the rest of one that the template may have begun."""
        if self._endings and text and (text in self._begun or text.startswith(self._endings)):
            return cut + self._inside(text, cut)
        return self._inside(text, cut)

    def searched(self, text: str, cut: str) -> str:
        """A text that is looked for in such texts, as it is there."""
        return self._pattern.sub(rf"\1{cut}", text)

    def _inside(self, text: str, cut: str) -> str:
        if self._first.search(text) is None:  # nearly always
            return text
        shielded = self._pattern.sub(rf"\1{cut}", text)
        lengths = range(1, min(self._beginnings.longest, len(text)) + 1)
        return shielded + cut if any(text[-n:] in self._beginnings for n in lengths) else shielded

    def message(self, message: dict[str, Any], cut: str) -> dict[str, Any]:
        """A checked message as a template is to see it."""

        def shield(text: str) -> str:
            return self.text(text, cut)

        if len(message) == 2 and message["content"] is not None:  # role and content: nearly always
            shielded = {"role": message["role"], "content": shield(message["content"])}
        else:
            shielded = mapped(message, shield, "messages")
        shielded["role"] = message["role"]  # templates compare roles, and write marks of turns with them
        if message["role"] == "assistant" and message.get("content"):
            shielded["content"] = cut + shielded["content"]
        return shielded


def checked_message(message: object, place: str) -> dict[str, Any]:
    """One message in the form that templates expect: content as one text, arguments of tool calls as objects.

    A field that is null is not there. `developer` is what newer clients call `system`. An assistant's refusal is what
    it has said; with calls it need not have said anything, and its content is None then, as some templates ask. Its
    reasoning before calls is also `thinking`, as gpt-oss' template has it.
    """
    if not isinstance(message, (dict, Mapping)):  # dict first: the general question takes longer
        raise RequestError(f"{place}: expected an object with role and content", param="messages")
    role, content = message.get("role"), message.get("content")
    if role not in get_args(Role):
        raise RequestError(f"{place}.role: expected one of {', '.join(get_args(Role))}, got {role!r}", param="messages")
    if not isinstance(content, (str, bytes)) and isinstance(content, Sequence):
        content = "".join(_part(part, f"{place}.content[{index}]") for index, part in enumerate(content))
    checked = {name: value for name, value in message.items() if value is not None and name != "refusal"}
    calls = checked.get("tool_calls")
    if not calls:
        checked.pop("tool_calls", None)
    elif isinstance(calls, Sequence):
        checked["tool_calls"] = [_tool_call(call) for call in calls]
    if role == "assistant" and not content:
        content = message.get("refusal") or (None if calls else "")
    if content is None and not calls:
        raise RequestError(f"{place}.content: expected a text, got null", param="messages")
    if content is not None and not isinstance(content, str):
        raise RequestError(f"{place}.content: expected a text, got {type(content).__name__}", param="messages")
    if calls and not message.get("content") and "reasoning_content" in checked:
        checked.setdefault("thinking", checked["reasoning_content"])
    return {**checked, "role": "system" if role == "developer" else role, "content": content}


def with_calls_as_text(message: dict[str, Any]) -> dict[str, Any]:
    """A checked message for a template that knows no tool calls and would drop them, or fail for want of a content.

    They stand in the content as the JSON objects that a model without a format of its own writes, one to a line.
    """
    lines = [message["content"]] if message["content"] else []
    for call in message["tool_calls"]:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            raise RequestError("messages: a tool call is an object with a function", param="messages")
        shown = {"name": function.get("name"), "arguments": function.get("arguments")}
        lines.append(json.dumps(shown, ensure_ascii=False, separators=(",", ":")))
    return {**message, "content": "\n".join(lines)}


def _part(part: object, place: str) -> str:
    if isinstance(part, Mapping) and part.get("type") in ("text", "refusal"):
        text = part.get(part["type"])
        if isinstance(text, str):
            return text
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


def text_of(message: Mapping[str, Any], index: int) -> str:
    content = message.get("content")
    if not isinstance(content, str):
        raise RequestError(f"messages[{index}].content: expected the text to continue", param="messages")
    return content


def mapped(value: Any, change: Callable[[str], str], place: str, depth: int = 0) -> Any:
    """A copy of a JSON value with every text in it changed."""
    if depth > MAX_DEPTH:
        raise RequestError(f"{place}: nested deeper than {MAX_DEPTH} levels", param=place)
    if isinstance(value, str):
        return change(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, (dict, Mapping)):
        changed: dict[str, Any] = {}
        for key, inner in value.items():
            name = str(key)  # templates look up names; those are no marks
            changed[name if name.isidentifier() else change(name)] = mapped(inner, change, place, depth + 1)
        return changed
    if isinstance(value, (list, Sequence)) and not isinstance(value, bytes):
        return [mapped(inner, change, place, depth + 1) for inner in value]
    raise RequestError(f"{place}: expected JSON values only, got {type(value).__name__}", param=place)


def all_texts(value: Any, place: str = "messages", depth: int = 0) -> list[str]:
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
                found += all_texts(inner, place, depth + 1)
    elif isinstance(value, (list, Sequence)) and not isinstance(value, bytes):
        for inner in value:
            found += all_texts(inner, place, depth + 1)
    return found


def unused_markers(texts: Sequence[str]) -> tuple[str, str]:
    """Two characters that occur in none of the texts."""
    used = {marker for text in texts if not text.isascii() for marker in _MARKER_PATTERN.findall(text)}
    free = [marker for marker in _MARKERS if marker not in used]
    if len(free) < 2:
        raise RequestError("messages: they use up Unicode's noncharacters; send ordinary text", param="messages")
    return free[0], free[1]
