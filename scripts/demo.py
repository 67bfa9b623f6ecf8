"""What phloem does, in seconds and on any machine: the body of `make demo`.

    python scripts/demo.py                                           with the bundled model
    MODEL=HuggingFaceTB/SmolLM2-135M-Instruct python scripts/demo.py   with another: a folder, a GGUF file or a hub id

JSON from documents and a chat of several users over one system prompt, streaming from one batch each; then the same
work four times, with and without prefix cache and jump-forward, as a table. A screen and a half.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
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
from phloem.runtime.engine.engine_core import EngineCore
from phloem.runtime.execute.loading import LoadedModel, load

SHOP = (
    "You answer for the shop Rosmund. The shop is in Nevbel. We open at 8 and close at 19. Nina Linsen runs the shop."
    " The lamp costs 45 euros. The chair costs 120 euros. The kettle costs 38 euros."
)
QUESTIONS = (
    "What does the lamp cost?",
    "When do you open?",
    "Who runs the shop?",
    "How much is the kettle?",
    "Where is the shop?",
)
USERS = ("Ann", "Ben", "Cem", "Dee", "Eli")
SHOWN_KINDS = ("person", "ticket")
NUM_CHATS = 24
NUM_DOCUMENTS = 24
NUM_OF_OTHERS = 4  # chats, and documents, of the table with another model, which is slower than the bundled one
NUM_AT_A_TIME = 8
NUM_REPEATS = 2
WIDTH = 80
JSON_WIDTH = WIDTH - 2
GREEDY = ph.SamplingParams(max_tokens=150, temperature=0.0)
MODES: tuple[tuple[str, bool, str], ...] = (
    ("cache and jump", True, "verified"),
    ("without cache", False, "verified"),
    ("without jump", True, "off"),
    ("with neither", False, "off"),
)

NEXT = (
    (".venv/bin/phloem chat", "talk to the model"),
    (".venv/bin/phloem serve", "API and page, port 8000"),
    (r".venv/bin/phloem inspect --regex '\d+ (EUR|USD)'", "what a constraint does"),
    ("make demo MODEL=HuggingFaceTB/SmolLM2-135M-Instruct", "(270 MB) a real model"),
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


def serve(engine: EngineCore, jobs: Sequence[Job]) -> Iterator[None]:
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


def stream(console: Console, engine: EngineCore, jobs: Sequence[Job], show: Callable[[], RenderableType]) -> None:
    """Serves the jobs and shows how the answers grow; without a terminal, the end only."""
    if not console.is_terminal:
        list(serve(engine, jobs))
        console.print(show())
        return
    with Live(console=console, auto_refresh=False) as live:
        for _ in serve(engine, jobs):
            live.update(show(), refresh=True)


# -- the two scenes ------------------------------------------------------------------------------------------------


def chat(console: Console, engine: EngineCore) -> None:
    """Several users ask at the same time."""
    console.rule(f"A chat: {len(USERS)} users, one system prompt")
    console.print(Text(SHOP, "italic"))
    jobs = [chat_job(question) for question in QUESTIONS]

    def show() -> RenderableType:
        table = Table("", "asks", "answer", "cached", box=None, padding=(0, 1), width=WIDTH)
        for user, question, job in zip(USERS, QUESTIONS, jobs, strict=True):
            cached = f"{job.usage.cached_tokens}/{job.usage.prompt_tokens}" if job.usage.prompt_tokens else ""
            table.add_row(user, question, job.answer, Text(cached, "cyan"))
        return table

    stream(console, engine, jobs, show)
    console.print("  [cyan]cached[/]: prompt tokens that were computed for another user")


def extract(console: Console, engine: EngineCore) -> None:
    """Documents of four kinds become JSON."""
    console.rule("JSON from documents, always valid under the schema")
    found = list(documents(seed=23, count=len(SHOWN_KINDS), kinds=SHOWN_KINDS))
    jobs = [extraction_job(document) for document in found]

    def show() -> RenderableType:
        lines: list[RenderableType] = []
        for document, job in zip(found, jobs, strict=True):
            lines.append(Text(document.text.replace("\n", " / ")))
            folded = Text("\n").join(job.answer.divide(range(JSON_WIDTH, len(job.answer), JSON_WIDTH)))
            lines.append(Padding(folded, (0, 0, 0, 2)))
        return Group(*lines)

    stream(console, engine, jobs, show)
    right = sum(_is_same_json(job.text, document.json) for document, job in zip(found, jobs, strict=True))
    jumped = sum(job.usage.jumped_tokens for job in jobs)
    total = sum(job.usage.completion_tokens for job in jobs)
    console.print(
        f"  {right} of {len(jobs)} exactly right; {jumped} of {total} tokens were [green]jumped[/], not sampled"
    )


# -- the table -----------------------------------------------------------------------------------------------------


@dataclass
class Measurement:
    """One mode's work: the counts of one repetition, the seconds of each, and every answer."""

    usages: list[ph.Usage] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    def total(self, name: str) -> int:
        """The sum of a counter over all requests."""
        return sum(getattr(usage, name) for usage in self.usages)

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens per second in the best repetition."""
        return self.total("completion_tokens") / min(self.seconds)


def workload(num_chats: int, num_documents: int) -> list[Job]:
    """Chats, then documents."""
    rng = Random(5)
    chats = [chat_job(rng.choice(QUESTIONS)) for _ in range(num_chats)]
    return chats + [extraction_job(document) for document in documents(seed=77, count=num_documents)]


def measure(engine: EngineCore, measurement: Measurement, jobs: Sequence[Job], clock: Callable[[], float]) -> None:
    """One repetition, from an empty cache."""
    engine.flush_cache()
    begin = clock()
    for _ in serve(engine, jobs):
        pass
    measurement.seconds.append(clock() - begin)
    measurement.usages = [job.usage for job in jobs]
    measurement.answers = [job.text for job in jobs]


def compare(console: Console, model: str, loaded: LoadedModel) -> None:
    """The same work in four ways, in turns, so that a busy machine is busy for all of them."""
    is_nano = model == "nano"
    num_chats, num_documents = (NUM_CHATS, NUM_DOCUMENTS) if is_nano else (NUM_OF_OTHERS, NUM_OF_OTHERS)
    num_repeats = NUM_REPEATS if is_nano else 0
    console.rule(f"The same work four times: {num_chats} chats, {num_documents} documents")
    engines = [
        EngineCore(
            ph.EngineConfig(
                model=model,
                prefix_cache=prefix_cache,
                jump=jump,
                lookup_drafts=jump != "off",  # or what is looked up would count as jumped
                max_running_requests=NUM_AT_A_TIME,
                num_blocks=1024,
            ),
            loaded,
        )
        for _, prefix_cache, jump in MODES
    ]
    measured = [Measurement() for _ in MODES]
    on_gpu = torch.cuda.is_available()
    clock = time.perf_counter if on_gpu else time.process_time
    with console.status("measuring …", refresh_per_second=4) as status:
        for repetition in range(1 + num_repeats):
            for (name, _, _), engine, measurement in zip(MODES, engines, measured, strict=True):
                status.update(f"measuring {name}, repetition {repetition + 1} of {1 + num_repeats}")
                measure(engine, measurement, workload(num_chats, num_documents), clock)
    for engine in engines:
        engine.close()
    console.print(_table(measured))
    first, *others = (measurement.answers for measurement in measured)
    same = sum(all(answer == other[index] for other in others) for index, answer in enumerate(first))
    valid = sum(_parsed(answer) is not None for answer in first[num_chats:])
    console.print(
        f"  {same} of {len(first)} answers are the same in all four ways; {valid} of {num_documents} are valid JSON."
    )
    timed = "by the wall clock" if on_gpu else "on one core, in CPU time"
    console.print(f"  {NUM_AT_A_TIME} requests at a time, {timed}; the best of {1 + num_repeats}")


def _table(measured: Sequence[Measurement]) -> Table:
    table = Table("", box=None, padding=(0, 1))
    for title in (
        "prompt\ntokens",
        "from the\ncache",
        "jumped\ntokens",
        "sampled\ntokens",
        "tokens per\nsecond",
    ):
        table.add_column(title, justify="right")
    for (name, _, _), measurement in zip(MODES, measured, strict=True):
        table.add_row(
            name,
            f"{measurement.total('prompt_tokens'):,}",
            f"{measurement.total('cached_tokens'):,}",
            f"{measurement.total('jumped_tokens'):,}",
            f"{measurement.total('sampled_tokens'):,}",
            f"{measurement.tokens_per_second:,.0f}",
        )
    return table


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _is_same_json(text: str, expected: str) -> bool:
    return _parsed(text) == json.loads(expected)


def main(model: str = "nano") -> None:
    console = Console(width=WIDTH, highlight=False)
    begin = time.perf_counter()
    # the bundled model is so small that threads would only wait for each other
    config = ph.EngineConfig(model=model, num_threads=1 if model == "nano" else None)
    loaded = load(config)
    with closing(EngineCore(config, loaded)) as engine:
        device = "GPU" if torch.cuda.is_available() else "CPU"
        layers = f"{engine.model_config.num_layers} layers"
        console.print(f"\n[bold]phloem {ph.__version__}[/]  model {model}, {layers}, on the {device}\n")
        extract(console, engine)
        chat(console, engine)
    compare(console, model, loaded)
    console.print(f"  {time.perf_counter() - begin:.0f} seconds in all. What next:")
    for command, effect in NEXT:
        console.print(f"    [bold]{command:<52}[/]{effect}")


if __name__ == "__main__":
    try:
        main(os.environ.get("MODEL") or "nano")
    except ph.PhloemError as error:  # there is no such model, or it cannot be loaded
        sys.exit(f"error: {error}")
