"""Structural tags: free text, and spans in it whose form is fixed, each announced by a trigger.

::

    Let me look. <function=get_weather>{"city":"Oslo"}</function> And now …
    free text    trigger              |content        |end       free text
                 '--- begin ---------'

Two forms are read, both as SGLang, vLLM and XGrammar write them::

    {"structures": [{"begin": "<function=f>", "schema": {…}, "end": "</function>"}], "triggers": ["<function="]}
    {"format": {"type": "triggered_tags", "triggers": […], "tags": […]}}       see `_FORMATS`

Exact: free text is any text without a trigger, and once a trigger is complete the text is committed to the tags that
begin with it. Free text before an `end` stops at the first occurrence of it. Where JSON is written it is compact unless
asked otherwise. Token-level formats and other styles of JSON arguments are refused.

A format is turned into an expression together with the strings that must follow it, because free text stops at them.
Python's recursion follows the nesting of formats, which is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from ..errors import ConstraintError, InvalidStructuralTag
from .any_json import Whitespace
from .dfa import Dfa
from .expression import (
    EMPTY_TEXT,
    Embed,
    Expression,
    Grammar,
    Repeat,
    Rule,
    alternation,
    literal,
    optional,
    sequence,
)
from .free_text import first_marks, free_text, text_until
from .grammars import text_to_grammar
from .grammars.walks import renamed
from .json_schema import ExtraKeys, KeyOrder, schema_to_grammar
from .regex import regex_to_expression

MAX_NESTING = 32
MAX_REPEAT = 100_000
START = "text"
_SCHEMA_OPTIONS = ("any_order", "extra_keys")
Strings = tuple[str, ...]


def structural_tag_to_grammar(description: object, *, whitespace: Whitespace = "compact") -> Grammar:
    """The grammar of a structural tag.

    Args:
        description: a dict in one of the two forms, as json.loads gives it.
        whitespace: layout of JSON contents.

    Raises:
        InvalidStructuralTag: something is missing, of the wrong form or not supported; `pointer` says where.
        ConstraintError: a schema, pattern or grammar in it cannot be enforced; `pointer` begins with its place.
    """
    return _Compiler(whitespace).grammar(description)


class _Compiler:
    def __init__(self, whitespace: Whitespace) -> None:
        self.whitespace: Whitespace = whitespace
        self.rules: dict[str, Expression] = {}
        self.depth = 0

    def grammar(self, description: object) -> Grammar:
        top = _object(description, "")
        if "structures" in top:
            self.rules[START] = self.structures(top)
        elif "format" in top:
            self.rules[START] = self.format(top["format"], "/format", ())
        else:
            raise InvalidStructuralTag("structural tag: it has neither 'format' nor 'structures'", pointer="")
        return Grammar(self.rules, START)

    def structures(self, top: Mapping[str, Any]) -> Expression:
        """The older form."""
        tags = []
        for index, entry in enumerate(_array(top, "structures", "")):
            place = f"/structures/{index}"
            entry = _object(entry, place)
            schema = _required(entry, "schema", place)
            own = {key: entry[key] for key in _SCHEMA_OPTIONS if key in entry}
            content = {"type": "json_schema", "json_schema": schema, **own}
            tags.append({"type": "tag", "content": content, **{key: entry.get(key) for key in ("begin", "end")}})
        flags = {key: top[key] for key in ("at_least_one", "stop_after_first") if key in top}
        form = {"tags": tags, "triggers": top.get("triggers"), **flags}
        return self.triggered_tags(form, "", (), tags_key="structures")

    # ---------------------------------------------------------------- formats

    def format(self, value: object, place: str, ends: Strings) -> Expression:
        """A format followed by one of `ends` (by nothing in particular if there are none)."""
        form = _object(value, place)
        kind = form.get("type")
        compile_format = _FORMATS.get(kind) if isinstance(kind, str) else None
        if compile_format is None:
            known = ", ".join(_FORMATS)
            raise InvalidStructuralTag(
                f"structural tag, {place}/type: {kind!r} is not one of {known}", pointer=f"{place}/type"
            )
        if self.depth >= MAX_NESTING:
            raise InvalidStructuralTag(f"structural tag, {place}: nested deeper than {MAX_NESTING}", pointer=place)
        self.depth += 1
        expression = compile_format(self, form, place, ends)
        self.depth -= 1
        return expression

    def const_string(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        return _followed(literal(_string(form, "value", place)), ends)

    def json_schema(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        if form.get("style", "json") != "json":
            raise _unsupported(form, "style", place, 'write arguments as JSON ("json")')
        order: KeyOrder = "any" if _flag(form, "any_order", place) else "schema"
        extra = form.get("extra_keys", "schema")
        if extra not in get_args(ExtraKeys):
            raise _unsupported(form, "extra_keys", place, 'choose "schema" or "never"')
        schema = _required(form, "json_schema", place)
        inner = f"{place}/json_schema"
        grammar = _within(
            inner, lambda: schema_to_grammar(schema, whitespace=self.whitespace, key_order=order, extra_keys=extra)
        )
        return _followed(self.adopted(grammar), ends)

    def regex(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        pattern = _string(form, "pattern", place)
        return _followed(_within(f"{place}/pattern", lambda: regex_to_expression(pattern)), ends)

    def text_grammar(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        text = _string(form, "grammar", place)
        return _followed(self.adopted(_within(f"{place}/grammar", lambda: text_to_grammar(text))), ends)

    def any_text(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        if form.get("max_tokens") is not None:
            raise _unsupported(form, "max_tokens", place, "max_chars counts characters")
        excludes = _strings(form, "excludes", place)
        longest = form.get("max_chars")
        if longest is None:
            return alternation(*map(Embed, _free(ends, excludes)))
        if isinstance(longest, bool) or not isinstance(longest, int) or longest < 0:
            raise InvalidStructuralTag(
                f"structural tag, {place}/max_chars: expected a number of characters, not {longest!r}",
                pointer=f"{place}/max_chars",
            )
        if not ends:
            return Embed(_free_dfa(excludes).intersect(Dfa.length(0, longest)))
        options: list[Expression] = []
        for end in ends:
            within = Dfa.length(0, longest + len(end))
            others = (*excludes, *(other for other in ends if other != end))
            options.extend(Embed(text.intersect(within)) for text in _free((end,), others))
        return alternation(*options)

    def sequence(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        elements = _array(form, "elements", place)
        last = len(elements) - 1
        parts = [
            self.format(element, f"{place}/elements/{index}", ends if index == last else ())
            for index, element in enumerate(elements)
        ]
        return sequence(*parts) if parts else _followed(EMPTY_TEXT, ends)

    def either(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        elements = _array(form, "elements", place)
        return alternation(*(self.format(e, f"{place}/elements/{i}", ends) for i, e in enumerate(elements)))

    def repeated(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        if form["type"] == "repeat":
            minimum, maximum = _count(form, "min", place), _count(form, "max", place)
            if minimum < 0 or -1 != maximum < minimum:
                raise InvalidStructuralTag(f"structural tag, {place}: min and max do not fit", pointer=place)
        else:
            minimum, maximum = {"optional": (0, 1), "star": (0, -1), "plus": (1, -1)}[form["type"]]
        item = self.format(_required(form, "content", place), f"{place}/content", ())
        return _followed(Repeat(item, minimum, None if maximum < 0 else maximum), ends)

    def tag(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        return _followed(sequence(literal(_string(form, "begin", place)), self.behind_begin(form, place)), ends)

    def behind_begin(self, form: Mapping[str, Any], place: str) -> Expression:
        """Content and end of a tag, as a rule: a tag can be reached by several ways."""
        end = form.get("end")
        ends = _strings(form, "end", place) if isinstance(end, list) else (_string(form, "end", place),)
        name = f"tag {place}"
        if name not in self.rules:
            content = _required(form, "content", place)
            if "" in ends:  # nothing marks the end
                followed = [self.format(content, f"{place}/content", ())]
                others = tuple(other for other in ends if other)
                followed += [self.format(content, f"{place}/content", others)] if others else []
                self.rules[name] = alternation(*followed)
            else:
                self.rules[name] = self.format(content, f"{place}/content", ends)
        return Rule(name)

    def triggered_tags(
        self, form: Mapping[str, Any], place: str, ends: Strings, *, tags_key: str = "tags"
    ) -> Expression:
        tags = [_object(tag, f"{place}/{tags_key}/{i}") for i, tag in enumerate(_array(form, "tags", place))]
        begins = [_string(tag, "begin", f"{place}/{tags_key}/{i}") for i, tag in enumerate(tags)]
        triggers = tuple(dict.fromkeys(_strings(form, "triggers", place)))
        if not triggers:
            raise InvalidStructuralTag(f"structural tag, {place}/triggers: it is empty", pointer=f"{place}/triggers")
        for index, begin in enumerate(begins):
            if not begin.startswith(triggers):
                raise InvalidStructuralTag(
                    f"structural tag, {place}/{tags_key}/{index}/begin: {begin!r} begins with no trigger",
                    pointer=f"{place}/{tags_key}/{index}/begin",
                )
        bodies = [self.behind_begin(tag, f"{place}/{tags_key}/{i}") for i, tag in enumerate(tags)]

        def behind(completed: frozenset[str]) -> Expression:
            starts = sorted(trigger for trigger in completed if trigger in triggers)
            options = dict.fromkeys(
                (begin[len(start) :], body)
                for start in starts
                for begin, body in zip(begins, bodies, strict=True)
                if begin.startswith(start)
            )
            return alternation(*(sequence(literal(rest), body) for rest, body in options))

        first = alternation(*(sequence(literal(b), body) for b, body in zip(begins, bodies, strict=True)))
        return self.dispatched(
            triggers,
            behind,
            place,
            ends,
            _strings(form, "excludes", place),
            at_once=first if _flag(form, "at_least_one", place) else None,
            loops=not _flag(form, "stop_after_first", place),
        )

    def dispatch(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        bodies: dict[str, Expression] = {}
        for index, rule in enumerate(_array(form, "rules", place)):
            inner = f"{place}/rules/{index}"
            if not (isinstance(rule, (list, tuple)) and len(rule) == 2 and isinstance(rule[0], str) and rule[0]):
                raise InvalidStructuralTag(
                    f"structural tag, {inner}: expected [a text that is not empty, a format]", pointer=inner
                )
            name = f"rule {inner}"
            self.rules[name] = self.format(rule[1], f"{inner}/1", ())
            bodies[rule[0]] = Rule(name)

        def behind(completed: frozenset[str]) -> Expression:
            return alternation(*(bodies[mark] for mark in sorted(completed) if mark in bodies))

        loops = _flag(form, "loop", place, True)
        return self.dispatched(tuple(bodies), behind, place, ends, _strings(form, "excludes", place), None, loops)

    def dispatched(
        self,
        triggers: Strings,
        behind: Callable[[frozenset[str]], Expression],
        place: str,
        ends: Strings,
        excludes: Strings,
        at_once: Expression | None,
        loops: bool,
    ) -> Expression:
        """Free text, again and again interrupted by a trigger and what must stand behind it."""
        name = f"free text {place} {len(self.rules)}"
        after = Rule(name) if loops else _followed(EMPTY_TEXT, ends)
        marks = (*triggers, *ends, *excludes)
        options: list[Expression] = [Embed(text) for text in _free(ends, (*triggers, *excludes))]
        for completed in first_marks(tuple(dict.fromkeys(marks))):
            if completed.isdisjoint((*ends, *excludes)):
                until = Embed(text_until(tuple(dict.fromkeys(marks)), completed))
                options.append(sequence(until, behind(completed), after))
        self.rules[name] = alternation(*options)
        return Rule(name) if at_once is None else sequence(at_once, after)

    def tags_with_separator(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        tags = [_object(tag, f"{place}/tags/{i}") for i, tag in enumerate(_array(form, "tags", place))]
        tag = alternation(*(self.tag(tag, f"{place}/tags/{i}", ()) for i, tag in enumerate(tags)))
        separator = literal(_string(form, "separator", place))
        more = EMPTY_TEXT if _flag(form, "stop_after_first", place) else Repeat(sequence(separator, tag), 0, None)
        listed = sequence(tag, more)
        return _followed(listed if _flag(form, "at_least_one", place) else optional(listed), ends)

    def adopted(self, grammar: Grammar) -> Expression:
        """A rule of ours that writes what another grammar writes."""
        prefix = f"{len(self.rules)} "
        for name, body in grammar.rules.items():
            self.rules[prefix + name] = renamed(body, prefix)
        return Rule(prefix + grammar.start)


_FORMATS: dict[str, Callable[[_Compiler, Mapping[str, Any], str, Strings], Expression]] = {
    "const_string": _Compiler.const_string,
    "json_schema": _Compiler.json_schema,
    "regex": _Compiler.regex,
    "grammar": _Compiler.text_grammar,
    "any_text": _Compiler.any_text,
    "sequence": _Compiler.sequence,
    "or": _Compiler.either,
    "optional": _Compiler.repeated,
    "star": _Compiler.repeated,
    "plus": _Compiler.repeated,
    "repeat": _Compiler.repeated,
    "tag": _Compiler.tag,
    "triggered_tags": lambda self, form, place, ends: self.triggered_tags(form, place, ends),
    "tags_with_separator": _Compiler.tags_with_separator,
    "dispatch": _Compiler.dispatch,
}


def _followed(expression: Expression, ends: Strings) -> Expression:
    if not ends:
        return expression
    return sequence(expression, alternation(*map(literal, dict.fromkeys(ends))))


def _free_dfa(marks: Sequence[str]) -> Dfa:
    return free_text(tuple(dict.fromkeys(marks)))


def _free(ends: Strings, excludes: Strings) -> list[Dfa]:
    """Free text with its end: at the first of `ends`, if there are any, and without `excludes`."""
    if not ends:
        return [_free_dfa(excludes)]
    marks = tuple(dict.fromkeys((*ends, *excludes)))
    # an end that is excluded is still the end; another exclusion that is complete at the same character forbids it
    forbidden = frozenset(excludes) - frozenset(ends)
    return [text_until(marks, ended) for ended in first_marks(marks) if ended.isdisjoint(forbidden)]


# -------------------------------------------------------------------------------- reading


def _within(place: str, compile_content: Callable[[], Any]) -> Any:
    """Compiles a content; its errors get the place of the content in front of their own."""
    try:
        return compile_content()
    except ConstraintError as error:
        pointer = f"{place}{error.pointer}" if error.pointer[:1] in ("", "/") else f"{place}, {error.pointer}"
        raise type(error)(f"structural tag, {place}: {error}", pointer=pointer, param=error.param) from error


def _object(value: object, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidStructuralTag(f"structural tag, {place or 'top'}: expected an object", pointer=place)
    return value


def _required(form: Mapping[str, Any], key: str, place: str) -> Any:
    if form.get(key) is None:
        raise InvalidStructuralTag(f"structural tag, {place}/{key}: it is missing", pointer=f"{place}/{key}")
    return form[key]


def _array(form: Mapping[str, Any], key: str, place: str) -> Sequence[Any]:
    value = _required(form, key, place)
    if not isinstance(value, (list, tuple)) or not value:
        raise InvalidStructuralTag(
            f"structural tag, {place}/{key}: expected an array that is not empty", pointer=f"{place}/{key}"
        )
    return value


def _string(form: Mapping[str, Any], key: str, place: str) -> str:
    value = _required(form, key, place)
    if not isinstance(value, str):
        raise InvalidStructuralTag(
            f"structural tag, {place}/{key}: expected a text, not {json.dumps(value, default=str)[:40]} "
            "(tokens cannot be named; write what they spell)",
            pointer=f"{place}/{key}",
        )
    return value


def _strings(form: Mapping[str, Any], key: str, place: str) -> Strings:
    values = form.get(key) or []
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, str) for value in values):
        raise InvalidStructuralTag(f"structural tag, {place}/{key}: expected texts", pointer=f"{place}/{key}")
    if key != "end" and "" in values:
        raise InvalidStructuralTag(f"structural tag, {place}/{key}: a text is empty", pointer=f"{place}/{key}")
    return tuple(values)


def _flag(form: Mapping[str, Any], key: str, place: str, default: bool = False) -> bool:
    value = form.get(key, default)
    if not isinstance(value, bool):
        raise InvalidStructuralTag(f"structural tag, {place}/{key}: expected true or false", pointer=f"{place}/{key}")
    return value


def _count(form: Mapping[str, Any], key: str, place: str) -> int:
    value = _required(form, key, place)
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= MAX_REPEAT:
        raise InvalidStructuralTag(
            f"structural tag, {place}/{key}: expected a number from 0 to {MAX_REPEAT}, or -1 for no bound",
            pointer=f"{place}/{key}",
        )
    return value


def _unsupported(form: Mapping[str, Any], key: str, place: str, remedy: str) -> InvalidStructuralTag:
    shown = json.dumps(form[key], default=str)[:40]
    return InvalidStructuralTag(
        f"structural tag, {place}/{key}: {shown} is not supported; {remedy}", pointer=f"{place}/{key}"
    )
