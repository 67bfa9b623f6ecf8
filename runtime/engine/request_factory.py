"""From what a caller says to requests that are known to fit: tokens, budget, constraint, seed.

Everything a request can be refused for is found here, before it is queued. It only reads shared state, so it may run on
any thread; compiling a constraint, the slow part, never delays a step. Knows no queue and no blocks.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import secrets
from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

from ...errors import PromptTooLong, RequestError
from ...fsm import Compiler, Constraint
from ..config import EngineConfig
from ..constrain.compiling import compile_spec
from ..constrain.spec import ConstraintSpec, not_a_spec
from ..execute.adapters import Adapters
from ..kv_compress.budget import full_at
from ..kv_compress.fit import LayerGroups
from ..kv_policies import KV_POLICIES, names_of
from ..models import scoped
from ..option_types import check_option, check_options
from ..request import Request, RequestOptions, SamplingParams, TokenLogprob, TokenNote
from ..sample.output_text import OutputText
from ..sample.stopping import append_decided
from ..sample.token_rules import TokenRules
from ..sampling_params import shown
from ..tokenizer.no_tokenizer import refuse_text
from ..tokenizer.tokenizer import Tokenizer
from .prompts import Prompt, TokenIds
from .vectors import readout_of

ENDLESS = (1 << 31) - 1  # tokens: more than any request reaches, and a count for the compiled core


class RequestFactory:
    """Makes requests.

    Args:
        max_model_len: longest sequence the model may see.
        pool_len: tokens that the whole KV pool holds; an attribute, for the pool may be another engine's.
        vocab_size: width of the logits; token ids must lie below it.
        groups: of layers, of which some may see the latest tokens only or keep a state.
        has_logits: whether there are any; else nothing is generated.
        is_on_gpu: whether the model is.
        turns_keys: whether keys can be turned to other positions (`models.rope.can_turn_back`).
    """

    def __init__(
        self,
        config: EngineConfig,
        tokenizer: Tokenizer,
        compiler: Compiler,
        adapters: Adapters,
        *,
        max_model_len: int,
        pool_len: int,
        vocab_size: int,
        groups: LayerGroups,
        has_logits: bool = True,
        is_on_gpu: bool = False,
        turns_keys: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._compiler = compiler
        self._adapters = adapters
        self._max_model_len = max_model_len
        self._max_waiting_requests = config.max_waiting_requests
        self.pool_len = pool_len
        self._vocab_size = vocab_size
        self._token_ids = TokenIds(tokenizer, vocab_size)
        self._groups = groups
        self._has_logits = has_logits
        self._has_ranks = config.tensor_parallel_size > 1
        self._counts_attention = not self._has_ranks and not (config.deterministic and is_on_gpu)
        self._turns_keys = turns_keys
        self._random = random.Random(config.seed if config.seed is not None else secrets.randbits(64))
        self._ids = itertools.count()

    def prepare(
        self,
        prompt: Prompt,
        sampling: SamplingParams,
        constraint: ConstraintSpec | None,
        **options: Unpack[RequestOptions],
    ) -> list[Request]:
        """`sampling.n` requests under one id; see `EngineCore.prepare`."""
        self._check(sampling, constraint, options)
        token_ids = self.token_ids(prompt)
        max_tokens = self._budget(len(token_ids), sampling)
        scored_from = sampling.prompt_logprobs_from
        if scored_from is not None and scored_from >= len(token_ids):
            raise RequestError(
                f"prompt_logprobs_from: {shown(scored_from)} is not inside the prompt of {len(token_ids)} tokens",
                param="prompt_logprobs_from",
            )
        compiled = self.compile(constraint) if constraint is not None else None
        if compiled is not None:
            _check_budget(compiled, max_tokens)
        rules = self._rules(sampling, constraint is not None)
        own = self._fields(options, len(token_ids), sampling)
        shows_special = own.pop("shows_special", False)
        is_noted = own.pop("explain_tokens", False)
        new_guard, new_limit = own.pop("stop_guard", None), own.pop("thought_limit", None)
        shows_special |= compiled is not None and compiled.kind == "structural_tag"  # then they mark calls
        output_ids = self._token_ids.of_ids(own.pop("output_ids", ()), "output_ids")
        if output_ids and sampling.n > 1:
            raise RequestError(f"output_ids: one output goes on, not {sampling.n}; leave n out", param="output_ids")
        if output_ids and sampling.kv_budget is not None:
            text = "output_ids: with kv_budget no other engine can go on, since it does not know what was dropped"
            raise RequestError(text + "; leave kv_budget out", param="output_ids")
        seed = sampling.seed if sampling.seed is not None else self._random.getrandbits(63)
        requests: list[Request] = []
        for index in range(sampling.n):
            request = Request(
                index=index,
                token_ids=array("i", token_ids),
                num_prompt_tokens=len(token_ids),
                sampling=sampling,
                seed=seed_of_output(seed, index),
                output=OutputText(
                    self._tokenizer.detokenizer(shows_special=shows_special),
                    sampling.stop,
                    includes_stop=sampling.include_stop_str_in_output,
                    guard=new_guard() if new_guard is not None else None,
                ),
                cursor=compiled.cursor(own["namespace"]) if compiled is not None else None,
                rules=rules,
                thought=new_limit() if new_limit is not None else None,
                max_tokens=max_tokens,
                notes=[] if is_noted else None,
                **own,
            )
            request.usage.prompt_tokens = len(token_ids)
            if requests:
                request.pin_ttl = 0.0  # they share the prompt: one pin is enough
            requests.append(request)
        if output_ids:
            self._go_on_after(requests[0], output_ids)
        return requests

    def _check(self, sampling: SamplingParams, constraint: ConstraintSpec | None, options: RequestOptions) -> None:
        """What can be wrong with any prompt."""
        _check_types(sampling, constraint)
        if sampling.n > self._max_waiting_requests:
            limit = self._max_waiting_requests
            raise RequestError(f"n: {sampling.n} outputs do not fit a queue of {limit} requests", param="n")
        check_options(options)
        self._groups.check_budget(sampling)
        if KV_POLICIES[sampling.kv_policy].counts_attention and not self._counts_attention:
            where = "a model that is cut (tensor_parallel_size)" if self._has_ranks else "deterministic steps on a GPU"
            raise RequestError(
                f"kv_policy: {sampling.kv_policy!r} counts the attention that keys receive, and {where} does not; use "
                f"{names_of(lambda policy: not policy.counts_attention)}",
                param="kv_policy",
            )
        if sampling.beyond_context and (self._has_ranks or not self._turns_keys):
            why = "the processes of a model that is cut (tensor_parallel_size)" if self._has_ranks else "this model"
            text = f"beyond_context: the cached keys of {why} cannot be turned to other positions"
            raise RequestError(f"{text}; leave it out", param="beyond_context")
        if not self._tokenizer.has_text:
            _refuse_texts(sampling)
        self._check_bias(sampling)

    def _fields(self, options: RequestOptions, prompt_len: int, sampling: SamplingParams) -> dict[str, Any]:
        """What the options say of the fields of a request, and those options that are not for fields."""
        own: dict[str, Any] = {"request_id": self.new_id(), **options}
        own["adapter"] = adapter = self._adapters.find(own.pop("adapter", None))
        own["namespace"] = scoped(own.get("namespace", ""), adapter)
        logits_of = self._token_ids.of_ids(own.pop("logits_of", ()), "logits_of")
        own["readout"] = readout = readout_of(own.pop("pooling", None), logits_of, prompt_len, sampling)
        if not self._has_logits and (readout is None or logits_of):
            text = "this checkpoint has no projection to the vocabulary, so it generates nothing; it makes vectors"
            raise RequestError(f"{text} (Engine.embed, /v1/embeddings)")
        prediction = own.pop("prediction", None)
        if prediction is not None:
            own["prediction"] = self._token_ids.of_prediction(prediction)
        return own

    def _go_on_after(self, request: Request, token_ids: Sequence[int]) -> None:
        """Brings a new request to where another engine has left it: these tokens are said, and were delivered."""
        try:
            reason = append_decided(request, token_ids, self._tokenizer.eos_ids)
        except RequestError as error:
            position = request.num_output_tokens
            text = f"output_ids: the constraint forbids token {token_ids[position]} at position {position}"
            raise RequestError(text, param="output_ids") from error
        if reason is not None:
            text = f"output_ids: the output has ended with token {request.num_output_tokens} of {len(token_ids)}"
            raise RequestError(text, param="output_ids")
        if request.sampling.logprobs is not None:
            request.logprobs = [TokenLogprob(token_id, 0.0) for token_id in token_ids]  # they are not delivered again
        if request.notes is not None:
            request.notes = [TokenNote("sampled", None)] * len(token_ids)  # nor are these
        request.output.take()
        request.num_delivered = len(token_ids)

    def namespace(self, namespace: str, adapter: str | None) -> str:
        """A caller's namespace as the cache knows it; see `scoped`. Raises RequestError: no text, no such adapter."""
        check_option("namespace", namespace)
        return scoped(namespace, self._adapters.find(adapter))

    def new_id(self) -> str:
        """A name for a request that has none."""
        return f"request-{next(self._ids)}"

    def fork(self, parent: Request, n: int, sampling: SamplingParams | None) -> list[Request]:
        """`n` copies of an unfinished request, one under each new id; see `EngineCore.fork`. For the step thread."""
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise RequestError(f"n: expected a positive integer, got {n!r}", param="n")
        forked = _fork_sampling(parent.sampling, sampling)
        self._check_bias(forked)
        if sampling is not None and sampling.n != 1:
            raise RequestError(f"sampling.n: {sampling.n}; say how many forks with fork(…, n={sampling.n})", param="n")
        max_tokens = parent.max_tokens if sampling is None else self._budget(parent.num_prompt_tokens, forked)
        needed = parent.num_output_tokens + (parent.cursor.min_tokens_to_accept() if parent.cursor is not None else 1)
        if max_tokens < needed:
            raise RequestError(
                f"max_tokens: {max_tokens}, what is there included, is too little to go on; allow at least {needed}",
                param="max_tokens",
            )
        first = parent.num_forks
        parent.num_forks += n
        if sampling is not None and sampling.seed is not None:
            seeds = [seed_of_output(sampling.seed, index) for index in range(n)]
        else:
            seeds = [_fork_seed(parent.seed, first + index) for index in range(n)]
        return [self._copy(parent, forked, seed, max_tokens) for seed in seeds]

    def _copy(self, parent: Request, sampling: SamplingParams, seed: int, max_tokens: int) -> Request:
        child = parent.copy(
            request_id=self.new_id(),
            index=0,
            token_ids=array("i", parent.token_ids),
            sampling=sampling,
            seed=seed,
            output=parent.output.fork(sampling.stop, includes_stop=sampling.include_stop_str_in_output),
            cursor=parent.cursor.fork() if parent.cursor is not None else None,
            rules=self._rules(sampling, parent.cursor is not None),
            thought=parent.thought.fork() if parent.thought is not None else None,
            max_tokens=max_tokens,
            logprobs=list(parent.logprobs),
            prompt_logprobs=list(parent.prompt_logprobs),
            notes=None if parent.notes is None else list(parent.notes),
            rates=parent.rates.fork() if parent.rates is not None else None,
            admitted_before=parent.admitted_before,
        )
        child.usage.prompt_tokens = parent.num_prompt_tokens
        child.usage.cached_tokens = min(parent.num_computed_tokens, parent.num_prompt_tokens)
        child.usage.forked_tokens = parent.num_output_tokens
        child.usage.jumped_at = list(parent.usage.jumped_at)
        return child

    def _check_bias(self, sampling: SamplingParams) -> None:
        for token_id in sampling.logit_bias:
            if token_id >= self._vocab_size:
                text = f"logit_bias: {shown(token_id)} is not a token id in [0, {self._vocab_size})"
                raise RequestError(text, param="logit_bias")

    def _rules(self, sampling: SamplingParams, is_constrained: bool) -> TokenRules | None:
        """Which tokens may be said by `allowed_token_ids` and `bad_words`; None for all."""
        if not sampling.rules_out_tokens:
            return None
        name = "allowed_token_ids" if sampling.allowed_token_ids is not None else "bad_words"
        if is_constrained:  # together they may leave no way to an end
            raise RequestError(f"{name}: it cannot be combined with a constraint; send one of them", param=name)
        for token_id in sampling.allowed_token_ids or ():
            if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id < self._vocab_size:
                text = f"allowed_token_ids: {shown(token_id)} is not a token id in [0, {self._vocab_size})"
                raise RequestError(text, param="allowed_token_ids")
        words = [tokens for word in sampling.bad_words for tokens in self._tokens_of(word)]
        return TokenRules(self._vocab_size, sampling.allowed_token_ids, words)

    def _tokens_of(self, word: str) -> list[list[int]]:
        """A bad word as tokens, as it stands and after a space."""
        text = word.lstrip()
        return [self._tokenizer.encode(text), self._tokenizer.encode(f" {text}")]

    def compile(self, spec: ConstraintSpec) -> Constraint:
        """The constraint for this tokenizer, from the compiler's cache if it was seen before."""
        if not self._tokenizer.has_text:
            refuse_text("constraint", "leave it out")
        return compile_spec(self._compiler, spec, self._tokenizer.json_whitespace)

    def token_ids(self, prompt: Prompt) -> array[int]:
        """Text to ids (with the tokenizer's beginning-of-text token if it adds one); ids are checked.

        An `array("i")` of ids is taken as it is, which costs next to nothing however long it is.

        Raises:
            RequestError: empty, or an id out of the vocabulary (with its position).
        """
        return self._token_ids.of_prompt(prompt)

    def longest(self, prompt_len: int, kv_budget: int | None) -> int:
        """Tokens that a request with such a prompt may have, its answer counted: what the context and the pool hold."""
        if kv_budget is not None and max(prompt_len, full_at(kv_budget)) <= self.pool_len:
            return self._max_model_len  # however much it says, it never holds more than that
        return min(self._max_model_len, self.pool_len)

    def _budget(self, prompt_len: int, sampling: SamplingParams) -> int:
        """`max_tokens`, cut to what the context and the pool can hold."""
        kv_budget = sampling.kv_budget
        limit = self.longest(prompt_len, kv_budget)
        if sampling.beyond_context and kv_budget is not None and full_at(kv_budget) > limit:
            text = f"kv_budget: up to {full_at(kv_budget)} tokens are held at once, and there is room for {limit}"
            raise RequestError(f"{text}; lower it", param="kv_budget")
        room = limit - prompt_len
        if room < (0 if sampling.max_tokens == 0 else 1):
            is_pool = limit < self._max_model_len
            place = "the KV pool" if is_pool else "the model's context"
            remedy = ", or raise kv_memory_bytes or num_blocks (--kv-memory, --num-blocks)" if is_pool else ""
            answer = "" if sampling.max_tokens == 0 else " with room for an answer"
            raise PromptTooLong(
                f"prompt: {prompt_len} tokens do not fit {place} of {prompt_len + room} tokens{answer}; shorten the"
                f" prompt{remedy}",
                param="prompt",
            )
        if sampling.max_tokens is None:
            return room
        return min(sampling.max_tokens, ENDLESS if sampling.beyond_context else room)


def _check_types(sampling: object, constraint: object) -> None:
    """What is taken for one of these by mistake fails with an error that names it."""
    if not isinstance(sampling, SamplingParams):
        raise RequestError(f"sampling: expected SamplingParams(…), got {type(sampling).__name__}", param="sampling")
    if constraint is not None and not isinstance(constraint, ConstraintSpec):
        raise RequestError(not_a_spec(constraint), param="constraint")


def _check_budget(constraint: Constraint, max_tokens: int) -> None:
    if not constraint.is_within(max_tokens):
        least = constraint.min_tokens()
        raise RequestError(
            f"max_tokens: {max_tokens} tokens might not be enough to complete the constraint; allow at least {least}",
            param="max_tokens",
        )


def _fork_sampling(parents: SamplingParams, own: SamplingParams | None) -> SamplingParams:
    """The parameters of a fork, which may have its `own`; the KV budget is its parent's, whose KV it goes on with."""
    if own is None or _keeps(own) == _keeps(parents):
        return own or parents
    if own.kv_budget is not None:
        its = "none" if parents.kv_budget is None else f"{parents.kv_budget} by {parents.kv_policy!r}"
        text = f"kv_budget: a fork goes on with the budget of its parent, which is {its}; leave it out"
        raise RequestError(text, param="kv_budget")
    return replace(own, **_keeps(parents))


def _keeps(sampling: SamplingParams) -> dict[str, Any]:
    return {name: getattr(sampling, name) for name in ("kv_budget", "kv_policy", "beyond_context")}


def _fork_seed(seed: int, number: int) -> int:
    """A 63-bit seed for the fork of that number, related to no sample's and to no other fork's."""
    digest = hashlib.blake2b(b"%d %d" % (seed, number), digest_size=8).digest()
    return int.from_bytes(digest, "little") & (2**63 - 1)


def seed_of_output(seed: int, index: int) -> int:
    """A 63-bit seed for output `index` of a request that has this seed; output 0 keeps the seed's low bits.

    Spacing: the 64-bit golden ratio.
    """
    return (seed + index * 0x9E3779B97F4A7C15) & (2**63 - 1)


def _refuse_texts(sampling: SamplingParams) -> None:
    for name in ("stop", "bad_words"):
        if getattr(sampling, name):
            refuse_text(name, "use stop_token_ids or allowed_token_ids")
