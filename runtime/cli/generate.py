"""`phloem generate`: one prompt, one answer (or n)."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from .engine_options import Settings, load_engine, with_engine_options
from .options import ModelOption, option, read_text
from .sampling import (
    Choice,
    GrammarFile,
    JsonObject,
    MaxTokens,
    Regex,
    SchemaFile,
    Seed,
    Stop,
    Temperature,
    TopK,
    TopP,
    UseAdapter,
    constraint_of,
    usage_line,
)

if TYPE_CHECKING:
    from ..constrain.spec import ConstraintSpec
    from ..engine.engine import Engine
    from ..request import SamplingParams


@with_engine_options
def generate(
    settings: Settings,
    prompt: Annotated[str, typer.Argument(help='The prompt; "-" reads it from stdin.')],
    model: ModelOption = "nano",
    chat: Annotated[bool, option("--chat", "-c", help="Send it as a user's message.")] = False,
    system: Annotated[str | None, option("--system", "-s", help="A system prompt (implies --chat).")] = None,
    num_outputs: Annotated[int, option("--num-outputs", help="How many answers.")] = 1,
    stats: Annotated[bool, option("--stats", help="Print token counts to stderr.")] = False,
    use_adapter: UseAdapter = None,
    max_tokens: MaxTokens = 128,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    seed: Seed = None,
    stop: Stop = None,
    regex: Regex = None,
    choice: Choice = None,
    schema: SchemaFile = None,
    json_object: JsonObject = False,
    grammar: GrammarFile = None,
) -> None:
    """Completes a prompt, or answers it (--chat); several answers are separated by line breaks."""
    constraint = constraint_of(regex, choice, schema, json_object, grammar)
    from ..request import SamplingParams

    sampling = SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        stop=tuple(stop or ()),
        n=num_outputs,
    )
    text = read_text("-", "prompt") if prompt == "-" else prompt
    with load_engine(model, settings) as engine:
        asked: str | list[int] = text
        if chat or system is not None:
            messages = [{"role": "system", "content": system}] if system is not None else []
            asked = engine.tokenizer.apply_chat_template([*messages, {"role": "user", "content": text}])
        answer(engine, asked, sampling, constraint, stats, use_adapter)


def answer(
    engine: Engine,
    prompt: str | list[int],
    sampling: SamplingParams,
    constraint: ConstraintSpec | None,
    stats: bool,
    adapter: str | None = None,
) -> None:
    """Prints the answers: a single one as it comes, several in order when all are done."""
    started_at = time.perf_counter()
    if sampling.n == 1:
        for delta in engine.stream(prompt, sampling, constraint, adapter=adapter):
            sys.stdout.write(delta.text)
            sys.stdout.flush()
            usage = delta.usage
        sys.stdout.write("\n")
        usages = [usage]
    else:
        completions = engine.generate([prompt], sampling, constraint, adapter=adapter)
        for completion in completions:
            typer.echo(completion.text)
        usages = [completion.usage for completion in completions]
    if stats:
        seconds = time.perf_counter() - started_at
        for usage in usages:
            typer.echo(usage_line(usage, seconds), err=True)
