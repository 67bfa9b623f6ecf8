"""A picture of the last minute of a server, in as many columns and lines as there are. Knows no server."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.text import Text

from ..terminal import visible
from .history import History
from .sample import BETWEEN_TOKENS, FIRST_TOKEN, About, Branch, Sample

LABEL = 16  # columns before a row's values
AGE = 11  # columns of the age of percentiles
MAX_COLUMNS = 120
SPARKS = " ▁▂▃▄▅▆▇█"
# parts of the pool, as they fill its bar: name, mark, style
PARTS = (
    ("written", "█", "magenta"),
    ("leased", "▓", "blue"),
    ("pinned", "▚", "yellow"),
    ("cached", "▒", "green"),
    ("free", "·", "dim"),
)


def frame(history: History, about: About, url: str, columns: int, lines: int, foot: Text) -> Text:
    """The whole picture; what does not fit into `lines` is left out of its lower half. foot: its last line."""
    width = max(40, min(columns, MAX_COLUMNS))
    top = [_title(about.title, url, width), *_parts(about, history.last, width), Text()]
    top += [*_pool(history.last, width), *_queue(history.last, about.num_seats, width)]
    top += [Text(), *_rates(history, width), Text(), *_latencies(history, width), Text()]
    rest = max(0, lines - len(top) - 2)
    shown = [*top, *_details(history.last, rest, width)][: max(1, lines - 1)]
    for line in (*shown, foot):
        line.no_wrap = True
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join([*shown, foot])


def _title(title: str, url: str, width: int) -> Text:
    left = Text.assemble((" phloem top ", "reverse bold"), f" {visible(title)}")
    right = Text(visible(url), "dim")
    return left + Text(" " * max(2, width - left.cell_len - right.cell_len)) + right


def _parts(about: About, last: Sample, width: int) -> Iterator[Text]:
    """What computes besides one model in one process."""
    ranks = [f"{about.num_ranks:,} ranks"] if about.num_ranks > 1 else []
    rests = " rests: no gain" if last.draft_model_rests else ""
    draft = [f"draft model {visible(about.draft_model)}{rests}"] if about.draft_model else []
    if ranks or draft:
        yield from _rows("computed by", [Text(text) for text in (*ranks, *draft)], width)


def _row(label: str, *values: str | tuple[str, str] | Text) -> Text:
    return Text.assemble((f"{label:<{LABEL}}", "bold"), *values)


def pool_parts(sample: Sample) -> dict[str, int]:
    """Blocks by what they are for; they add up to the pool."""
    numbers = {name: int(value) for name, value in sample.numbers.items()}
    cached, evictable = numbers["num_cached_blocks"], numbers["num_evictable_blocks"]
    protected = max(0, cached - evictable)
    pinned = min(numbers["num_pinned_blocks"], protected)
    free = numbers["num_free_blocks"]
    written = max(0, numbers["num_blocks"] - free - cached)
    return {"written": written, "leased": protected - pinned, "pinned": pinned, "cached": evictable, "free": free}


def _pool(sample: Sample, width: int) -> list[Text]:
    parts = pool_parts(sample)
    bar, total, done = Text(), max(1, sum(parts.values())), 0
    columns = width - LABEL
    for name, mark, style in PARTS:
        end = round((done + parts[name]) / total * columns)
        begin = round(done / total * columns)
        if parts[name] and end == begin and name != "free" and begin < columns:
            end += 1  # what is there is seen
        bar.append(mark * max(0, end - len(bar)), style)
        done += parts[name]
    legend = [Text.assemble((mark, style), f" {name} {parts[name]:,}") for name, mark, style in PARTS]
    size = f"{int(sample.numbers['num_blocks']):,} blocks of {int(sample.numbers['block_size'])} tokens"
    return [_row("pool", bar[:columns]), *(_row("", line) for line in _filled([*legend, Text(size, "dim")], columns))]


def _rows(label: str, texts: list[Text], width: int) -> Iterator[Text]:
    """Texts side by side, in as many rows as they take; the first has the label."""
    return (_row("" if number else label, line) for number, line in enumerate(_filled(texts, width - LABEL)))


def _filled(texts: list[Text], columns: int) -> Iterator[Text]:
    """Lines of texts side by side, as many in each as it has room for."""
    line = Text()
    for text in texts:
        if line.cell_len and line.cell_len + 2 + text.cell_len > columns:
            yield line
            line = Text()
        line = Text.assemble(line, "  ", text) if line.cell_len else text
    yield line


def _queue(sample: Sample, num_seats: int, width: int) -> list[Text]:
    running, waiting = int(sample.numbers["num_running"]), int(sample.numbers["num_waiting"])
    columns = max(10, (width - LABEL) // 3)
    filled = min(columns, -(-running * columns // max(1, num_seats)))
    bar = Text.assemble(("█" * filled, "cyan"), ("·" * (columns - filled), "dim"))
    tokens = int(sample.numbers.get("num_waiting_tokens", 0))
    queue = f"  {waiting:,} waiting ({tokens:,} tokens)" if waiting else "  none waiting"
    return [_row("seats", bar, f"  {running:,} of {num_seats:,}", (queue, "yellow" if waiting else "dim"))]


def _rates(history: History, width: int) -> Iterator[Text]:
    output, computed = history.rate("completion_tokens"), history.rate("prompt_tokens")
    cached = history.rate("cached_tokens") or 0.0
    sparks = _sparks(list(history.rates("completion_tokens"))[-max(1, width - LABEL - 36) :])
    yield _row("tokens/s", (f"{_number(output):>9}", "bold cyan"), "  output    ", (sparks, "cyan"))
    prompts = None if computed is None else computed - cached
    yield _row("", f"{_number(prompts):>9}  of prompts, besides {_number(cached)} cached")
    asked = history.grown("prompt_tokens")
    recent = f"{history.grown('cached_tokens') / asked:.1%}" if asked > 0 else "–"
    ever, hits = history.last.numbers["prompt_tokens"], history.last.numbers["cached_tokens"]
    start = f"{hits / ever:.1%}" if ever else "–"
    yield _row("hit rate", f"{recent:>9}", f"  last {history.seconds:.0f} s  ", f"{start} since the start")
    sources = [name.removeprefix("drafted_by.") for name in history.last.numbers if name.startswith("drafted_by.")]
    drafts = [text for source in sources if (text := _drafts(history, source))]
    if drafts:
        yield from _rows("drafts right", [Text(text) for text in drafts], width)
    evicted, preempted = history.rate("num_evicted_blocks"), history.grown("num_preemptions")
    failed = int(history.last.numbers.get("num_failed", 0))
    yield _row("evictions", f"{_number(evicted):>9}  blocks/s    {preempted:.0f} preemptions")
    if failed:
        yield _row("failed", (f"{failed:>9,}  outputs", "bold red"))


def _drafts(history: History, source: str) -> str:
    """How many of the tokens that it has drafted of late were right, or "" if it has drafted none."""
    drafted, right = (history.grown(f"{name}_by.{source}") for name in ("drafted", "jumped"))
    return f"{source} {right / drafted:.0%} of {drafted:,.0f}" if drafted > 0 else ""


def _latencies(history: History, width: int) -> Iterator[Text]:
    cell = max(6, min(11, (width - LABEL - AGE) // 4))
    head = "".join(f"{name:>{cell}}" for name in ("p50", "p95", "p99", "n"))
    yield _row("latency", (f"{head}{'since':>{AGE}}", "dim"))
    for label, name in (("  first token", FIRST_TOKEN), ("  between tokens", BETWEEN_TOKENS)):
        found, is_recent = history.latency(name)
        if not found.num_observed:
            yield _row(label, (f"{'–':>{cell}}" * 3, "dim"))
            continue
        values = "".join(f"{_seconds(found.percentile(share)):>{cell}}" for share in (0.5, 0.95, 0.99))
        since = f"{history.seconds:.0f} s ago" if is_recent else "the start"
        yield _row(label, values, f"{_compact(found.num_observed):>{cell}}", (f"{since:>{AGE}}", "dim"))


def _details(sample: Sample, num_lines: int, width: int) -> list[Text]:
    """Branches of the tree and misses, in `num_lines` lines."""
    misses = [Text(f"  {visible(miss)}") for miss in sample.misses or ()]
    misses = misses[: min(max(2, num_lines // 3), num_lines - 3)] if num_lines > 3 else []
    room = num_lines - (len(misses) + 1 if misses else 0)
    found = []
    if sample.branches is None:
        found = [_row("tree", ("not shown (servers with --enable-admin show it)", "dim"))]
    elif room > 1:
        found = [_row("tree", (f"{'blocks':>9}   with all below, the largest", "dim"))]
        for branch in largest(sample.branches, room - 1):
            text = (visible(branch.text), "green")
            age, *holds = visible(branch.note).split(" · ")
            note = ("  " + " · ".join([f"used {age} ago", *holds]), "dim")
            margin = "  " * (branch.depth - 1) + "└ " if branch.depth else ""
            found.append(_row("", f"{branch.num_blocks:>9,}   {margin}", text, note))
    if misses:
        found += [_row("last misses"), *misses]
    return found[:num_lines]


def largest(branches: Sequence[Branch], most: int) -> list[Branch]:
    """The largest, in the order of the tree. Nothing is larger than what it is below, so no parent is missing."""
    order = sorted(range(len(branches)), key=lambda index: (-branches[index].num_blocks, index))
    return [branches[index] for index in sorted(order[: max(0, most)])]


def _sparks(values: list[float]) -> str:
    most = max(values, default=0.0) or 1.0
    return "".join(SPARKS[math.ceil(8 * value / most)] for value in values)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _compact(number: int) -> str:
    return f"{number:,}" if number < 1_000_000 else f"{number / 1_000_000:,.1f}M"


def _seconds(value: float) -> str:
    if value == float("inf"):
        return "> 1 min"
    return f"{value * 1000:.1f} ms" if value < 0.1 else f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
