"""Contents of structural tags: JSON and XML under a schema, and free text up to its end. Knows nothing of tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from ...errors import InvalidStructuralTag
from ..any_json import Whitespace
from ..compile_time import CompileTime
from ..json_schema import (
    ExtraKeys,
    KeyOrder,
    LineBreaks,
    Spell,
    XmlStyle,
    arguments_to_grammar,
    schema_to_grammar,
    xml_marks,
)
from ..network.expression import Embed, Expression, Grammar, alternation
from ..resources import NO_RESOURCES, checked_resources
from ..text.dfa import Dfa, of_length
from ..text.free_text import first_marks, free_text, text_until
from .structural_tag_fields import Strings, read_flag, read_required, read_strings, unsupported, within


def schema_grammar(
    form: Mapping[str, Any],
    place: str,
    whitespace: Whitespace,
    spell: Spell,
    compile_time: CompileTime,
    prefix: str,
    *,
    style: str = "json",
) -> Grammar:
    """JSON under the schema of a format, or arguments as XML.

    Args:
        spell: spells marks of XML.
        prefix: begins the names of its rules.
        style: if the format names none.
    """
    style = form.get("style", style)
    if style != "json" and style not in get_args(XmlStyle):
        raise unsupported(form, "style", place, f"choose json, {', '.join(get_args(XmlStyle))}")
    order: KeyOrder = "any" if read_flag(form, "any_order", place) else "schema"
    extra = form.get("extra_keys", "schema")
    if extra not in get_args(ExtraKeys):
        raise unsupported(form, "extra_keys", place, 'choose "schema" or "never"')
    breaks = form.get("line_breaks", "between")
    if breaks not in get_args(LineBreaks):
        raise unsupported(form, "line_breaks", place, f"choose {', '.join(get_args(LineBreaks))}")
    schema = read_required(form, "json_schema", place)
    options: dict[str, Any] = {
        "whitespace": whitespace,
        "key_order": order,
        "extra_keys": extra,
        "compile_time": compile_time,
        "prefix": prefix,
    }

    def grammar() -> Grammar:
        options["resources"] = checked_resources(form.get("resources", NO_RESOURCES))
        if style == "json":
            return schema_to_grammar(schema, **options)
        return arguments_to_grammar(schema, xml_marks(cast(XmlStyle, style), breaks), spell=spell, **options)

    found: Grammar = within(f"{place}/json_schema", grammar)
    return found


def any_text(form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
    """Free text, and one of `ends` where it first occurs."""
    if form.get("max_tokens") is not None:
        raise unsupported(form, "max_tokens", place, "max_chars counts characters")
    excludes = read_strings(form, "excludes", place)
    longest = form.get("max_chars")
    if longest is None:
        return alternation(*map(Embed, up_to_end(ends, excludes)))
    if isinstance(longest, bool) or not isinstance(longest, int) or longest < 0:
        raise InvalidStructuralTag(
            f"structural tag, {place}/max_chars: expected a number of characters, not {longest!r}",
            pointer=f"{place}/max_chars",
        )
    if not ends:
        return Embed(without_marks(excludes).intersect(of_length(0, longest)))
    options: list[Expression] = []
    for ended, text in up_to_marks(ends, excludes):
        enough = longest + max(len(end) for end in ended if end in ends)
        options.append(Embed(text.intersect(of_length(0, enough))))
    return alternation(*options)


def without_marks(marks: Sequence[str]) -> Dfa:
    """Free text in which no mark occurs."""
    return free_text(tuple(dict.fromkeys(marks)))


def up_to_end(ends: Strings, excludes: Strings) -> list[Dfa]:
    """Free text with its end: at the first of `ends`, if there are any, and without `excludes`."""
    return [text for _, text in up_to_marks(ends, excludes)] if ends else [without_marks(excludes)]


def up_to_marks(ends: Strings, excludes: Strings) -> list[tuple[frozenset[str], Dfa]]:
    """The same by the marks that are complete at its end, some of `ends` among them."""
    marks = tuple(dict.fromkeys((*ends, *excludes)))
    # an end that is excluded is still the end; another exclusion that is complete at the same character forbids it
    forbidden = frozenset(excludes) - frozenset(ends)
    return [(ended, text_until(marks, ended)) for ended in first_marks(marks) if ended.isdisjoint(forbidden)]
