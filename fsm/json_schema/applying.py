"""Keywords that apply other schemas to the same value: `$ref`, `allOf`, `anyOf`, `oneOf`, `not`, `if`, constants …

What must hold becomes atoms, what may hold disjunctions. Options that only require keys become clauses: they
cost no case of their own.
"""

from __future__ import annotations

import math
from itertools import combinations, product
from typing import Any

from .algebra import ANY_TYPE, ANYTHING, NEVER, OBJECT, Conjunction, Disjunction, Goal, ObjectFacet
from .checked import Keywords
from .constants import constants
from .sites import KEYWORDS, is_keyword, negation
from .texts import escape

IN_PLACE = frozenset(
    (
        "$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas",
        "dependencies", "enum", "const",
    )
)  # fmt: skip

MAX_CLAUSES = 64
_STRINGS = {str}
_WORDS = {str, bool, type(None)}


class Applied:
    """What the keywords of one schema object apply to the value itself.

    Attributes:
        atoms, disjunctions: as in `Conjunction`.
        clauses: conditions on which keys are there.
        types: ANY_TYPE, or OBJECT if no other type can fulfil the clauses.
    """

    def __init__(self, keywords: Keywords) -> None:
        self.keywords = keywords
        self.schema = keywords.schema
        self.pointer = keywords.pointer
        self.atoms: list[int] = []
        self.disjunctions: list[Disjunction] = []
        self.clauses: list[ObjectFacet] = []
        self.types = ANY_TYPE
        self._read()

    def own_first(self) -> bool:
        """Whether `properties` stands before the schemas that may bring properties of their own."""
        if not (self.atoms or self.disjunctions) or "properties" not in self.keywords.names:
            return True
        for name in self.schema:
            if name == "properties":
                return True
            if name in ("allOf", "anyOf", "oneOf", "$ref"):
                return False
        return True

    def _read(self) -> None:
        schema, keywords = self.schema, self.keywords
        for name in schema:
            if name not in keywords.names:
                continue
            if name in ("$ref", "$dynamicRef", "$recursiveRef"):
                self.atoms += keywords.sites.reference(keywords.site, name)
            elif name == "allOf":
                for goal in self.keywords.goals(name):
                    self.atoms += goal
            elif name in ("anyOf", "oneOf"):
                listed = self.constants_only(name)
                if listed is not None:
                    self.among(listed, name)
                elif name == "anyOf":
                    self.any_of(self.keywords.goals(name))
                else:
                    self.one_of(self.keywords.goals(name))
            elif name == "not":
                self.none_of(self.keywords.goal(name))
            elif name == "if":
                self.conditional()
            elif name in ("dependentSchemas", "dependencies"):
                self.dependent_schemas(name)
            elif name == "const":
                self.among([schema[name]], name)
            elif name == "enum":
                if type(schema[name]) is not list:
                    raise self.keywords.bad(name, "a list of values")
                self.among(schema[name], name)

    def among(self, values: list[Any], name: str) -> None:
        """One of some constants, `name` being the keyword that lists them."""
        options = constants(self.keywords.sites, values, f"{self.pointer}/{name}")
        self.disjunctions.append(Disjunction(tuple(options)))

    def any_of(self, goals: list[Goal]) -> None:
        """At least one of the goals; as clauses, which cost no case, where they only say which keys are there."""
        if ANYTHING in goals and not self.keywords.sites.evaluates:
            return
        required = self.required_only("anyOf")
        if required is not None and math.prod(map(len, required)) <= MAX_CLAUSES:
            clauses = [frozenset((key, True) for key in choice) for choice in product(*required)]
            self.clauses.append(ObjectFacet(f"{self.pointer}/anyOf", {}, clauses=tuple(dict.fromkeys(clauses))))
            return
        options = [self.option(goal) for goal in self.keywords.over(dict.fromkeys(goals), "anyOf") if goal != NEVER]
        self.disjunctions.append(Disjunction(tuple(options), inclusive=True))

    def one_of(self, goals: list[Goal]) -> None:
        """Each option, and none of the others; which of the others need saying is found out in branching."""
        required = self.required_only("oneOf")
        if required is not None and len(required) <= 8 and all(len(names) == 1 for names in required):
            keys = [names[0] for names in required]
            if len(set(keys)) == len(keys):
                at_most_one = [frozenset(((a, False), (b, False))) for a, b in combinations(keys, 2)]
                one = frozenset((key, True) for key in keys)
                self.clauses.append(ObjectFacet(f"{self.pointer}/oneOf", {}, clauses=(one, *at_most_one)))
                self.types = OBJECT
                return
        possible = [goal for goal in goals if goal != NEVER]
        if len(possible) == 1:
            self.atoms += possible[0]
            return
        options = [self.option(goal) for goal in self.keywords.over(possible, "oneOf")]
        self.disjunctions.append(Disjunction(tuple(options), exclusive=True))

    def constants_only(self, name: str) -> list[str | bool | None] | None:
        """The values that fulfil the keyword if each option lists strings and words, and says nothing else.

        So they are one case, not one for each option.
        """
        options = self.schema[name]
        if type(options) is not list or len(options) < 2:
            return None
        count: dict[str | bool | None, int] = {}
        for option in self.keywords.over(options, name):
            said = KEYWORDS.intersection(option if type(option) is dict else ())
            if "const" in said and is_keyword("const", self.keywords.site.resource.draft):
                values, rest = [option["const"]], said - {"const"}
            elif "enum" in said:
                values, rest = option["enum"], said - {"enum"}
            else:
                return None
            if (rest and not (rest == {"type"} and option["type"] == "string")) or "$schema" in option:
                return None
            if type(values) is not list or not (_STRINGS if rest else _WORDS).issuperset(map(type, values)):
                return None
            for value in set(values):
                count[value] = count.get(value, 0) + 1
        return [value for value, number in count.items() if number == 1 or name == "anyOf"]

    def required_only(self, name: str) -> list[list[str]] | None:
        """The names that each option requires, if the options say nothing else."""
        found: list[list[str]] = []
        for index, schema in enumerate(self.keywords.over(self.schema[name], name)):
            if type(schema) is not dict or KEYWORDS.intersection(schema) != {"required"}:
                return None
            names = self.keywords.key_list(schema["required"], f"{self.pointer}/{name}/{index}/required")
            if not names:
                return None
            found.append(list(dict.fromkeys(names)))
        return found if len(found) > 1 else None

    def none_of(self, goal: Goal) -> None:
        """What does not fulfil the goal: one of its atoms, at least, does not hold."""
        atoms = negation(goal)
        if len(atoms) == 1:
            self.atoms += atoms
        else:
            self.disjunctions.append(Disjunction(tuple(Conjunction(self.pointer, atoms=(atom,)) for atom in atoms)))

    def conditional(self) -> None:
        """`if`, `then` and `else`: two cases, unless one of them says nothing."""
        condition = self.keywords.goal("if")
        then = self.keywords.goal("then") if "then" in self.schema else ANYTHING
        otherwise = self.keywords.goal("else") if "else" in self.schema else ANYTHING
        if then == otherwise == ANYTHING and not self.keywords.sites.evaluates:
            return
        if condition == ANYTHING:
            self.atoms += then
            return
        refused = [self.option(otherwise, (atom,)) for atom in negation(condition)]
        self.disjunctions.append(Disjunction((self.option(condition | then), *refused)))

    def dependent_schemas(self, keyword: str) -> None:
        """For each key of the keyword: it is absent, or the value fulfils its schema too."""
        value = self.schema[keyword]
        if type(value) is not dict:
            raise self.keywords.bad(keyword, "an object")
        for key, schema in value.items():
            if keyword == "dependencies" and type(schema) is not dict and type(schema) is not bool:
                if type(schema) is not list and type(schema) is not str:
                    raise self.keywords.bad(keyword, "an object of schemas and lists of property names")
                continue
            pointer = f"{self.pointer}/{keyword}/{escape(key)}"
            goal = self.keywords.sites.goal(schema, pointer, self.keywords.site.resource)
            if goal == ANYTHING:
                continue
            absent = ObjectFacet(pointer, {}, clauses=(frozenset(((key, False),)),))
            present = ObjectFacet(pointer, {}, clauses=(frozenset(((key, True),)),))
            self.disjunctions.append(
                Disjunction(
                    (
                        Conjunction(pointer, objects=(absent,)),
                        Conjunction(pointer, OBJECT, objects=(present,), atoms=tuple(goal)),
                    )
                )
            )

    def option(self, goal: Goal, atoms: tuple[int, ...] = ()) -> Conjunction:
        """An option that a goal holds, and some atoms."""
        return Conjunction(self.pointer, atoms=(*sorted(goal), *atoms))
