"""Repeated: which item of a list a text would write again, where `uniqueItems` is why it is refused.

For texts that a constraint has accepted so far. The byte may be refused before the item ends: where it could only
become an item that its list has.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

from ..json_schema.place import Path, in_place, sites_at, string_end
from ..json_schema.sites import Sites
from ..json_schema.texts import escape
from ..keys.values import GONE, Place, is_complete, step, value_of

MAX_NAMED = 3


def repeated_items(sites: Sites, path: Path, before: str, refused: str) -> list[str]:
    """The lists whose items must differ and of which the item that has begun is, or can only become, one again.

    Args:
        path: to the place at which the text stands.
        before, refused: the text, and the character after it.
    """
    found: list[str] = []
    used_up: list[str] = []
    for depth, starts, is_innermost in _open_lists(before):
        here = [site for at in sites_at(sites, path[:depth]) for site in in_place(sites, at)]
        pointers = [site.pointer for site in here if isinstance(site.schema, dict) and site.schema.get("uniqueItems")]
        pointer = "".join(f"/{escape(str(key))}" for key in path[:depth])
        places = [f"in the array at {pointer or '/'}: {where}/uniqueItems" for where in pointers]
        same = _same(before, starts, "" if is_innermost and refused in ",]" else refused) if places else {}
        for is_whole, what in ((True, "is the same as"), (False, "can only become the same as")):
            numbers = ", ".join([str(index) for index, whole in same.items() if whole == is_whole][:MAX_NAMED])
            if numbers:
                found += [f"{place}: item {len(starts) - 1} {what} item {numbers}" for place in places]
        if is_innermost and refused == ",":
            used_up = [f"{place}: no value is left that differs from all items" for place in places]
    return found or used_up


def _open_lists(text: str) -> Iterator[tuple[int, list[int], bool]]:
    """How deep each open list lies, where its items begin, and whether nothing is open in it."""
    containers: list[tuple[str, list[int]]] = []
    index = 0
    while 0 <= index < len(text):
        c = text[index]
        if c == '"':
            index = string_end(text, index)
            continue
        index += 1
        if c in "[{":
            containers.append((c, [index]))
        elif c in "]}":
            containers.pop()
        elif c == "," and containers:
            containers[-1][1].append(index)
    last = len(containers) - 1
    return ((depth, starts, depth == last) for depth, (bracket, starts) in enumerate(containers) if bracket == "[")


def _same(text: str, starts: list[int], more: str) -> dict[int, bool]:
    """The items that the last one may become after some more text, by index, and whether it is that item already."""
    found: dict[int, bool] = {}
    for index, (start, end) in enumerate(pairwise(starts)):
        value = value_of(text[start : end - 1].encode())[0]
        place = _after((value, None), text[starts[-1] :] + more)
        if place is not GONE and (more or is_complete(place)):
            found[index] = is_complete(place)
    return found


def _after(place: Place, text: str) -> Place | Literal[False]:
    """The place within a value after more of a text, or GONE."""
    for byte in text.encode(errors="surrogatepass"):
        after = step(place, byte)
        if after is GONE:
            return GONE
        place = after
    return place
