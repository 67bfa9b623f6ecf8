"""Schemas made to hurt (see `bombs.py`): wide, deep, circular, with many ways to be true, with long texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def schemas() -> Iterator[tuple[str, Any]]:
    """Schemas: wide, deep, circular, and with many ways to be true."""
    many = {f"property_{index}": {"type": "string"} for index in range(10_000)}
    yield "10,000 properties", {"type": "object", "properties": many}
    yield "10,000 required properties", {"type": "object", "properties": many, "required": list(many)}
    yield "10,000 properties and no others", {"type": "object", "properties": many, "additionalProperties": False}
    objects = {name: {"type": "object", "properties": {name: {"type": "integer"}}} for name in many}
    yield "10,000 properties that are objects", {"type": "object", "properties": objects}
    yield "maxProperties over 1,000", {"properties": dict(list(many.items())[:1000]), "maxProperties": 500}
    yield "enum of 100,000", {"enum": [f"value {index}" for index in range(100_000)]}
    yield "enum of 100,000 numbers", {"enum": list(range(100_000))}
    yield "enum of 10,000 objects", {"enum": [{"a": index, "b": [index]} for index in range(10_000)]}
    yield "mutual $ref", {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    circle = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{(i + 1) % 1000}"}]} for i in range(1000)}
    yield "circle of 1,000 allOf", {"$ref": "#/$defs/d0", "$defs": circle}
    chain = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"minimum": i}]} for i in range(1000)}
    yield "chain of 1,000 allOf", {"$ref": "#/$defs/d0", "$defs": {**chain, "d1000": {"type": "integer"}}}
    twice = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(60)}
    yield "60 doublings by allOf", {"$ref": "#/$defs/d0", "$defs": {**twice, "d60": {"type": "integer"}}}
    either = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(60)}
    yield "60 doublings by anyOf", {"$ref": "#/$defs/d0", "$defs": {**either, "d60": {"type": "integer"}}}
    spread = {
        f"d{i}": {"properties": {k: {"$ref": f"#/$defs/d{i + 1}"} for k in "ab"}, "type": "object"} for i in range(60)
    }
    yield "60 doublings by properties", {"$ref": "#/$defs/d0", "$defs": {**spread, "d60": {"type": "integer"}}}
    for depth in (1000, 30_000):
        nested: dict[str, Any] = {"type": "integer"}
        for _ in range(depth):
            nested = {"type": "object", "properties": {"a": nested}, "required": ["a"]}
        yield f"{depth} objects within each other", nested
    lists: dict[str, Any] = {"type": "integer"}
    for _ in range(1000):
        lists = {"items": lists}
    yield "1000 arrays within each other", lists
    yield "30,000 brackets as JSON text", '{"not":' * 30_000 + "{}" + "}" * 30_000
    refused: dict[str, Any] = {"type": "integer"}
    for _ in range(1000):
        refused = {"not": refused}
    yield "1000 nots", refused
    for keyword in ("anyOf", "oneOf"):
        strings = [{"type": "string", "pattern": f"^{index}"} for index in range(1000)]
        yield f"{keyword} of 1,000 patterns", {keyword: strings}
        tagged = [{"properties": {"tag": {"const": index}}, "required": ["tag"]} for index in range(1000)]
        yield f"{keyword} of 1,000 tagged values", {keyword: tagged}
        yield f"{keyword} of 1,000 tagged objects", {"type": "object", keyword: tagged}
        keyed = [{"properties": {f"k{index}": {"type": "integer"}}} for index in range(1000)]
        yield f"{keyword} of 1,000 open objects", {keyword: keyed}
    twofold = [{"anyOf": [{"required": [f"a{i}"]}, {"properties": {f"b{i}": {"type": "integer"}}}]} for i in range(30)]
    yield "allOf of 30 anyOf", {"type": "object", "allOf": twofold}
    found = {f"[{chr(97 + i)}{chr(98 + i)}].*[{chr(99 + i)}x]": {"minimum": i} for i in range(20)}
    yield "20 patterns of properties that overlap", {"type": "object", "patternProperties": found}
    lengths = [{"pattern": f"^(.{{{n}}})*$"} for n in (2, 3, 5, 7, 11, 13, 17, 19, 23)]
    yield "patterns with a long common period", {"type": "string", "allOf": lengths}
    yield "long strings", {"type": "string", "minLength": 10**6, "maxLength": 10**9}
    yield "uniqueItems over an enum of 100", {"items": {"enum": list(range(100))}, "uniqueItems": True}
    yield "contains 1,000 times", {"contains": {"minimum": 5}, "minContains": 1000, "maxContains": 2000}
    yield "multipleOf and bounds of 300 digits", {"type": "integer", "minimum": 10**300, "multipleOf": 10**299 + 7}
    yield from entangled_schemas()
    yield from webs_of_conditions()
    yield from large_counts()
    yield from many_of_a_kind()
    yield from what_must_differ()
    yield from ways_back()


def entangled_schemas() -> Iterator[tuple[str, Any]]:
    """Schemas whose keywords multiply with each other."""
    both: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    for depth in range(200):
        both = {"not": {"not": {"allOf": [both, {"required": [f"k{depth}"]}]}}}
    yield "200 times not not allOf", both
    for keyword, count in (("anyOf", 200), ("oneOf", 40)):
        defs: dict[str, Any] = {
            f"d{n}": {
                keyword: [{"$ref": f"#/$defs/d{n + 1}"}, {"items": {"$ref": f"#/$defs/d{n + 1}"}}, {"minimum": n}]
            }
            for n in range(count)
        }
        yield (
            f"{count} {keyword} within each other",
            {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{count}": {"type": "null"}}},
        )
    for low, high in ((10**6, None), (0, 10**9), (10**9, 10**12)):
        yield (
            f"minItems {low}, maxItems {high}",
            {
                "items": {"type": "integer"},
                "minItems": low,
                **({} if high is None else {"maxItems": high}),
            },
        )
    yield "maxItems within maxItems", {"maxItems": 10**6, "items": {"maxItems": 10**6, "items": {"maxItems": 10**6}}}
    yield "minProperties 10,000", {"type": "object", "minProperties": 10_000}
    overlapping = {f"^.{{{n}}}[a-{chr(97 + n % 26)}]": {"minimum": n} for n in range(200)}
    yield "200 patterns of properties", {"type": "object", "patternProperties": overlapping}
    chain: dict[str, Any] = {}
    for depth in range(300):
        chain = {
            "if": {"required": [f"k{depth}"]},
            "then": {"properties": {f"v{depth}": {"type": "null"}}},
            "else": chain,
        }
    yield "chain of 300 if/then/else", chain
    apart = [
        {"if": {"required": [f"k{n}"]}, "then": {"required": [f"v{n}"]}, "else": {"maxProperties": n}}
        for n in range(40)
    ]
    yield "allOf of 40 if/then/else", {"type": "object", "allOf": apart}
    ring = {f"k{n}": {"required": [f"k{(n + 1) % 200}"], "properties": {f"k{n}": {"minimum": n}}} for n in range(200)}
    yield "ring of 200 dependentSchemas", {"type": "object", "dependentSchemas": ring}
    yield "dependentSchemas that lead back", {"dependentSchemas": {"a": {"$ref": "#"}, "b": {"not": {"$ref": "#"}}}}
    yield (
        "ring of 2,000 dependentRequired",
        {"dependentRequired": {f"k{n}": [f"k{(n + 1) % 2000}"] for n in range(2000)}},
    )
    yield "uniqueItems over an enum of 4,000", {"items": {"enum": list(range(4000))}, "uniqueItems": True}
    yield "uniqueItems over an enum of 50,000", {"items": {"enum": list(range(50_000))}, "uniqueItems": True}
    yield "uniqueItems over strings", {"items": {"type": "string"}, "uniqueItems": True}
    yield "multipleOf 1e-9 up to 1e15", {"type": "number", "multipleOf": 1e-9, "minimum": 0, "maximum": 1e15}
    yield "multipleOf 0.000007 and bounds", {"type": "number", "multipleOf": 0.000007, "exclusiveMinimum": 1e-300}
    steps = [{"multipleOf": n} for n in (997, 991, 983, 977, 971)]
    yield "allOf of five large multipleOf", {"type": "integer", "allOf": steps}
    yield (
        "format, pattern and lengths at once",
        {
            "type": "string",
            "format": "uri",
            "pattern": "^(?=.*a.{20}).*b.{15}$",
            "minLength": 100,
            "maxLength": 20_000,
        },
    )
    negated = [{"not": {"pattern": f"{chr(97 + n)}.*{chr(122 - n)}"}} for n in range(20)]
    yield "allOf of 20 negated patterns", {"type": "string", "allOf": negated}
    yield (
        "enum of 100,000 under 20 patterns",
        {
            "enum": [f"value {n}" for n in range(100_000)],
            "allOf": [{"pattern": f"[^{n % 10}]$"} for n in range(20)],
        },
    )
    yield "propertyNames with a lookbehind", {"propertyNames": {"pattern": "(?<=a.{10})b"}, "minProperties": 3}
    yield (
        "contains of contains, ten deep",
        _within(10, lambda inner: {"contains": inner, "minContains": 3, "maxContains": 9}),
    )
    keys = {f"a{n}": {"type": "integer"} for n in range(200)}
    yield (
        "unevaluatedProperties behind 12 anyOf",
        {
            "anyOf": [{"properties": {f"a{n}": True}} for n in range(12)],
            "properties": keys,
            "unevaluatedProperties": False,
        },
    )
    yield (
        "dynamic references on many ways",
        {
            "$dynamicAnchor": "x",
            "$defs": {
                f"d{n}": {
                    "$id": f"u{n}",
                    "$dynamicAnchor": "x",
                    "properties": {f"p{m}": {"$ref": f"u{m}"} for m in range(40)},
                }
                for n in range(40)
            },
            "properties": {f"q{n}": {"$ref": f"u{n}"} for n in range(40)},
        },
    )
    yield (
        "a pointer through 3,000 levels",
        {
            "$ref": "#" + "/not" * 3000,
            **_within(3000, lambda inner: {"not": inner}),
        },
    )


def webs_of_conditions() -> Iterator[tuple[str, Any]]:
    """Schemas whose conditions on keys, numbers and strings lead to one another, or overlap."""
    then = [{"required": [f"f{n}"], "properties": {f"f{n}": {"type": "integer"}}} for n in range(150)]
    cases = [{"if": {"properties": {"kind": {"const": f"k{n}"}}}, "then": then[n]} for n in range(150)]
    kind = {"properties": {"kind": {"enum": [f"k{n}" for n in range(150)]}}, "required": ["kind"]}
    yield "150 if/then on one constant each", {"type": "object", **kind, "allOf": cases}
    web = {f"k{n}": [f"k{(n * 7 + m * 13) % 500}" for m in range(20)] for n in range(500)}
    yield "web of 500 times 20 dependentRequired", {"type": "object", "dependentRequired": web}
    chain = {f"d{n}": {"properties": {"n": {"$ref": f"#/$defs/d{n + 1}"}}} for n in range(10_000)}
    yield "chain of 10,000 $ref", {"$ref": "#/$defs/d0", "$defs": {**chain, "d10000": {"type": "integer"}}}
    yield (
        "500 patterns of properties that overlap",
        {
            "type": "object",
            "patternProperties": {f"{chr(97 + n % 26)}{n}": {"minimum": n} for n in range(500)},
        },
    )
    yield (
        "oneOf of 500 ranges that overlap",
        {
            "oneOf": [{"type": "integer", "minimum": 10 * n, "maximum": 10 * n + 15} for n in range(500)],
        },
    )
    yield "allOf of 2,000 bounds", {"allOf": [{"minimum": n + 0.5} for n in range(2000)]}
    yield (
        "allOf of 500 patterns",
        {
            "allOf": [{"type": "string", "pattern": f"[^{chr(97 + n % 26)}]{{0,{n}}}x"} for n in range(500)],
        },
    )
    yield "not an enum of 20,000", {"type": "string", "not": {"enum": [f"v{n}" for n in range(20_000)]}}


def large_counts() -> Iterator[tuple[str, Any]]:
    """Schemas with counts and numbers beyond all measure, and classes of characters that are counted."""
    for keyword in ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"):
        yield f"{keyword} 1e30", {keyword: 10**30}
    yield "minProperties and maxProperties 5,000", {"type": "object", "minProperties": 5000, "maxProperties": 5000}
    yield "minContains 1e9", {"contains": {"const": 1}, "minContains": 10**9}
    yield "multipleOf 1e-300", {"multipleOf": 1e-300}
    yield "multipleOf 1e300", {"multipleOf": 1e300}
    yield "multipleOf 999,983", {"type": "integer", "multipleOf": 999_983}
    yield "multipleOf 0.00001 between bounds", {"multipleOf": 0.00001, "minimum": 0.123, "maximum": 98765.4321}
    yield "bounds of 4,000 digits", {"type": "integer", "minimum": -(10**4000), "maximum": 10**4000 + 7}
    yield "bounds of 1e308", {"minimum": -1.7e308, "exclusiveMaximum": 1.7e308}
    yield "enum of 2,000 numbers with exponents", {"enum": [float(f"{n}e{n % 300}") for n in range(2000)]}
    letters = r"^(?:[\p{L}]{1,300}[\p{N}\p{M}]{0,300}\p{Lu}?){1,40}$"
    yield "classes of Unicode, repeated and counted", {"pattern": letters, "minLength": 777, "maxLength": 7777}
    yield (
        "patterns of Unicode joined",
        {
            "type": "string",
            "allOf": [{"pattern": rf"\p{{{kind}}}.{{0,20}}\p{{Nd}}"} for kind in ("Lu", "Ll", "Lo", "Sc", "Mn", "Han")],
        },
    )
    yield "12 look-aheads in a pattern", {"pattern": "^" + "".join(f"(?=.*{c}.*[{c}x])" for c in "abcdefghijkl")}
    yield "a constant of 1,000,000 characters", {"const": "ab" * 500_000}
    yield "an enum of 100 texts of 40,000 characters", {"enum": [f"{n}" + "x" * 40_000 for n in range(100)]}
    yield "a key of 1,000,000 characters", {"properties": {"k" * 1_000_000: {"const": 1}}, "required": ["k"]}
    yield "a list of 100,000 items", {"const": list(range(100_000))}
    yield "a constant of 20,000 members", {"const": {f"k{n}": {"a": n} for n in range(20_000)}}
    yield "prefixItems of 20,000", {"prefixItems": [{"type": "integer", "minimum": n} for n in range(20_000)]}
    yield "required of 20,000 unnamed", {"type": "object", "required": [f"k{n}" for n in range(20_000)]}


def many_of_a_kind() -> Iterator[tuple[str, Any]]:
    """Schemas of few keywords, each of them very often."""
    shuffled = [{"k" * (1 + n % 3): n, "b": [n], "c": None} for n in range(10_000)]
    yield "enum of 10,000 objects with other keys", {"enum": shuffled}
    then = {"properties": {"a": {"type": "integer"}}}
    kinds = [
        {"if": {"properties": {"kind": {"const": n}}}, "then": {"required": [f"f{n}"], **then}} for n in range(300)
    ]
    yield "300 if/then on constants", {"type": "object", "allOf": kinds}
    required = [
        {
            "if": {"properties": {"kind": {"const": n}}, "required": ["kind"]},
            "then": {"required": [f"f{n}"]},
            "else": {"properties": {f"f{n}": False}},
        }
        for n in range(300)
    ]
    yield "300 if/then/else on constants", {"type": "object", "allOf": required}
    ranges = [{"type": "number", "minimum": 3 * n, "maximum": 3 * n + 4.5} for n in range(5000)]
    yield "anyOf of 5,000 ranges", {"anyOf": ranges}
    yield "anyOf of 5,000 ranges of integers", {"anyOf": [{**one, "type": "integer"} for one in ranges]}
    yield (
        "oneOf of 1,000 objects that overlap",
        {"oneOf": [{"type": "object", "required": [f"k{n % 40}", f"l{n % 37}"]} for n in range(1000)]},
    )
    yield "oneOf of 1,000 lengths", {"oneOf": [{"type": "string", "maxLength": n} for n in range(1000)]}
    yield "anyOf of 2,000 lengths", {"anyOf": [{"minLength": 3 * n, "maxLength": 3 * n + 1} for n in range(2000)]}
    yield (
        "keys of 2,000 lengths",
        {
            "minProperties": 2,
            "type": "object",
            "propertyNames": {"anyOf": [{"minLength": 3 * n, "maxLength": 3 * n} for n in range(2000)]},
        },
    )
    yield (
        "anyOf of 2,000 lengths and a pattern",
        {
            "anyOf": [
                {"type": "string", "minLength": 3 * n, "maxLength": 3 * n, "pattern": "^[a-z ]*$"} for n in range(2000)
            ]
        },
    )
    product = [
        {"anyOf": [{"type": "object", "properties": {f"k{n}": {"const": m}}} for m in range(12)]} for n in range(12)
    ]
    yield "allOf of 12 anyOf of 12", {"allOf": product}
    apart = [{"oneOf": [{"required": [f"a{n}"]}, {"required": [f"b{n}"]}]} for n in range(100)]
    yield "allOf of 100 oneOf of keys", {"type": "object", "allOf": apart}
    beside = {f"^{chr(97 + n % 26)}.*{chr(97 + n // 26)}$": {"minimum": n} for n in range(60)}
    yield (
        "patterns of properties, and no others",
        {
            "type": "object",
            "patternProperties": beside,
            "additionalProperties": False,
            "properties": {f"{chr(97 + n % 26)}{n}": True for n in range(500)},
        },
    )
    yield (
        "500 disjoint patterns of properties",
        {"type": "object", "patternProperties": {f"^k{n};": {"minimum": n} for n in range(500)}},
    )
    for n in (8, 40):
        yield (
            f"unevaluatedItems behind {n} contains",
            {
                "allOf": [{"contains": {"const": m}} for m in range(n)],
                "unevaluatedItems": False,
            },
        )
    yield (
        "unevaluatedProperties behind 8 levels of anyOf",
        {
            "unevaluatedProperties": False,
            **_within(
                8,
                lambda inner: {
                    "anyOf": [inner, {"properties": {"a": True}}, {"properties": {"b": {"$ref": "#/$defs/x"}}}],
                },
            ),
            "$defs": {"x": {"type": "null"}},
        },
    )
    tower: dict[str, Any] = {"type": "object", "required": ["a"]}
    for depth in range(60):
        tower = {"not": {"anyOf": [tower, {"properties": {f"k{depth}": {"const": depth}}, "required": [f"k{depth}"]}]}}
    yield "tower of 60 not anyOf", tower
    tower = {"enum": [1, "a", None]}
    for depth in range(40):
        tower = {"not": {"items": tower}} if depth % 2 else {"not": {"contains": tower}}
    yield "tower of 40 not items, not contains", tower
    web = {
        f"k{n}": {"anyOf": [{"required": [f"k{(n * 7 + 1) % 60}"]}, {"properties": {f"v{n}": {"minimum": n}}}]}
        for n in range(60)
    }
    yield "web of 60 dependentSchemas", {"type": "object", "dependentSchemas": web}
    yield (
        "dependentSchemas of 500 on constants",
        {
            "type": "object",
            "dependentSchemas": {
                f"k{n}": {"properties": {f"v{n}": {"const": n}}, "required": [f"v{n}"]} for n in range(500)
            },
        },
    )
    formats = ["email", "uri", "hostname", "idn-hostname", "uuid", "date-time", "ipv6", "iri", "uri-template"]
    yield "oneOf of all formats", {"oneOf": [{"type": "string", "format": name} for name in formats]}
    yield "allOf of not formats", {"type": "string", "allOf": [{"not": {"format": name}} for name in formats]}
    yield "two long enums joined", {"allOf": [{"enum": [f"v{n}" for n in range(0, 60_000, step)]} for step in (2, 3)]}
    yield "anyOf of 20,000 constants", {"anyOf": [{"const": f"v{n}"} for n in range(20_000)]}
    yield "oneOf of 20,000 constants", {"oneOf": [{"const": f"v{n}"} for n in range(20_000)]}


def what_must_differ() -> Iterator[tuple[str, Any]]:
    """Keys that come from patterns, and lists whose items differ."""
    two = {
        "type": "object",
        "patternProperties": {"^[a-z]{2}[01]$": {"type": "integer"}},
        "additionalProperties": False,
    }
    yield "1,352 keys from a pattern", two
    yield "1,352 keys from a pattern, all of them", {**two, "minProperties": 1352}
    named = {"type": "object", "propertyNames": {"pattern": "^[a-z]{2}[01]$"}, "properties": {"aa0": {"const": 1}}}
    yield "1,352 names, one of them known", named
    yield "1,000 of 1,352 names", {**named, "minProperties": 1000}
    yield "maxProperties of 1,352 names", {**named, "maxProperties": 600}
    for kind in ({"type": "string"}, {"type": "string", "pattern": "^[a-f]{3,}$"}, {"type": "integer"}, {}):
        name = next(iter([*kind.values(), "anything"][-1:]))
        yield f"500 different items, {name}", {"items": kind, "uniqueItems": True, "minItems": 500, "maxItems": 500}
    pairs = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a", "b"],
    }
    yield "300 different objects", {"items": pairs, "uniqueItems": True, "minItems": 300}
    lists = {"items": {"items": {"enum": [0, 1]}, "maxItems": 12}, "uniqueItems": True, "maxItems": 500}
    yield "different lists of zeros and ones", lists
    nested: dict[str, Any] = {"items": {"type": "boolean"}, "uniqueItems": True}
    for _ in range(6):
        nested = {"items": nested, "uniqueItems": True}
    yield "different lists of different lists", nested
    yield (
        "prefixItems of 10 that differ",
        {
            "prefixItems": [{"enum": list(range(n, 20 + n))} for n in range(10)],
            "uniqueItems": True,
            "minItems": 10,
        },
    )
    yield (
        "keys of 300 characters, 300 times",
        {
            "type": "object",
            "propertyNames": {"pattern": "^(?:ab|ba){150}$"},
            "minProperties": 300,
        },
    )


def ways_back() -> Iterator[tuple[str, Any]]:
    """References that lead back, at once or on the way."""
    loop = {f"d{n}": {"$id": f"u{n}", "$dynamicAnchor": "n", "$dynamicRef": f"u{(n + 1) % 30}#n"} for n in range(30)}
    yield "circle of 30 $dynamicRef", {"$ref": "u0", "$defs": loop}
    tree = {
        f"d{n}": {
            "$id": f"u{n}",
            "$dynamicAnchor": "n",
            "properties": {"l": {"$dynamicRef": "#n"}, "r": {"$ref": f"u{(n + 1) % 30}"}},
        }
        for n in range(30)
    }
    yield "30 trees by $dynamicRef", {"$ref": "u0", "$defs": tree}
    yield (
        "$recursiveRef in every place",
        {
            "$schema": "https://json-schema.org/draft/2019-09/schema",
            "$recursiveAnchor": True,
            "properties": {f"k{n}": {"$recursiveRef": "#"} for n in range(500)},
            "items": {"$recursiveRef": "#"},
            "not": {"properties": {"k0": {"$recursiveRef": "#"}}, "required": ["k0", "zz"]},
        },
    )
    yield "what is not itself", {"not": {"$ref": "#"}}
    yield (
        "anyOf of itself and its items",
        {"anyOf": [{"$ref": "#"}, {"items": {"$ref": "#"}}, {"not": {"type": "null"}}]},
    )
    yield (
        "oneOf of its own lists",
        {
            "oneOf": [
                {"type": "null"},
                {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
                {"type": "object", "additionalProperties": {"$ref": "#"}, "minProperties": 1},
            ]
        },
    )
    both = {
        f"d{n}": {
            "allOf": [
                {"$ref": f"#/$defs/d{(n * 2 + 1) % 400}"},
                {"$ref": f"#/$defs/d{(n * 2 + 2) % 400}"},
                {"properties": {f"k{n}": {"$ref": f"#/$defs/d{(n + 3) % 400}"}}},
            ]
        }
        for n in range(400)
    }
    yield "400 allOf that lead to each other", {"$ref": "#/$defs/d0", "$defs": both}
    some = {
        f"d{n}": {"properties": {f"k{m}": {"$ref": f"#/$defs/d{(n * 31 + m) % 500}"} for m in range(40)}}
        for n in range(500)
    }
    yield "500 objects that refer to 40 each", {"$ref": "#/$defs/d0", "$defs": some}
    rings = [
        {
            f"r{size}_{n}": {
                "properties": {"a": {"$ref": f"#/$defs/r{size}_{(n + 1) % size}"}},
                "required": [f"k{n}"] if n == size - 1 else [],
            }
            for n in range(size)
        }
        for size in (2, 3, 5, 7, 11, 13)
    ]
    defs = {name: body for ring in rings for name, body in ring.items()}
    yield (
        "rings of coprime lengths joined",
        {
            "allOf": [{"$ref": f"#/$defs/r{size}_0"} for size in (2, 3, 5, 7, 11, 13)],
            "$defs": defs,
        },
    )
    names = {f"d{n}": {"propertyNames": {"$ref": f"#/$defs/d{n + 1}"}} for n in range(1000)}
    yield "chain of 1,000 propertyNames", {"$ref": "#/$defs/d0", "$defs": {**names, "d1000": {"maxLength": 3}}}


def _within(depth: int, wrap: Callable[[Any], Any]) -> Any:
    """A number inside of so many others."""
    schema: Any = {"type": "integer"}
    for _ in range(depth):
        schema = wrap(schema)
    return schema
