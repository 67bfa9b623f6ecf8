"""Several grammars, of which the first is the text and may name the others: llguidance's list, as JSON.

::

    {"grammars": [{"lark_grammar": "start: \\"call \\" @person"},
                  {"name": "person", "json_schema": {"type": "object"}}]}

`@person` stands for a whole text of that grammar, with that grammar's own `%ignore`. Each is read once, when it is
named first. Refused, with their place: grammars that name one another in a circle, and whatever else an entry says.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ...errors import ConstraintError, InvalidGrammar
from ..compile_time import CompileTime
from ..network.expression import Grammar

KINDS = ("lark_grammar", "json_schema")
Named = Callable[[str], "Grammar | None"]
"""The grammar of a name; None if there is none."""


def list_to_grammar(text: str, compile_time: CompileTime, read_lark: Callable[[str, Named], Grammar]) -> Grammar:
    """Reads a list of grammars.

    Args:
        read_lark: reads one in Lark's notation.

    Raises:
        InvalidGrammar: it is no such list; `pointer` is the place in it.
        ConstraintError: of one of the grammars; `pointer` is the place of that grammar and the place in it.
    """
    return _List(_entries(text), compile_time, read_lark).read(0)


class _List:
    def __init__(
        self, entries: list[dict[str, Any]], compile_time: CompileTime, read_lark: Callable[[str, Named], Grammar]
    ) -> None:
        self.entries = entries
        self.time = compile_time
        self.read_lark = read_lark
        self.numbers = {entry["name"]: number for number, entry in enumerate(entries) if "name" in entry}
        self.read_already: dict[int, Grammar] = {}
        self.under_way: list[int] = []

    def named(self, name: str) -> Grammar | None:
        number = self.numbers.get(name)
        return None if number is None else self.read(number)

    def read(self, number: int) -> Grammar:
        if number in self.under_way:
            raise _error(
                f"grammars[{number}]", "names itself, directly or through others; write its rules in one grammar"
            )
        if number not in self.read_already:
            self.under_way.append(number)
            kind = next(kind for kind in KINDS if kind in self.entries[number])
            place = f"grammars[{number}].{kind}"
            self.time.check("", place)
            try:
                self.read_already[number] = self._read(kind, self.entries[number][kind])
            except ConstraintError as error:
                pointer = error.pointer if error.pointer.startswith("grammars[") else f"{place}, {error.pointer}"
                message = str(error) if error.pointer.startswith("grammars[") else f"{place}: {error}"
                raise type(error)(message, pointer=pointer, param="grammar") from error
            self.under_way.pop()
        return self.read_already[number]

    def _read(self, kind: str, source: Any) -> Grammar:
        if kind == "lark_grammar":
            return self.read_lark(source, self.named)
        from ..json_schema import schema_to_grammar  # half of the constraint engine, for a list with a schema in it

        return schema_to_grammar(source, compile_time=self.time)


def _entries(text: str) -> list[dict[str, Any]]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _error("", f"a grammar that begins with {{ is a list of grammars as JSON: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("grammars"), list) or not found["grammars"]:
        raise _error("", 'a list of grammars is {"grammars": [{"lark_grammar": "…"}, …]}')
    _refuse_others("", found, ("grammars",))
    names: set[str] = set()
    for number, entry in enumerate(found["grammars"]):
        place = f"grammars[{number}]"
        if not isinstance(entry, dict) or sum(kind in entry for kind in KINDS) != 1:
            raise _error(place, "must be an object with either lark_grammar or json_schema")
        _refuse_others(place, entry, ("name", *KINDS))
        if "lark_grammar" in entry and not isinstance(entry["lark_grammar"], str):
            raise _error(f"{place}.lark_grammar", "must be a string")
        name = entry.get("name", "")
        if not isinstance(name, str):
            raise _error(f"{place}.name", "must be a string")
        if name in names:
            raise _error(f"{place}.name", f"{name!r} is the name of another grammar, too")
        names |= {name} if "name" in entry else set()
    return list(found["grammars"])


def _refuse_others(place: str, found: dict[str, Any], known: tuple[str, ...]) -> None:
    others = sorted(set(found) - set(known))
    if others:
        raise _error(f"{place}.{others[0]}".lstrip("."), f"is not supported; only {', '.join(known)}")


def _error(place: str, message: str) -> InvalidGrammar:
    return InvalidGrammar(f"{place or 'grammar'}: {message}", pointer=place, param="grammar")
