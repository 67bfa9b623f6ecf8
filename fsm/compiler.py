"""Compiler: from a description to a shared `Constraint`, with a cache bounded in bytes.

One compiler per vocabulary. All methods may be called from any thread; compiling the same thing twice at the same
time is possible and harmless. Errors are those of `phloem.errors`, with the place.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from ..errors import (
    ConfigError,
    ConstraintError,
    ConstraintTooLarge,
    EmptyLanguage,
    InvalidGrammar,
    InvalidRegex,
    InvalidSchema,
    InvalidStructuralTag,
)
from ..json_size import check_json_size
from .any_json import ExtraKeys, KeyOrder, Whitespace, json_grammar
from .arguments import check_at_least, check_option, check_text, check_type
from .collection import while_put_off
from .compile_time import MAX_SECONDS, CompileTime
from .constraint import Constraint
from .grammars import Syntax, text_to_grammar
from .grammars.left_recursion import without_left_recursion
from .kept_constraints import KeptConstraints
from .masks.mask_store import MaskStore
from .network.expression import Alternation, Grammar, Literal
from .network.network import build_network
from .regex.regex import regex_to_expression
from .resources import NO_RESOURCES, Resources, checked_resources
from .source import NOT_PACKED, Source, packed
from .vocabulary.vocabulary import Vocabulary
from .warm_up import warm_up

MAX_SOURCE_LEN = 4 << 20
MAX_OPTIONS = 1 << 18  # of a choice: what more takes, half a second and more, is often too long for the time limit


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one constraint.

    Attributes:
        max_automaton_bytes: memory of the states that a constraint's requests have visited (see `Automaton`), and of
            the network that they are states of.
        max_compile_seconds: CPU time of reading and compiling it; None: only the work is bounded, by counting it.
    """

    max_automaton_bytes: int = 64 << 20
    max_compile_seconds: float | None = MAX_SECONDS

    def __post_init__(self) -> None:
        check_at_least("max_automaton_bytes", self.max_automaton_bytes, 0, "a number of bytes")
        seconds = self.max_compile_seconds
        if seconds is None:
            return
        check_type("max_compile_seconds", seconds, (int, float), "a number of seconds, or None for no bound")
        if isinstance(seconds, bool) or not seconds >= 0:
            raise ConfigError(f"max_compile_seconds: give seconds, 0 or more, or None for no bound, not {seconds!r}")


class Compiler:
    """Compiles constraints for one vocabulary and keeps them.

    Args:
        vocabulary: the tokens.
        max_cached_bytes: bound on kept constraints (a half) and on kept mask rows (the other half).
        limits: bounds on a single constraint.

    Raises:
        TypeError, ConfigError: an argument is of another type, or out of range. What is compiled is checked as well: a
            wrong type or value of it is a `ConstraintError` that names the argument.
    """

    def __init__(
        self, vocabulary: Vocabulary, *, max_cached_bytes: int = 256 << 20, limits: Limits | None = None
    ) -> None:
        check_type("vocabulary", vocabulary, Vocabulary, "a Vocabulary")
        check_at_least("max_cached_bytes", max_cached_bytes, 0, "a number of bytes")
        check_type("limits", limits, (Limits, type(None)), "Limits, or None for the usual ones")
        self.vocabulary = vocabulary
        self.limits = limits or Limits()
        self._store = MaskStore(vocabulary, max_cached_bytes // 2)
        self._lock = threading.Lock()
        self._kept = KeptConstraints(max_cached_bytes // 2)

    # ---------------------------------------------------------------- what can be compiled

    def regex(self, pattern: str) -> Constraint:
        """Texts that match a pattern from end to end (Python's dialect; see `regex_syntax`)."""
        check_text("regex", pattern, InvalidRegex)
        time = self._time()

        def grammar() -> Grammar:
            return Grammar({"text": regex_to_expression(pattern, compile_time=time)}, "text")

        return self._compile("regex", pattern, grammar, time)

    def choice(self, options: Sequence[str]) -> Constraint:
        """One of the given texts."""
        time = self._time()
        if isinstance(options, (str, bytes)) or not isinstance(options, (Sequence, Set)):
            message = f"choice: expected a list of texts, not {type(options).__name__}; put them into a list"
            raise ConstraintError(message, param="choice")
        if not options:
            raise EmptyLanguage("a choice needs at least one option", param="choice")
        if len(options) > MAX_OPTIONS:
            raise ConstraintTooLarge(
                f"the choice has {len(options)} options; at most {MAX_OPTIONS} are read", param="choice"
            )
        for index, option in enumerate(time.over(options, name="choice")):
            if not isinstance(option, str):
                message = f"a choice, /{index}: expected text, not {type(option).__name__}"
                raise ConstraintError(message, pointer=f"/{index}", param="choice")
            if not option.isascii() and any("\ud800" <= character <= "\udfff" for character in option):
                message = f"a choice, /{index}: {option!r} has half a surrogate pair in it, which cannot be written"
                raise EmptyLanguage(message, pointer=f"/{index}", param="choice")

        if (num_characters := sum(map(len, options))) > MAX_SOURCE_LEN:
            message = f"the choice has {num_characters} characters in all; at most {MAX_SOURCE_LEN} are read"
            raise ConstraintTooLarge(message, param="choice")

        def grammar() -> Grammar:
            literals = [Literal(option.encode()) for option in time.over(options, name="choice")]
            return Grammar({"text": Alternation(tuple(literals))}, "text")

        return self._compile("choice", packed(list(options)), grammar, time)

    @while_put_off
    def json_schema(
        self,
        schema: object,
        *,
        whitespace: Whitespace = "compact",
        key_order: KeyOrder = "schema",
        extra_keys: ExtraKeys | None = None,
        resources: Resources = NO_RESOURCES,
    ) -> Constraint:
        """JSON that is valid under a schema.

        Args:
            schema: a dict or bool, JSON text of one, or a pydantic model class.
            whitespace: "compact", "spaced" or "flexible"; see `any_json`.
            key_order: "schema" (named keys as the schema names them, then others) or "any".
            extra_keys: "schema" (as the schema says) or "never" (none, unless the schema says what they may be). None:
                "never" of a pydantic model class, "schema" of others.
            resources: schemas by URI that it may refer to; nothing is ever fetched.
        """
        check_option("whitespace", whitespace, Whitespace)
        check_option("key_order", key_order, KeyOrder)
        if extra_keys is None:
            extra_keys = "never" if hasattr(schema, "model_json_schema") else "schema"
        check_option("extra_keys", extra_keys, ExtraKeys)
        time = self._time()
        loaded = _load_schema(schema)
        schema_to_grammar, place_of_contradiction = _json_schema()
        given = checked_resources(resources)

        def grammar() -> Grammar:
            return schema_to_grammar(
                loaded,
                whitespace=whitespace,
                key_order=key_order,
                extra_keys=extra_keys,
                compile_time=time,
                resources=given,
            )

        try:
            option = f"{whitespace}/{key_order}/{extra_keys}"
            return self._compile("json_schema", packed(loaded), grammar, time, option, packed(given) if given else None)
        except EmptyLanguage as error:
            pointer = place_of_contradiction(loaded, extra_keys, time, given)  # in what is left
            message = f"{pointer or '/'}: {error}; look for keywords here that contradict each other"
            raise EmptyLanguage(message, pointer=pointer) from error

    def json_object(self, *, whitespace: Whitespace = "compact") -> Constraint:
        """Any JSON object."""
        check_option("whitespace", whitespace, Whitespace)
        return self._compile("json_object", "", lambda: json_grammar("object", whitespace), self._time(), whitespace)

    def json_value(self, *, whitespace: Whitespace = "compact") -> Constraint:
        """Any JSON value."""
        check_option("whitespace", whitespace, Whitespace)
        return self._compile("json_value", "", lambda: json_grammar("value", whitespace), self._time(), whitespace)

    def grammar(self, text: str, syntax: Syntax = "auto") -> Constraint:
        """Sentences of a grammar given as text, in one of the notations of `grammars`."""
        check_text("grammar", text, InvalidGrammar)
        check_option("syntax", syntax, Syntax)
        if len(text) > MAX_SOURCE_LEN:
            raise InvalidGrammar(f"the grammar has {len(text)} characters; at most {MAX_SOURCE_LEN} are read")
        time = self._time()

        def grammar() -> Grammar:
            return text_to_grammar(text, syntax, time, self.vocabulary.spell_special)

        return self._compile("grammar", text, grammar, time, syntax)

    @while_put_off
    def structural_tag(self, description: object, *, whitespace: Whitespace = "compact") -> Constraint:
        """Free text with tags in it (see `structural_tags`): a dict, or JSON text of one."""
        from .tags.structural_tags import structural_tag_to_grammar

        check_option("whitespace", whitespace, Whitespace)
        time = self._time()
        if isinstance(description, str):
            loaded = _load_json(description, "structural tag", InvalidStructuralTag)
        else:
            loaded = description
            check_json_size(loaded, "structural tag", InvalidStructuralTag, param="structural_tag")
        return self._compile(
            "structural_tag",
            packed(loaded),
            lambda: structural_tag_to_grammar(
                loaded, whitespace=whitespace, spell_special=self.vocabulary.spell_special, compile_time=time
            ),
            time,
            whitespace,
        )

    def from_grammar(self, grammar: Grammar) -> Constraint:
        """A grammar built by hand, whose rules may begin with themselves; not cached."""
        check_type("grammar", grammar, Grammar, "a Grammar")
        time = self._time()
        return self._build(
            "grammar", "", lambda: replace(grammar, rules=without_left_recursion(grammar.rules, time)), time
        )

    def warm_up(self) -> None:
        """Does once what the first constraints would otherwise wait for.

        That is the Unicode tables, the automata of formats and of hundredths, and the rows inside JSON strings and
        numbers. From a background thread at start-up it costs no request time.
        """
        warm_up(self.from_grammar)

    def clear(self) -> None:
        """Drops all constraints and rows that are kept. Those in use live on until their cursors are gone."""
        with self._lock:
            self._kept.clear()

    @property
    def num_cached_bytes(self) -> int:
        """Memory of the constraints and rows that are kept."""
        with self._lock:
            return self._kept.weigh() + self._store.num_bytes

    # ---------------------------------------------------------------- the cache

    def _time(self) -> CompileTime:
        """The time of a constraint that is not read yet: reading counts as well."""
        return CompileTime(self.limits.max_compile_seconds)

    def _compile(
        self,
        kind: str,
        source: Source,
        grammar: Callable[[], Grammar],
        time: CompileTime,
        option: str = "",
        beside: Source | None = None,
    ) -> Constraint:
        """The constraint of a source, kept if it is known; `beside`: what it was compiled with, packed."""
        if NOT_PACKED in (source, beside):
            return self._build(kind, source, grammar, time)
        key = (f"{kind}/{option}", source, beside)
        with self._lock:
            kept = self._kept.find(key)
            if kept is not None:
                # one that is half full serves no new requests: a deeply nested text must not fill it for them
                renewed = kept.renewed()
                if renewed is not kept:
                    self._kept.put(key, renewed)
                return renewed
        constraint = self._build(kind, source, grammar, time)
        with self._lock:
            self._kept.put(key, constraint)
        return constraint

    @while_put_off  # to search through a large program's objects takes half a second, which is not this work's
    def _build(self, kind: str, source: Source, grammar: Callable[[], Grammar], time: CompileTime) -> Constraint:
        max_bytes = self.limits.max_automaton_bytes
        made = grammar()
        try:
            network = build_network(made, time, max_bytes)
        except EmptyLanguage as error:
            from .emptiness import empty_language

            raise empty_language(kind, source, made) from error
        return Constraint(network, kind, source, self._store, max_bytes)


@functools.cache
def _json_schema() -> tuple[Callable[..., Grammar], Callable[[Any, ExtraKeys, CompileTime, Resources], str]]:
    """`schema_to_grammar` and `place_of_contradiction`: imported when they are needed, since that makes tables, and
    once, since to import what is there takes 10 us as well."""
    from .json_schema import place_of_contradiction, schema_to_grammar

    return schema_to_grammar, place_of_contradiction


def _load_schema(schema: object) -> Any:
    """The schema as plain JSON data."""
    if isinstance(schema, str):
        return _load_json(schema, "schema", InvalidSchema)
    if isinstance(schema, (bool, Mapping)):
        check_json_size(schema, "schema", InvalidSchema, param="schema")
        return schema
    describe = getattr(schema, "model_json_schema", None)
    if describe is None:
        raise InvalidSchema(
            f"a schema is a dict, a bool, JSON text or a pydantic model, not {type(schema).__name__}", param="schema"
        )
    described = describe()
    check_json_size(described, "schema", InvalidSchema, param="schema")
    return described


def _load_json(text: str, what: str, invalid: type[ConstraintError]) -> Any:
    if len(text) > MAX_SOURCE_LEN:
        raise invalid(f"the {what} has {len(text)} characters; at most {MAX_SOURCE_LEN} are read")
    try:
        return json.loads(text)
    except ValueError as error:
        raise invalid(f"the {what} is not JSON: {error}", param=what.replace(" ", "_")) from None
    except RecursionError:
        message = f"the {what} is nested too deeply for JSON text to be read; flatten it"
        raise invalid(message, param=what.replace(" ", "_")) from None
