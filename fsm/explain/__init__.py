"""Constraints explained: pictures, what is enforced how, what is forced, what it costs, where a text goes wrong.

    found = explain(vocabulary, "regex", "[0-9]{4}-[0-9]{2}", text="2024-1")
    print("\\n".join(lines(found)))          # for a terminal
    svg(found).document                     # the automaton and its compressed form
    as_data(found)                          # the same as JSON data

Nothing here is needed to enforce a constraint, and nothing that enforces one imports it.
"""

from .explanation import explain
from .graph import Edge, Graph, Kind
from .report import Explanation, as_data, lines, svg
from .stepping import Stepping

__all__ = ["Edge", "Explanation", "Graph", "Kind", "Stepping", "as_data", "explain", "lines", "svg"]
