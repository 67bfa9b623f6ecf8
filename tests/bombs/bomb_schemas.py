"""Schemas made to hurt (see `bombs.py`): wide, deep, circular, with many ways to be true, with long texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bomb_counts import large_counts, many_of_a_kind, what_must_differ
from bomb_nesting import within


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
    cycle = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{(i + 1) % 1000}"}]} for i in range(1000)}
    yield "cycle of 1,000 allOf", {"$ref": "#/$defs/d0", "$defs": cycle}
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
        within(10, lambda _, inner: {"contains": inner, "minContains": 3, "maxContains": 9}, {"type": "integer"}),
    )
    keys = {f"a{n}": {"type": "integer"} for n in range(200)}
    yield (
        "unevaluatedProperties after 12 anyOf",
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
            **within(3000, lambda _, inner: {"not": inner}, {"type": "integer"}),
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


def ways_back() -> Iterator[tuple[str, Any]]:
    """References that lead back, at once or on the way."""
    loop = {f"d{n}": {"$id": f"u{n}", "$dynamicAnchor": "n", "$dynamicRef": f"u{(n + 1) % 30}#n"} for n in range(30)}
    yield "cycle of 30 $dynamicRef", {"$ref": "u0", "$defs": loop}
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
