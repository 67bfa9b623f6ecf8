"""What `gen` and `select` ask of the engine, and what becomes of the answers. Knows no state and takes no locks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import ProgramError, RequestError
from ..request import Completion, FinishReason, TokenLogprob, Usage
from .choices import mean_logprob, pick
from .expression import Gen, Select
from .meta_info import count_info, generation_info, parsed_value, selection_info
from .run import DeltaStream, Run
from .transcript import kept_ids
from .variable import Variable

Info = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What is appended to the state, and the variable.

    Attributes:
        token_ids: of `text`.
        usage: of its request, where there was one.
    """

    text: str
    token_ids: Sequence[int]
    variable: Variable
    usage: Usage = field(default_factory=Usage)


def follow(run: Run, stream: DeltaStream, gen: Gen, num_outputs: int, show: Callable[[str, Info], None]) -> Answer:
    """Waits for the end of a request. `show` gets the text of the first output as it comes if the run streams, else
    all at once, and what is known of it so far.

    Raises:
        PhloemError: the request fails, or the run was cancelled.
    """
    try:
        if run.streams:
            for delta in stream:
                if delta.index == 0 and delta.text:
                    show(delta.text, count_info(delta.request_id, delta.usage))
        completions = stream.completions()
    except RequestError:
        run.check()  # if the run was cancelled, that is the reason
        raise
    finally:
        run.release(stream)
    first = completions[0]
    if not run.streams and first.text:
        show(first.text, count_info(first.request_id, first.usage))
    variables = [_variable(run, completion, gen) for completion in completions]
    ended = first.finish_reason is FinishReason.STOP
    return Answer(
        first.text,
        kept_ids(run.tokenizer, first.token_ids, first.text, ended=ended),
        Variable.several(variables) if num_outputs > 1 else variables[0],
        first.usage,
    )


def choose(run: Run, prompt: Sequence[int], continuations: list[list[int]], select: Select) -> Answer:
    """Scores all choices, of which `continuations` are the ids, after the shared prompt."""
    tokenizer = run.tokenizer
    if select.method.needs_unconditional and tokenizer.bos_id < 0:
        raise ProgramError(f"{select.method} needs a model with a BOS token to score choices by themselves")
    conditional = run.score(prompt, continuations)
    unconditional: list[list[TokenLogprob]] = []
    if select.method.needs_unconditional:
        unconditional = run.score([tokenizer.bos_id], continuations)
    winner = pick(select.method, conditional, unconditional)
    means = [mean_logprob(tokens) for tokens in conditional]
    choice = select.choices[winner]
    info = selection_info(tokenizer, len(prompt), means, conditional)
    return Answer(choice, continuations[winner], Variable(choice, choice, info))


def _variable(run: Run, completion: Completion, gen: Gen) -> Variable:
    info = generation_info(run.tokenizer, completion)
    if gen.is_typed:
        if completion.finish_reason is not FinishReason.STOP:
            raise RequestError(
                "max_tokens: the output was cut before it was a whole value; allow more", param="max_tokens"
            )
        return Variable(completion.parsed, completion.parsed, info)
    try:
        return Variable(completion.text, parsed_value(completion, gen.dtype), info)
    except RequestError as error:  # raised when the value is read; the text can be read still
        return Variable(completion.text, None, info, error)
