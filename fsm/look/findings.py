"""Findings: what `explain` finds out about a constraint, as plain data. `report` shows it."""

from __future__ import annotations

from dataclasses import dataclass

from ..any_json import ExtraKeys
from ..json_schema.demands import Demand
from ..json_schema.sites import Annotation
from .graph import Graph
from .measuring import MaskCost
from .shortest import Shortest
from .stepping import Stepping


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds from the description to the first mask."""

    grammar: float
    network: float
    first_mask: float

    @property
    def total(self) -> float:
        return self.grammar + self.network + self.first_mask


@dataclass(frozen=True, slots=True)
class Findings:
    """What a constraint demands, how it is enforced, and what it costs.

    Attributes:
        kind, source: as in `Constraint`.
        is_recursive: whether a rule can call itself; there is no end of states then.
        num_rules, num_positions, num_texts: size of the network: its rules, positions and text automata.
        num_states: states of the whole automaton (character by character); None if they were not all visited.
        graphs: the automaton; the graphs of its rules where the automaton has no end of states or too many.
        compressed: the same with forced runs as single edges.
        demands, annotations: what is enforced how, and what is not since it demands nothing (JSON Schema).
        runs: the different forced runs of at least two bytes, the longest first.
        shortest: the shortest text.
        min_tokens: a number of tokens that suffices; smaller budgets are refused.
        timings, masks: what it took.
        automaton_bytes, row_bytes: memory of its states, and of the rows its walks needed.
        samples: texts from random walks through the mask.
        steps: where the given text leaves the language; None if none was given.
        extra_keys: whether objects may have keys that a schema does not name and says nothing of; None without one.
    """

    kind: str
    source: str
    is_recursive: bool
    num_rules: int
    num_positions: int
    num_texts: int
    num_states: int | None
    graphs: tuple[Graph, ...]
    compressed: tuple[Graph, ...]
    demands: tuple[Demand, ...]
    annotations: tuple[Annotation, ...]
    runs: tuple[bytes, ...]
    shortest: Shortest
    min_tokens: int
    timings: Timings
    masks: MaskCost
    automaton_bytes: int
    row_bytes: int
    samples: tuple[str, ...]
    steps: Stepping | None = None
    extra_keys: ExtraKeys | None = None
