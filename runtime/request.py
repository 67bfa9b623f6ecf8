"""What is asked of the engine, and what comes back.

One request's tokens, as half-open ranges (the other modules refer to them by name)::

    [0, lease.num_tokens)                     in the tree, held by this request's lease, read only
    [lease.num_tokens, num_computed_tokens)   this request's own blocks, KV written
    [num_computed_tokens, len(token_ids))     known (prompt, sampled, jumped), KV not yet written
    draft                                     believed to come next; joins token_ids only when verified

Once a request with a `kv_budget` has dropped tokens (`kv_budget`) the first two are one, without a lease: of the tokens
[0, num_computed_tokens) its own blocks hold all but `num_dropped_tokens`, and the token at a position has its KV at the
*place* `position - num_dropped_tokens`, which is what blocks and keys are counted by.

This module knows nothing of models, tensors or scheduling; it imports types only.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

from ..errors import RequestError
from .sampling_params import SamplingParams as SamplingParams

if TYPE_CHECKING:
    from ..fsm import Cursor, Guess
    from ..radix import Node
    from .cache.cache_explanation import CacheExplanation, FoundPrefix
    from .kv_compress.received import Received
    from .models import Adapter
    from .readout import Pooling, Readout, Rows
    from .sample.output_text import OutputText, StopGuard
    from .sample.thought_limit import ThoughtLimit
    from .sample.token_rules import TokenRules
    from .speculate.acceptance_rates import AcceptanceRates
    from .speculate.lookup import Lookup


class FinishReason(enum.StrEnum):
    """Why a request ended. `STOP`: end token, stop string or a complete constraint; `LENGTH`: budget or context."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


class Phase(enum.Enum):
    """Where a request is. A preempted request is `WAITING` again, its KV in the tree."""

    WAITING = enum.auto()
    RUNNING = enum.auto()
    FINISHED = enum.auto()


class RequestOptions(TypedDict, total=False):
    """What a request may be given besides prompt, sampling and constraint; the defaults are those of `Request`.

    Keys:
        request_id: under which `step` reports; made up if it is not given.
        adapter: name of a loaded adapter that its tokens go through; None: of none.
        namespace: which prefixes it may share (salt …), among requests of the same adapter.
        priority: higher ones are admitted first.
        pin_ttl: seconds for which its prompt stays cached once it is computed, as far as the budget of pins reaches
            (`usage.pinned_tokens` tells); 0: not pinned.
        prediction: what its output will mostly be: text, or token ids. It is drafted from as from the prompt, from its
            beginning on, and changes no token.
        conversation: that of `encode_chat`, if it is a chat whose reply is to be remembered.
        explain_cache: whether `usage.cache_explanation` shall say where the longest cached prefix ended and why.
        explain_tokens: whether its deltas shall say how each token came about (`Delta.token_notes`).
        deadline_seconds: still waiting so long after it was queued, it fails with `DeadlineExceeded`; None: it waits.
        shows_special: whether special tokens are in the text, by their names.
        stop_guard: makes, for each output, what says where stop strings count; None: everywhere.
        thought_limit: makes, for each output, the limit of its thought; None: it has none.
        output_ids: what another engine has generated for it already, if it goes on here: its deltas bring what follows,
            and are those that the other engine would have made. With a seed, or at temperature 0; without `kv_budget`
            and with `n` 1. Output `index` of several goes on alone, with the seed `seed_of_output(seed, index)`.
        pooling: what becomes of its hidden states, for a request that is read instead of answered (`max_tokens` is 0):
            its completion has their `vector` (see `Readout`). With "mean" and "cls" nothing of its prompt comes from
            the cache.
        logits_of: the same of the logits of these tokens after its last one.
        is_probe: it only finds out whether the engine still answers: it is in no sum over requests (ended requests,
            prompt, cached and generated tokens) and in no record of traffic, and nothing of it is cached. What counts
            steps and the tokens that they computed counts it, as do the lengths of queue and batch while it is there.
    """

    request_id: str
    adapter: str | None
    namespace: str
    priority: int
    pin_ttl: float
    prediction: str | Sequence[int]
    conversation: str
    explain_cache: bool
    explain_tokens: bool
    deadline_seconds: float | None
    shows_special: bool
    stop_guard: Callable[[], StopGuard] | None
    thought_limit: Callable[[], ThoughtLimit] | None
    output_ids: Sequence[int]
    pooling: Pooling | None
    logits_of: Sequence[int]
    is_probe: bool


@dataclass(slots=True)
class Usage:
    """Token counts of one request; they grow while it runs.

    Attributes:
        prompt_tokens: tokens of the prompt.
        cached_tokens: prompt tokens whose KV came from the prefix cache when the request was first admitted.
        loaded_tokens: those of the cached tokens that were read from a tier below the pool for this request.
        completion_tokens: tokens generated, however they were chosen.
        forked_tokens: tokens of the output that were generated by the request of which this one is a fork; they are
            not in `completion_tokens`.
        drafted_tokens: tokens proposed by drafts.
        jumped_tokens: drafted tokens that were accepted: each saved a forward step.
        jumped_at: where they are in the output, ascending; a fork has those of what it took over, too.
        accepted_prediction_tokens, rejected_prediction_tokens: those of them that were drafted from the request's
            prediction, and what became of them.
        pinned_tokens: prompt tokens that were pinned on its behalf.
        dropped_tokens: tokens of prompt and output whose keys and values it has dropped (`kv_budget`).
        num_steps: engine steps in which this request took part.
        num_preemptions: how often it gave its blocks back before it was done.
        cache_explanation: why no more of the prompt was cached, if that was asked for.
        queue_seconds: how long it waited until it was first admitted.
        admitted_at: that moment on the engine's clock (`time.monotonic`); None before it.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    loaded_tokens: int = 0
    completion_tokens: int = 0
    forked_tokens: int = 0
    drafted_tokens: int = 0
    jumped_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0
    pinned_tokens: int = 0
    dropped_tokens: int = 0
    num_steps: int = 0
    num_preemptions: int = 0
    cache_explanation: CacheExplanation | None = None
    queue_seconds: float = field(default=0.0, compare=False)
    admitted_at: float | None = field(default=None, compare=False, repr=False)
    jumped_at: list[int] = field(default_factory=list, compare=False, repr=False)

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def sampled_tokens(self) -> int:
        """Generated tokens that needed a sampling step of their own."""
        return self.completion_tokens - self.jumped_tokens


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural-log probability of one token under the unmasked, untempered model, with the likeliest alternatives."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class TokenNote(NamedTuple):
    """How a token of an output came about.

    Attributes:
        how: "sampled": chosen in a step of its own. Otherwise jumped, without one: "forced": within text that its
            constraint forces; "foreseen": proposed by a draft, and found right.
        num_allowed: how many tokens the constraint's mask left to choose from; None: there is no constraint, or the
            token was taken without a mask.
    """

    how: Literal["sampled", "forced", "foreseen"]
    num_allowed: int | None


@dataclass(frozen=True, slots=True)
class Delta:
    """What one step added to one request. The last one carries `finish_reason`.

    Attributes:
        request_id: that of the request's stream.
        index: which of the `n` outputs.
        text: new text, whole characters only; text that may belong to a stop string is held back.
        token_ids: new token ids (the end token is included).
        logprobs: one per new token id if asked for.
        prompt_logprobs: once, with the first delta, if asked for.
        error: the cause when `finish_reason` is ERROR.
        stopped_by: the stop string, or the one of `stop_token_ids`, that ended it.
        vector: once, with the last delta, of a request with `pooling` or `logits_of`: `[size]` float32.
        token_notes: one per new token id if asked for.
    """

    request_id: str
    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None
    usage: Usage
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    error: RequestError | None = None
    stopped_by: str | int | None = None
    vector: Rows | None = field(default=None, compare=False)
    token_notes: tuple[TokenNote, ...] = ()

    def is_last_of(self, request: Request) -> bool:
        """Whether a request has ended with it."""
        is_its = self.request_id == request.request_id and self.index == request.index
        return is_its and self.finish_reason is not None


@dataclass(frozen=True, slots=True)
class Completion:
    """One finished output.

    Attributes:
        text: the generated text, without end token and stop string.
        token_ids: the generated ids, the end token included.
        parsed_or_error: what `parsed` returns, or the error that it raises.
        stopped_by, vector: as in `Delta`.
    """

    request_id: str
    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    parsed_or_error: object = None
    stopped_by: str | int | None = None
    vector: Rows | None = field(default=None, compare=False)

    @property
    def parsed(self) -> object:
        """The value under a `json_schema`/`json_object` constraint (a pydantic object where a class was given), or the
        text itself under any other; None without a constraint, and if the output was cut for its length.

        Raises:
            RequestError: the text is no such value; see `ConstraintSpec.parse`. Text and tokens are there all the same.
        """
        if isinstance(self.parsed_or_error, RequestError):
            raise self.parsed_or_error
        return self.parsed_or_error


@dataclass(frozen=True, slots=True)
class Lease:
    """A request's hold on a path of the tree: `[0, num_tokens)` stays in place until the lease is released."""

    node: Node
    num_tokens: int


@dataclass(slots=True, eq=False)
class Request:
    """One sequence in the engine. Only the engine, the scheduler and the prefix cache change it.

    The fields of `RequestOptions` mean what they mean there.

    Attributes:
        token_ids: prompt and accepted output, int32.
        adapter: what its tokens go through; None: the model alone.
        namespace: of everything that is kept of it: the caller's, and the adapter's content (`scoped`).
        num_computed_tokens: tokens whose KV was written.
        num_dropped_tokens: of those, whose KV is not kept.
        num_taken_back: tokens after them that the last step has computed, up to a place where no state was kept.
        received: how much attention its keys have received; None: it is not counted, or not yet.
        blocks: int32, ids of the blocks that hold [0, num_computed_tokens) and what the next step writes; the first
            `lease.num_tokens / block_size` belong to the tree. A step copies them as they are into its block table.
        draft: tokens proposed to follow token_ids; dropped freely.
        num_predicted: how many of the draft's tokens are of the prediction: all, or none; it may say more.
        rates: how often drafted tokens were right; None if only what is certain is drafted.
        guess: what was drafted, until it is known what became of it.
        lookup: what its text repeats; None: it was not looked up yet.
        prediction: token ids.
        notes: one per token of the output; None: they were not asked for.
        num_delivered: output tokens that a delta has reported.
        queued_at: seconds of the scheduler's clock.
        found: what the cache said about the prompt just before the request was admitted.
        num_forks: how many forks have been made of it.
        rules: which tokens it may say, besides what its cursor allows; None: all.
        thought: the limit of its thought; None: it has none.
        readout: what is read of it instead of an output; None: it is answered.
        first_row: of the rotary tables, for its position 0.
        switches_at: with more tokens than these it takes other rows (`schedule.rope_switch`); None: it never does.
    """

    request_id: str
    index: int
    token_ids: array[int]
    num_prompt_tokens: int
    sampling: SamplingParams
    seed: int
    output: OutputText
    adapter: Adapter | None = None
    namespace: str = ""
    priority: int = 0
    cursor: Cursor | None = None
    max_tokens: int = 0
    phase: Phase = Phase.WAITING
    num_computed_tokens: int = 0
    num_dropped_tokens: int = 0
    num_taken_back: int = 0
    received: Received | None = None
    blocks: array[int] = field(default_factory=lambda: array("i"))
    lease: Lease | None = None
    draft: list[int] = field(default_factory=list)
    num_predicted: int = 0
    rates: AcceptanceRates | None = None
    guess: Guess | None = None
    lookup: Lookup | None = None
    usage: Usage = field(default_factory=Usage)
    finish_reason: FinishReason | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    notes: list[TokenNote] | None = None
    num_delivered: int = 0
    admitted_before: bool = False
    pin_ttl: float = 0.0
    prediction: Sequence[int] = ()
    conversation: str = ""
    deadline_seconds: float | None = None
    queued_at: float = 0.0
    explain_cache: bool = False
    found: FoundPrefix | None = None
    ticket: int = 0
    num_forks: int = 0
    rules: TokenRules | None = None
    thought: ThoughtLimit | None = None
    readout: Readout | None = None
    is_probe: bool = False
    first_row: int = 0
    switches_at: int | None = None

    def copy(self, **changes: Any) -> Request:
        """What it is asked for and has said so far, as a request of its own, which holds nothing, has no place in a
        constraint and no limit of its thought. changes: fields that are others."""
        return Request(**{name: getattr(self, name) for name in ASKED} | changes)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def first_row_now(self) -> int:
        """Of the rotary tables, that of position 0: `first_row`, and before it if positions are counted among what is
        kept."""
        return self.first_row - (self.num_dropped_tokens if self.sampling.beyond_context else 0)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_uncomputed_tokens(self) -> int:
        """Known tokens whose KV is not written yet; 1 while decoding."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def length_is_known(self) -> bool:
        """Whether nothing but its budget will end it."""
        sampling = self.sampling
        can_stop = not sampling.ignore_eos or sampling.stop or sampling.stop_token_ids or self.cursor is not None
        return self.max_tokens == 0 or not can_stop

    @property
    def stopped_by(self) -> str | int | None:
        """The stop string or stop token that ended it."""
        if self.finish_reason is not FinishReason.STOP or not self.num_output_tokens:
            return None
        last = self.token_ids[-1]
        return self.output.stopped_by or (last if last in self.sampling.stop_token_ids else None)

    @property
    def remaining_tokens(self) -> int:
        """How many more tokens may be generated."""
        return self.max_tokens - self.num_output_tokens


ASKED = (  # fields of a request that a copy has, too
    *("request_id", "index", "token_ids", "num_prompt_tokens", "sampling", "seed", "output", "max_tokens", "rules"),
    *("adapter", "namespace", "priority", "prediction", "conversation", "deadline_seconds"),
)
