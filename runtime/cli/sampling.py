"""Options of commands that generate: how to sample, and what the output must look like."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from ...errors import ConfigError, ConstraintError
from .options import option, read_text

if TYPE_CHECKING:
    from ..constrain.spec import ConstraintSpec
    from ..request import Usage

SAMPLING = "Sampling"
CONSTRAINT = "Constraint (at most one)"

UseAdapter = Annotated[
    str | None, option("--use-adapter", help="Answer through this --adapter; default: none.", panel=SAMPLING)
]
MaxTokens = Annotated[int, option("--max-tokens", "-n", help="Most tokens to generate.", panel=SAMPLING)]
Temperature = Annotated[float, option("--temperature", "-t", help="0 takes the most likely token.", panel=SAMPLING)]
TopP = Annotated[float, option("--top-p", help="Nucleus sampling.", panel=SAMPLING)]
TopK = Annotated[int, option("--top-k", help="Keep the k likeliest tokens; 0: all.", panel=SAMPLING)]
Seed = Annotated[int | None, option("--seed", help="Makes a sample reproducible.", panel=SAMPLING)]
Stop = Annotated[
    list[str] | None, option("--stop", help="Text that ends the output (may be repeated).", panel=SAMPLING)
]
Regex = Annotated[str | None, option("--regex", help="The output matches this regular expression.", panel=CONSTRAINT)]
Choice = Annotated[
    list[str] | None, option("--choice", help="The output is one of these (repeat the option).", panel=CONSTRAINT)
]
SchemaFile = Annotated[
    str | None, option("--schema", help="File with a JSON Schema: the output is valid JSON.", panel=CONSTRAINT)
]
JsonObject = Annotated[bool, option("--json", help="The output is a JSON object.", panel=CONSTRAINT)]
GrammarFile = Annotated[str | None, option("--grammar", help="File with an EBNF or Lark grammar.", panel=CONSTRAINT)]


def constraint_of(
    regex: str | None, choice: list[str] | None, schema: str | None, json_object: bool, grammar: str | None
) -> ConstraintSpec | None:
    """The one constraint that the options ask for."""
    from ..constrain import spec as constraint_spec

    given = {"--regex": regex, "--choice": choice, "--schema": schema, "--json": json_object, "--grammar": grammar}
    names = [name for name, value in given.items() if value]
    if len(names) > 1:
        raise ConfigError(f"{' and '.join(names)} exclude each other; give one of them")
    if regex:
        return constraint_spec.regex(regex)
    if choice:
        return constraint_spec.choice(choice)
    if schema:
        return from_file(constraint_spec.json_schema, schema, "--schema")
    if json_object:
        return constraint_spec.json_object()
    return from_file(constraint_spec.grammar, grammar, "--grammar") if grammar else None


def from_file(make: Callable[[str], ConstraintSpec], file: str, option: str) -> ConstraintSpec:
    """A constraint from a file's text, checked before a model is loaded. Raises `ConfigError` that names the file."""
    from ..constrain.compiling import check_spec

    try:
        spec = make(read_text(file, option))
        check_spec(spec)
    except ConstraintError as error:
        raise ConfigError(f"{option} {file}: {error}") from error
    return spec


def usage_line(usage: Usage, seconds: float) -> str:
    """What an answer cost, in one line."""
    rate = usage.completion_tokens / seconds if seconds > 0 else 0.0
    jumped = f" ({usage.jumped_tokens} jumped)" if usage.jumped_tokens else ""
    return (
        f"prompt {usage.prompt_tokens} tokens ({usage.cached_tokens} cached), answer {usage.completion_tokens}{jumped}"
        f" in {seconds:.2f} s, {rate:.0f} tokens/s"
    )
