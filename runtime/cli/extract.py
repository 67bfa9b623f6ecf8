"""`phloem extract`: documents in, one JSON value per document out."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import ConfigError, RequestError
from .engine_options import Settings, load_engine, with_engine_options
from .options import ModelOption, option, read_text
from .sampling import MaxTokens, Seed, Temperature

if TYPE_CHECKING:
    from ..async_engine import AsyncEngine, Stream
    from ..constraint_spec import ConstraintSpec
    from ..request import SamplingParams, Usage

SYSTEM = "You read documents. Answer briefly, or give JSON."
WINDOW = 64  # documents in the engine at a time


@with_engine_options
def extract(
    settings: Settings,
    files: Annotated[list[str], typer.Argument(help='Text files, one document each; "-" is stdin.')],
    schema: Annotated[str, option("--schema", help="File with the JSON Schema of the answer.", env="SCHEMA")],
    model: ModelOption = "nano",
    instruction: Annotated[
        str | None,
        option("--instruction", "-i", help="What to ask; default: from the schema's title.", env="INSTRUCTION"),
    ] = None,
    system: Annotated[str, option("--system", "-s", help="The system prompt.", env="SYSTEM")] = SYSTEM,
    lines: Annotated[bool, option("--lines", help="Every line of a file is a document.", env="LINES")] = False,
    names: Annotated[
        bool, option("--names", help='Print {"file": …, "value": …} instead of the bare value.', env="NAMES")
    ] = False,
    stats: Annotated[bool, option("--stats", help="Print token counts to stderr.", env="STATS")] = False,
    max_tokens: MaxTokens = 512,
    temperature: Temperature = 0.0,
    seed: Seed = None,
) -> None:
    """Extracts JSON that is valid under the schema from each document, as JSON Lines, in the order of the files.

    A document that fails is reported on stderr and leaves `null` in its place; the exit code is then 1.
    """
    from ..constraint_spec import json_schema
    from ..request import SamplingParams

    schema_text = read_text(schema, "--schema")
    constraint = json_schema(schema_text, extra_keys="never")
    documents = _documents(files, lines)
    asked = instruction or f"Extract the {_title(schema_text)} as JSON."
    sampling = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed)
    engine = load_engine(model, settings)
    engine.intake.compile(constraint)
    from ..async_engine import AsyncEngine

    served = AsyncEngine(engine)
    try:
        job = Extraction(served, constraint, sampling, system, asked, names)
        job.run(documents)
    finally:
        served.stop()
    if stats:
        typer.echo(job.summary(), err=True)
    if job.num_failed:
        raise typer.Exit(1)


def _title(schema_text: str) -> str:
    schema = json.loads(schema_text)
    title = schema.get("title") if isinstance(schema, dict) else None
    return title.lower() if isinstance(title, str) and title else "data"


def _documents(files: list[str], lines: bool) -> list[tuple[str, str]]:
    """(name, text) of every document; all files are read before the model is loaded."""
    documents = []
    for file in files:
        text = read_text(file, "file")
        parts = text.splitlines() if lines else [text]
        documents += [(f"{file}:{i + 1}" if lines else file, part) for i, part in enumerate(parts) if part.strip()]
    if not documents:
        raise ConfigError("the files hold no document; every file is empty")
    return documents


class Extraction:
    """Sends documents, a bounded number at a time, and prints their values in order."""

    def __init__(
        self,
        served: AsyncEngine,
        constraint: ConstraintSpec,
        sampling: SamplingParams,
        system: str,
        instruction: str,
        names: bool,
    ) -> None:
        self._served = served
        self._constraint = constraint
        self._sampling = sampling
        self._system = system
        self._instruction = instruction
        self._names = names
        self._usages: list[Usage] = []
        self._started_at = time.perf_counter()
        self.num_failed = 0

    def run(self, documents: list[tuple[str, str]]) -> None:
        pending: deque[tuple[str, Stream | RequestError]] = deque()
        for name, text in documents:
            if len(pending) == WINDOW:
                self._print(*pending.popleft())
            pending.append((name, self._submit(text)))
        while pending:
            self._print(*pending.popleft())

    def _submit(self, text: str) -> Stream | RequestError:
        messages = [
            {"role": "system", "content": self._system},
            {"role": "user", "content": f"{text.strip()}\n\n{self._instruction}"},
        ]
        try:
            prompt = self._served.engine.tokenizer.apply_chat_template(messages)
            return self._served.submit(prompt, self._sampling, self._constraint)
        except RequestError as error:
            return error

    def _print(self, name: str, stream: Stream | RequestError) -> None:
        value: Any = None
        try:
            if isinstance(stream, RequestError):
                raise stream
            completion = stream.result()
            self._usages.append(completion.usage)
            value = json.loads(completion.text)
        except (RequestError, ValueError) as error:
            self.num_failed += 1
            typer.echo(f"error: {name}: {error}", err=True)
        shown = {"file": name, "value": value} if self._names else value
        sys.stdout.write(json.dumps(shown, ensure_ascii=False) + "\n")
        sys.stdout.flush()

    def summary(self) -> str:
        """Documents and tokens, and where the tokens came from."""
        seconds = time.perf_counter() - self._started_at
        prompt = sum(usage.prompt_tokens for usage in self._usages)
        cached = sum(usage.cached_tokens for usage in self._usages)
        output = sum(usage.completion_tokens for usage in self._usages)
        jumped = sum(usage.jumped_tokens for usage in self._usages)
        return (
            f"{len(self._usages)} documents in {seconds:.2f} s: {prompt} prompt tokens ({cached} cached),"
            f" {output} output tokens ({jumped} jumped), {output / seconds:.0f} tokens/s"
        )
