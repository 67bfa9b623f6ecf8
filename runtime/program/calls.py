"""What `gen` and `select` ask of the engine, and what becomes of the answers. Knows no state and takes no locks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...errors import ProgramError, RequestError
from ..request import Completion, FinishReason, TokenLogprob
from .choices import mean_logprob, pick
from .expression import Gen, Select
from .meta_info import generation_info, parsed_value, selection_info
from .run import DeltaStream, Run
from .variable import Variable


@dataclass(frozen=True, slots=True)
class Answer:
    """What is appended to the state, and the variable.

    Attributes:
        token_ids: of `text`; a generated end token may follow.
        ended: the output ended by itself and not for its length.
    """

    text: str
    token_ids: Sequence[int]
    ended: bool
    variable: Variable


def follow(run: Run, stream: DeltaStream, gen: Gen, num_outputs: int, show: Callable[[str], None]) -> Answer:
    """Waits for the end of a request. `show` gets the text of the first output as it comes if the run streams, else
    all at once.

    Raises:
        PhloemError: the request fails, or the run was cancelled.
    """
    try:
        if run.streams:
            for delta in stream:
                if delta.index == 0 and delta.text:
                    show(delta.text)
        completions = stream.completions()
    except RequestError:
        run.check()  # if the run was cancelled, that is the reason
        raise
    finally:
        run.release(stream)
    first = completions[0]
    if not run.streams and first.text:
        show(first.text)
    variables = [_variable(run, completion, gen.dtype) for completion in completions]
    return Answer(
        first.text,
        first.token_ids,
        first.finish_reason is FinishReason.STOP,
        Variable.several(variables) if num_outputs > 1 else variables[0],
    )


def choose(run: Run, prompt: Sequence[int], continuations: list[list[int]], select: Select) -> Answer:
    """Scores all choices, of which `continuations` are the ids, in one batch after the shared prompt."""
    tokenizer = run.tokenizer
    conditional = run.score(prompt, continuations)
    unconditional: list[list[TokenLogprob]] = []
    if select.method.needs_unconditional:
        if tokenizer.bos_id < 0:
            raise ProgramError(f"{select.method} needs a model with a BOS token to score choices by themselves")
        unconditional = run.score([tokenizer.bos_id], continuations)
    winner = pick(select.method, conditional, unconditional)
    means = [mean_logprob(tokens) for tokens in conditional]
    choice = select.choices[winner]
    info = selection_info(tokenizer, len(prompt), means, conditional)
    return Answer(choice, continuations[winner], False, Variable(choice, choice, info))


def _variable(run: Run, completion: Completion, dtype: type | None) -> Variable:
    info = generation_info(run.tokenizer, completion)
    try:
        return Variable(completion.text, parsed_value(completion, dtype), info)
    except RequestError as error:  # raised when the value is read; the text can be read still
        return Variable(completion.text, None, info, error)
