"""From goals to branches: works off atoms and disjunctions until only simple constraints are left.

This is a tableau. A sheet starts with the atoms of a goal; every atom adds its conjunction (positive or negated), every
disjunction copies the sheet once per option, and a sheet whose types have run out is thrown away::

    goal {A, not B} --> sheet: conjunction of A, options of "not B" --> one sheet per option --> branches

`oneOf` becomes "this option and none of those that it may overlap"; overlap is ruled out by `disjointness.py`, so the
usual tagged union costs nothing. Where the tag may be missing (a constant with a default value) and there are too many
options for the objects without it to be distinguished, only those with it are kept: the goal is *narrowed*. Nothing is
proved from the branches of narrowed goals.

A schema that is an `anyOf` and nothing else has the branches of its options, each of them worked out once, however deep
such schemas stand within each other. Exact for any nesting but for narrowed goals; bounded by `MAX_BRANCHES` and
`MAX_ON_SHEETS`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from ...errors import ConstraintError, ConstraintTooLarge
from .algebra import (
    OBJECT,
    Branch,
    Conjunction,
    Disjunction,
    Goal,
    ObjectFacet,
)
from .deciding import decide
from .disjointness import Disjointness, Effort
from .factoring import Factoring
from .in_place import InPlace
from .keys import forbidden_keys, goals_of_keys, required_keys
from .negation import negated
from .pruning import prune
from .reading import is_in_doubt, read, without_doubt
from .sheet import SAID, SILENT, Sheet, combinations, is_possible, narrowest
from .sites import Sites
from .texts import error_at
from .unevaluated import closed, is_evaluating, rest_of

MAX_BRANCHES = 2_000
"""Most sheets that one goal may be split into, whatever is in them."""
MAX_ON_SHEETS = 20_000
"""Into more of them only if together they hold no more than this: unions of some thousand options are cheap."""

FACTORED_FROM = 64
"""From this number of sheets on, conditions on keys and scalars are no longer worked off but carried by the objects."""

MANY_OPTIONS = 4
MANY_SHEETS = 32
"""From this number on, contradictions of a sheet are looked for before it is split."""

MAX_NESTING = 16
"""Most goals that are expanded within each other to prove options of `oneOf` disjoint."""


class Branching:
    """Branches and conjunctions of the goals of one schema text, each worked out once."""

    def __init__(self, sites: Sites, *, mixes: bool = False, closes: bool = False) -> None:
        """`mixes`: keys come in any order, so that conditions on keys and their values may cost more than cases: they
        are carried only where they are too many cases; `closes`: see `Factoring`."""
        self.sites = sites
        self._factors_early = not mixes and not sites.evaluates
        self._closes = closes
        self._time = sites.time
        self._conjunctions: dict[int, Conjunction] = {}
        self._branches: dict[Goal, tuple[Branch, ...]] = {}
        self._evaluating: dict[Goal, tuple[Branch, ...]] = {}  # the same for `unevaluated…`
        self._expanding: list[Goal] = []
        self._uniting: set[Goal] = set()
        self._narrowed: set[Goal] = set()  # not all their values are in the branches
        self._in_place = InPlace(sites, self._conjunctions)
        self._disjoint: dict[tuple[Goal, Goal], bool] = {}
        self._impossible: dict[Goal, bool] = {}
        self._listed: dict[Goal, tuple[set[object], bool]] = {}
        self._effort = Effort()

    def branches(self, goal: Goal, *, evaluating: bool = False) -> tuple[Branch, ...]:
        """The branches of a goal; a value fulfils the goal if and only if it belongs to one of them.

        Args:
            evaluating: for `unevaluated…`: every combination of the options of an `anyOf` gets branches too.

        Raises:
            ConstraintTooLarge: more than `MAX_BRANCHES`, and not of the cheap kind.
            InvalidSchema, UnsupportedSchema: what `read` finds in the schemas involved.
        """
        known = self._evaluating if evaluating else self._branches
        found = known.get(goal)
        if found is None:
            if len(goal) == 1:  # nearly always one schema that says all by itself
                (atom,) = goal
                said = self._conjunctions.get(atom)
                if said is None and not atom & 1 and not is_evaluating(self.sites, self.sites.table[atom >> 1]):
                    said = self.said_by(atom)
                if said is not None and not said.atoms and not said.disjunctions:
                    found = known[goal] = (said,) if said.types else ()
                    return found
            found = self._united(goal) if len(goal) == 1 and not evaluating and not self.sites.evaluates else None
            if found is None:
                found = known[goal] = self._worked_off(goal, evaluating)
        return found

    def _worked_off(self, goal: Goal, evaluating: bool) -> tuple[Branch, ...]:
        self._expanding.append(goal)
        try:
            return self._expanded(goal, evaluating)
        except ConstraintTooLarge:
            if self.sites.evaluates:
                raise
            factors = Factoring(self.said_by, self._closes, self._time)
            if self._factors_early:
                with suppress(ConstraintTooLarge):
                    return self._expanded(goal, evaluating, factors=factors)
            try:
                found = self._expanded(goal, evaluating, only_tagged=True)
            except ConstraintTooLarge:
                if self._factors_early:
                    raise
                return self._expanded(goal, evaluating, factors=factors)
            self._narrowed.add(goal)
            return found
        finally:
            self._expanding.pop()

    # ---------------------------------------------------------------- unions

    def _united(self, goal: Goal) -> tuple[Branch, ...] | None:
        """The branches of a schema that is an `anyOf` and nothing else: those of its options, each worked out once.

        So options that are such schemas themselves, any number of them within each other, take no sheets. Iterative.
        """
        if self._options_of(goal) is None:
            return None
        known, pending = self._branches, [goal]
        try:
            while pending:
                top = pending[-1]
                self._uniting.add(top)
                options = self._options_of(top)
                missing = [option for option in options or () if option not in known]
                if missing:
                    pending += missing
                    continue
                self._uniting.discard(pending.pop())
                if top not in known:
                    known[top] = self._worked_off(top, False) if options is None else self._union(top, options)
        finally:
            self._uniting.difference_update(pending)
        return known[goal]

    def _options_of(self, goal: Goal) -> list[Goal] | None:
        """The options of a schema that is an `anyOf` and nothing else, as goals; None if it is no such schema."""
        if len(goal) != 1:
            return None
        (atom,) = goal
        said = self.said_by(atom)
        if atom & 1 or said.atoms or len(said.disjunctions) != 1 or not said.disjunctions[0].inclusive:
            return None
        options = said.disjunctions[0].options
        if not said.only_applies or any(option.disjunctions or not option.only_applies for option in options):
            return None
        return [frozenset(option.atoms) for option in options]

    def _union(self, goal: Goal, options: list[Goal]) -> tuple[Branch, ...]:
        """The branches of all options, each once.

        Raises:
            ConstraintTooLarge: more than `MAX_BRANCHES`, and not of the cheap kind.
        """
        found = {id(branch): branch for option in options for branch in self._branches[option]}
        if not self._narrowed.isdisjoint(options):
            self._narrowed.add(goal)
        if len(found) > MAX_BRANCHES and sum(branch.size for branch in found.values()) > MAX_ON_SHEETS:
            raise self._too_many(goal)
        return tuple(found.values())

    def is_expanding(self, goal: Goal) -> bool:
        """Whether proofs must do without the branches of the goal: they are being worked out right now, or too many
        others are, or they are not all."""
        if len(self._expanding) > MAX_NESTING or goal in self._expanding or goal in self._uniting:
            return True
        return goal in self._narrowed

    @property
    def in_doubt(self) -> bool:
        """Whether what was read so far says less to some validators (`is_in_doubt`)."""
        return self.sites.in_doubt

    def is_impossible(self, goal: Goal) -> bool:
        """Whether it is certain that no value fulfils the goal."""
        return self._proofs().is_impossible(goal)

    def _proofs(self) -> Disjointness:
        """Not kept, as it refers to this object: reference cycles wait for the garbage collector."""
        return Disjointness(self, self._disjoint, self._impossible, self._effort, self._time)

    def said_by(self, atom: int) -> Conjunction:
        """What an atom demands."""
        found = self._conjunctions.get(atom)
        if found is not None:
            return found
        site = self.sites.table[atom >> 1]
        self._time.check(site.pointer)
        if atom & 1:
            positive = (
                self.said_by(atom ^ 1) if not is_in_doubt(site) else read(self.sites, without_doubt(site)).narrowed()
            )
            options = tuple(negated(positive, self._time))
            found = options[0] if len(options) == 1 else Conjunction(site.pointer, disjunctions=(Disjunction(options),))
        elif site.schema is True:
            found = Conjunction(site.pointer)
        elif is_evaluating(self.sites, site):
            self._in_place.refuse_endless(atom)
            rest = self.branches(rest_of(self.sites, site), evaluating=True)
            found = closed(self.sites, site, rest, self._conjunctions)
        else:
            found = read(self.sites, site).narrowed()
        self._conjunctions[atom] = found
        if (found.atoms or found.disjunctions) and not atom & 1:
            self._in_place.refuse_endless(atom)
        return found

    # ---------------------------------------------------------------- the tableau

    def _expanded(
        self, goal: Goal, evaluating: bool, only_tagged: bool = False, factors: Factoring | None = None
    ) -> tuple[Branch, ...]:
        if len(goal) == 1:
            (atom,) = goal
            said = self.said_by(atom)
            if said.is_simple:
                return (said,) if said.types else ()
        first = Sheet()
        first.todo = [((SAID, index), Conjunction("", atoms=(atom,))) for index, atom in enumerate(sorted(goal))]
        pending = [first]
        done: list[Branch] = []
        num_sheets, num_on_sheets = 1, 0
        while pending:
            sheet = pending.pop()
            self._time.check(self.sites.pointer(goal))
            if not self._absorb(sheet) or self._is_void(sheet) or not self._narrow(sheet, num_sheets > MANY_SHEETS):
                continue
            if factors is not None and sheet.disjunctions:
                others = factors.split(sheet)
                if others is not None:
                    pending.append(others)
            if not sheet.disjunctions:
                done.append(sheet.branch())
                continue
            if num_sheets > FACTORED_FROM and factors is None and self._factors_early and not only_tagged:
                easily = Factoring(self.said_by, self._closes, self._time, only_scalars=True)
                if easily.split(sheet.copy()) is not None:
                    return self._expanded(goal, evaluating, factors=easily)
            options = self._split(sheet, evaluating, only_tagged)
            num_sheets += len(options)
            num_on_sheets += len(options) * sheet.size
            if num_sheets > MAX_BRANCHES and num_on_sheets > MAX_ON_SHEETS:
                raise self._too_many(goal)
            pending += reversed(options)
        return tuple(done)

    def _too_many(self, goal: Goal) -> ConstraintError:
        message = f"enum, anyOf, oneOf and not combine to more than {MAX_BRANCHES} cases; say the cases directly"
        return error_at(ConstraintTooLarge, self.sites.pointer(goal), message)

    def _absorb(self, sheet: Sheet) -> bool:
        """Moves the conjunctions that wait into the sheet; False if nothing is left of it."""
        while sheet.todo:
            rank, said = sheet.todo.pop()
            sheet.types &= said.types
            if not sheet.types:
                return False
            if said.numbers:
                sheet.numbers.update(dict.fromkeys(said.numbers))
            if said.strings:
                sheet.strings.update(dict.fromkeys(said.strings))
            own = (*rank, 1 if said.own_first else 3)
            if rank[0] == SILENT and self.sites.evaluates:
                sheet.arrays += [(own, replace(facet, evaluates=False)) for facet in said.arrays]
                sheet.objects += [(own, replace(facet, evaluates=False)) for facet in said.objects]
            else:
                sheet.arrays += [(own, facet) for facet in said.arrays]
                sheet.objects += [(own, facet) for facet in said.objects]
            for index, atom in enumerate(said.atoms):
                if atom == 1 or atom ^ 1 in sheet.seen:
                    return False
                silent = rank[0] or atom & 1
                if atom != 0 and sheet.seen.get(atom, 2) > silent:
                    sheet.seen[atom] = silent
                    sheet.todo.append(((silent, *rank[1:], 2, index), self.said_by(atom)))
            for index, disjunction in enumerate(said.disjunctions):
                place = (*rank, 2, len(said.atoms) + index)
                if len(disjunction.options) == 1:
                    sheet.todo.append((place, disjunction.options[0]))
                elif not disjunction.options:
                    return False
                else:
                    sheet.disjunctions.append((place, disjunction))
        return True

    def _is_void(self, sheet: Sheet) -> bool:
        """Whether a key that must be there cannot have any value; takes objects out of the sheet then."""
        if len(sheet.objects) > 1 and sheet.types & OBJECT and sheet.disjunctions:
            facets = [facet for _, facet in sheet.objects]
            required = required_keys(facets)
            is_impossible, goals = self._proofs().is_impossible, goals_of_keys(facets, sorted(required))
            if not required.isdisjoint(forbidden_keys(facets)) or any(is_impossible(goals(key)) for key in required):
                sheet.types &= ~OBJECT
        return not sheet.types

    def _narrow(self, sheet: Sheet, thoroughly: bool) -> bool:
        """Absorbs what the constants of required keys decide, and if it is done thoroughly whatever else a sheet leaves
        no choice about; False if nothing is left of the sheet then."""
        if self.sites.evaluates:
            return True  # what is evaluated hangs on the options
        is_impossible = self._proofs().is_impossible
        while (
            len(sheet.disjunctions) > 1 and sheet.types == OBJECT and decide(sheet, self.said_by, self.constants)
        ) or (thoroughly and sheet.disjunctions and prune(sheet, is_impossible)):
            if not self._absorb(sheet) or self._is_void(sheet):
                return False
        return True

    def constants(self, goal: Goal) -> tuple[set[object], bool] | None:
        """See `Disjointness.constants`."""
        found = self._listed.get(goal)
        if found is None:
            found = self._proofs().constants(goal)
            if found is not None:
                self._listed[goal] = found
        return found

    def _split(self, sheet: Sheet, evaluating: bool, only_tagged: bool) -> list[Sheet]:
        """One sheet per option of the disjunction that has the fewest options left.

        Args:
            only_tagged: where a key tells the options of a `oneOf` apart, only objects that have it.
        """
        rank, disjunction = sheet.disjunctions.pop(narrowest(sheet))
        options = disjunction.options
        if disjunction.exclusive:
            if not self._are_apart(sheet, options):
                context = sheet.branch()
                tagged = self._tagged(options, context) if only_tagged else None
                options = tagged or tuple(self._only(index, options, context) for index in range(len(options)))
        elif disjunction.inclusive and evaluating:
            options = combinations(options)
        sheets: list[Sheet] = []
        for option in options:
            if not is_possible(option, sheet):
                continue
            other = sheet.copy()
            other.todo.append((rank, option))
            sheets.append(other)
        return sheets

    def _are_apart(self, sheet: Sheet, options: tuple[Conjunction, ...]) -> bool:
        """Whether it is plain that the options exclude each other; for a few of them `_only` finds out as quickly.

        Takes the types out of the sheet of which several options allow all values: none of these fulfils just one.
        """
        if len(options) < MANY_OPTIONS:
            return False
        proofs, goals = self._proofs(), [frozenset(option.atoms) for option in options]
        sheet.types &= ~proofs.free_twice(goals)
        return proofs.are_tagged(sheet.branch(), goals)

    def _tagged(self, options: tuple[Conjunction, ...], context: Branch) -> tuple[Conjunction, ...] | None:
        """The options, with a key that distinguishes them where it is present; None if there is no such key."""
        tag = self._proofs().tag(context, [frozenset(option.atoms) for option in options])
        if tag is None:
            return None
        facet = ObjectFacet(options[0].pointer, {}, clauses=(frozenset(((tag, True),)),), evaluates=False)
        return tuple(replace(option, objects=(*option.objects, facet)) for option in options)

    def _only(self, index: int, options: tuple[Conjunction, ...], context: Branch) -> Conjunction:
        """The option, and not one of those that it may overlap within the context."""
        option = options[index]
        goal = frozenset(option.atoms)
        refused: list[Disjunction] = []
        proofs = self._proofs()
        for position, other in enumerate(options):
            if position == index:
                continue
            self._effort.spend(option.pointer)
            self._time.check(option.pointer)
            if not proofs.within(context, goal, frozenset(other.atoms)):
                atoms = tuple(Conjunction(other.pointer, atoms=(atom ^ 1,)) for atom in other.atoms)
                refused.append(Disjunction(atoms))
        if not refused:
            return option
        return replace(option, disjunctions=(*option.disjunctions, *refused))
