"""Arguments of a call, as JSON or as XML, read as the text of a JSON object while they arrive.

::

    <parameter=city>⏎Os lo⏎</parameter>⏎<parameter=days>⏎3⏎</parameter>   ──►   {"city": "Os lo", "days": 3}

A value is typed by the tool's schema: where only a string can be, it is the text as it stands; elsewhere JSON if it is
JSON, else the text. Strings, objects and lists are handed on as they arrive, other values when they are complete.
What is cut short keeps what is certain. Knows the marks, no schemas.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from ....fsm.json_schema import XmlMarks
from .events import num_held

BLANKS = " \t\r\n"


class JsonArguments:
    """Arguments that are JSON: an object or array (or a string), which arrives in parts."""

    def __init__(self) -> None:
        self.is_complete = False
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def read(self, text: str, *, is_last: bool) -> tuple[str, str]:
        """The text up to the bracket or quote that closes the value, and what comes after it."""
        for index, character in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif character == "\\":
                self._escaped = self._in_string
            elif character == '"':
                self._in_string = not self._in_string
                self.is_complete = not self._in_string and self._depth == 0
            elif not self._in_string and character in "{[":
                self._depth += 1
            elif not self._in_string and character in "}]":
                self._depth -= 1
                self.is_complete = self._depth == 0
            if self.is_complete:
                return text[: index + 1], text[index + 1 :]
        return text, ""


class XmlArguments:
    """Arguments that are XML.

    Args:
        marks: what stands around keys and values.
        raw_keys: the keys whose values are text.
    """

    def __init__(self, marks: XmlMarks, raw_keys: frozenset[str]) -> None:
        self.is_complete = False
        self._marks = marks
        self._raw_keys = raw_keys
        self._num_keys = 0
        self._inside = JsonArguments()  # of a value that is JSON and shows by itself where it ends
        self._found = ["{"]
        self._read_next: Callable[[str], str | None] = self._before_key

    def read(self, text: str, *, is_last: bool) -> tuple[str, str]:
        """What the next characters make certain of the object, and those that are to be read again with more."""
        while not self.is_complete:
            rest = self._read_next(text)
            if rest is None:
                break
            text = rest
        found, self._found = "".join(self._found), []
        return found, "" if is_last and not self.is_complete else text

    # Each of these reads one thing and returns the text after it, or None if more is needed.

    def _before_key(self, text: str) -> str | None:
        mark = self._marks.joint * (self._num_keys > 0) + self._marks.before_key
        if text.startswith(mark):
            self._read_next = self._key
            return text[len(mark) :]
        if mark.startswith(text):
            return None
        self._found.append("}")
        self.is_complete = True
        return text

    def _key(self, text: str) -> str | None:
        key, mark, rest = text.partition(self._marks.after_key)
        if not mark:
            return None
        self._found.append(f"{', ' * (self._num_keys > 0)}{json.dumps(key, ensure_ascii=False)}: ")
        self._num_keys += 1
        is_raw = key in self._raw_keys
        self._found.append('"' * is_raw)
        self._read_next = self._raw_value if is_raw else self._value
        return rest

    def _raw_value(self, text: str) -> str | None:
        value, mark, rest = text.partition(self._marks.end)
        if mark:
            self._found.append(f'{_escaped(value)}"')
            self._read_next = self._before_key
            return rest
        held = num_held(text, self._marks.end)
        if held == len(text):
            return None
        self._found.append(_escaped(text[: len(text) - held]))
        return text[len(text) - held :]

    def _value(self, text: str) -> str | None:
        start = text.lstrip(BLANKS)
        if start[:1] in ("{", "[", '"'):
            self._inside = JsonArguments()
            self._read_next = self._delimited_value
            return start
        value, mark, rest = text.partition(self._marks.end)
        if not mark:
            return None
        self._found.append(value.strip(BLANKS) if _is_json(value) else json.dumps(value, ensure_ascii=False))
        self._read_next = self._before_key
        return rest

    def _delimited_value(self, text: str) -> str | None:
        found, rest = self._inside.read(text, is_last=False)
        self._found.append(found)
        if self._inside.is_complete:
            self._read_next = self._after_value
            return rest
        return "" if text else None

    def _after_value(self, text: str) -> str | None:
        _, mark, rest = text.partition(self._marks.end)
        if not mark:
            return None
        self._read_next = self._before_key
        return rest


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse)
    except ValueError:
        return False
    return True


def _refuse(word: str) -> None:
    raise ValueError(word)
