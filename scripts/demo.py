"""What phloem does, in a minute and on any machine: the body of `make demo`.

    python scripts/demo.py

A chat of several users over one system prompt, JSON from documents, both streaming from one batch, on the bundled
model; then the same work four times, with and without prefix cache and jump-forward, as a table.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

import torch
from nano_text import SYSTEM_PROMPT, Document, documents
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import phloem as ph

SHOP = (
    "You answer for the shop Velmora. The shop is in Tarvin. We open at 8 and close at 19. Dora Kelling runs the shop."
    " The lamp costs 45 euros. The chair costs 120 euros. The kettle costs 38 euros."
)
QUESTIONS = (
    "What does the lamp cost?",
    "When do you open?",
    "Who runs the shop?",
    "How much is the kettle?",
    "Where is the shop?",
    "What is the price of the chair?",
)
USERS = ("Ann", "Ben", "Cem", "Dee", "Eli", "Fay")
SHOWN_KINDS = ("person", "ticket", "event", "booking")
NUM_CHATS = 48
NUM_DOCUMENTS = 48
NUM_REPEATS = 3
WIDTH = 80
GREEDY = ph.SamplingParams(max_tokens=150, temperature=0.0)
MODES: tuple[tuple[str, bool, str], ...] = (
    ("cache and jump", True, "verified"),
    ("without cache", False, "verified"),
    ("without jump", True, "off"),
    ("with neither", False, "off"),
)


@dataclass
class Job:
    """One request and what has come back so far."""

    messages: Sequence[dict[str, str]]
    constraint: ph.ConstraintSpec | None = None
    answer: Text = field(default_factory=Text)
    usage: ph.Usage = field(default_factory=ph.Usage)

    @property
    def text(self) -> str:
        return self.answer.plain


def chat_job(question: str) -> Job:
    """A user of the shop."""
    return Job([{"role": "system", "content": SHOP}, {"role": "user", "content": question}])


def extraction_job(document: Document) -> Job:
    """A document whose JSON is wanted."""
    request = f"{document.text}\n\n{document.extraction()}"
    messages = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": request}]
    return Job(messages, ph.json_schema(document.kind.schema))


def serve(engine: ph.Engine, jobs: Sequence[Job]) -> Iterator[None]:
    """Runs all jobs in one batch; yields after every step."""
    running = {}
    for job in jobs:
        prompt = engine.tokenizer.apply_chat_template(job.messages)
        running[engine.add(prompt, GREEDY, job.constraint)] = job
    while engine.has_work:
        for delta in engine.step():
            job = running[delta.request_id]
            # Of the tokens of a step the accepted draft comes first; the last one was sampled.
            for place, token_id in enumerate(delta.token_ids, 1):
                style = "bold" if place == len(delta.token_ids) else "green"
                job.answer.append(engine.tokenizer.token_bytes(token_id).decode(errors="replace"), style)
            job.usage = delta.usage
        yield


def stream(console: Console, engine: ph.Engine, jobs: Sequence[Job], show: Callable[[], RenderableType]) -> None:
    """Serves the jobs and shows how the answers grow; without a terminal, the end only."""
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        for _ in serve(engine, jobs):
            if console.is_terminal:
                live.update(show(), refresh=True)
        live.update(show(), refresh=True)


# -- the two scenes ------------------------------------------------------------------------------------------------


def chat(console: Console, engine: ph.Engine) -> None:
    """Six users ask at the same time."""
    console.rule("A chat: six users, one system prompt")
    console.print(Padding(Text(SHOP, "italic"), (0, 2)))
    jobs = [chat_job(question) for question in QUESTIONS]

    def show() -> RenderableType:
        table = Table("", "asks", "is told", "cached", box=None, padding=(0, 1), width=WIDTH)
        for user, question, job in zip(USERS, QUESTIONS, jobs, strict=True):
            cached = f"{job.usage.cached_tokens}/{job.usage.prompt_tokens}" if job.usage.prompt_tokens else ""
            table.add_row(user, question, job.answer, Text(cached, "cyan"))
        return table

    stream(console, engine, jobs, show)
    console.print("  [cyan]cached[/]: prompt tokens that were not computed, because somebody had asked before.\n")


def extract(console: Console, engine: ph.Engine) -> None:
    """Documents of four kinds become JSON."""
    console.rule("JSON from documents, always valid under the schema")
    found = list(documents(seed=12, count=len(SHOWN_KINDS), kinds=SHOWN_KINDS))
    jobs = [extraction_job(document) for document in found]

    def show() -> RenderableType:
        lines: list[RenderableType] = []
        for document, job in zip(found, jobs, strict=True):
            lines.append(Padding(Text(document.text.replace("\n", " / ")), (0, 2)))
            lines.append(Padding(Text.assemble(("→ ", "dim"), job.answer), (0, 2, 1, 4)))
        return Group(*lines)

    stream(console, engine, jobs, show)
    right = sum(job.text == document.json for document, job in zip(found, jobs, strict=True))
    jumped = sum(job.usage.jumped_tokens for job in jobs)
    total = sum(job.usage.completion_tokens for job in jobs)
    console.print(
        f"  {right} of {len(jobs)} exactly right. [green]Green[/]: {jumped} of {total} tokens were forced by the"
        " schema;\n  jump-forward drafted them and one step verified each run of them.\n"
    )


# -- the table -----------------------------------------------------------------------------------------------------


@dataclass
class Measurement:
    """One mode's work: counts of one repetition, the median time, and every answer."""

    usages: list[ph.Usage]
    seconds: float
    answers: list[str]

    def total(self, name: str) -> int:
        return sum(getattr(usage, name) for usage in self.usages)


def workload() -> list[list[Job]]:
    """Two rounds: chats, then documents."""
    rng = Random(5)
    chats = [chat_job(rng.choice(QUESTIONS)) for _ in range(NUM_CHATS)]
    return [chats, [extraction_job(document) for document in documents(seed=77, count=NUM_DOCUMENTS)]]


def measure(prefix_cache: bool, jump: str) -> Measurement:
    """The workload on a fresh engine, after one repetition that compiles constraints and kernels."""
    seconds = []
    with ph.Engine(prefix_cache=prefix_cache, jump=jump) as engine:
        for _ in range(1 + NUM_REPEATS):
            engine.flush_cache()
            rounds = workload()
            begin = time.perf_counter()
            for jobs in rounds:
                for _ in serve(engine, jobs):
                    pass
            seconds.append(time.perf_counter() - begin)
    jobs = [job for jobs in rounds for job in jobs]
    return Measurement([job.usage for job in jobs], statistics.median(seconds[1:]), [job.text for job in jobs])


def compare(console: Console) -> None:
    """The same work in four ways."""
    console.rule(f"The same work four times: {NUM_CHATS} chats, {NUM_DOCUMENTS} documents")
    with console.status("measuring …"):
        measured = {name: measure(prefix_cache, jump) for name, prefix_cache, jump in MODES}
    table = Table("", box=None, padding=(0, 1), width=WIDTH)
    for title in ("prompt tokens", "from the cache", "sampled", "jumped", "tokens per second"):
        table.add_column(title, justify="right")
    for name, result in measured.items():
        generated = result.total("completion_tokens")
        table.add_row(
            name,
            f"{result.total('prompt_tokens'):,}",
            f"{result.total('cached_tokens'):,}",
            f"{generated - result.total('jumped_tokens'):,}",
            f"{result.total('jumped_tokens'):,}",
            f"{generated / result.seconds:,.0f}",
        )
    console.print(table)
    first, *others = (result.answers for result in measured.values())
    same = sum(all(answer == other[index] for other in others) for index, answer in enumerate(first))
    valid = sum(_is_json(answer) for answer in first[NUM_CHATS:])
    console.print(
        f"\n  {same} of {len(first)} answers are the same in all four ways; {valid} of {NUM_DOCUMENTS} extractions are"
        " valid JSON.\n"
    )


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def main() -> None:
    console = Console(width=WIDTH, highlight=False)
    begin = time.perf_counter()
    with ph.Engine() as engine:
        config, model = engine.config, engine.model_config
        device = "GPU" if torch.cuda.is_available() else "CPU"
        console.print(
            f"\n[bold]phloem {ph.__version__}[/]  {config.model}: {model.num_layers} layers, vocabulary of"
            f" {model.vocab_size:,}, on the {device}; KV blocks of {config.block_size} tokens\n"
        )
        list(serve(engine, [chat_job("Hello!")]))  # loads what is loaded on first use; the cache keeps the prompt
        chat(console, engine)
        extract(console, engine)
    compare(console)
    console.print(f"  {time.perf_counter() - begin:.0f} seconds in all. What next: README.md, examples/\n")


if __name__ == "__main__":
    main()
