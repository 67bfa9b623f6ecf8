"""`phloem bench`: one workload, with and without prefix cache and jump-forward, in this process.

The workload is small and built in: documents to be extracted as JSON under one shared system prompt. Every
configuration starts with an empty cache and answers greedily, so all must say the same.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..engine import gc_tuning
from .busy import busy
from .engine_options import Settings, fetched, with_engine_options
from .options import ModelArgument, option

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..execute.loading import LoadedModel

CONFIGURATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("cache and jump", {"prefix_cache": True, "jump": "verified"}),
    ("cache only", {"prefix_cache": True, "jump": "off", "lookup_drafts": False}),
    ("jump only", {"prefix_cache": False, "jump": "verified"}),
    ("neither", {"prefix_cache": False, "jump": "off", "lookup_drafts": False}),
)
NAMES = ("Tarvin Ledmo", "Quila Marst", "Odo Feringa", "Lune Abarro", "Pim Castrel", "Sava Noorden", "Ilko Dray")
CITIES = ("Quolsat", "Hembry", "Vesterlo", "Aldin", "Torvik")
JOBS = ("baker", "teacher", "pilot", "nurse", "engineer", "gardener")
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 99999},
        "job": {"type": "string", "minLength": 1, "maxLength": 40},
        "city": {"type": "string", "minLength": 1, "maxLength": 40},
        "remote": {"type": "boolean"},
    },
    "required": ["name", "age", "job", "city", "remote"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration's sums."""

    name: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    jumped_tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return self.completion_tokens / self.seconds


@with_engine_options
def bench(
    settings: Settings,
    model: ModelArgument = "nano",
    requests: Annotated[int, option("--requests", help="Number of documents.", min=1)] = 32,
    prefix: Annotated[int, option("--prefix", help="Tokens of the shared system prompt (about).", min=0)] = 500,
    max_tokens: Annotated[int, option("--max-tokens", help="Longest answer.", min=40)] = 128,
    as_json: Annotated[bool, option("--output-json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measures extraction under a shared system prompt; --jump, --lookup-drafts and --prefix-cache are varied."""
    from ..config import EngineConfig
    from ..engine.engine import Engine
    from ..execute.loading import load

    rows: list[Row] = []
    texts: list[list[str]] = []
    source = fetched(model)
    with busy(f"loading {model}") as report:
        loaded = load(EngineConfig(model=source, **settings), report)
    gc_tuning.release()
    for name, changed in CONFIGURATIONS:
        config = EngineConfig(model=source, **{**settings, **changed})
        with busy(name), Engine.from_loaded(config, loaded) as engine:
            row, answers = _measure(engine, name, _prompts(loaded, requests, prefix), max_tokens)
            rows.append(row)
            texts.append(answers)
    if as_json:
        typer.echo(json.dumps([_fields(row) for row in rows], indent=2))
    else:
        typer.echo(_table(rows))
    same = all(answers == texts[0] for answers in texts)
    typer.echo(f"all configurations gave the same {requests} answers: {'yes' if same else 'NO'}", err=True)


def _prompts(loaded: LoadedModel, count: int, prefix_len: int) -> list[list[int]]:
    tokenizer = loaded.tokenizer
    system = "You read documents. Answer briefly, or give JSON."
    for index in range(prefix_len):
        if len(tokenizer.encode(system)) >= prefix_len:
            break
        system += f"\n\n{_document(index + 1000)}"
    return [
        tokenizer.apply_chat_template(
            [
                {"role": "system", "content": system},
                {"role": "user", "content": f"{_document(index)}\n\nExtract the person as JSON."},
            ]
        )
        for index in range(count)
    ]


def _document(index: int) -> str:
    name, city, job = NAMES[index % 7], CITIES[index % 5], JOBS[index % 6]
    place = "from home" if index % 2 else "at the office"
    return f"{name} is {18 + index % 60} years old and lives in {city}. {name.split()[0]} is a {job} and works {place}."


def _measure(engine: Engine, name: str, prompts: list[list[int]], max_tokens: int) -> tuple[Row, list[str]]:
    from ..constrain.spec import json_schema
    from ..request import SamplingParams

    sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0)
    constraint = json_schema(SCHEMA)
    engine.generate(prompts[0], sampling, constraint)  # compiles, warms up
    engine.flush_cache()
    started_at = time.perf_counter()
    completions = engine.generate(prompts, sampling, constraint)
    seconds = time.perf_counter() - started_at
    counted = ("prompt_tokens", "cached_tokens", "completion_tokens", "jumped_tokens")
    sums = {field: sum(getattr(completion.usage, field) for completion in completions) for field in counted}
    row = Row(name, seconds=seconds, **sums)
    return row, [completion.text for completion in completions]


def _fields(row: Row) -> dict[str, Any]:
    rounded = {"seconds": round(row.seconds, 4), "tokens_per_second": round(row.tokens_per_second, 1)}
    return asdict(row) | rounded


def _table(rows: list[Row]) -> str:
    """One line per configuration; speed-up against the last."""
    titles = ("", "prompt", "cached", "sampled", "jumped", "seconds", "tokens/s", "speed-up")
    lines = [
        (
            row.name,
            f"{row.prompt_tokens:,}",
            f"{row.cached_tokens:,}",
            f"{row.completion_tokens - row.jumped_tokens:,}",
            f"{row.jumped_tokens:,}",
            f"{row.seconds:.2f}",
            f"{row.tokens_per_second:,.0f}",
            f"{row.tokens_per_second / rows[-1].tokens_per_second:.2f}×",
        )
        for row in rows
    ]
    return "\n".join(f"{cells[0]:<14}" + "".join(f"{cell:>9}" for cell in cells[1:]) for cells in (titles, *lines))
