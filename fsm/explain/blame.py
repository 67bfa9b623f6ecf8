"""Blame: why a JSON text leaves its schema at a place.

The automaton knows that a byte is refused, not which keyword refuses it: all keywords that apply are one automaton. So
each of them is compiled as a schema of its own and reads the value once more. Those that refuse the byte are the
reasons; of alternatives all must refuse. What has no keyword (order of keys, white space, spelling) is checked first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ...errors import ConstraintError
from ..any_json import ExtraKeys, KeyOrder, Whitespace
from ..automaton.automaton import Automaton
from ..json_schema import schema_to_grammar
from ..json_schema.place import BLANKS, Place, Stop, in_place, options, place_of, referred, sites_at
from ..json_schema.resolve import Site
from ..json_schema.sites import KEYWORDS, Sites
from ..network.network import build_network
from ..resources import NO_RESOURCES, Resources
from ..vocabulary.vocabulary import Vocabulary
from .repeated import repeated_items

MAX_ASKED = 200
MAX_NAMES = 6

_IN_PLACE = frozenset(("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "then", "else"))
_OF_MEMBERS = frozenset(("properties", "items", "prefixItems", "required", "additionalItems", "patternProperties"))
_WITH = {
    "if": ("then", "else"),
    "contains": ("minContains", "maxContains"),
    "minimum": ("exclusiveMinimum",),
    "maximum": ("exclusiveMaximum",),
    "additionalProperties": ("properties", "patternProperties"),
}


def blame(
    vocabulary: Vocabulary,
    schema: dict[str, Any] | bool,
    text: str,
    num_bytes: int,
    whitespace: Whitespace = "compact",
    key_order: KeyOrder = "schema",
    extra_keys: ExtraKeys = "schema",
    resources: Resources = NO_RESOURCES,
    *,
    repeats: bool = False,
) -> list[str]:
    """Reasons, one line each, why the byte at `num_bytes` is refused after all before it was read.

    repeats: it is, for a key or an item that was written before.
    """
    data = text.encode(errors="surrogatepass")
    before = data[:num_bytes].decode(errors="replace")
    refused = data[num_bytes:].decode(errors="replace")[:1]
    place = place_of(before)
    sites = Sites(schema, None, resources=resources)
    judge = _Judge(vocabulary, sites, whitespace, key_order, resources)
    found = repeated_items(sites, place.path, before, refused) if repeats else []
    if found:
        return found
    at = f"at {place.pointer}: " if place.path else ""
    general = _general(place, before, refused, whitespace)
    if general is not None:
        return [at + general]
    begun = before[place.begin :]
    if place.stop is Stop.VALUE and begun and refused in ",]}":
        found = judge.reasons(sites_at(sites, place.path), begun, "")
        if found:
            return [at + reason for reason in found]
        place = place_of(before + " ")  # the number is complete: it is what follows that is refused
    is_empty_array = place.stop is Stop.VALUE and not begun and refused == "]"
    if place.stop is Stop.VALUE and not is_empty_array:
        found = judge.reasons(sites_at(sites, place.path), begun, refused)
        return [at + reason for reason in found] or [f"{at}its keywords together allow nothing of the kind"]
    if is_empty_array:  # no item begins there: the array is to end
        place = replace(place, path=place.path[:-1])
    at = f"in the {'object' if place.is_object else 'array'} at {place.pointer or '/'}: "
    here = [site for found_at in sites_at(sites, place.path) for site in in_place(sites, found_at)]
    found = _about_keys(here, place, text, len(before), refused, key_order, extra_keys)
    found = found or judge.reasons(sites_at(sites, place.path), before[place.container :], refused)
    return [at + reason for reason in found] or [f"{at}{refused!r} is not what comes next"]


def _general(place: Place, before: str, refused: str, whitespace: Whitespace) -> str | None:
    """Reasons that no keyword is to blame for."""
    begun = before[place.begin :]
    is_inside = begun.startswith('"')
    if place.stop is Stop.AFTER and place.container < 0:
        return "the value is complete; nothing may follow"
    if refused in BLANKS and not is_inside:
        return f"white space is {whitespace} (see the option whitespace)"
    if is_inside and (refused < " " or (begun.endswith("\\") and not begun.endswith("\\\\")) or refused == "\x7f"):
        return "a character has one spelling, that of json.dumps(ensure_ascii=False)"
    return None


def _about_keys(
    sites: Iterable[Site],
    place: Place,
    text: str,
    position: int,
    refused: str,
    key_order: KeyOrder,
    extra_keys: ExtraKeys,
) -> list[str]:
    """What is wrong with the keys of an object: missing, out of order, written twice, unknown."""
    schemas = [(site.pointer, site.schema) for site in sites if isinstance(site.schema, dict)]
    known = list(dict.fromkeys(key for _, schema in schemas for key in schema.get("properties", {})))
    missing = {
        key: f"{pointer}/required"
        for pointer, schema in schemas
        for key in (schema["required"] if isinstance(schema.get("required"), list) else ())
        if key not in place.written
    }
    if refused == "}" and missing:
        return [f"{pointer}: {json.dumps(key)} has not been written" for key, pointer in missing.items()][:MAX_NAMES]
    closed = [f"{pointer}/additionalProperties" for pointer, s in schemas if s.get("additionalProperties") is False]
    if extra_keys == "never":
        closed.append('the option extra_keys="never"')
    is_comma = refused == "," and place.stop is Stop.AFTER
    name = _whole_key(text, position if is_comma else place.begin) if is_comma or place.stop is Stop.KEY else None
    is_ordered = key_order == "schema"
    said = _about_key(name, place, known, missing, closed, is_ordered) if name is not None else []
    return said or ([f"{closed[0]}: no key is left that may follow"] if is_comma and closed else [])


def _about_key(
    name: str, place: Place, known: list[str], missing: dict[str, str], closed: list[str], is_ordered: bool
) -> list[str]:
    """What is wrong with a key that the text goes on with."""
    if name in place.written:
        return [f"the key {json.dumps(name)} was written already"]
    if name not in known and closed:
        return [f"{closed[0]}: {json.dumps(name)} is no key of the schema"]
    if not is_ordered:
        return []
    if name not in known:
        return [f"{pointer}: {json.dumps(key)} comes before keys without a name" for key, pointer in missing.items()]
    later = [key for key in place.written if key in known and known.index(key) > known.index(name)]
    if later:
        order = f"{json.dumps(name)} before {json.dumps(later[0])}"
        return [f"keys come in the order of the schema: {order} (see the option key_order)"]
    skipped = [key for key in missing if key in known and known.index(key) < known.index(name)]
    return [f"{missing[key]}: {json.dumps(key)} comes before {json.dumps(name)}" for key in skipped[:MAX_NAMES]]


def _whole_key(text: str, begin: int) -> str | None:
    """The key that the text has there, if it is one."""
    start = text.find('"', begin)
    end = text.find('"', start + 1)
    return text[start + 1 : end] if 0 <= start < end else None


class _Judge:
    """Asks keywords one by one."""

    def __init__(
        self, vocabulary: Vocabulary, sites: Sites, whitespace: Whitespace, key_order: KeyOrder, resources: Resources
    ) -> None:
        self._vocabulary = vocabulary
        self._sites = sites
        self._whitespace: Whitespace = whitespace
        self._key_order: KeyOrder = key_order
        self._resources = resources
        self._num_asked = 0

    def reasons(self, sites: Iterable[Site], begun: str, refused: str) -> list[str]:
        """The keywords that refuse `refused` after `begun`; with "" those for which `begun` is not complete."""
        return list(dict.fromkeys(reason for site in sites for reason in self._of(site, begun, refused, 0)))

    def _of(self, site: Site, begun: str, refused: str, depth: int) -> list[str]:
        schema: Any = site.schema
        if schema is False:
            return [f"{site.pointer}: false allows nothing"]
        if not isinstance(schema, dict) or depth > 16:
            return []
        found = [
            f"{site.pointer}/{name}: {_shown(schema[name])}"
            for name in schema
            if name in KEYWORDS
            and name not in _IN_PLACE
            and (name not in _OF_MEMBERS or not begun)
            and self._refuses(schema, name, begun, refused)
        ]
        for other in [*referred(self._sites, site), *options(self._sites, site, "allOf")]:
            found += self._of(other, begun, refused, depth + 1)
        for name in ("anyOf", "oneOf"):
            ways = [self._of(option, begun, refused, depth + 1) for option in options(self._sites, site, name)]
            if ways and all(ways):
                found += [reason for way in ways for reason in way]
        return found

    def _refuses(self, schema: dict[str, Any], name: str, begun: str, refused: str) -> bool:
        self._num_asked += 1
        root: Any = self._sites.resolver.root.schema
        carried = ("$schema", "$defs", "definitions")
        alone = {key: root[key] for key in carried if isinstance(root, dict) and key in root}
        alone |= {key: schema[key] for key in (name, *_WITH.get(name, ())) if key in schema}
        if self._num_asked > MAX_ASKED:
            return False
        try:
            grammar = schema_to_grammar(
                alone, whitespace=self._whitespace, key_order=self._key_order, resources=self._resources
            )
            automaton = Automaton(build_network(grammar), self._vocabulary)
            state = automaton.advance_bytes(automaton.start, (begun + refused).encode(errors="surrogatepass"))
        except ConstraintError:
            return False
        return state == 0 or (not refused and not automaton.is_accepting(state))


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
