"""Structural tags: free text, and spans in it whose form is fixed, each announced by a trigger.

::

    Let me look. <function=get_weather>{"city":"Oslo"}</function> And now …
    free text    trigger              |content        |end       free text
                 '--- begin ---------'

Two forms are read, as SGLang, vLLM and XGrammar write them::

    {"structures": [{"begin": "<function=f>", "schema": {…}, "end": "</function>"}], "triggers": ["<function="]}
    {"format": {"type": "triggered_tags", "triggers": […], "tags": […]}}       see `_FORMATS`

Exact: free text is any text without a trigger, and once a trigger is complete the text is committed to the tags that
begin with it. Free text before an `end` stops at the first occurrence of it. Where JSON is written it is compact unless
asked otherwise; arguments can be XML (`json_schema.xml_arguments`).

Many models open and close calls with special tokens, which spell nothing::

    [TOOL_CALLS]   get_weather   [ARGS]   {"city":"Oslo"}
    special        text          special  text

Such a token is named as `{"type": "token", "token": text or id}`, as the begin or the end of a tag or as a format of
its own, and as a trigger by `token_triggered_tags` and `token_dispatch`. It is matched by that token alone, never by
the text of its name, and free text holds no special tokens. What an ordinary token spells is written as text.

A format becomes an expression together with the strings that must follow it, because free text stops at them. Python's
recursion follows the nesting of formats, which is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import ConstraintTooLarge, InvalidStructuralTag
from ..any_json import Whitespace
from ..compile_time import CompileTime
from ..grammars import text_to_grammar
from ..network.expression import (
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
from ..regex.regex import regex_to_expression
from ..text.free_text import first_marks, text_until
from .special_tokens import SpecialTokens, SpellSpecial
from .structural_tag_contents import any_text, schema_grammar, up_to_end, without_marks
from .structural_tag_fields import (
    Strings,
    read_array,
    read_count,
    read_flag,
    read_object,
    read_older_form,
    read_pairs,
    read_required,
    read_string,
    read_strings,
    within,
)
from .tag_rules import TagRules, with_prefix

MAX_NESTING = 32
START = "text"


def structural_tag_to_grammar(
    description: object,
    *,
    whitespace: Whitespace = "compact",
    spell_special: SpellSpecial = lambda _: None,
    compile_time: CompileTime | None = None,
) -> Grammar:
    """The grammar of a structural tag.

    Args:
        description: a dict in one of the two forms, as json.loads gives it.
        whitespace: layout of JSON contents.
        spell_special: what stands for a special token, by its text or id (`Vocabulary.spell_special`).
        compile_time: how long this may take; None: without end.

    Raises:
        InvalidStructuralTag: something is missing, of the wrong form or not supported; `pointer` says where.
        ConstraintError: a schema, pattern or grammar in it cannot be enforced; `pointer` begins with its place.
    """
    return _Compiler(whitespace, spell_special, compile_time or CompileTime()).grammar(description)


class _Compiler:
    def __init__(self, whitespace: Whitespace, spell_special: SpellSpecial, compile_time: CompileTime) -> None:
        self.time = compile_time
        self.whitespace: Whitespace = whitespace
        self.tokens = SpecialTokens(spell_special)
        self.rules = TagRules()
        self.depth = 0

    def grammar(self, description: object) -> Grammar:
        top = read_object(description, "")
        if "structures" in top:
            older = read_older_form(top)
            tags = _placed("/structures", lambda: self._triggered_tags(older, "", (), tags_key="structures"))
            self.rules.bodies[START] = tags
        elif "format" in top:
            self.rules.bodies[START] = self._format(top["format"], "/format", ())
        else:
            raise InvalidStructuralTag("structural tag: it has neither 'format' nor 'structures'", pointer="")
        return Grammar(self.rules.bodies, START, pointer_of=self.rules.pointer_of)

    # ---------------------------------------------------------------- formats

    def _format(self, value: object, place: str, ends: Strings) -> Expression:
        """A format followed by one of `ends` (by nothing in particular if there are none)."""
        form = read_object(value, place)
        kind = form.get("type")
        compile_format = _FORMATS.get(kind) if isinstance(kind, str) else None
        if compile_format is None:
            known = ", ".join(_FORMATS)
            raise InvalidStructuralTag(
                f"structural tag, {place}/type: {kind!r} is not one of {known}", pointer=f"{place}/type"
            )
        if self.depth >= MAX_NESTING:
            raise InvalidStructuralTag(f"structural tag, {place}: nested deeper than {MAX_NESTING}", pointer=place)
        self.time.check(place, f"structural tag, {place}")
        self.depth += 1
        expression = _placed(place, lambda: compile_format(self, form, place, ends))
        self.depth -= 1
        return expression

    def _json_schema(self, form: Mapping[str, Any], place: str, ends: Strings, *, style: str = "json") -> Expression:
        prefix = self.rules.prefix()
        grammar = schema_grammar(form, place, self.whitespace, self.tokens.spell, self.time, prefix, style=style)
        return _followed(self.rules.take_in(grammar, prefix, f"{place}/json_schema"), ends)

    def _qwen_xml_parameter(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        """An older name of `json_schema` in this style."""
        return self._json_schema(form, place, ends, style="qwen_xml")

    def _regex(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        pattern = read_string(form, "pattern", place)
        return _followed(within(f"{place}/pattern", lambda: regex_to_expression(pattern, compile_time=self.time)), ends)

    def _text_grammar(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        text = read_string(form, "grammar", place)
        spell = self.tokens.spell_special
        grammar = within(f"{place}/grammar", lambda: text_to_grammar(text, "auto", self.time, spell))
        prefix = self.rules.prefix()
        return _followed(self.rules.take_in(with_prefix(grammar, prefix), prefix, f"{place}/grammar"), ends)

    def _sequence(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        elements = read_array(form, "elements", place)
        last = len(elements) - 1
        parts = [
            self._format(element, f"{place}/elements/{index}", ends if index == last else ())
            for index, element in enumerate(elements)
        ]
        return sequence(*parts) if parts else _followed(EMPTY_TEXT, ends)

    def _either(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        elements = read_array(form, "elements", place)
        return alternation(*(self._format(e, f"{place}/elements/{i}", ends) for i, e in enumerate(elements)))

    def _repeated(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        if form["type"] == "repeat":
            minimum, maximum = read_count(form, "min", place), read_count(form, "max", place)
            if minimum < 0 or -1 != maximum < minimum:
                raise InvalidStructuralTag(f"structural tag, {place}: min and max do not fit", pointer=place)
        else:
            minimum, maximum = {"optional": (0, 1), "star": (0, -1), "plus": (1, -1)}[form["type"]]
        item = self._format(read_required(form, "content", place), f"{place}/content", ())
        return _followed(Repeat(item, minimum, None if maximum < 0 else maximum), ends)

    def _token(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        if form.get("type", "token") != "token":
            raise InvalidStructuralTag(
                f"structural tag, {place}: expected a text or a token, not {form['type']!r}", pointer=f"{place}/type"
            )
        return _followed(self.tokens.special(read_required(form, "token", place), f"{place}/token"), ends)

    def _any_tokens(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        """Free text, which holds no special token, excluded or not."""
        self.tokens.check_excluded(form, place)
        return any_text({"max_tokens": form.get("max_tokens")}, place, ends)

    def _tag(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        return _followed(sequence(self._begin(form, place), self._after_begin(form, place)), ends)

    def _begin(self, form: Mapping[str, Any], place: str) -> Expression:
        begin = form.get("begin")
        if isinstance(begin, Mapping):
            return self._token(begin, f"{place}/begin", ())
        return literal(read_string(form, "begin", place))

    def _after_begin(self, form: Mapping[str, Any], place: str) -> Expression:
        """Content and end of a tag, as a rule: a tag can be reached by several ways."""
        end = form.get("end")
        if isinstance(end, Mapping):
            return self._before_token(form, end, place)
        ends = read_strings(form, "end", place) if isinstance(end, list) else (read_string(form, "end", place),)
        name = f"tag {place}"
        if name not in self.rules.bodies:
            content = read_required(form, "content", place)
            if "" in ends:  # nothing marks the end
                followed = [self._format(content, f"{place}/content", ())]
                others = tuple(other for other in ends if other)
                followed += [self._format(content, f"{place}/content", others)] if others else []
                self.rules.bodies[name] = alternation(*followed)
            else:
                self.rules.bodies[name] = self._format(content, f"{place}/content", ends)
        return Rule(name)

    def _before_token(self, form: Mapping[str, Any], end: Mapping[str, Any], place: str) -> Expression:
        """Content, and a special token that ends it: as free text cannot hold one, nothing else is needed."""
        name = f"tag {place}"
        if name not in self.rules.bodies:
            content = self._format(read_required(form, "content", place), f"{place}/content", ())
            self.rules.bodies[name] = sequence(content, self._token(end, f"{place}/end", ()))
        return Rule(name)

    def _token_triggered_tags(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        triggers = [
            self.tokens.special(token, f"{place}/trigger_tokens/{index}")
            for index, token in enumerate(read_array(form, "trigger_tokens", place))
        ]
        tags = []
        for index, entry in enumerate(read_array(form, "tags", place)):
            inner = f"{place}/tags/{index}"
            tag = read_object(entry, inner)
            begin = self._begin(tag, inner)
            if begin not in triggers:
                raise InvalidStructuralTag(
                    f"structural tag, {inner}/begin: expected one of the trigger tokens", pointer=f"{inner}/begin"
                )
            tags.append(sequence(begin, self._after_begin(tag, inner)))
        at_least_one = read_flag(form, "at_least_one", place)
        loops = not read_flag(form, "stop_after_first", place)
        return self._token_dispatched(form, tags, place, ends, at_least_one=at_least_one, loops=loops)

    def _token_dispatch(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        tags = []
        for inner, token, content in read_pairs(form, place, "a token"):
            begin = self.tokens.special(token, f"{inner}/0")
            tags.append(sequence(begin, self._format(content, f"{inner}/1", ())))
        loops = read_flag(form, "loop", place, True)
        return self._token_dispatched(form, tags, place, ends, at_least_one=False, loops=loops)

    def _token_dispatched(
        self,
        form: Mapping[str, Any],
        tags: Sequence[Expression],
        place: str,
        ends: Strings,
        *,
        at_least_one: bool,
        loops: bool,
    ) -> Expression:
        """Free text, again and again interrupted by what begins with a special token.

        Excluded tokens are special ones, and no free text holds any.
        """
        self.tokens.check_excluded(form, place)
        excludes = read_strings(form, "excludes", place)
        name = f"free text {place} {len(self.rules.bodies)}"
        after = Rule(name) if loops else _followed(EMPTY_TEXT, ends)
        until_token = Embed(without_marks((*ends, *excludes)))
        self.rules.bodies[name] = alternation(
            *map(Embed, up_to_end(ends, excludes)), sequence(until_token, alternation(*tags), after)
        )
        return sequence(alternation(*tags), after) if at_least_one else Rule(name)

    def _triggered_tags(
        self, form: Mapping[str, Any], place: str, ends: Strings, *, tags_key: str = "tags"
    ) -> Expression:
        listed = self.time.over(read_array(form, "tags", place), place, f"structural tag, {place}")
        tags = [read_object(tag, f"{place}/{tags_key}/{i}") for i, tag in enumerate(listed)]
        named = self.time.over(tags, place, f"structural tag, {place}")
        begins = [read_string(tag, "begin", f"{place}/{tags_key}/{i}") for i, tag in enumerate(named)]
        triggers = tuple(dict.fromkeys(read_strings(form, "triggers", place)))
        if not triggers:
            raise InvalidStructuralTag(f"structural tag, {place}/triggers: it is empty", pointer=f"{place}/triggers")
        for index, begin in enumerate(self.time.over(begins, place, f"structural tag, {place}")):
            if not begin.startswith(triggers):
                raise InvalidStructuralTag(
                    f"structural tag, {place}/{tags_key}/{index}/begin: {begin!r} begins with no trigger",
                    pointer=f"{place}/{tags_key}/{index}/begin",
                )
        bodies = [self._after_begin(tag, f"{place}/{tags_key}/{i}") for i, tag in enumerate(tags)]

        def body_after(completed: frozenset[str]) -> Expression:
            starts = sorted(trigger for trigger in completed if trigger in triggers)
            options = dict.fromkeys(
                (begin[len(start) :], body)
                for start in starts
                for begin, body in zip(begins, bodies, strict=True)
                if begin.startswith(start)
            )
            return alternation(*(sequence(literal(rest), body) for rest, body in options))

        first = alternation(*(sequence(literal(b), body) for b, body in zip(begins, bodies, strict=True)))
        return self._dispatched(
            triggers,
            body_after,
            place,
            ends,
            read_strings(form, "excludes", place),
            at_once=first if read_flag(form, "at_least_one", place) else None,
            loops=not read_flag(form, "stop_after_first", place),
        )

    def _dispatch(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        bodies: dict[str, Expression] = {}
        for inner, mark, content in read_pairs(form, place, "a text that is not empty"):
            name = f"rule {inner}"
            self.rules.bodies[name] = self._format(content, f"{inner}/1", ())
            bodies[mark] = Rule(name)

        def body_after(completed: frozenset[str]) -> Expression:
            return alternation(*(bodies[mark] for mark in sorted(completed) if mark in bodies))

        loops = read_flag(form, "loop", place, True)
        return self._dispatched(
            tuple(bodies), body_after, place, ends, read_strings(form, "excludes", place), None, loops
        )

    def _dispatched(
        self,
        triggers: Strings,
        body_after: Callable[[frozenset[str]], Expression],
        place: str,
        ends: Strings,
        excludes: Strings,
        at_once: Expression | None,
        loops: bool,
    ) -> Expression:
        """Free text, interrupted any number of times by a trigger and what must follow it."""
        name = f"free text {place} {len(self.rules.bodies)}"
        after = Rule(name) if loops else _followed(EMPTY_TEXT, ends)
        marks = (*triggers, *ends, *excludes)
        options: list[Expression] = [Embed(text) for text in up_to_end(ends, (*triggers, *excludes))]
        for completed in first_marks(tuple(dict.fromkeys(marks))):
            if completed.isdisjoint((*ends, *excludes)):
                until = Embed(text_until(tuple(dict.fromkeys(marks)), completed))
                options.append(sequence(until, body_after(completed), after))
        self.rules.bodies[name] = alternation(*options)
        return Rule(name) if at_once is None else sequence(at_once, after)

    def _tags_with_separator(self, form: Mapping[str, Any], place: str, ends: Strings) -> Expression:
        tags = [read_object(tag, f"{place}/tags/{i}") for i, tag in enumerate(read_array(form, "tags", place))]
        tag = alternation(*(self._tag(tag, f"{place}/tags/{i}", ()) for i, tag in enumerate(tags)))
        again = sequence(literal(read_string(form, "separator", place)), tag)
        more = EMPTY_TEXT if read_flag(form, "stop_after_first", place) else Repeat(again, 0, None)
        listed = sequence(tag, more)
        return _followed(listed if read_flag(form, "at_least_one", place) else optional(listed), ends)


_FORMATS: dict[str, Callable[[_Compiler, Mapping[str, Any], str, Strings], Expression]] = {
    "const_string": lambda _, form, place, ends: _followed(literal(read_string(form, "value", place)), ends),
    "json_schema": _Compiler._json_schema,
    "qwen_xml_parameter": _Compiler._qwen_xml_parameter,
    "regex": _Compiler._regex,
    "grammar": _Compiler._text_grammar,
    "any_text": lambda _, form, place, ends: any_text(form, place, ends),
    "any_tokens": _Compiler._any_tokens,
    "sequence": _Compiler._sequence,
    "or": _Compiler._either,
    "optional": _Compiler._repeated,
    "star": _Compiler._repeated,
    "plus": _Compiler._repeated,
    "repeat": _Compiler._repeated,
    "tag": _Compiler._tag,
    "triggered_tags": lambda self, form, place, ends: self._triggered_tags(form, place, ends),
    "tags_with_separator": _Compiler._tags_with_separator,
    "token": _Compiler._token,
    "token_triggered_tags": _Compiler._token_triggered_tags,
    "token_dispatch": _Compiler._token_dispatch,
    "dispatch": _Compiler._dispatch,
}


def _placed(place: str, compile_format: Callable[[], Expression]) -> Expression:
    """Compiles a format; an error of an automaton that knows no place gets that of the format."""
    try:
        return compile_format()
    except ConstraintTooLarge as error:
        if error.pointer or str(error).startswith("structural tag, "):
            raise
        raise ConstraintTooLarge(f"structural tag, {place}: {error}", pointer=place) from error


def _followed(expression: Expression, ends: Strings) -> Expression:
    if not ends:
        return expression
    return sequence(expression, alternation(*map(literal, dict.fromkeys(ends))))
