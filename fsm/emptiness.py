"""Why nothing satisfies a constraint: the place in its source, and what to change there.

    regex             the first offset from which on the pattern cannot be matched any more
    grammar           the rule that never ends, or that has no text, by line and column
    structural tag    the JSON pointer of the format that such a rule comes from, or of an impossible pattern

Only asked once a constraint is known to be empty. Schemas are looked at by `json_schema/contradiction.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ..errors import ConstraintTooLarge, EmptyLanguage, InvalidRegex
from .compile_time import CompileTime
from .network.dead_rules import dead_rules, has_impossible_part, path_to_nothing
from .network.expression import Grammar
from .regex.regex import regex_to_dfa
from .source import Source, unpacked

MAX_SECONDS = 0.2
"""Of looking for the place, in all patterns together; what is not known by then is the beginning of a pattern."""

MOST_SHOWN = 12
"""Rules of a cycle that are named; of a longer one those at its ends."""


def empty_language(kind: str, source: Source, grammar: Grammar) -> EmptyLanguage:
    """The error that says where and why a constraint that was made from a source has no text.

    Args:
        kind: of the constraint; of any other kind than the module's docstring says the error has no place.
        source: a pattern, the text of a grammar, a structural tag as JSON text.
        grammar: what was made of it.
    """
    if kind == "regex":
        return _in_pattern(str(source), CompileTime(MAX_SECONDS))
    if kind == "structural_tag":
        return _in_tag(source, grammar)
    if kind == "grammar" and source:
        return _in_grammar(str(source), grammar)
    return EmptyLanguage("nothing at all satisfies the constraint")


# ---------------------------------------------------------------- patterns


def _in_pattern(pattern: str, time: CompileTime) -> EmptyLanguage:
    offset = _first_impossible(pattern, time)
    shown = pattern if len(pattern) <= 80 else f"{pattern[:77]}..."
    message = (
        f"no text matches the pattern {shown!r}: from offset {offset} on nothing can be matched; look there for an "
        "anchor, a look-around, an empty class or half a surrogate pair that cannot be where it is"
    )
    return EmptyLanguage(message, pointer=f"offset {offset}", param="regex")


def _first_impossible(pattern: str, time: CompileTime) -> int:
    """The length of the longest beginning of a pattern that is a pattern and matches something."""
    for length in range(len(pattern) - 1, 0, -1):
        try:
            if not regex_to_dfa(pattern[:length], dialect="python", compile_time=time).is_empty():
                return length
        except InvalidRegex:
            continue
        except ConstraintTooLarge:
            break
    return 0


def _is_impossible(pattern: str, time: CompileTime) -> bool:
    try:
        return regex_to_dfa(pattern, dialect="python", compile_time=time).is_empty()
    except ConstraintTooLarge:
        return False


# ---------------------------------------------------------------- grammars


def _in_grammar(text: str, grammar: Grammar) -> EmptyLanguage:
    dead = dead_rules(grammar.rules)
    path, cycle = path_to_nothing(grammar, dead)
    # what was made for a rule that begins with itself may be dead where the rule itself is not
    names = [name for name in map(_written_name, path) if name in dead or name.startswith("%json ")]
    if not names:  # the longest match of terminals has left nothing of the rules
        names, cycle = [_written_name(grammar.start)], []
    elif not cycle and not has_impossible_part(grammar.rules[path[-1]]):
        cycle = path[-1:]  # left recursion was taken out, and nothing else was in it
    places = ((name, _offset(name, text)) for name in reversed(names))  # looked for one by one: most often it is one
    name, offset = next(((name, offset) for name, offset in places if offset is not None), (names[0], 0))
    line, column = text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1
    if name.startswith("%json"):
        problem = "no value is valid under the schema; look for keywords that contradict each other"
    elif cycle:
        shown = list(dict.fromkeys(map(_written_name, cycle)))
        shown.append(shown[0])
        if len(shown) > MOST_SHOWN:
            shown[MOST_SHOWN // 2 : -MOST_SHOWN // 2] = ["…"]
        problem = (
            f"the rule {name!r} never ends, as every option of it leads back to it "
            f"({' -> '.join(shown)}); add an option that does not"
        )
    else:
        problem = (
            f"the rule {name!r} has no text: a part of it can never be matched; look for an empty character class, a "
            "regex that contradicts itself, or a terminal whose longest match leaves nothing to the one after it"
        )
    place = f"line {line}, column {column}"
    return EmptyLanguage(f"grammar, {place}: {problem}", pointer=place, param="grammar")


def _written_name(name: str) -> str:
    """The name in the text of the rule that one was made from."""
    if name.startswith("%json "):
        return " ".join(name.split(" ")[:2])
    return re.split(", | → ", name)[0]


def _offset(name: str, text: str) -> int | None:
    """Where a rule is defined; None if nowhere."""
    if name.startswith("%json "):
        return int(name.split(" ")[1])
    found = re.search(rf"^[ \t]*([?!]*{re.escape(name)})(?:\.-?\d+)?\s*(?:::=|:)", text, re.MULTILINE)
    return None if found is None else found.start(1)


# ---------------------------------------------------------------- structural tags


def _in_tag(source: Source, grammar: Grammar) -> EmptyLanguage:
    path, _ = path_to_nothing(grammar, dead_rules(grammar.rules))
    places = [] if grammar.pointer_of is None else [grammar.pointer_of(name) for name in path]
    pointer = next((place for place in reversed(places) if place), "")
    text = unpacked(source)
    time = CompileTime(MAX_SECONDS)
    for place, pattern in _patterns(json.loads(text) if text else None, ""):
        if f"{place}/".startswith(f"{pointer}/") and _is_impossible(pattern, time):
            message = f"structural tag, {place}: {_in_pattern(pattern, time)}"
            return EmptyLanguage(message, pointer=place, param="structural_tag")
    message = "nothing can be written here; look for a schema, grammar or text that contradicts itself"
    return EmptyLanguage(f"structural tag, {pointer or '/'}: {message}", pointer=pointer, param="structural_tag")


def _patterns(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """The patterns of all formats, with their JSON pointers, except for those in schemas."""
    if isinstance(value, dict):
        if value.get("type") == "regex" and isinstance(value.get("pattern"), str):
            yield f"{place}/pattern", value["pattern"]
        for key, inner in value.items():
            if key not in ("json_schema", "schema"):
                yield from _patterns(inner, f"{place}/{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _patterns(inner, f"{place}/{index}")
