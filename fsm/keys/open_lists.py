"""OpenLists: the lists of a text that are open and whose items must differ, whatever they are.

Beside the keys of open objects (`written`) a text may have lists none of whose values comes twice. Of each that is open
its values are kept, and of the item that has begun its bytes, and the places within those values (`values`) at which it
stands: none, mostly, since it is none of them. At its end it is a repetition iff one of these is complete.

Versions are immutable and share what they can. It knows no automaton and no tokens.
"""

from __future__ import annotations

from ..._core.fsm import KeyEvent
from ..record import record
from .values import BLANKS, GONE, Place, Value, following, is_complete, step, value_of

Pieces = tuple["Pieces", bytes] | None


MAX_DEPTH = 200
"""Most brackets and braces that are open within an outermost list whose items must differ; more are refused."""


@record
class Values:
    """The values of one list.

    Attributes:
        by_text: by what all their spellings have in common.
        by_first: the places in them after their first byte, by that byte.
    """

    by_text: dict[str, Value]
    by_first: dict[int, tuple[Place, ...]]

    def with_value(self, common: str, value: Value) -> Values:
        """These and one more."""
        place, by_first = (value, None), self.by_first.copy()
        for byte in following(place):
            after = step(place, byte)
            if after is not GONE and byte not in BLANKS:
                by_first[byte] = (*by_first.get(byte, ()), after)
        return Values(self.by_text | {common: value}, by_first)


NO_VALUES = Values({}, {})


@record
class OpenList:
    """A list, at one place of a text.

    Attributes:
        places: within its values, of the item that has begun; None before it has: at all their beginnings.
        pieces: what is written of that item.
        depth: how many brackets and braces are open in it.
        below: the next such list that it lies in.
    """

    values: Values
    places: frozenset[Place] | None
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
    return OpenList(NO_VALUES, None, None, 0, lists)


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


def depth_of(lists: OpenList | None) -> int:
    """How many brackets and braces are open within the outermost list, those of lists included."""
    return sum(one.depth + 1 for one in lists.chain()) if lists is not None else 0


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
        places, rest = one.places, text
        if places is None and (rest := text.lstrip(BLANKS)):
            places, rest = frozenset(one.values.by_first.get(rest[0], ())), rest[1:]
        if places is not None:
            places = _moved(places, rest)
        below = OpenList(one.values, places, (one.pieces, text), one.depth, below)
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
    if any(map(is_complete, lists.places or ())):
        return None
    text, values = lists.begun, lists.values
    if text.strip():
        value, common = value_of(text)
        values = values.with_value(common, value)
    return OpenList(values, None, None, 0, read(lists.below, byte))


def may_repeat(lists: OpenList | None) -> bool:
    """Whether the item that has begun in one of the lists may become a value that it has."""
    while lists is not None:
        if lists.places or (lists.places is None and lists.values.by_text):
            return True
        lists = lists.below
    return False


def next_bytes(lists: OpenList | None) -> set[int]:
    """Bytes after which that may still be so, and perhaps others."""
    found: set[int] = set()
    for one in lists.chain() if lists else ():
        if one.places is None:
            found.update(one.values.by_first, BLANKS)
        else:
            found.update(byte for place in one.places for byte in following(place))
    return found
