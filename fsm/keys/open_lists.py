"""OpenLists: the lists of a text that are open and whose items must differ, whatever they are.

Beside the keys of open objects (`written`) a text may have lists none of whose values comes twice. Of each that is open
its values are kept, and of the item that has begun its bytes, and the places within those values (`values`) at which it
stands: none, mostly, since it is none of them. At its end it is a repetition iff one of these is complete.

Versions are immutable and share what they can. It knows no automaton and no tokens.
"""

from __future__ import annotations

from ..._core.fsm import KeyEvent
from ...errors import ConstraintTooLarge
from ..record import record
from .values import GONE, Place, Value, first_values, following, is_complete, step, value_of

Pieces = tuple["Pieces", bytes] | None


@record
class Values:
    """The values of one list, by what all their spellings have in common."""

    by_text: dict[str, Value]


NO_VALUES = Values({})


@record
class OpenList:
    """A list, at one place of a text.

    Attributes:
        places: within its values, of the item that has begun.
        pieces: what is written of that item.
        depth: how many brackets and braces are open in it.
        below: the next such list that it lies in.
    """

    values: Values
    places: frozenset[Place]
    pieces: Pieces
    depth: int
    below: OpenList | None

    @property
    def begun(self) -> bytes:
        """What is written of the item that has begun."""
        pieces, found = self.pieces, list[bytes]()
        while pieces is not None:
            found.append(pieces[1])
            pieces = pieces[0]
        return b"".join(found[::-1])

    def places_further_on(self, text: bytes) -> frozenset[Place]:
        """Where the item that has begun stands within the items that a text has after it; it completes the list."""
        begun = self.begun
        places = frozenset((value, None) for value in first_values(b"[" + begun + text)[1:])
        return _moved(places, begun)

    def chain(self) -> list[OpenList]:
        """This list and those that it lies in."""
        found, here = list[OpenList](), self.below
        found.append(self)
        while here is not None:
            found.append(here)
            here = here.below
        return found


def opened(lists: OpenList | None) -> OpenList:
    """The lists after a bracket that opens one more."""
    if lists is not None:
        lists = OpenList(lists.values, lists.places, lists.pieces, lists.depth + 1, lists.below)
    return OpenList(NO_VALUES, frozenset(), None, 0, lists)


def after_bracket(lists: OpenList | None, kind: int, byte: bytes) -> tuple[bool, OpenList | None]:
    """Whether no item ends there that its list has, and the lists, after an event (`KeyEvent`) and its byte.

    The byte is empty if the lists have read it, as before CLOSES.
    """
    if kind == KeyEvent.VALUE_ENDS:
        assert lists is not None
        after = ended(lists, byte)
        return after is not None, after
    lists = read(lists, byte)
    if kind == KeyEvent.LIST_OPENS:
        return True, opened(lists)
    assert lists is not None
    return True, bracketed(lists, 1 if kind == KeyEvent.OPENS else -1)


def bracketed(lists: OpenList, change: int) -> OpenList | None:
    """The lists after another bracket or brace: change is 1, or -1 for one that closes."""
    if lists.depth + change >= 0:
        return OpenList(lists.values, lists.places, lists.pieces, lists.depth + change, lists.below)
    return None if lists.below is None else bracketed(lists.below, change)


def read(lists: OpenList | None, text: bytes) -> OpenList | None:
    """The lists after some bytes of their items, within which none of them ends."""
    if lists is None or not text:
        return lists
    below = None
    for one in reversed(lists.chain()):
        below = OpenList(one.values, _moved(one.places, text), (one.pieces, text), one.depth, below)
    return below


def _moved(places: frozenset[Place], text: bytes) -> frozenset[Place]:
    """The places after some bytes."""
    for byte in text:
        if not places:
            break
        places = frozenset(after for place in places if (after := step(place, byte)) is not GONE)
    return places


def ended(lists: OpenList, byte: bytes) -> OpenList | None:
    """The lists after the comma or the bracket that ends an item of the innermost; None if that is a repetition."""
    if any(map(is_complete, lists.places)):
        return None
    text, values = lists.begun, lists.values
    if text.strip():
        try:
            value, common = value_of(text)
        except RecursionError:
            raise ConstraintTooLarge("an item that must differ from others is nested too deeply") from None
        values = Values(values.by_text | {common: value})
    places = frozenset((value, None) for value in values.by_text.values())
    return OpenList(values, places, None, 0, read(lists.below, byte))


def may_repeat(lists: OpenList | None) -> bool:
    """Whether the item that has begun in one of the lists may become a value that it has."""
    while lists is not None:
        if lists.places:
            return True
        lists = lists.below
    return False


def next_bytes(lists: OpenList | None) -> set[int]:
    """Bytes after which that may still be so, and perhaps others."""
    return {byte for one in (lists.chain() if lists else ()) for place in one.places for byte in following(place)}
