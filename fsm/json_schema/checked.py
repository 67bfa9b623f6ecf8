"""The keywords of one schema object, each read with a check of its value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from ...errors import ConstraintError, ConstraintTooLarge, InvalidRegex, InvalidSchema, UnsupportedSchema
from .algebra import Goal
from .constants import is_number
from .resolve import Site
from .sites import Sites
from .strings import pattern_language
from .texts import error_at, shown

Item = TypeVar("Item")

MAX_DIGITS = 400
MAX_NUMBER = 10**MAX_DIGITS
MAX_COUNT = 1_000_000_000
"""No text is ever so long that a greater count of characters, items or keys makes a difference."""

SMALL_PATTERN = 64
"""States of a pattern that takes no time worth asking for."""

MAX_LEAST_COUNT = 1 << 26
"""Nor can a text be asked for that has more of them."""


class Keywords:
    """One schema object while it is read.

    Attributes:
        schema: the object.
        names: its keywords, as far as the draft knows them.
        evaluates: whether its members count as evaluated for `unevaluated…`.
    """

    __slots__ = ("evaluates", "names", "pointer", "schema", "site", "sites")

    def __init__(self, sites: Sites, site: Site, schema: dict[str, Any], names: frozenset[str]) -> None:
        self.sites = sites
        self.site = site
        self.schema = schema
        self.pointer = site.pointer
        self.names = names
        self.evaluates = not sites.is_constant(site)

    def bad(self, name: str, wanted: str) -> ConstraintError:
        """The error of a keyword whose value is not what is wanted."""
        pointer = f"{self.pointer}/{name}"
        return error_at(InvalidSchema, pointer, f"must be {wanted}, not {shown(self.schema[name])}")

    def count(self, name: str, default: int) -> int:
        """A non-negative whole number that a text can reach."""
        value = self._whole(name, default)
        if value > MAX_LEAST_COUNT:
            pointer = f"{self.pointer}/{name}"
            raise error_at(ConstraintTooLarge, pointer, f"no text can be so long; ask for at most {MAX_LEAST_COUNT}")
        return value

    def _whole(self, name: str, default: int) -> int:
        if name not in self.names:
            return default
        value = self.schema[name]
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or value < 0:
            raise self.bad(name, "a non-negative whole number")
        return value

    def maximum_count(self, name: str) -> int | None:
        """A non-negative whole number, if the keyword is there and a text can pass it."""
        value = self._whole(name, 0) if name in self.names else MAX_COUNT + 1
        return value if value <= MAX_COUNT else None

    def number(self, name: str) -> int | float:
        """A finite number."""
        value = self.schema[name]
        if not is_number(value) or (type(value) is float and not math.isfinite(value)):
            raise self.bad(name, "a finite number")
        if abs(value) >= MAX_NUMBER:
            pointer = f"{self.pointer}/{name}"
            raise error_at(UnsupportedSchema, pointer, f"numbers of more than {MAX_DIGITS} digits")
        return value

    def key_list(self, value: object, pointer: str) -> list[str]:
        """A list of property names, which stands at the pointer."""
        if type(value) is not list or not {str}.issuperset(map(type, value)):
            raise error_at(InvalidSchema, pointer, f"must be a list of property names, not {shown(value)}")
        return value

    def goal(self, name: str) -> Goal:
        """The goal of the one schema of a keyword."""
        return self.sites.goal(self.schema[name], f"{self.pointer}/{name}", self.site.resource)

    def goals(self, name: str) -> list[Goal]:
        """The goals of a list of schemas."""
        value = self.schema[name]
        if type(value) is not list or (not value and name != "items" and name != "prefixItems"):
            raise self.bad(name, "a list of at least one schema")
        goal, resource, pointer = self.sites.goal, self.site.resource, f"{self.pointer}/{name}/"
        return [goal(item, pointer + str(i), resource) for i, item in enumerate(self.over(value, name))]

    def over(self, items: Iterable[Item], name: str) -> Iterator[Item]:
        """The items of a keyword, with the time checked now and then."""
        return self.sites.time.over(items, f"{self.pointer}/{name}")

    def goal_map(self, name: str) -> dict[str, Goal]:
        """The goals of an object of schemas, by key."""
        value = self.schema[name]
        if type(value) is not dict:
            raise self.bad(name, "an object of schemas")
        return self.sites.goals(value, f"{self.pointer}/{name}/", self.site.resource)

    def check_pattern(self, pattern: str, pointer: str, *, for_all: bool = True) -> None:
        """Refuses a pattern that has no automaton, here where its place is known."""
        try:
            language = pattern_language(pattern, for_all=for_all, compile_time=self.sites.time)
            if not for_all and (language.num_states > SMALL_PATTERN or "(?" in pattern):  # asked for in both readings
                pattern_language(pattern, compile_time=self.sites.time)
        except InvalidRegex as error:
            raise error_at(InvalidSchema if error.is_malformed else UnsupportedSchema, pointer, f"{error}") from error
        except ConstraintTooLarge as error:
            raise error_at(ConstraintTooLarge, pointer, f"{error}") from error
