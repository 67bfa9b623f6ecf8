"""The tables of `AnyOrder`: which member a text belongs to, and what has to be known of each of them.

A set of members that have been written is a run of frames on the stack, 31 members to a frame: a bit for "cannot be
written (any more)" and a bit for "must still be written"; below them one with two counts if their number is bounded.
Frames are interned, so only sets that were met exist. Where a member begins, its text is read with a trie:

::

    members  "id": ..  "name": ..  "note": ..       (their texts sorted, numbered from 0)

    root --"--> . --i--> member 0 (d": follows)
                  --n--> . --a--> member 1 (me": follows)
                           --o--> member 2 (te": follows)

A node of the trie stands for a range of members, first .. end - 1; a byte is let through if one of these can still be
written. So the place in the trie and the set are all there is to know, however many members there are. After the node
at which a member is alone it is a plain chain of positions, as everywhere else.

This module only builds; `fsm/core/sets.h` runs. Costs a few microseconds per member.
"""

from __future__ import annotations

from operator import attrgetter

from .expression import AnyOrder, Member


class SetBuilder:
    """Collects the sets of a network, as the core reads them (`fsm/core/laying.h`).

    Attributes:
        sets: for each BUILT_WIDTH numbers: where among the network's options its nodes will be (the set itself, its
            key, the separator, the others, and what follows the text of each member); how many members there are, how
            many of these have texts, how many are not last, how many others; minimum and maximum (-1: none); the
            literal that is the first member's text, which those of the others follow.
        required: by member, whether it must be written.
        relations: nothing, or by member how many it implies and excludes, and these, by their numbers.
    """

    def __init__(self) -> None:
        self.num_sets = 0
        self.sets: list[int] = []
        self.required: list[int] = []
        self.relations: list[int] = []

    def add(self, expression: AnyOrder, first_option: int, first_literal: int) -> list[Member]:
        """Adds a set; its members in the order of their numbers: by their texts, those without, and those last."""
        members = [member for member in expression.members if member.text is not None]
        members.sort(key=_TEXT)
        num_texts = len(members)
        if num_texts < len(expression.members):
            others = [member for member in expression.members if member.text is None]
            members += sorted(others, key=_IS_LAST)
        if self.relations or any([member.implied or member.excluded for member in members]):
            self._relate(expression, members)
        self.required += [member.is_required for member in members]
        num_mixed = len(members) - sum([member.is_last for member in members])
        maximum = -1 if expression.maximum is None else expression.maximum
        self.sets += (
            first_option,
            len(members),
            num_texts,
            num_mixed,
            len(expression.others),
            expression.minimum,
            maximum,
        )
        self.sets.append(first_literal)
        self.num_sets += 1
        return members

    def _relate(self, expression: AnyOrder, members: list[Member]) -> None:
        if not self.relations:
            self.relations = [0, 0] * len(self.required)
        numbers = {id(member): number for number, member in enumerate(members)}
        for member in members:
            self.relations += (len(member.implied), len(member.excluded))
            others = (*member.implied, *member.excluded)
            self.relations += [numbers[id(expression.members[other])] for other in others]


_TEXT, _IS_LAST = attrgetter("text"), attrgetter("is_last")
