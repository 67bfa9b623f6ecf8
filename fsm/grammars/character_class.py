"""One character out of a set, as an embedded automaton; the same set is the same automaton everywhere."""

from __future__ import annotations

from ..network.expression import Embed
from ..regex.determinise import determinise
from ..regex.regex_tree import CharSet
from ..remembered import remembered
from ..text.unicode_sets import Intervals


@remembered(512)
def character_class(intervals: Intervals) -> Embed:
    """One character of the given intervals of code points (sorted, disjoint, both ends included)."""
    return Embed(determinise(CharSet(intervals)))
