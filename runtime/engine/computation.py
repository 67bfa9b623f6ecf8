"""What a step computes: the forward, the choice of tokens, and the forward of the next step where it runs ahead.

On a device that works in parallel with the host (a GPU) forward and sampling are only queued, and the step *runs
ahead*: before it reads what it has chosen it plans the next one and queues its forward, on tokens that only the device
knows. So whatever the host does, from reading step k to queueing the sampling of step k + 1, it does while the device
computes::

    host      sample k │ plan, forward k+1 │ read k, commit, deliver │ masks, sample k+1 │ plan, forward k+2 │ …
    device    … forward k ────────► sample k ► forward k+1 ────────────────────────────► sample k+1 ► forward k+2 …

Only the forward comes early: masks and penalties are made when all earlier tokens are known, so outputs are those of
steps that do not run ahead. A request that turns out to have ended is computed once in vain. Its blocks may be given to
other requests at once, since what those write is queued after that forward. A draft begins after the last token, so a
step with drafts does not run ahead; where some requests may draft, `overlap_policy` chooses what brings more tokens a
second.

Knows no drafts and no deltas: `Stepper` says what is computed and commits what comes of it. Costs what it computes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from torch import Tensor

from ..cache.prefix_cache import PrefixCache
from ..execute.batch import Batch
from ..execute.model_runner import ModelRunner
from ..request import Phase
from ..sample.sampler import Sampler
from ..sample.sampler_output import SamplerOutput, UnreadOutputs, cause_of
from ..schedule.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Ahead:
    """A step whose forward is queued: `logits` `[R, vocab_size]` of its batch, and hidden states, if wanted."""

    batch: Batch
    logits: Tensor
    hidden: Tensor | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether any of its requests goes on."""
        return any(extend.request.phase is Phase.RUNNING for extend in self.batch.extends)


class Computation:
    """The computation of one step after another.

    Args:
        stopwatch: seconds.

    Attributes:
        busy, waited: seconds of the last step in which the device had work, and in which the host had none.
        was_divided: whether the requests of the last step were computed one by one, after a fault.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: ModelRunner,
        sampler: Sampler,
        prefix_cache: PrefixCache,
        stopwatch: Callable[[], float],
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._sampler = sampler
        self._prefix_cache = prefix_cache
        self._stopwatch = stopwatch
        self._ahead: Ahead | None = None
        self.busy = self.waited = 0.0
        self.was_divided = False

    @property
    def is_ahead(self) -> bool:
        """Whether the forward of the next step is queued."""
        return self._ahead is not None

    def take_ahead(self) -> Ahead | None:
        """The step whose forward is queued, if one of its requests goes on. It is queued no more."""
        self.drop_unwanted()
        ahead, self._ahead = self._ahead, None
        return ahead

    def drop_unwanted(self) -> None:
        """Forgets the queued forward if none of its requests goes on."""
        if self._ahead is not None and not self._ahead.is_wanted:
            self._ahead = None

    def forget(self) -> None:
        """Forgets the queued forward, and what the sampler knows of requests: after a fault."""
        self._ahead = None
        self._sampler.forget()

    def run(self, batch: Batch, ahead: Ahead | None, *, drafts: bool) -> list[SamplerOutput]:
        """One forward, unless it ran ahead, and what is sampled from it. Before that is read the next step's
        forward is queued, unless this step has drafts or the next is to have (`drafts`).

        If that fails, each request is computed alone, so that it fails alone.
        """
        self.was_divided = False
        begin = self._stopwatch()
        try:
            logits, hidden = self._forward(batch) if ahead is None else (ahead.logits, ahead.hidden)
            unread = self._sampler.launch(logits, batch, hidden)
        except Exception:
            return self._run_each(batch)
        if not drafts and not any(extend.draft for extend in batch.extends):
            self._run_ahead(batch, unread)
        read = self._stopwatch()
        try:
            outputs = unread.read()
        except Exception:
            self._ahead = None
            return self._run_each(batch)
        end = self._stopwatch()
        self.busy, self.waited = end - begin, end - read
        return outputs

    def _run_each(self, batch: Batch) -> list[SamplerOutput]:
        self.was_divided = True
        self._sampler.forget()
        outputs = []
        for extend in batch.extends:
            self._scheduler.current = extend.request
            if extend.request.phase is Phase.FINISHED:
                outputs.append(SamplerOutput())
                continue
            alone = self._prefix_cache.slots.lay_out([replace(extend, unread=-1)], self._prefix_cache.block_size)
            try:
                logits, hidden = self._forward(alone)
                outputs += self._sampler.choose(logits, alone, hidden)
            except Exception as error:
                self._sampler.forget()
                outputs.append(SamplerOutput(error=cause_of("the step", error)))
        return outputs

    def _run_ahead(self, batch: Batch, unread: UnreadOutputs) -> None:
        """Queues the forward of the next step, if it can be planned without the tokens of this one."""
        following = self._scheduler.plan_ahead(batch, unread.spans)
        if following is not None:
            with suppress(Exception):  # then it is planned again, and fails alone
                self._ahead = Ahead(following, *self._forward(following, unread.token_ids))

    def _forward(self, batch: Batch, *decided: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits, and hidden states if any are wanted; decided: as `ModelRunner.forward` takes it, if the step is one
        that runs ahead."""
        if len(batch.hidden_rows):
            return self._runner.forward_hidden(batch, *decided)
        return self._runner.forward(batch, *decided), None
