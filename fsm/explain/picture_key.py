"""PictureKey: what the signs of a picture mean, for those that occur in it.

Each entry is a sign and a text. Signs are drawn by svg.py: a small circle of some kind, or a piece of text in its
colour of the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .graph import Edge, Graph, Kind
from .labels import UNICODE_CLASSES, label


@dataclass(frozen=True, slots=True)
class Entry:
    """`sign` is "start", "accepting" or "open" for circles, else a text; `role` is the colour of a text."""

    sign: str
    text: str
    role: str = "plain"


def picture_key(graphs: Sequence[Graph]) -> list[Entry]:
    """The entries for some graphs, circles first."""
    edges = [edge for graph in graphs for edge in graph.edges]
    labels = [label(edge) for edge in edges]
    found = [Entry("start", "start")]
    if any(graph.accepting for graph in graphs):
        found.append(Entry("accepting", "may end here"))
    if any(graph.open_nodes for graph in graphs):
        found.append(Entry("open", "more edges than are drawn"))
    if any(edge.num_forced for edge in edges):
        found.append(Entry("'abc'", "forced: nothing to decide", "forced"))
    if any(edge.kind is Kind.BYTES and edge.num_forced < len(edge.words[0]) for edge in edges):
        found.append(Entry("'a'", "chosen"))
    if any(text.startswith("[") for text in labels):
        found.append(Entry("[a-z]", "one character of these"))
    found += [Entry(name, meaning) for name, meaning in UNICODE_CLASSES.items() if any(name in text for text in labels)]
    if any(edge.kind is Kind.CALL for edge in edges):
        found.append(Entry("→ name", "the rule of that name, then on from here", role_of_kind(Kind.CALL)))
    if any(edge.kind is Kind.TEXT for edge in edges):
        found.append(Entry("‹name›", "a text of that kind", role_of_kind(Kind.TEXT)))
    if any(edge.most is not None for edge in edges):
        found.append(Entry("≤ n×", "at most n times"))
    found.append(Entry("no edge:", "a dead end, not allowed", "note"))
    return found


def role(edge: Edge) -> str:
    """The role of a label as a whole, but for its forced end."""
    return role_of_kind(edge.kind)


def role_of_kind(kind: Kind) -> str:
    """What is written by a rule or a text automaton has a colour of its own."""
    return {Kind.CALL: "call", Kind.TURNS: "call", Kind.TEXT: "text"}.get(kind, "plain")
