"""Ahead: which keys the open objects have further on in a text that is not written yet.

It begins as a memory (`written`) and takes the same events, but changes nothing that a request has: it lives as long as
one completion is followed. It knows keys and brackets, no automaton and no tokens.
"""

from __future__ import annotations

from ..._core.fsm import KeyEvent
from ..record import record
from .written import OpenObject, Written

Event = tuple[int, int, int]
"""As `follow_keys` has them."""

Objects = tuple[OpenObject | None, ...]


@record
class _Object:
    """The keys that an open object has, and those that it gets."""

    before: OpenObject | None
    more: set[bytes]


class Ahead:
    """The open objects and lists of a text, the innermost last; None: nothing of it has to be remembered.

    Attributes:
        has_keys: whether any keys are remembered, or were since it began.
    """

    __slots__ = ("_open", "has_keys")

    def __init__(self, written: Written | None) -> None:
        found: list[_Object | None] = []
        objects = None if written is None else written.objects
        if written is not None and objects is not None:
            found += [None] * written.depth
        while objects is not None:
            found.append(_Object(objects, set()))
            found += [None] * (objects.gap - 1)
            objects = objects.below
        self._open = found[::-1] or [None]
        self.has_keys = bool(found)

    @property
    def objects(self) -> Objects:
        """The open objects, the innermost last, as they are written already."""
        return tuple([None if entry is None else entry.before for entry in self._open])

    def has(self, text: bytes) -> bool:
        """Whether the innermost object has a key."""
        innermost = self._open[-1]
        if innermost is None:
            return False
        return text in innermost.more or (innermost.before is not None and innermost.before.has(text))

    def add(self, text: bytes) -> None:
        """One more key of the innermost object."""
        innermost = self._open[-1]
        if innermost is None:
            innermost = self._open[-1] = _Object(None, set())
            self.has_keys = True
        innermost.more.add(text)

    def move(self, kind: int) -> None:
        """An object or a list begins or ends."""
        if kind == KeyEvent.OPENS:
            self._open.append(None)
        elif kind == KeyEvent.CLOSES:
            self._open.pop()
            if not self._open:  # what lies around the outermost object that is remembered has no keys to remember
                self._open.append(None)
