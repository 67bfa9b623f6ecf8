"""Items: the items that the open lists of a text have so far, where they must differ and may be anything.

Beside the automaton's state and the keys (`written`), the place of a request is this memory:

    {"a":[1,[2,{"k":0},{"k":|         lists   ┌ items 2, {"k":0}      ─►   ┌ items 1
                                              └ begins at {"k":            └ begins at [2,

A list is in the memory from its bracket to the other one, brackets between two of them are counted. Where an item began
is an *address*: a token of the text and a byte in it. What was written since then the trail of a cursor knows, so
nothing has to be kept while an item is written, but for its *rivals*: the items before that it may still become. There
are hardly ever any left after its first few tokens, and without rivals nothing is forbidden within an item.

Versions are immutable and lead to the version before, as those of keys do. The items of a list are shared by all its
versions, each of which knows how many are its own; only a fork that goes on differently copies them. It knows values
and addresses, no automaton and no tokens; `distinct` says what is forbidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from ..record import record
from .item_values import Value

Address = tuple[int, int]
"""How many tokens are before the one in which something begins, and how many bytes of that."""


class Values:
    """The items of one list in order, and what forks of it wrote behind them: value -> number."""

    __slots__ = ("numbers", "order")

    def __init__(self, values: Sequence[Value]) -> None:
        self.order = list(values)
        self.numbers = {value: number for number, value in enumerate(values)}


@record
class OpenList:
    """A list whose items must differ.

    Attributes:
        below: the next such list that it lies in.
        depth: how many brackets are open inside the outermost such list, this one's included.
        begin: where its present item begins.
        values: the first `count` of them are its items.
        tried: further items, of a text that is only tried.
        rivals: the items that the present one may still become.
    """

    below: OpenList | None
    depth: int
    begin: Address
    values: Values
    count: int = 0
    tried: tuple[Value, ...] = ()
    rivals: tuple[Value, ...] = ()

    def has(self, value: Value) -> bool:
        """Whether an item was written before."""
        return self.values.numbers.get(value, self.count) < self.count or value in self.tried

    def with_item(self, value: Value, begin: Address, *, is_tried: bool) -> OpenList:
        """The list with one more item, and where the next one begins."""
        if is_tried:
            tried = (*self.tried, value)
            return replace(self, begin=begin, tried=tried, rivals=(*islice(self.values.order, self.count), *tried))
        values, count = self.values, self.count
        if count < len(values.order) and values.order[count] != value:  # a fork, or another thread, was here first
            values = Values(values.order[:count])
        if count == len(values.order):
            values.order.append(value)
        if values.numbers.setdefault(value, count) != count:  # as a fork has written it later
            values = Values([*values.order[:count], value])
        rivals = tuple(islice(values.order, count + 1))
        return replace(self, begin=begin, values=values, count=count + 1, rivals=rivals)


@record
class Items:
    """One version of the memory.

    Attributes:
        num_tokens: of the text when it came to be.
        before: the version before it.
        lists: the innermost open list whose items must differ; None: there is none.
        depth: how many brackets are open inside the outermost one; mode: where a reader of JSON stands.
    """

    num_tokens: int
    before: Items | None
    lists: OpenList | None
    depth: int
    mode: int

    @property
    def has_rivals(self) -> bool:
        """Whether an item that has begun may still become one that is there."""
        here = self.lists
        while here is not None:
            if here.rivals:
                return True
            here = here.below
        return False


NO_ITEMS = Items(0, None, None, 0, 0)
"""The memory at the beginning of a text."""
