"""How a request's tokens are chosen, and when it stops: its parameters, and what is checked of them.

Knows no model: what depends on one is checked by `RequestFactory`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import RequestError
from .kv_policies import DEFAULT_KV_POLICY, KV_POLICIES, names_of

MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16
LEAST_KV_BUDGET = 64
LEAST_ABOVE_ZERO = 1e-30  # of top_p and repetition_penalty: float32 has it, its inverse and a logit divided by it


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose tokens and when to stop. Validated on construction (`RequestError` names the field).

    Attributes:
        max_tokens: most tokens to generate; None: until the context is full.
        min_tokens: before this many tokens, end tokens and `stop_token_ids` are not chosen (unless a constraint allows
            nothing else), and stop strings are not looked for; as in vLLM.
        temperature: 0, or less than a millionth, takes the most likely token (lowest id on a tie).
        top_k: keep the k most likely tokens; 0 or -1 keeps all.
        top_p: keep the smallest set of tokens whose probability reaches `top_p`.
        min_p: keep tokens at least `min_p` times as likely as the most likely one; before `top_k` and `top_p`.
        seed: None draws one. A seed fixes the output whatever else is in the batch.
        stop: strings that end the output (they are not part of it, unless `include_stop_str_in_output`).
        stop_token_ids: token ids that end the output.
        ignore_eos: go on past the model's end tokens.
        presence_penalty, frequency_penalty: subtracted from logits of tokens generated before (OpenAI's definition).
        repetition_penalty: divides positive and multiplies negative logits of tokens seen in prompt or output.
        logit_bias: token id → number added to its logit, before the penalties.
        allowed_token_ids: None, or the only tokens that may be generated (an end token among them, or only the budget
            ends the output).
        bad_words: texts whose tokens are not generated in a row, at the beginning of a word or inside one; as in vLLM
            they are barred as the tokenizer writes them, and other tokens may spell the same text.
        logprobs: None, or how many top alternatives to report with each chosen token (0: the chosen one only).
        prompt_logprobs_from: None, or the first prompt position whose token's log-probability is wanted (≥ 1).
        n: how many outputs; they share the prompt's blocks.
        kv_budget: None, or how many tokens' keys and values are kept while it generates, at least 64: whenever there
            are a quarter more (or 64), the others are dropped. The prompt is computed and cached whole before that.
        kv_policy: which are kept: "snapkv", what the last of them look at; "sinks", the first four and the last; "h2o",
            those that received most attention since the end of the prompt, as half of the budget, and the last. Models
            with windows or recurrent layers take "sinks", and a budget of a window and four tokens at least.
        beyond_context: go on past the model's context, up to `max_tokens`: positions are counted within what is kept,
            by the policy "sinks" and within a `kv_budget`.
    """

    max_tokens: int | None = 128
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    include_stop_str_in_output: bool = False
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    logprobs: int | None = None
    prompt_logprobs_from: int | None = None
    n: int = 1
    kv_budget: int | None = None
    kv_policy: str = DEFAULT_KV_POLICY
    beyond_context: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        for name in ("stop", "stop_token_ids", "bad_words"):
            object.__setattr__(self, name, _as_tuple(name, getattr(self, name)))
        if self.allowed_token_ids is not None:
            object.__setattr__(self, "allowed_token_ids", _as_tuple("allowed_token_ids", self.allowed_token_ids))
        if self.logit_bias is None:
            object.__setattr__(self, "logit_bias", {})
        if not isinstance(self.logit_bias, Mapping):
            kind = type(self.logit_bias).__name__
            raise RequestError(f"logit_bias: expected a dict of token ids and numbers, got {kind}", param="logit_bias")
        for name in ("include_stop_str_in_output", "ignore_eos", "beyond_context"):
            if not isinstance(getattr(self, name), bool):
                raise RequestError(f"{name}: expected True or False, got {getattr(self, name)!r}", param=name)
        _check_integer("max_tokens", self.max_tokens, 0, None, optional=True)
        _check_integer("min_tokens", self.min_tokens, 0, self.max_tokens)
        _check_number("temperature", self.temperature, 0.0, 100.0)
        _check_integer("top_k", self.top_k, -1, None)
        _check_number("top_p", self.top_p, 0.0, 1.0, above=True)
        _check_number("min_p", self.min_p, 0.0, 1.0)
        _check_integer("seed", self.seed, -(2**63), 2**64 - 1, optional=True)
        _check_number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _check_number("repetition_penalty", self.repetition_penalty, 0.0, 10.0, above=True)
        _check_integer("logprobs", self.logprobs, 0, MAX_LOGPROBS, optional=True)
        _check_integer("prompt_logprobs_from", self.prompt_logprobs_from, 1, None, optional=True)
        _check_integer("n", self.n, 1, 128)
        _check_integer("kv_budget", self.kv_budget, LEAST_KV_BUDGET, None, optional=True)
        if not isinstance(self.kv_policy, str) or self.kv_policy not in KV_POLICIES:
            known = ", ".join(map(repr, KV_POLICIES))
            raise RequestError(f"kv_policy: {self.kv_policy!r} is not known; it is one of {known}", param="kv_policy")
        if self.beyond_context:
            _check_beyond_context(self.kv_budget, self.kv_policy, self.max_tokens)
        elif self.kv_budget is None and self.kv_policy != DEFAULT_KV_POLICY:
            text = f"kv_policy: {self.kv_policy!r} chooses what is kept within a kv_budget; add one, or leave it out"
            raise RequestError(text, param="kv_policy")
        if len(self.stop) > MAX_STOP_STRINGS:
            raise RequestError(f"stop: {len(self.stop)} strings; at most {MAX_STOP_STRINGS}", param="stop")
        if any(not isinstance(text, str) or not text for text in self.stop):
            raise RequestError("stop: every stop string must be a non-empty string", param="stop")
        if any(not isinstance(word, str) or not word.strip() for word in self.bad_words):
            raise RequestError("bad_words: every one must be a text that is not blank", param="bad_words")
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            raise RequestError(
                "allowed_token_ids: there are none; leave it out to allow all", param="allowed_token_ids"
            )
        for token_id in self.stop_token_ids:
            _check_integer("stop_token_ids", token_id, 0, None)
        for token_id, bias in self.logit_bias.items():
            _check_integer("logit_bias", token_id, 0, None)
            _check_number("logit_bias", bias, -100.0, 100.0)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def rules_out_tokens(self) -> bool:
        """Whether some tokens may not be said."""
        return self.allowed_token_ids is not None or bool(self.bad_words)

    @property
    def penalises(self) -> bool:
        """Whether tokens that were seen before change their logits."""
        return bool(self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0)

    @property
    def edits_logits(self) -> bool:
        """Whether logits are changed before sampling: penalties or biases."""
        return self.penalises or bool(self.logit_bias)


def _check_beyond_context(kv_budget: int | None, kv_policy: str, max_tokens: int | None) -> None:
    if kv_budget is None or not KV_POLICIES[kv_policy].takes_beyond_context:
        given = "no kv_budget is given" if kv_budget is None else f"kv_policy is {kv_policy!r}"
        takes = names_of(lambda policy: policy.takes_beyond_context)
        text = f"beyond_context: {given}; it needs a kv_budget and kv_policy={takes}"
        raise RequestError(text, param="beyond_context")
    if max_tokens is None:
        text = "max_tokens: with beyond_context the context does not end the output; say how many tokens there may be"
        raise RequestError(text, param="max_tokens")


def _as_tuple(name: str, value: Any) -> tuple[Any, ...]:
    """Several values; None is none of them."""
    if value is None:
        return ()
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise RequestError(f"{name}: expected a list or tuple, got {type(value).__name__}", param=name)
    return tuple(value)


def shown(value: object) -> str:
    """A value of any type, in a message. Python writes no integer of more than 4300 digits."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value) if isinstance(value, (str, int, float, type(None))) else type(value).__name__
    return text if len(text) <= 80 else f"{text[:80]}…"


def _check_integer(name: str, value: int | None, low: int, high: int | None, *, optional: bool = False) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(f"{name}: expected an integer, got {shown(value)}", param=name)
    if value < low or (high is not None and value > high):
        span = f"at least {low}" if high is None else f"between {low} and {high}"
        raise RequestError(f"{name}: {shown(value)} is out of range; it must be {span}", param=name)


def _check_number(name: str, value: float, low: float, high: float, *, above: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RequestError(f"{name}: expected a number, got {shown(value)}", param=name)
    is_lost = (
        above and 0 < value < LEAST_ABOVE_ZERO
    )  # the kernels compute in float32, where it is 0, or its inverse is not
    if is_lost or not (low < value <= high if above else low <= value <= high):
        span = (
            f"above {low:g} (at least {LEAST_ABOVE_ZERO:g}) and at most {high:g}"
            if above
            else f"between {low:g} and {high:g}"
        )
        raise RequestError(f"{name}: {shown(value)} is out of range; it must be {span}", param=name)
