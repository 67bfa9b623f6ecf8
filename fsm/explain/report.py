"""Explanation: what was found out about a constraint, as lines for a terminal, as pictures and as data.

Widths are columns. `paint` colours a piece of text by its role (terminal.Paint); without it nothing is coloured.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from ..any_json import ExtraKeys
from ..json_schema.demands import Demand
from ..json_schema.sites import Annotation
from .graph import AUTOMATON, Edge, Graph
from .labels import columns, label, legend_of, quoted, shortened
from .measuring import MaskCost, Timings
from .shortest import Shortest
from .stepping import Stepping, stepping_lines
from .svg import Picture, picture
from .terminal import Paint, draw, plain

RECURSION = (
    "recursive: a rule can call itself, so there is no end of states; the rules are drawn instead, compressed "
    "(→ name: push the place after the edge, write the rule, pop)"
)
MAX_DRAWN = 40  # nodes of one picture
MAX_UNFOLDED = 24  # of an automaton as it is, in a terminal
MAX_EDGES_SVG = 100  # of one picture
MAX_TITLE = 90
MAX_LISTED = 60  # keywords, runs
MAX_SOURCE = 60  # characters of a description in `repr`
LABEL_COLUMNS = 34
EXTRA_KEYS: dict[ExtraKeys, str] = {
    "schema": 'Keys that the schema does not name are allowed unless it says otherwise (extra_keys="schema"); with '
    '"never", the default of the server, they are not.',
    "never": 'Keys that the schema does not name are not allowed unless it says what they may be (extra_keys="never", '
    'the default of the server); with "schema" they are.',
}


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """What a constraint demands, how it is enforced, and what it costs; can be printed and drawn.

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

    def __str__(self) -> str:
        return "\n".join(lines(self))

    def __repr__(self) -> str:
        """Short, since notebooks keep it next to the picture; everything is in `str`."""
        return f"<Explanation of {self.kind}: {shortened(self.source, MAX_SOURCE)}>"

    def svg(self, *, max_drawn: int = MAX_DRAWN) -> Picture:
        """The pictures as one SVG `document`; at most `max_drawn` nodes of each graph."""
        return svg(self, max_drawn=max_drawn)

    def _repr_svg_(self) -> str:
        """For notebooks."""
        return self.svg().document


def lines(found: Explanation, *, width: int = 100, paint: Paint = plain, max_drawn: int = MAX_DRAWN) -> list[str]:
    """Everything, section by section."""
    return [
        *_heading(found, width, paint),
        *_pictures(found, width, paint, max_drawn),
        *_enforced(found, width, paint),
        *_forced(found, width, paint),
        *_costs(found, width, paint),
        *(stepping_lines(found.steps, width=width, paint=paint) if found.steps is not None else []),
    ]


def _title(text: str, paint: Paint) -> list[str]:
    return ["", paint(text, "title")]


def _heading(found: Explanation, width: int, paint: Paint) -> list[str]:
    source = "" if found.source == "null" else " ".join(found.source.split())
    shown = shortened(source, width - len(found.kind) - 3) if source else "any"
    return [f"{paint(found.kind, 'title')}  {shown}"]


# -------------------------------------------------------------------- pictures


def _pictures(found: Explanation, width: int, paint: Paint, max_drawn: int) -> list[str]:
    out: list[str] = []
    if found.is_recursive:
        out += ["", *textwrap.wrap(RECURSION, width)]
    pairs = zip(found.graphs, found.compressed, strict=True)
    for graph, compressed in pairs:
        is_flat = graph.title == AUTOMATON
        if is_flat:
            out += _drawn(graph, AUTOMATON, width, paint, min(max_drawn, MAX_UNFOLDED))
        title = "compressed form" if is_flat else graph.title
        out += _drawn(compressed, title, width, paint, max_drawn)
    left_out = found.num_rules - len(found.graphs)
    if left_out > 0 and found.graphs[0].title != AUTOMATON:
        out += ["", paint(f"… {left_out} more rules are not drawn", "note")]
    return out


def _drawn(graph: Graph, title: str, width: int, paint: Paint, max_drawn: int) -> list[str]:
    shown = graph.beginning(max_drawn)
    legend = legend_of([shown], LABEL_COLUMNS)
    size = f"{_count(graph.num_nodes, 'node')}, {_count(len(graph.edges), 'edge')}"
    title = shortened(title, width - len(size) - 2)
    out = ["", f"{paint(title, 'title')}  {paint(size, 'note')}"]
    out += [f"  {line}" for line in draw(shown, legend, width=width - 2, paint=paint)]
    for line in legend.lines():
        out += textwrap.wrap(line, width - 2, initial_indent="  ", subsequent_indent="      ")
    out += [paint(line, "note") for said in omissions(graph, shown) for line in _wrapped(said, width)]
    return out


def omissions(graph: Graph, shown: Graph, open_nodes: str = "nodes with …") -> list[str]:
    """What a picture leaves out, said in words."""
    out: list[str] = []
    if shown is not graph:
        missing = graph.num_nodes - shown.num_nodes
        lost = len(graph.edges) - len(shown.edges)
        out.append(f"… {missing} of {graph.num_nodes} nodes and {lost} edges are not drawn; {open_nodes} lead there")
    if not graph.is_whole:
        out.append(f"… the automaton has more states than were visited; {open_nodes} lead there")
    return out


def svg(found: Explanation, *, max_drawn: int = MAX_DRAWN) -> Picture:
    """The compressed form of the automaton, or of each rule, as one SVG."""
    graphs: list[Graph] = []
    notes: list[str] = []
    for graph, compressed in zip(found.graphs, found.compressed, strict=True):
        shown = compressed.beginning(max_drawn, MAX_EDGES_SVG)
        title = f"compressed form: {compressed.num_nodes} of {graph.num_nodes} states"
        title = title if graph.title == AUTOMATON else graph.title
        graphs.append(dataclasses.replace(shown, title=shortened(title, MAX_TITLE)))
        notes += [f"{graphs[-1].title}: {line}" for line in omissions(compressed, shown, "dashed circles")]
    source = "" if found.source == "null" else " ".join(found.source.split())
    return picture(graphs, LABEL_COLUMNS, title=shortened(f"{found.kind} {source}".strip(), MAX_TITLE), notes=notes)


# -------------------------------------------------------------------- lists


def _enforced(found: Explanation, width: int, paint: Paint) -> list[str]:
    out: list[str] = []
    if found.demands:
        out += _title("enforced", paint)
        rows = [
            (demand.pointer or "/", demand.value if "∧" not in demand.keyword else demand.keyword, demand.how)
            for demand in found.demands
        ]
        out += _table(rows, width)
    if found.extra_keys is not None:
        out += ["", *textwrap.wrap(EXTRA_KEYS[found.extra_keys], width)]
    if found.annotations:
        out += _title("annotations, not enforced", paint)
        out += _table([(note.pointer or "/", note.reason) for note in found.annotations], width)
    return out


def _table(rows: Sequence[tuple[str, ...]], width: int) -> list[str]:
    """Rows in columns as wide as they need to be, as far as two fifths of the page are left for the last one."""
    shown = rows[:MAX_LISTED]
    most = max((width * 3 // 5 - 4) // (len(shown[0]) - 1), 10)
    widths = [min(max((columns(row[i]) for row in shown), default=0), most) for i in range(len(shown[0]) - 1)]
    out: list[str] = []
    for row in shown:
        cells = [_padded(shortened(cell, size), size) for cell, size in zip(row, widths, strict=False)]
        head = "  " + "  ".join(cells) + "  "
        room = max(width - columns(head), 16)
        first, *rest = textwrap.wrap(row[-1], room) or [""]
        out.append((head + first).rstrip())
        out += [" " * columns(head) + line for line in rest]
    if len(rows) > len(shown):
        out.append(f"  … {len(rows) - len(shown)} more")
    return out


def _padded(text: str, size: int) -> str:
    return text + " " * (size - columns(text))


def _forced(found: Explanation, width: int, paint: Paint) -> list[str]:
    out = _title("forced", paint)
    best = found.shortest
    if best.text is None:
        out.append(f"  the shortest output has {found.min_tokens:,} tokens; it is not shown")
    else:
        share = best.num_forced_bytes / len(best.text) if best.text else 0.0
        out.append(f"  shortest output  {shortened(quoted(best.text), width - 19)}")
        bytes_said = f"{best.num_forced_bytes} forced ({share:.0%}) in {_count(len(best.runs), 'run')}"
        out += _wrapped(bytes_said, width, f"of its {_count(len(best.text), 'byte')}  ")
        if best.num_tokens:
            num_sampled = best.num_tokens - best.num_drafted_tokens
            drafted = best.num_drafted_tokens / best.num_tokens
            tokens_said = f"{best.num_drafted_tokens} drafted ({drafted:.0%}), {num_sampled} sampled"
            out += _wrapped(tokens_said, width, f"of its {_count(best.num_tokens, 'token')}  ")
    enough = f"at least {_count(found.min_tokens, 'token')}; requests with fewer are refused"
    out += _wrapped(enough, width, "budget           ")
    if found.runs:
        out += _wrapped_list("  runs             ", [quoted(run) for run in found.runs], width)
    return out


def _wrapped_list(head: str, items: Sequence[str], width: int) -> list[str]:
    """Items one after the other, none of them broken."""
    out, line = [], head
    for item in items[:MAX_LISTED]:
        item = shortened(item, width - len(head))
        if columns(line) + columns(item) > width and line.strip():
            out.append(line.rstrip())
            line = " " * len(head)
        line += item + "  "
    out.append(line.rstrip())
    if len(items) > MAX_LISTED:
        out.append(f"{' ' * len(head)}… {len(items) - MAX_LISTED} more")
    return out


def _costs(found: Explanation, width: int, paint: Paint) -> list[str]:
    timings, masks = found.timings, found.masks
    states = (
        "no end of states"
        if found.is_recursive
        else (_count(found.num_states, "state") if found.num_states is not None else "states beyond counting")
    )
    facts = (
        f"{states}, {_count(found.num_rules, 'rule')}, {_count(found.num_positions, 'position')},"
        f" {_count(found.num_texts, 'text automaton', 'text automata')}",
        f"compiled in {timings.total:.2f} ms: grammar {timings.grammar:.2f}, network {timings.network:.2f},"
        f" first mask {timings.first_mask:.2f}",
        f"masks of {_count(masks.num_masks, 'state')}: first time {masks.cold_median:.1f} µs median,"
        f" {masks.cold_worst:.1f} worst; again {masks.warm_median:.1f} median, {masks.warm_worst:.1f} worst",
        f"memory: automaton {_size(found.automaton_bytes)}, rows {_size(found.row_bytes)}",
    )
    return [*_title("size and cost", paint), *(line for fact in facts for line in _wrapped(fact, width))]


def _wrapped(text: str, width: int, head: str = "") -> list[str]:
    """A sentence below a title; `head` stands before it, and above nothing."""
    indent = " " * (2 + len(head))
    return textwrap.wrap(text, width - 1, initial_indent=f"  {head}", subsequent_indent=indent + "  " * (not head))


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1024:.1f} KiB" if num_bytes < 1 << 20 else f"{num_bytes / (1 << 20):.1f} MiB"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


# -------------------------------------------------------------------- data


def as_data(found: Explanation) -> dict[str, Any]:
    """The same as JSON data; labels as in pictures, words of edges left out."""
    best = found.shortest
    data: dict[str, Any] = {
        "kind": found.kind,
        "extra_keys": found.extra_keys,
        "source": found.source,
        "is_recursive": found.is_recursive,
        "num_states": found.num_states,
        "num_rules": found.num_rules,
        "num_positions": found.num_positions,
        "num_texts": found.num_texts,
        "automaton": _graphs(found.graphs),
        "compressed": _graphs(found.compressed),
        "enforced": [dataclasses.asdict(demand) for demand in found.demands],
        "annotations": [dataclasses.asdict(note) for note in found.annotations],
        "forced_runs": [run.decode(errors="replace") for run in found.runs],
        "shortest": None
        if best.text is None
        else {
            "text": best.text.decode(errors="replace"),
            "num_bytes": len(best.text),
            "num_forced_bytes": best.num_forced_bytes,
            "num_tokens": best.num_tokens,
            "num_drafted_tokens": best.num_drafted_tokens,
        },
        "min_tokens": found.min_tokens,
        "milliseconds": {**dataclasses.asdict(found.timings), "total": found.timings.total},
        "mask_microseconds": dataclasses.asdict(found.masks),
        "bytes": {"automaton": found.automaton_bytes, "rows": found.row_bytes},
        "samples": list(found.samples),
    }
    if found.steps is not None:
        steps = found.steps
        data["text"] = {**dataclasses.asdict(steps), "line": steps.line, "column": steps.column}
    return data


def _graphs(graphs: Iterable[Graph]) -> list[dict[str, Any]]:
    return [
        {
            "title": graph.title,
            "num_nodes": graph.num_nodes,
            "start": graph.start,
            "accepting": sorted(graph.accepting),
            "is_whole": graph.is_whole,
            "edges": [_edge(edge) for edge in graph.edges],
        }
        for graph in graphs
    ]


def _edge(edge: Edge) -> dict[str, Any]:
    return {"source": edge.source, "target": edge.target, "label": label(edge), "kind": edge.kind.value}
