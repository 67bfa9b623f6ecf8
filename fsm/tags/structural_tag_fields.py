"""Reading a description of structural tags: its fields by kind, and errors that name the place of what is wrong.

`place` is always the JSON pointer of the object that is read. Whatever reads raises InvalidStructuralTag, with the
pointer of the field that is missing or of another kind. Knows no grammars.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import ConstraintError, InvalidStructuralTag

MAX_REPEAT = 100_000
Strings = tuple[str, ...]


def within(place: str, compile_content: Callable[[], Any]) -> Any:
    """Compiles a content; its errors get the place of the content as a prefix of their own."""
    try:
        return compile_content()
    except ConstraintError as error:
        pointer = f"{place}{error.pointer}" if error.pointer[:1] in ("", "/") else f"{place}, {error.pointer}"
        raise type(error)(f"structural tag, {place}: {error}", pointer=pointer, param=error.param) from error


def read_object(value: object, place: str) -> Mapping[str, Any]:
    """An object."""
    if not isinstance(value, Mapping):
        raise InvalidStructuralTag(f"structural tag, {place or 'top'}: expected an object", pointer=place)
    return value


def read_required(form: Mapping[str, Any], key: str, place: str) -> Any:
    """What stands under a key; null counts as missing."""
    if form.get(key) is None:
        raise InvalidStructuralTag(f"structural tag, {place}/{key}: it is missing", pointer=f"{place}/{key}")
    return form[key]


def read_older_form(top: Mapping[str, Any]) -> dict[str, Any]:
    """The `triggered_tags` that a description with `structures` means."""
    tags = []
    for index, entry in enumerate(read_array(top, "structures", "")):
        place = f"/structures/{index}"
        entry = read_object(entry, place)
        schema = read_required(entry, "schema", place)
        options = {key: entry[key] for key in ("any_order", "extra_keys") if key in entry}
        content = {"type": "json_schema", "json_schema": schema, **options}
        tags.append({"type": "tag", "content": content, "begin": entry.get("begin"), "end": entry.get("end")})
    flags = {key: top[key] for key in ("at_least_one", "stop_after_first") if key in top}
    return {"tags": tags, "triggers": top.get("triggers"), **flags}


def read_pairs(form: Mapping[str, Any], place: str, what: str) -> list[tuple[str, Any, Any]]:
    """The `rules` of a dispatch: for each its place, what it begins with ("a token", or a text) and the format."""
    found = []
    for index, rule in enumerate(read_array(form, "rules", place)):
        inner = f"{place}/rules/{index}"
        is_pair = isinstance(rule, (list, tuple)) and len(rule) == 2
        if not is_pair or (what != "a token" and not (isinstance(rule[0], str) and rule[0])):
            raise InvalidStructuralTag(f"structural tag, {inner}: expected [{what}, a format]", pointer=inner)
        if isinstance(rule[0], str):
            check_spelt(rule[0], f"{inner}/0")
        found.append((inner, rule[0], rule[1]))
    return found


def read_array(form: Mapping[str, Any], key: str, place: str) -> Sequence[Any]:
    """An array that is not empty."""
    value = read_required(form, key, place)
    if not isinstance(value, (list, tuple)) or not value:
        raise InvalidStructuralTag(
            f"structural tag, {place}/{key}: expected an array that is not empty", pointer=f"{place}/{key}"
        )
    return value


def read_string(form: Mapping[str, Any], key: str, place: str) -> str:
    """A text that UTF-8 can spell."""
    value = read_required(form, key, place)
    if not isinstance(value, str):
        raise InvalidStructuralTag(
            f"structural tag, {place}/{key}: expected a text, not {json.dumps(value, default=str)[:40]} "
            "(a token can be named as the begin and the end of a tag, and as a format of its own)",
            pointer=f"{place}/{key}",
        )
    return check_spelt(value, f"{place}/{key}")


def read_strings(form: Mapping[str, Any], key: str, place: str) -> Strings:
    """Texts that UTF-8 can spell, none of them empty but an `end`; () if the key is missing."""
    values = form.get(key) or []
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, str) for value in values):
        raise InvalidStructuralTag(f"structural tag, {place}/{key}: expected texts", pointer=f"{place}/{key}")
    if key != "end" and "" in values:
        raise InvalidStructuralTag(f"structural tag, {place}/{key}: a text is empty", pointer=f"{place}/{key}")
    return tuple(check_spelt(value, f"{place}/{key}") for value in values)


def check_spelt(text: str, place: str) -> str:
    """The text, unless it has half a surrogate pair in it, which no UTF-8 spells."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidStructuralTag(
            f"structural tag, {place}: {text!r} has half a surrogate pair in it, which cannot be written", pointer=place
        )
    return text


def read_flag(form: Mapping[str, Any], key: str, place: str, default: bool = False) -> bool:
    """True or false."""
    value = form.get(key, default)
    if not isinstance(value, bool):
        raise InvalidStructuralTag(f"structural tag, {place}/{key}: expected true or false", pointer=f"{place}/{key}")
    return value


def read_count(form: Mapping[str, Any], key: str, place: str) -> int:
    """A number of repetitions; -1: no bound."""
    value = read_required(form, key, place)
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= MAX_REPEAT:
        raise InvalidStructuralTag(
            f"structural tag, {place}/{key}: expected a number from 0 to {MAX_REPEAT}, or -1 for no bound",
            pointer=f"{place}/{key}",
        )
    return value


def unsupported(form: Mapping[str, Any], key: str, place: str, remedy: str) -> InvalidStructuralTag:
    """The error of a key whose value is not supported, with what to do instead."""
    shown = json.dumps(form[key], default=str)[:40]
    return InvalidStructuralTag(
        f"structural tag, {place}/{key}: {shown} is not supported; {remedy}", pointer=f"{place}/{key}"
    )
