"""Reads one schema object into a `Conjunction`: keyword by keyword, every value checked, nothing dropped.

Keywords of one type are gathered into tests (strings, numbers) and facets (arrays, objects); `allOf`, `$ref` and
`not` become atoms; `anyOf`, `oneOf`, `if`, `dependencies` become disjunctions of conjunctions. Subschemas are given
numbers and not read. Keywords that the draft does not know, and formats that no draft defines, are annotations.
"""

from __future__ import annotations

from dataclasses import replace

from ...errors import InvalidSchema, UnsupportedSchema
from .algebra import (
    ANY_TYPE,
    ANYTHING,
    ARRAY,
    BOOLEAN,
    NULL,
    NUMBER,
    OBJECT,
    STRING,
    ArrayFacet,
    Clause,
    Conjunction,
    Contains,
    Goal,
    ObjectFacet,
    Test,
)
from .applying import IN_PLACE, Applied
from .checked import Keywords
from .draft_3 import is_draft_3
from .formats import BASE64_CONTENT, OF_DRAFT_3, OPENAPI, is_format
from .resolve import DRAFT_2020, Site
from .sites import CONTENT, KEYWORDS, Sites, is_keyword, keywords_of
from .texts import error_at, escape, shown

TYPES = {
    "null": NULL, "boolean": BOOLEAN, "number": NUMBER, "integer": NUMBER, "string": STRING, "array": ARRAY,
    "object": OBJECT,
}  # fmt: skip

NUMBER_KEYWORDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
STRING_KEYWORDS = ("minLength", "maxLength", "pattern", "format", *CONTENT)
ARRAY_KEYWORDS = ("items", "prefixItems", "additionalItems", "minItems", "maxItems", "contains", "uniqueItems")
OBJECT_KEYWORDS = (
    "properties", "patternProperties", "additionalProperties", "required", "propertyNames", "minProperties",
    "maxProperties", "dependentRequired", "dependencies",
)  # fmt: skip

WHY_NOT_CONTENT = "what the text holds, which is not enforced; for base64, ask for format: base64 or a pattern"

PLAIN = {name: Conjunction("", mask, (("integer",),) if name == "integer" else ()) for name, mask in TYPES.items()}
"""The conjunctions of schemas that name a type and say nothing else: the same everywhere."""


def read(sites: Sites, site: Site) -> Conjunction:
    """The conjunction that says what the schema object at `site` says.

    Raises:
        InvalidSchema: a keyword has a value that it cannot have.
        UnsupportedSchema: a keyword cannot be enforced.
    """
    schema = site.schema
    assert isinstance(schema, dict)
    draft = site.resource.draft
    keywords = KEYWORDS.intersection(schema)
    if len(keywords) == 1 and "type" in keywords and type(schema["type"]) is str and schema["type"] in PLAIN:
        return PLAIN[schema["type"]]
    if "$ref" in keywords and 0 < draft <= 7:
        keywords = frozenset(("$ref",))
    if draft or not keywords.isdisjoint(CONTENT):
        keywords = _of_draft(sites, site, keywords, draft)
    if "dependencies" in keywords and is_in_doubt(site):
        sites.in_doubt = True
    checked = Keywords(sites, site, schema, keywords)
    types, numbers = _types(checked) if "type" in keywords else (ANY_TYPE, ())
    if not keywords.isdisjoint(NUMBER_KEYWORDS):
        numbers += _numbers(checked)
    strings = () if keywords.isdisjoint(STRING_KEYWORDS) else _strings(checked)
    arrays = () if keywords.isdisjoint(ARRAY_KEYWORDS) else _arrays(checked)
    objects = () if keywords.isdisjoint(OBJECT_KEYWORDS) else _objects(checked)
    if keywords.isdisjoint(IN_PLACE):
        return Conjunction(site.pointer, types, numbers, strings, arrays, objects)
    applied = Applied(checked)
    return Conjunction(
        site.pointer,
        types & applied.types,
        numbers,
        strings,
        arrays,
        (*objects, *applied.clauses),
        tuple(applied.atoms),
        tuple(applied.disjunctions),
        applied.own_first(),
    )


def is_in_doubt(site: Site) -> bool:
    """Whether validators differ on the subschema: some have dropped `dependencies` with draft 2019-09.

    It holds, then; but what does not hold must fail in what all of them read (`without_doubt`).
    """
    return isinstance(site.schema, dict) and "dependencies" in site.schema and not 0 < site.resource.draft <= 7


def without_doubt(site: Site) -> Site:
    """The subschema as it is read by validators that do not know `dependencies`."""
    assert isinstance(site.schema, dict)
    return replace(site, schema={name: value for name, value in site.schema.items() if name != "dependencies"})


def _of_draft(sites: Sites, site: Site, keywords: frozenset[str], draft: int) -> frozenset[str]:
    if keywords <= keywords_of(draft):
        return keywords
    unknown = [name for name in keywords if not is_keyword(name, draft)]
    for name in unknown:
        reason = WHY_NOT_CONTENT if name in CONTENT else f"{name} is no keyword of the draft that $schema names"
        sites.note(f"{site.pointer}/{name}", reason)
    return keywords.difference(unknown)


def _types(keywords: Keywords) -> tuple[int, tuple[Test, ...]]:
    names = keywords.schema["type"]
    if type(names) is str:
        mask = TYPES.get(names)
        if mask is not None:
            return mask, (("integer",),) if names == "integer" else ()
        names = [names]
    if type(names) is not list or not names:
        raise keywords.bad("type", "the name of a type or a list of names")
    mask = 0
    for index, name in enumerate(names):
        if type(name) is not str or name not in TYPES:
            place = f"{keywords.pointer}/type" + (f"/{index}" if type(keywords.schema["type"]) is list else "")
            raise error_at(InvalidSchema, place, f"{shown(name)} is no type; the types are {', '.join(TYPES)}")
        mask |= TYPES[name]
    whole = "integer" in names and "number" not in names
    return mask, (("integer",),) if whole else ()


def _numbers(keywords: Keywords) -> tuple[Test, ...]:
    tests: list[Test] = []
    for bound in ("minimum", "maximum"):
        name = f"exclusive{bound.capitalize()}"
        exclusive = keywords.schema[name] if name in keywords.names else None
        if bound in keywords.names:
            tests.append((f"exclusive-{bound}" if exclusive is True else bound, keywords.number(bound)))
        if exclusive is not None and type(exclusive) is not bool:
            tests.append((f"exclusive-{bound}", keywords.number(name)))
    if "multipleOf" in keywords.names:
        step = keywords.number("multipleOf")
        if step <= 0:
            raise keywords.bad("multipleOf", "a number greater than 0")
        tests.append(("multiple", step))
    return tuple(tests)


def _strings(keywords: Keywords) -> tuple[Test, ...]:
    tests: list[Test] = []
    if "format" in keywords.names:
        name = keywords.schema["format"]
        if type(name) is not str:
            raise keywords.bad("format", "a string")
        if is_draft_3(keywords.site.resource.schema):
            name = OF_DRAFT_3.get(name, name)
        if is_format(name):
            tests.append(("format", name))
        else:
            whose = (
                "a format of OpenAPI, which JSON Schema does not have" if name in OPENAPI else "no format that we know"
            )
            keywords.sites.note(f"{keywords.pointer}/format", f"{shown(name)} is {whose}; not enforced")
    if "pattern" in keywords.names:
        pattern = keywords.schema["pattern"]
        if type(pattern) is not str:
            raise keywords.bad("pattern", "a string")
        keywords.check_pattern(pattern, f"{keywords.pointer}/pattern")
        tests.append(("pattern", pattern))
    tests += _content(keywords)
    minimum, maximum = keywords.count("minLength", 0), keywords.maximum_count("maxLength")
    if minimum or maximum is not None:
        tests.append(("length", minimum, maximum))
    return tuple(tests)


def _content(keywords: Keywords) -> list[Test]:
    """What draft 7 lets validators check, where it is named: base64, and JSON, which is no regular language."""
    schema, names = keywords.schema, keywords.names
    if "contentMediaType" in names:
        if schema["contentMediaType"] == "application/json":
            message = (
                "in draft 7 validators may read the text as JSON, which is not enforced inside a string; leave it out, "
                "or name a later draft, for which it demands nothing"
            )
            raise error_at(UnsupportedSchema, f"{keywords.pointer}/contentMediaType", message)
        keywords.sites.note(f"{keywords.pointer}/contentMediaType", WHY_NOT_CONTENT)
    if "contentEncoding" in names:
        if schema["contentEncoding"] == "base64":
            return [("format", BASE64_CONTENT)]
        keywords.sites.note(f"{keywords.pointer}/contentEncoding", WHY_NOT_CONTENT)
    return []


def _arrays(keywords: Keywords) -> tuple[ArrayFacet, ...]:
    schema, names = keywords.schema, keywords.names
    prefix: list[Goal] = []
    items = ANYTHING
    rest = False
    if "prefixItems" in names:
        prefix = keywords.goals("prefixItems")
    if "items" in names:
        if type(schema["items"]) is list and keywords.site.resource.draft != DRAFT_2020:
            prefix = keywords.goals("items")
            if "additionalItems" in names:
                items, rest = keywords.goal("additionalItems"), True
        else:
            items, rest = keywords.goal("items"), True
    contains: tuple[Contains, ...] = ()
    if "contains" in names:
        at_least, at_most = keywords.count("minContains", 1), keywords.maximum_count("maxContains")
        contains = (Contains(keywords.goal("contains"), at_least, at_most),)
    unique = schema["uniqueItems"] if "uniqueItems" in names else False
    if type(unique) is not bool:
        raise keywords.bad("uniqueItems", "true or false")
    facet = ArrayFacet(
        keywords.pointer,
        tuple(prefix),
        items,
        keywords.count("minItems", 0),
        keywords.maximum_count("maxItems"),
        contains,
        unique,
        evaluates=keywords.evaluates,
        evaluates_rest=rest,
    )
    return (facet,)


def _objects(keywords: Keywords) -> tuple[ObjectFacet, ...]:
    names = keywords.names
    clauses: list[Clause] = []
    if "required" in names:
        required = keywords.schema["required"]
        for name in keywords.over(keywords.key_list(required, f"{keywords.pointer}/required"), "required"):
            clauses.append(frozenset(((name, True),)))
    for keyword in ("dependentRequired", "dependencies"):
        if keyword in names:
            clauses += _dependent_names(keywords, keyword)
    patterns = keywords.goal_map("patternProperties") if "patternProperties" in names else {}
    for pattern in patterns:
        keywords.check_pattern(pattern, f"{keywords.pointer}/patternProperties/{escape(pattern)}", for_all=False)
    additional = "additionalProperties" in names
    facet = ObjectFacet(
        keywords.pointer,
        keywords.goal_map("properties") if "properties" in names else {},
        tuple(patterns.items()),
        keywords.goal("additionalProperties") if additional else ANYTHING,
        tuple(clauses),
        keywords.goal("propertyNames") if "propertyNames" in names else ANYTHING,
        keywords.count("minProperties", 0),
        keywords.maximum_count("maxProperties"),
        evaluates=keywords.evaluates,
        evaluates_rest=additional,
    )
    return (facet,)


def _dependent_names(keywords: Keywords, keyword: str) -> list[Clause]:
    """Clauses "no such key, or that other key too"."""
    value = keywords.schema[keyword]
    if type(value) is not dict:
        raise keywords.bad(keyword, "an object")
    clauses: list[Clause] = []
    for key, names in value.items():
        if keyword == "dependencies" and type(names) is str:
            names = [names]
        if type(names) is list:
            pointer = f"{keywords.pointer}/{keyword}/{escape(key)}"
            needed = keywords.over(keywords.key_list(names, pointer), keyword)
            clauses += [frozenset(((key, False), (name, True))) for name in needed if name != key]
        elif keyword == "dependentRequired":
            raise keywords.bad(keyword, "an object of lists of property names")
    return clauses
