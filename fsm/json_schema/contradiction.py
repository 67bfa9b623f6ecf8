"""Where a schema contradicts itself: the deepest subschema that must hold and that no value fulfils.

::

    {"required": ["a"], "properties": {"a": {"enum": []}}}      /properties/a: it must be there, and nothing can be
    {"allOf": [{"type": "string"}, {"type": "integer"}]}        the root: each option alone has values, both have not

Used only when a schema is known to be empty, so it may be slow: it compiles the subschemas that must hold, one level
after the other, and goes down where one is empty by itself. Where none is, the keywords of that place contradict
each other. Bounded by `MAX_TRIES` compilations.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import ConstraintError, EmptyLanguage
from ..any_json import ExtraKeys
from ..compile_time import NO_LIMIT, CompileTime
from ..network.network import build_network
from ..resources import NO_RESOURCES, Resources
from .compile import SchemaCompiler
from .layout import COMPACT
from .place import below, options, referred
from .resolve import Site
from .sites import Sites
from .strings import pattern_language

MAX_TRIES = 100


def place_of_contradiction(
    schema: object,
    extra_keys: ExtraKeys = "schema",
    compile_time: CompileTime = NO_LIMIT,
    resources: Resources = NO_RESOURCES,
) -> str:
    """JSON pointer of the subschema to look at; "" is the root.

    Args:
        schema: a schema that has no valid value, as json.loads gives it.
        extra_keys: as it was compiled.
        compile_time: how long this may take; what is known by then is the answer.
        resources: the documents it may refer to.
    """
    if type(schema) is not dict:
        return ""
    sites = Sites(schema, None, resources=resources, time=compile_time)
    site = sites.resolver.root
    tries = 0
    seen: set[str] = set()
    while site.pointer not in seen:  # a schema that must contain itself is a cycle
        seen.add(site.pointer)
        for inner in _must_hold(sites, site):
            tries += 1
            if tries > MAX_TRIES:
                return site.pointer
            if _is_empty(sites, inner, extra_keys):
                site = inner
                break
    return f"{site.pointer}/pattern" if _has_impossible_pattern(site, compile_time) else site.pointer


def _has_impossible_pattern(site: Site, compile_time: CompileTime) -> bool:
    pattern = site.schema.get("pattern") if isinstance(site.schema, dict) else None
    try:
        return isinstance(pattern, str) and pattern_language(pattern, compile_time=compile_time).is_empty()
    except ConstraintError:
        return False


def _is_empty(sites: Sites, site: Site, extra_keys: ExtraKeys) -> bool:
    if site.schema is False:
        return True
    try:
        goal = sites.goal(site.schema, site.pointer, site.resource)
        build_network(SchemaCompiler(sites, COMPACT, extra_keys=extra_keys).grammar(goal), sites.time)
    except EmptyLanguage:
        return True
    except ConstraintError:
        pass
    return False


def _must_hold(sites: Sites, site: Site) -> Iterator[Site]:
    """Subschemas that hold of every value of the schema, or of a member or item that every value has."""
    schema = site.schema
    if type(schema) is not dict:
        return
    yield from referred(sites, site)
    for keyword in ("allOf", "anyOf", "oneOf"):
        found = options(sites, site, keyword)
        if keyword == "allOf" or len(found) == 1:
            yield from found
    required, properties = schema.get("required"), schema.get("properties")
    if isinstance(required, list) and isinstance(properties, dict):
        for key in required:
            if isinstance(key, str) and key in properties:
                yield below(sites, site, "properties", key)
    minimum = schema.get("minItems")
    if type(minimum) is int and minimum > 0:
        for keyword in ("prefixItems", "items"):
            items = schema.get(keyword)
            if isinstance(items, list):
                for index in range(min(len(items), minimum)):
                    yield below(sites, site, keyword, index)
            elif items is not None and minimum > len(schema.get("prefixItems", ())):
                yield below(sites, site, keyword)
    if "contains" in schema and schema.get("minContains", 1) != 0:
        yield below(sites, site, "contains")
