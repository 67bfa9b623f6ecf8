"""The keys of an object that no schema names: their languages, their goals, and keys that must exist among them.

    patternProperties, propertyNames      the keys fall into *cells*: disjoint sets whose keys have one goal. Patterns
                                          that overlap make cells of all combinations, so their number is bounded.
    conditions "some key …"               come from these keywords under a `not`, and need *witnesses*: a named key,
                                          which then is required, or one of a cell. Each choice is a way to fulfil
                                          them, and the ways are bounded too.

Invariant: no key belongs to two cells, or to a cell and the named keys. A pattern of which it is in doubt whether it
matches (readers of ECMA-262 disagree) counts for both: what is asked of a key that matches is asked of it, and what is
asked of one that does not as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ...errors import ConstraintError, ConstraintTooLarge, UnsupportedSchema
from ..compile_time import CompileTime
from ..network.expression import Embed, Expression, Member, Sequence, alternation
from ..record import record
from ..remembered import remembered
from ..text.dfa import Dfa, any_text
from ..text.extent import all_texts, num_texts
from .algebra import ANYTHING, NEVER, Goal, Keys, ObjectFacet
from .key_trie import strings_but
from .keys import forbidden_keys, goal_of_key, is_in, key_language, required_keys
from .strings import MAX_COUNTED, any_key, key_expression, num_strings, pattern_language
from .texts import error_at
from .variants import asked_atoms

MAX_LISTED = 64
"""Most keys of a finite language that are treated as if they were named, where witnesses need it."""
MAX_BESIDE = 1024
"""The same where they are written among named ones in any order; of more the number is bounded."""
MAX_CELLS = 64
MAX_WITNESSES = 4
MAX_WAYS = 5_000
"""Most ways of choosing named keys that fulfil conditions “some key …”."""

Cell = tuple[Expression, Expression]
"""A set of keys as JSON strings, and the values they may have."""


Witnesses = tuple[tuple[Cell, ...], ...]
"""For each set of keys that must have a member: the cells it may come from. No key belongs to two sets."""


def unnamed_members(cells: tuple[Cell, ...], colon: tuple[Expression, ...], num_owed: int) -> tuple[Expression, ...]:
    """A member with a key of each of the cells, of `num_owed` such members that must be written."""
    found: list[Expression] = []
    for key, value in cells:
        if num_owed > 1:
            assert isinstance(key, Embed)
            key = replace(key, is_owed=True)
        found.append(Sequence((key, *colon, value)))
    return tuple(found)


def witness_members(witnesses: Witnesses, colon: tuple[Expression, ...], pointer: str, missing: int) -> list[Member]:
    """Members that must be written, after all others, each with a key of one of the sets.

    Args:
        missing: how many others must be written as well.

    Raises:
        UnsupportedSchema: some must be, or there are more than `MAX_WITNESSES`.
    """
    if len(witnesses) > MAX_WITNESSES or (witnesses and missing > 0):
        message = "minProperties (or too many conditions) on keys that are not named"
        raise error_at(UnsupportedSchema, pointer, message)
    own = (alternation(*unnamed_members(cells, colon, 2)) for cells in witnesses)
    return [Member(None, body, is_required=True, is_last=True) for body in own]


@record
class OtherKeys:
    """The keys that are not named.

    Attributes:
        cells: disjoint sets of keys with their values.
        count: how many keys there are in all cells; None: endlessly many, or as good as.
        choices: ways to have a key of every set that must have one; None if there is no such set.
        listed: keys that are few and hence to be treated as named (then they are in no cell).
    """

    cells: tuple[Cell, ...] = ()
    count: int | None = None
    choices: tuple[Witnesses, ...] | None = None
    listed: tuple[str, ...] = ()


NO_KEYS = OtherKeys()


@record
class Others:
    """Works out the keys that are not named.

    Attributes:
        value: compiles a goal; None if no value fulfils it.
        names: the strings that fulfil a goal.
        time: how long it may take.
    """

    value: Callable[[Goal], Expression | None]
    names: Callable[[Goal], Dfa]
    time: CompileTime

    def is_name(self, facets: tuple[ObjectFacet, ...], key: str) -> bool:
        """Whether `propertyNames` allows the key."""
        return all(facet.names == ANYTHING or self.names(facet.names).accepts(key) for facet in facets)

    def settled(self, facets: tuple[ObjectFacet, ...]) -> Iterator[tuple[ObjectFacet, ...]]:
        """The same objects as branches in which every witness is an unnamed key.

        A witness is a named key (then it is required and gets the goal) or some other key. It is none of its own where
        a key that must be there anyway is one.

        Raises:
            ConstraintTooLarge: there are more than `MAX_WAYS` to choose them.
        """
        if not any(facet.witnesses for facet in facets):
            yield facets
            return
        named: dict[str, None] = {}
        for facet in facets:
            named.update(dict.fromkeys(facet.properties))
        named.update(dict.fromkeys(key for facet in facets for clause in facet.clauses for key, _ in sorted(clause)))
        named.update(dict.fromkeys(asked_atoms(facets)))
        few = self.of(tuple(replace(facet, witnesses=()) for facet in facets), frozenset(named), MAX_LISTED).listed
        few = few or self._few_witnesses(facets, frozenset(named))
        if few:
            named.update(dict.fromkeys(few))
            mentioned = tuple(frozenset(((key, True), (key, False))) for key in few)
            facets = (*facets, ObjectFacet(facets[0].pointer, {}, clauses=mentioned, evaluates=False))
        pending: list[tuple[tuple[ObjectFacet, ...], int]] = [(facets, 0)]
        num_ways = 0
        while pending:
            self.time.check(facets[0].pointer)
            current, index = pending.pop()
            if index == len(current):
                yield current
                continue
            facet = current[index]
            open_witnesses = [witness for witness in facet.witnesses if not witness[0].unnamed]
            if not open_witnesses:
                pending.append((current, index + 1))
                continue
            keys, goal = open_witnesses[0]
            rest = tuple(witness for witness in facet.witnesses if witness is not open_witnesses[0])
            num_ways += 1
            if num_ways > MAX_WAYS:
                message = f"more than {MAX_WAYS} ways to have all the keys that must be there; name them"
                raise error_at(ConstraintTooLarge, facet.pointer, message)
            before, after = current[:index], current[index + 1 :]
            fewer = (*before, replace(facet, witnesses=rest), *after)
            if any(goal <= goal_of_key(fewer, key) and self._is_among(keys, key) for key in required_keys(fewer)):
                pending.append((fewer, index))
                continue
            if not any(other.additional >= NEVER and not other.patterns for other in current):
                elsewhere = replace(facet, witnesses=(*rest, (replace(keys, unnamed=True), goal)))
                pending.append(((*before, elsewhere, *after), index))
            forbidden = forbidden_keys(current)
            for key in named:
                if key not in forbidden and goal_of_key(current, key) != NEVER and self._is_among(keys, key):
                    found = ObjectFacet(
                        facet.pointer, {key: goal}, clauses=(frozenset(((key, True),)),), evaluates=False
                    )
                    pending.append(((*fewer, found), index))

    def _few_witnesses(self, facets: tuple[ObjectFacet, ...], named: frozenset[str]) -> tuple[str, ...]:
        """The keys that are not named of the conditions for which there are few keys: other members could use them up.

        Raises:
            UnsupportedSchema: they are too many to be named, and too few to be endless.
        """
        found: dict[str, None] = {}
        for facet in facets:
            for keys, _ in facet.witnesses:
                self.time.check(facet.pointer)
                language = _both(self._language(keys), key_language(named, (), ()))
                texts = all_texts(language, MAX_LISTED)
                if texts is None and num_texts(language, MAX_COUNTED) < MAX_COUNTED:
                    raise _too_few(facet.pointer)
                found.update(dict.fromkeys(sorted(texts or ())))
        return tuple(found)

    def _is_among(self, keys: Keys, key: str) -> bool:
        return is_in(keys, key) and (keys.goal == ANYTHING or self.names(keys.goal).accepts(key))

    # ---------------------------------------------------------------- cells

    def of(self, facets: tuple[ObjectFacet, ...], named: frozenset[str], most_listed: int) -> OtherKeys:
        """The keys other than the named ones.

        Args:
            most_listed: the most keys that are listed (0: they never are).
        """
        if len(facets) == 1 and not (facets[0].patterns or facets[0].names or facets[0].witnesses):  # nearly always
            return self.simple(facets[0].additional, named)
        witnesses = [witness for facet in facets for witness in facet.witnesses]
        patterns: dict[str, bool] = {}
        for facet in facets:
            for pattern, _ in facet.patterns:
                patterns[pattern] = patterns.get(pattern, False) or facet.additional != ANYTHING
        limits = [facet.names for facet in facets if facet.names != ANYTHING]
        if not patterns and not limits and not witnesses:
            return self.simple(frozenset().union(*(facet.additional for facet in facets)), named)
        allowed = key_language(named, (), ())
        for limit in limits:
            self.time.check(facets[0].pointer)
            allowed = _both(allowed, self.names(limit))
        languages: dict[Goal, Dfa] = {}
        for language, matched, in_doubt in _split(allowed, tuple(patterns.items()), facets[0].pointer, self.time):
            goal = _goal_of_cell(facets, matched, in_doubt)
            if goal != NEVER:
                known = languages.get(goal)
                languages[goal] = language if known is None else known.union(language)
        if most_listed and not witnesses:
            listed = _listed(languages, most_listed)
            if listed is not None:
                return OtherKeys(listed=listed)
        languages = {goal: keys for goal, keys in languages.items() if self.value(goal) is not None}
        cells = self._cells(languages, ANYTHING)
        count = num_strings(languages.values()) if cells else None
        if not witnesses:
            return OtherKeys(cells, count)
        if not cells:
            return OtherKeys(choices=())  # no other key can be written, be it a witness or not
        choices: list[Witnesses] = []
        is_endless = False
        wanted = [(_both(self._language(keys), allowed), goal) for keys, goal in witnesses]
        for apart in _apart(wanted, facets[0].pointer, self.time):
            found = tuple(
                self._cells({own: _both(keys, taken) for own, keys in languages.items()}, goal) for taken, goal in apart
            )
            if all(found):  # else there is no key for some
                choices.append(found)
                sets = [
                    [_both(own, taken) for cell, own in languages.items() if self.value(cell | goal) is not None]
                    for taken, goal in apart
                ]
                is_endless = is_endless or all(num_strings(own) is None for own in sets)
        if choices and not is_endless:  # other members could use up the keys that are asked for
            raise _too_few(facets[0].pointer)
        return OtherKeys(cells, count, tuple(choices))

    def simple(self, goal: Goal, named: frozenset[str]) -> OtherKeys:
        """The same where no schema has patterns and the others have this goal: one cell at most."""
        if 1 in goal:
            return NO_KEYS
        value = self.value(goal)
        if value is None:
            return NO_KEYS
        key = Embed(strings_but(named, self.time), is_key=True) if named else any_key()
        return OtherKeys(((key, value),))

    def _cells(self, languages: dict[Goal, Dfa], extra: Goal) -> tuple[Cell, ...]:
        cells: list[Cell] = []
        for goal, language in languages.items():
            if language.is_empty():
                continue
            value = self.value(goal | extra)
            if value is not None:
                key = any_key() if language is any_text() else key_expression(language)
                cells.append((key, value))
        return tuple(cells)

    def _language(self, keys: Keys) -> Dfa:
        language = key_language(keys.excluded, keys.matched, keys.unmatched, self.time)
        return language if keys.goal == ANYTHING else _both(language, self.names(keys.goal))


def _too_few(pointer: str) -> ConstraintError:
    return error_at(
        UnsupportedSchema,
        pointer,
        "a condition “some key …” that keys can fulfil, but not any number of them, is not supported; name the keys",
    )


@remembered(256)
def _both(one: Dfa, other: Dfa) -> Dfa:
    """Kept, since the alternatives of one object ask for the same again and again."""
    return one.intersect(other)


def _apart(wanted: list[tuple[Dfa, Goal]], pointer: str, time: CompileTime) -> list[list[tuple[Dfa, Goal]]]:
    """Ways in which all of these can have a witness, each with sets of keys that are disjoint.

    Of two sets that overlap, either one key is a witness for both, or there are two keys. These can be distinguished
    if both have the same goal (a key in both sets would do for both) or one has none at all.
    """
    done: list[list[tuple[Dfa, Goal]]] = []
    pending = [wanted]
    while pending:
        current = pending.pop()
        time.check(pointer)
        if len(pending) + len(done) > MAX_CELLS:
            raise error_at(ConstraintTooLarge, pointer, "too many conditions “some key …”")
        if any(keys.is_empty() for keys, _ in current):
            continue
        pair = _overlap(current)
        if pair is None:
            done.append(current)
            continue
        first, second = (current[index] for index in pair)
        rest = [one for index, one in enumerate(current) if index not in pair]
        both = _both(first[0], second[0])
        pending.append([*rest, (both, first[1] | second[1])])
        if first[1] == second[1]:
            pending.append([*rest, (first[0].difference(both), first[1]), (second[0].difference(both), second[1])])
        elif first[1] == ANYTHING:
            pending.append([*rest, first, (second[0].difference(both), second[1])])
        elif second[1] == ANYTHING:
            pending.append([*rest, second, (first[0].difference(both), first[1])])
        else:
            raise error_at(
                UnsupportedSchema,
                pointer,
                "two conditions “some key …” that share keys are not supported; name the keys",
            )
    return done


def _overlap(wanted: list[tuple[Dfa, Goal]]) -> tuple[int, int] | None:
    for index, (keys, _) in enumerate(wanted):
        for other in range(index):
            if not _both(keys, wanted[other][0]).is_empty():
                return other, index
    return None


def _listed(languages: dict[Goal, Dfa], limit: int) -> tuple[str, ...] | None:
    """All keys, in order; None if they are too many."""
    keys: list[str] = []
    for language in languages.values():
        texts = all_texts(language, limit)
        if texts is None:
            return None
        keys += texts
    return tuple(sorted(keys)) if len(keys) <= limit else None


@remembered(64)
def _split(
    allowed: Dfa, patterns: tuple[tuple[str, bool], ...], pointer: str, time: CompileTime
) -> list[tuple[Dfa, frozenset[str], frozenset[str]]]:
    """The allowed keys by the set of patterns that match them, and of those in doubt; no empty sets.

    With each pattern comes whether more is demanded of keys in doubt than of keys that it matches for all validators.
    """
    cells: list[tuple[Dfa, frozenset[str], frozenset[str]]] = [(allowed, frozenset(), frozenset())]
    for pattern, is_doubted in patterns:
        possible, own = pattern_language(pattern, for_all=False, compile_time=time), frozenset((pattern,))
        split: list[tuple[Dfa, frozenset[str], frozenset[str]]] = []
        for cell, matched, in_doubt in cells:
            time.check(f"{pointer}/patternProperties")
            if cell.is_disjoint_from(possible):
                split.append((cell, matched, in_doubt))
                continue
            inside = cell.intersect(possible)
            if is_doubted:
                sure = pattern_language(pattern, compile_time=time)
                split.append((inside.intersect(sure), matched | own, in_doubt))
                split.append((inside.difference(sure), matched, in_doubt | own))
            else:
                split.append((inside, matched | own, in_doubt))
            split.append((cell.difference(possible), matched, in_doubt))
        cells = [cell for cell in split if not cell[0].is_empty()]
        if len(cells) > MAX_CELLS:
            raise error_at(
                ConstraintTooLarge,
                f"{pointer}/patternProperties",
                f"the patterns overlap in more than {MAX_CELLS} ways",
            )
    return cells


def _goal_of_cell(facets: tuple[ObjectFacet, ...], matched: frozenset[str], in_doubt: frozenset[str]) -> Goal:
    goal: Goal = frozenset()
    for facet in facets:
        is_known = False
        for pattern, value in facet.patterns:
            if pattern in matched or pattern in in_doubt:
                goal |= value
                is_known = is_known or pattern in matched
        if not is_known:
            goal |= facet.additional
    return NEVER if 1 in goal else goal
