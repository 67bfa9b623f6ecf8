"""Few values: whether an expression writes at least so many different values, where there is an end of them.

A list that must have several different items may have those of a kind of which there are enough. The texts are written
down one after the other, and compared as values; it ends as soon as there are enough, and gives up early: the items of
such a list are searched for while a text is written, each among all that are there. So "no" may be said where there are
enough, and never "yes" where there are not: values in which something comes twice are not counted, since expressions do
not know where that is forbidden.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from decimal import Decimal
from itertools import islice
from typing import Any

from ..network.expression import Alternation, AnyOrder, ByteSet, Embed, Expression, Literal, Member, Repeat, Rule
from ..text.language import Language

MAX_WORK = 4_000  # number of values times the bytes of all of them
MAX_TEXTS = 2_000
MAX_LOOKS = 10_000  # at expressions and at states of texts
MAX_DEPTH = 40  # of expressions and rules in each other

Rules = Mapping[str, Expression]


def has_values(expression: Expression, rules: Rules, needed: int) -> bool:
    """Whether an expression surely writes `needed` different values."""
    found: set[Hashable] = set()
    num_bytes = 0
    for text in islice(_Texts(rules).of_all((expression,), 0), MAX_TEXTS):
        value = _value(json.loads(text, parse_int=Decimal, parse_float=Decimal, object_pairs_hook=_Pairs))
        if value is None:
            continue
        num_bytes += len(text) if value not in found else 0
        found.add(value)
        if len(found) * num_bytes > MAX_WORK:
            return False
        if len(found) == needed:
            return True
    return False


class _Pairs(list[Any]):
    """The members of an object."""


def _value(read: Any) -> Hashable | None:
    """What is equal for equal values; None if something in it comes twice, which a list or object may forbid."""
    if not isinstance(read, list):
        return type(read), read
    parts = [pair[0] for pair in read] if isinstance(read, _Pairs) else [_value(item) for item in read]
    if None in parts or len(set(parts)) < len(parts):
        return None
    if not isinstance(read, _Pairs):
        return tuple(parts)
    values = [_value(value) for _, value in read]
    return None if None in values else frozenset(zip(parts, values, strict=True))


class _Texts:
    """Some texts of expressions: none of those that are nested too deeply, and no more after so many looks at parts.

    Without an end to the looks nothing might be found for ever: each of many ways to begin may lead too deep.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._looks_left = MAX_LOOKS

    def of_all(self, parts: tuple[Expression, ...], depth: int) -> Iterator[bytes]:
        """Texts of the parts one after the other."""
        if not parts:
            yield b""
            return
        for first in self._of(parts[0], depth + 1):
            for rest in self.of_all(parts[1:], depth + 1):
                yield first + rest

    def _of(self, part: Expression, depth: int) -> Iterator[bytes]:
        self._looks_left -= 1
        if depth > MAX_DEPTH or self._looks_left < 0:
            return
        if isinstance(part, Literal):
            yield part.data
        elif isinstance(part, ByteSet):
            yield from (bytes((byte,)) for byte in range(256) if part.mask >> byte & 1)
        elif isinstance(part, Alternation):
            for option in part.options:
                yield from self._of(option, depth + 1)
        elif isinstance(part, Repeat):
            most = part.minimum + MAX_DEPTH if part.maximum is None else part.maximum
            for count in range(part.minimum, min(most, MAX_DEPTH) + 1):
                yield from self.of_all((part.item,) * count, depth)
        elif isinstance(part, Rule):
            yield from self._of(self._rules[part.name], depth + 1)
        elif isinstance(part, Embed):
            yield from self._of_language(part.language)
        elif isinstance(part, AnyOrder):
            for chosen in _choices(part):
                yield from self.of_all(chosen, depth)
        else:
            yield from self.of_all(part.parts, depth)

    def _of_language(self, language: Language) -> Iterator[bytes]:
        """The shortest texts first."""
        pending = deque([(language.start, b"")] if language.start else [])
        while pending and self._looks_left > 0:
            self._looks_left -= 1
            state, text = pending.popleft()
            if language.is_accepting(state):
                yield text
            row = language.row(state).tolist()
            pending += [(target, text + bytes((byte,))) for byte, target in enumerate(row) if target]


def _choices(members: AnyOrder) -> Iterator[tuple[Expression, ...]]:
    """Some choices of members that may be written, in the order in which they stand there."""
    count = len(members.members)
    needed = sum(1 << index for index, member in enumerate(members.members) if member.is_required)
    for mask in range(1, min(1 << count, MAX_TEXTS)):
        chosen = [index for index in range(count) if mask >> index & 1]
        is_enough = members.minimum <= len(chosen) <= (count if members.maximum is None else members.maximum)
        if mask & needed == needed and is_enough and all(_may_stand(members.members[index], mask) for index in chosen):
            parts: list[Expression] = []
            for index in chosen:
                member = members.members[index]
                parts += [members.separator] if parts else []
                parts += [Literal(member.text or b""), member.body]
            yield tuple(parts)


def _may_stand(member: Member, mask: int) -> bool:
    """Whether what a member implies is among those chosen, and what it excludes is not."""
    implied, excluded = (sum(1 << index for index in indices) for indices in (member.implied, member.excluded))
    return mask & implied == implied and not mask & excluded
