"""What the keywords of a schema demand, and by what means each is enforced; and what demands nothing.

A walk through all subschemas that can apply to an instance, in the order of the text, `$ref` followed once to each
target. It compiles nothing that the schema's own compilation has not compiled (automata are kept by their tests).
It explains a schema that compiles; of others it says as much as it can read.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...errors import ConstraintError
from ..any_json import KeyOrder
from ..network.expression import Embed
from ..record import value_record
from ..resources import NO_RESOURCES, Resources
from ..text.counted import Counted
from ..text.json_strings import JsonStrings
from .algebra import ANY_TYPE, ARRAY, NUMBER, OBJECT, STRING, Conjunction, Test
from .numbers import number_expressions
from .place import REFERENCES, referred
from .reading import ARRAY_KEYWORDS, NUMBER_KEYWORDS, OBJECT_KEYWORDS, STRING_KEYWORDS, WHY_NOT_CONTENT, read
from .resolve import Site, children
from .sites import CONTENT, KEYWORDS, Annotation, Sites, is_keyword
from .strings import string_expression, string_language
from .texts import escape

MAX_SUBSCHEMAS = 5000
MAX_VALUE_LEN = 40

_SILENT = frozenset(
    (
        "$schema", "$id", "id", "$defs", "definitions", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary",
        "$comment", "then", "else", "minContains", "maxContains",
    )
)  # fmt: skip
"""Read together with other keywords, or names and comments."""

_DESCRIBE = frozenset(
    (
        "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly",
    )
)  # fmt: skip

_OF_TYPE = (
    (NUMBER, "numbers", NUMBER_KEYWORDS),
    (STRING, "strings", STRING_KEYWORDS),
    (ARRAY, "arrays", (*ARRAY_KEYWORDS, "unevaluatedItems")),
    (OBJECT, "objects", (*OBJECT_KEYWORDS, "dependentSchemas", "unevaluatedProperties")),
)

_NOT_APPLIED = ("$defs", "definitions", "contentSchema")
_CLOSING = ("/additionalProperties", "/additionalItems", "/items", "/unevaluatedProperties", "/unevaluatedItems")

_HOW = {
    "type": "only these types are written",
    "enum": "the texts themselves, common beginnings shared",
    "const": "the text itself",
    "properties": "literal keys, in this order",
    "required": "the way past the key is not there",
    "patternProperties": "key automaton per pattern",
    "propertyNames": "key automaton",
    "minProperties": "one rule per number of keys",
    "maxProperties": "one rule per number of keys",
    "dependentRequired": "conditions on keys, carried along in the rules",
    "dependentSchemas": "split into cases",
    "dependencies": "conditions on keys, or split into cases",
    "items": "an expression, repeated",
    "prefixItems": "one expression after the other",
    "additionalItems": "an expression, repeated",
    "minItems": "counter",
    "maxItems": "counter",
    "contains": "one rule per number of items found",
    "uniqueItems": "few values: a set; others: each that was written is remembered",
    "allOf": "merged: all of them hold",
    "anyOf": "alternatives",
    "oneOf": "alternatives, proved disjoint or the others subtracted",
    "not": "complement",
    "if": "split into cases",
    "$ref": "a rule by name",
    "$dynamicRef": "a rule by name, found along the way",
    "$recursiveRef": "a rule by name, found along the way",
    "unevaluatedProperties": "closed in every case",
    "unevaluatedItems": "closed in every case",
}


_ANY_ORDER = {
    "properties": "literal keys, in any order, each once",
    "required": "the object does not close before",
}


@value_record
class Demand:
    """One keyword (or several together) and what makes it hold.

    Attributes:
        pointer: JSON pointer of the keyword; of the subschema where several work together.
        keyword: its name; names joined by " ∧ " for several.
        value: the keyword's value, shortened.
        how: the means.
    """

    pointer: str
    keyword: str
    value: str
    how: str


def demands(
    schema: dict[str, Any] | bool, key_order: KeyOrder = "schema", resources: Resources = NO_RESOURCES
) -> tuple[list[Demand], list[Annotation]]:
    """What is enforced how, and what is an annotation only, in the order of the text."""
    found: list[Demand] = []
    annotations: list[Annotation] = []
    sites = Sites(schema, annotations, resources=resources)
    for site in subschemas(sites):
        if site.schema is False and not site.pointer.endswith(_CLOSING):
            found.append(Demand(site.pointer, "false", "", "nothing at all is written here"))
        if isinstance(site.schema, dict):
            _explain(sites, site, found, annotations)
    if key_order == "any":
        found = [replace(demand, how=_ANY_ORDER.get(demand.keyword, demand.how)) for demand in found]
    return found, annotations


def subschemas(sites: Sites) -> Iterator[Site]:
    """All subschemas that can apply to an instance, each once, at most `MAX_SUBSCHEMAS`."""
    pending = [sites.resolver.root]
    seen: set[int] = set()
    while pending and len(seen) < MAX_SUBSCHEMAS:
        site = pending.pop()
        if id(site.schema) in seen and isinstance(site.schema, dict):
            continue
        seen.add(id(site.schema))
        yield site
        if isinstance(site.schema, dict):
            pending += reversed(list(_below(sites, site)))


def _below(sites: Sites, site: Site) -> Iterator[Site]:
    schema: Any = site.schema
    for name, value in schema.items():
        if name in REFERENCES:
            yield from referred(sites, site, (name,))
        elif name not in _NOT_APPLIED and (name not in ("then", "else") or "if" in schema):
            for child, path in children({name: value}):
                yield sites.resolver.site(child, f"{site.pointer}/{path}", site.resource)


def _explain(sites: Sites, site: Site, found: list[Demand], annotations: list[Annotation]) -> None:
    schema: Any = site.schema
    draft = site.resource.draft
    try:
        conjunction: Conjunction | None = read(sites, site)
    except ConstraintError:
        conjunction = None
    types = conjunction.types if conjunction is not None else ANY_TYPE
    idle = {name: kind for bit, kind, names in _OF_TYPE if not types & bit for name in names}
    alone = "$ref" in schema and 0 < draft <= 7
    for name, value in schema.items():
        pointer = f"{site.pointer}/{escape(name)}"
        if name in _SILENT:
            continue
        if name not in KEYWORDS:
            annotations.append(Annotation(pointer, _why_silent(name)))
        elif name == "contentMediaType" or not is_keyword(name, draft):
            continue  # noted while it was read
        elif alone and name != "$ref":
            annotations.append(Annotation(pointer, "next to $ref, which up to draft 7 stands alone; not enforced"))
        elif name in idle:
            annotations.append(Annotation(pointer, f"about {idle[name]}, which cannot stand here; demands nothing"))
        elif (
            not (name == "format" or name in CONTENT)
            or conjunction is None
            or any(t[0] == "format" for t in conjunction.strings)
        ):
            found.append(Demand(pointer, name, _value(name, value), _how(name, value, schema, conjunction)))
    if conjunction is not None:
        _together(site, conjunction, found)


def _value(name: str, value: Any) -> str:
    """A keyword's value in short: of subschemas only their names or number."""
    if name in ("properties", "patternProperties") and isinstance(value, dict):
        text = ", ".join(value)
    elif isinstance(value, dict) or (isinstance(value, list) and any(isinstance(item, dict) for item in value)):
        text = f"{len(value)} schemas" if isinstance(value, list) else "a schema"
    else:
        text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE_LEN else text[: MAX_VALUE_LEN - 1] + "…"


def _why_silent(name: str) -> str:
    if name in _DESCRIBE:
        return "a description; demands nothing"
    if name == "contentSchema":
        return WHY_NOT_CONTENT
    near = difflib.get_close_matches(name, KEYWORDS, 1, 0.75)
    return f"no keyword of JSON Schema{f' (did you mean {near[0]}?)' if near else ''}; demands nothing"


def _how(name: str, value: Any, schema: dict[str, Any], conjunction: Conjunction | None) -> str:
    if name in NUMBER_KEYWORDS:
        return "digit automaton"
    if name == "pattern":
        return _size(conjunction, "pattern")
    if name == "format" or name in CONTENT:
        return _size(conjunction, "format")
    if name in ("minLength", "maxLength"):
        return "counted in characters"
    if name == "additionalProperties":
        if value is False:
            return "no other keys"
        return "any other key but the named ones" if value is True else "other keys but the named ones, after them"
    if name == "uniqueItems" and value is False:
        return "nothing to do"
    if name == "enum" and isinstance(value, list):
        return f"{len(value)} texts, common beginnings shared"
    if name == "required" and isinstance(value, list):
        missing = [key for key in value if key not in schema.get("properties", {})]
        return _HOW[name] + (f"; {', '.join(missing)}: any value" if missing else "")
    return _HOW.get(name, "rules")


def _size(conjunction: Conjunction | None, kind: str) -> str:
    tests = tuple(test for test in conjunction.strings if test[0] == kind) if conjunction is not None else ()
    return f"automaton of {string_language(tests).num_states - 1} states" if tests else "automaton"


def _together(site: Site, conjunction: Conjunction, found: list[Demand]) -> None:
    """Tests of one type are one automaton: says how large it is."""
    if len(conjunction.strings) > 1 and conjunction.types & STRING:
        names = [name for name in STRING_KEYWORDS if name in (site.schema if isinstance(site.schema, dict) else ())]
        found.append(Demand(site.pointer, " ∧ ".join(names), "", _product(conjunction.strings)))
    if len(conjunction.numbers) > 1 and conjunction.types & NUMBER:
        names = [str(test[0]) for test in conjunction.numbers]
        options = [option for option in number_expressions(conjunction.numbers) if isinstance(option, Embed)]
        sizes = [getattr(option.language, "num_states", 1) - 1 for option in options]
        if sizes:
            found.append(Demand(site.pointer, " ∧ ".join(names), "", f"product of {sum(sizes)} states"))


def _product(tests: tuple[Test, ...]) -> str:
    """How large the automaton of several tests of a string is; the two states are those around the quotes."""
    expression = string_expression(tests)
    language = expression.language if isinstance(expression, Embed) else None
    if isinstance(language, Counted):
        return f"{len(language.language.table) - 3} states, and the characters counted separately"
    return f"product of {len(language.table) - 3} states" if isinstance(language, JsonStrings) else "product: nothing"
