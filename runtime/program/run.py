"""One run of one program: what its states share, and what is still going on in any of them.

A run has one root state and every fork below it. It counts the workers at work, so that its end can be awaited;
it knows the requests under way, and the runs that its function has begun, so that it can be cancelled with all of them;
and it remembers failures until a caller sees them, so that none is lost. Knows the engine by the protocol `Backend`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Protocol

from ...errors import ProgramError
from ..constrain.spec import ConstraintSpec
from ..request import Completion, Delta, SamplingParams, TokenLogprob
from .chat_format import ChatFormat, TextTokenizer


class DeltaStream(Protocol):
    """One request under way: blocks while iterated; `abort` from another thread ends that, perhaps by an error."""

    def __iter__(self) -> Iterator[Delta]: ...

    def completions(self) -> list[Completion]: ...

    def abort(self) -> None: ...

    def fork(self, n: int = 1) -> Sequence[DeltaStream]: ...


class Backend(Protocol):
    """What programs need of an engine. All methods may be called from any thread; `Engine` is one."""

    @property
    def tokenizer(self) -> TextTokenizer: ...

    def submit(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        *,
        namespace: str = "",
        adapter: str | None = None,
    ) -> DeltaStream: ...

    def begin_scores(
        self,
        prompt: Sequence[int],
        continuations: Sequence[Sequence[int]],
        *,
        namespace: str = "",
        adapter: str | None = None,
    ) -> Sequence[DeltaStream]:
        """A request for each continuation, whose completion has its tokens' `prompt_logprobs`."""


class Run:
    """Shared by all states of one run.

    Attributes:
        name: the program's name, for errors.
        sampling: what `gen` uses in the root state for arguments it was not given.
        namespace: which cached prefixes the run may share.
        adapter: what its tokens go through; None: the model alone.
        streams: whether generated text is shown as it comes, or when it is complete.
    """

    def __init__(
        self,
        name: str,
        backend: Backend,
        chat_format: ChatFormat,
        sampling: SamplingParams,
        *,
        namespace: str = "",
        adapter: str | None = None,
        streams: bool = False,
    ) -> None:
        self.name = name
        self.tokenizer = backend.tokenizer
        self.chat_format = chat_format
        self.sampling = sampling
        self.namespace = namespace
        self.adapter = adapter
        self.streams = streams
        self._backend = backend
        self._changed = threading.Condition()
        self._num_working = 0
        self._streams: set[DeltaStream] = set()
        self._inner: set[Run] = set()
        self._unseen: list[ProgramError] = []
        self._cancelled = ""

    # -- workers -----------------------------------------------------------------------------------------------

    def enter(self) -> None:
        """A worker starts."""
        with self._changed:
            self._num_working += 1

    def leave(self) -> None:
        """A worker ends."""
        with self._changed:
            self._num_working -= 1
            self._changed.notify_all()

    def wait(self) -> None:
        """Returns when no state of the run has anything left to do."""
        with self._changed:
            self._changed.wait_for(lambda: self._num_working == 0)

    # -- failures ----------------------------------------------------------------------------------------------

    def failed(self, error: ProgramError) -> None:
        """Remembers a failure until a caller sees it."""
        with self._changed:
            self._unseen.append(error)

    def seen(self, error: ProgramError) -> None:
        """The failure has reached the program."""
        with self._changed:
            if error in self._unseen:
                self._unseen.remove(error)

    def first_unseen(self) -> ProgramError | None:
        """The oldest failure that has not reached the program."""
        with self._changed:
            return self._unseen[0] if self._unseen else None

    # -- requests ----------------------------------------------------------------------------------------------

    def submit(self, prompt: Sequence[int], sampling: SamplingParams, constraint: ConstraintSpec | None) -> DeltaStream:
        """Starts a request; `release` it when it has ended."""
        self.check()
        stream = self._backend.submit(prompt, sampling, constraint, namespace=self.namespace, adapter=self.adapter)
        self._hold([stream])
        return stream

    def fork(self, stream: DeltaStream, n: int) -> Sequence[DeltaStream]:
        """Requests that go on from where another stands now; `release` each when it has ended.

        Raises:
            RequestError: it has ended.
        """
        self.check()
        children = stream.fork(n)
        self._hold(children)
        return children

    def release(self, stream: DeltaStream) -> None:
        """Forgets a request that has ended."""
        with self._changed:
            self._streams.discard(stream)

    def score(self, prompt: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[list[TokenLogprob]]:
        """Log-probabilities of the continuations; on an engine and on phloem's server all in one batch.

        Raises:
            PhloemError: a request fails, or the run was cancelled.
        """
        self.check()
        streams = self._backend.begin_scores(prompt, continuations, namespace=self.namespace, adapter=self.adapter)
        self._hold(streams)
        try:
            return [list(stream.completions()[0].prompt_logprobs) for stream in streams]
        except BaseException:
            for stream in streams:
                stream.abort()
            self.check()  # if the run was cancelled, that is the reason
            raise
        finally:
            for stream in streams:
                self.release(stream)

    def _hold(self, streams: Sequence[DeltaStream]) -> None:
        """Remembers requests that have begun, so that `cancel` ends them; it may just have been called."""
        with self._changed:
            self._streams.update(streams)
            cancelled = bool(self._cancelled)
        if cancelled:
            for stream in streams:
                stream.abort()

    # -- the end -----------------------------------------------------------------------------------------------

    def begin_inner(self, inner: Run) -> None:
        """The function of this run has begun another run, and waits for it: `cancel` cancels that too."""
        with self._changed:
            self._inner.add(inner)
            cancelled = bool(self._cancelled)
        if cancelled:
            inner.cancel()

    def end_inner(self, inner: Run) -> None:
        """That run has ended."""
        with self._changed:
            self._inner.discard(inner)

    def cancel(self, cause: BaseException | None = None) -> None:
        """Aborts the requests under way; expressions that have not begun fail. `cause` is what stopped the program."""
        reason = f", because it raised {type(cause).__name__}: {cause}" if cause is not None else ""
        with self._changed:
            self._cancelled = self._cancelled or f"the run was cancelled{reason}"
            streams, inner = list(self._streams), list(self._inner)
        for stream in streams:
            stream.abort()
        for run in inner:
            run.cancel(cause)

    def check(self) -> None:
        """Raises ProgramError after `cancel`."""
        if self._cancelled:
            raise ProgramError(self._cancelled)
