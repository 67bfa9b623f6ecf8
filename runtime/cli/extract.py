"""`phloem extract`: documents in, one JSON value per document out."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import ConfigError, PhloemError, RequestError
from .busy import Report, busy
from .engine_options import Settings, load_engine, with_engine_options
from .options import ModelOption, option, read_text
from .sampling import MaxTokens, Seed, Temperature, from_file
from .terminal import takes_escapes

if TYPE_CHECKING:
    from ..constrain.spec import ConstraintSpec
    from ..engine.engine import Engine
    from ..engine.stream import Stream
    from ..request import SamplingParams, Usage

SYSTEM = "You read documents. Answer briefly, or give JSON."
WINDOW = 64  # documents in the engine at a time


@with_engine_options
def extract(
    settings: Settings,
    files: Annotated[list[str], typer.Argument(help='Text files, one document each; "-" is stdin.')],
    schema: Annotated[str, option("--schema", help="File with the JSON Schema of the answer.")],
    model: ModelOption = "nano",
    instruction: Annotated[
        str | None, option("--instruction", "-i", help="What to ask; default: from the schema's title.")
    ] = None,
    system: Annotated[str, option("--system", "-s", help="The system prompt.")] = SYSTEM,
    lines: Annotated[bool, option("--lines", help="Every line of a file is a document.")] = False,
    names: Annotated[bool, option("--names", help='Print {"file": …, "value": …} instead of the bare value.')] = False,
    stats: Annotated[bool, option("--stats", help="Print token counts to stderr.")] = False,
    max_tokens: MaxTokens = 512,
    temperature: Temperature = 0.0,
    seed: Seed = None,
) -> None:
    """Extracts JSON that is valid under the schema from each document, as JSON Lines, in the order of the files.

    A document that fails, or a file that cannot be read, is reported on stderr and leaves `null` in its place; the exit
    code is then 1. If there is nothing that could be read, the exit code is 2.
    """
    from ..constrain.spec import json_schema
    from ..request import SamplingParams

    constraint = from_file(partial(json_schema, extra_keys="never"), schema, "--schema")
    documents = _documents(files, lines)
    asked = instruction or f"Extract the {_title(str(constraint.source))} as JSON."
    sampling = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed)
    engine = load_engine(model, settings)
    with busy("compiling the schema"):
        engine.request_factory.compile(constraint)
    with engine:
        job = Extraction(engine, constraint, sampling, system, asked, names)
        # where results and progress would share a terminal, the results are the progress
        with nullcontext() if takes_escapes(sys.stdout) else busy("extracting") as report:
            job.run(documents, report)
    if stats:
        typer.echo(job.summary(), err=True)
    if job.num_failed:
        raise typer.Exit(1)


def _title(schema_text: str) -> str:
    schema = json.loads(schema_text)
    title = schema.get("title") if isinstance(schema, dict) else None
    return title.lower() if isinstance(title, str) and title else "data"


@dataclass(frozen=True, slots=True)
class Document:
    """A text and where it is from, or why there is none."""

    name: str
    text: str = ""
    fault: ConfigError | None = None


def _documents(files: list[str], lines: bool) -> list[Document]:
    """All documents, in order; files are read before the model is loaded. ConfigError if none of them can be."""
    documents: list[Document] = []
    for file in files:
        name = os.fsencode(file).decode(errors="replace")  # of a name that is no text too
        try:
            text = _read_document(file, name)
        except ConfigError as error:
            documents.append(Document(name, fault=error))
            continue
        if lines:
            parts = enumerate(text.splitlines())
            documents += [Document(f"{name}:{number + 1}", part) for number, part in parts if part.strip()]
        elif text.strip():
            documents.append(Document(name, text))
        else:
            documents.append(Document(name, fault=ConfigError(f"file {name}: it is empty")))
    if all(document.fault is not None for document in documents):
        fault = documents[0].fault if len(documents) == 1 else None
        raise fault or ConfigError("the files hold no document; each is empty or cannot be read")
    return documents


def _read_document(file: str, name: str) -> str:
    """A file's text; "-" is stdin. Of what is no file only a pipe is read, if some process writes to it.

    Raises:
        ConfigError: it cannot be read, or is no UTF-8 text.
    """
    if file == "-":
        return read_text(file, "file")
    if "\0" in file:  # what Python says of it depends on its version
        raise ConfigError(f"file {name}: its name holds a null character")
    try:
        # a pipe without a writer would be waited for without end, and a device has none
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(descriptor).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISFIFO(mode)):
                raise ConfigError(f"file {name}: a device, not a file")
            begin = _beginning(descriptor, name) if stat.S_ISFIFO(mode) else b""
            os.set_blocking(descriptor, True)
            with open(descriptor, "rb", closefd=False) as opened:
                data = begin + opened.read()
        finally:
            os.close(descriptor)
        return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"file {name}: not UTF-8 text (byte {error.start})") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"file {name}: {reason.lower()}") from error


def _beginning(pipe: int, name: str) -> bytes:
    """What has been written to a pipe; ConfigError if nothing has, and no process has it open for writing."""
    try:
        written = os.read(pipe, 1 << 16)
    except BlockingIOError:
        return b""
    if not written:
        raise ConfigError(f"file {name}: a pipe that no process writes to")
    return written


class Extraction:
    """Sends documents, a bounded number at a time, and prints their values in order."""

    def __init__(
        self,
        engine: Engine,
        constraint: ConstraintSpec,
        sampling: SamplingParams,
        system: str,
        instruction: str,
        names: bool,
    ) -> None:
        self._engine = engine
        self._constraint = constraint
        self._sampling = sampling
        self._system = system
        self._instruction = instruction
        self._names = names
        self._usages: list[Usage] = []
        self._started_at = time.perf_counter()
        self.num_failed = 0

    def run(self, documents: list[Document], report: Report | None = None) -> None:
        """report: is told how many documents are done."""
        pending: deque[tuple[str, Stream | PhloemError]] = deque()
        for begun, document in enumerate(documents):
            if len(pending) == WINDOW:
                self._print(*pending.popleft())
            pending.append((document.name, document.fault or self._submit(document.text)))
            if report is not None:
                report(begun + 1 - len(pending), len(documents))
        while pending:
            self._print(*pending.popleft())
            if report is not None:
                report(len(documents) - len(pending), len(documents))

    def _submit(self, text: str) -> Stream | RequestError:
        messages = [
            {"role": "system", "content": self._system},
            {"role": "user", "content": f"{text.strip()}\n\n{self._instruction}"},
        ]
        try:
            prompt = self._engine.tokenizer.apply_chat_template(messages)
            return self._engine.submit(prompt, self._sampling, self._constraint)
        except RequestError as error:
            return error

    def _print(self, name: str, stream: Stream | PhloemError) -> None:
        value: Any = None
        try:
            if isinstance(stream, PhloemError):
                raise stream
            completion = stream.result()
            self._usages.append(completion.usage)
            value = json.loads(completion.text)
        except (RequestError, ConfigError, ValueError) as error:
            self.num_failed += 1
            typer.echo(f"error: {error}" if isinstance(error, ConfigError) else f"error: {name}: {error}", err=True)
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
