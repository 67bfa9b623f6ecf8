"""Three ways to compare choices by the log-probabilities of their tokens.

Token lists come from one scoring request per choice; `-inf` never occurs, since every token of a choice was scored by
the unmasked model. Knows no engine.

Sources: SGLang's `choices_method` (the names and what they mean); EleutherAI, "Multiple choice normalization in LM
evaluation" (2021) for the unconditional normalisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...errors import RequestError
from ..request import TokenLogprob

MethodName = Literal["token_length_normalized", "greedy_token_selection", "unconditional_likelihood_normalized"]
Logprobs = Sequence[TokenLogprob]


@dataclass(frozen=True, slots=True)
class ChoicesMethod:
    """How `select` compares. Use one of the three constants below."""

    name: MethodName

    @property
    def needs_unconditional(self) -> bool:
        """Whether the choices must also be scored without the prompt."""
        return self.name == "unconditional_likelihood_normalized"

    def __str__(self) -> str:
        return self.name


token_length_normalized = ChoicesMethod("token_length_normalized")
"""The highest mean log-probability per token."""

greedy_token_selection = ChoicesMethod("greedy_token_selection")
"""What greedy decoding among the choices would walk to, token by token."""

unconditional_likelihood_normalized = ChoicesMethod("unconditional_likelihood_normalized")
"""The highest mean gain per token over the choice's own likelihood without the prompt."""


def mean_logprob(tokens: Logprobs) -> float:
    """Mean log-probability per token. RequestError: there is none, as from servers that send no log-probabilities."""
    if not tokens:
        raise RequestError("no log-probabilities came for a choice; the server has to echo prompts with them")
    return sum(token.logprob for token in tokens) / len(tokens)


def pick(method: ChoicesMethod, conditional: Sequence[Logprobs], unconditional: Sequence[Logprobs]) -> int:
    """Index of the winner; the first on a tie. `unconditional` is read only by the method that needs it."""
    if method.name == "greedy_token_selection":
        return _greedy_walk(conditional)
    scores = [mean_logprob(tokens) for tokens in conditional]
    if method.needs_unconditional:
        scores = [score - mean_logprob(tokens) for score, tokens in zip(scores, unconditional, strict=True)]
    return scores.index(max(scores))


def _greedy_walk(choices: Sequence[Logprobs]) -> int:
    """Keeps, position by position, the choices whose token there is the likeliest.

    Choices that agree so far stand at the same point of the model, so those that take the winner's token stay. One
    that has ended competes with its mean log-probability, so that it neither wins nor loses by being short.
    """
    remaining = list(range(len(choices)))
    position = 0
    while len(remaining) > 1:
        values = [_value_at(choices[index], position) for index in remaining]
        best = remaining[values.index(max(values))]
        if position >= len(choices[best]):
            return best
        token_id = choices[best][position].token_id
        remaining = [
            index
            for index in remaining
            if position < len(choices[index]) and choices[index][position].token_id == token_id
        ]
        position += 1
        if all(len(choices[index]) <= position for index in remaining):
            break
    return remaining[0]


def _value_at(tokens: Logprobs, position: int) -> float:
    return tokens[position].logprob if position < len(tokens) else mean_logprob(tokens)
