"""Whole steps captured as CUDA graphs and replayed, so that a decode step costs one launch instead of hundreds.

A step fits if every token's logits are wanted: decode tokens and drafts to verify, in any mixture. It is padded to the
next of a few sizes, and what it computes on lies in buffers that stay where they are::

    batch ──► token_ids, positions, slots │ work list ──► graph of (size, signature) ──► logits[:num_tokens]
              padded with 0, 0, -1          counts on the device

A graph knows sizes and places, never contents: contexts grow, requests and adapters come and go. The signature says
which attention kernels a step launches (`CudaWork.signature`), and, if rows go through adapters, how many tiles of them
there may be and how wide these are (`LoraPlan.signature`); a batch keeps one for most of its life.

    first step of its kind    runs as it is, which also compiles what is not compiled yet
    second                    is captured, then replayed
    later ones                are replayed
    a buffer had to move      all graphs are dropped, and captured again when they are needed
    capture fails             the step runs as it is, with a warning

Knows no requests, no model and no scheduler. Capturing is the `Recorder`'s, so that all of this runs without a GPU.
"""

from __future__ import annotations

import gc
import warnings
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

from ...kernels import AttentionPlan, FixedBuffer, WorkBuffers
from ..config import EngineConfig
from ..device import on_device
from ..models import AdaptedRows
from ..models.step import WindowStep
from .batch import NOWHERE, Batch

SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256)
MAX_GRAPHS = 192

Step = Callable[[], Tensor]
Key = tuple[object, ...]


class Recorder(Protocol):
    """Turns work on the device into something that repeats it."""

    def record(self, step: Step) -> Step:
        """Captures what `step` launches, without running it. The result runs it and returns the tensor of the capture,
        whose contents hold until anything that was recorded runs again."""
        ...


class CudaRecorder:
    """CUDA graphs of one device. They share one pool of memory, for only one runs at a time.

    They are captured on a stream of its own: the one that torch would take is shared by the whole process, and belongs
    to whichever device captured first. A graph of next to nothing stays for as long as the recorder: a pool whose last
    graph is gone takes no other while libraries still have their workspaces in it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        with on_device(device):
            self._pool = torch.cuda.graph_pool_handle()
            self._stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch has no types
            self._keeper = self.record(lambda: torch.zeros(1, device=device))

    def record(self, step: Step) -> Step:
        graph = torch.cuda.CUDAGraph()
        # what other threads do on the device meanwhile is no part of it, and no error
        capture = torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local")
        # a capture that fails would leave its stream the current one
        stream = torch.cuda.stream(torch.cuda.current_stream(self._device))
        with stream, _without_garbage(), capture:
            output = step()

        def replay() -> Tensor:
            graph.replay()
            return output

        return replay


def make_recorder(config: EngineConfig, device: torch.device, *, has_states: bool) -> CudaRecorder | None:
    """None: steps are launched kernel by kernel, as on the CPU, and with states of recurrent layers."""
    records = config.cuda_graphs and device.type == "cuda" and not has_states
    return CudaRecorder(device) if records else None


@contextmanager
def _without_garbage() -> Iterator[None]:
    """No collection meanwhile: freeing memory, events or modules of the device would end a capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class CudaGraphs:
    """Runs steps of few tokens from graphs.

    Args:
        plan: lays a batch's attention out in the buffers, for a number of tokens.
        forward: token_ids, positions, plan, slots, None, adapted, windowed → logits `[T, vocab_size]` of all tokens.
            Everything it does must be queued on the current stream and depend on the contents of its arguments on the
            device alone.
        adapted: lays a batch's adapters out in the buffer.
        buffers: for the work lists; windowed_buffers: for those of layers with a window, where they are their own.

    Attributes:
        num_captured: graphs captured so far.
        num_replayed: steps that came from a graph.
    """

    def __init__(
        self,
        plan: Callable[[Batch, WorkBuffers, int], AttentionPlan],
        forward: Callable[
            [Tensor, Tensor, AttentionPlan, Tensor, Tensor | None, AdaptedRows | None, WindowStep | None], Tensor
        ],
        adapted: Callable[[Batch, FixedBuffer], AdaptedRows | None],
        buffers: WorkBuffers,
        windowed_buffers: WorkBuffers,
        recorder: Recorder,
        *,
        vocab_size: int,
        max_graphs: int = MAX_GRAPHS,
    ) -> None:
        self._plan = plan
        self._forward = forward
        self._adapted = adapted
        self._buffers = (buffers, windowed_buffers)
        self._recorder = recorder
        self._max_graphs = max_graphs
        self._inputs = FixedBuffer(torch.int64, buffers.device, size=5 * SIZES[-1])
        self._tiles = FixedBuffer(torch.int64, buffers.device, size=3 * SIZES[-1])  # a tile has a row, or is padding
        self._vocab_size = vocab_size
        # of all graphs, for if each kept a result of its own they would take more memory than everything else in them
        self._logits: Tensor | None = None
        self._graphs: OrderedDict[Key, Step] = OrderedDict()
        self._seen: set[Key] = set()
        self._num_moves = self._count_moves()
        self.num_captured = 0
        self.num_replayed = 0

    @staticmethod
    def fits(batch: Batch) -> bool:
        """Whether the step may come from a graph."""
        return 0 < len(batch.token_ids) == len(batch.logits_rows) <= SIZES[-1]

    def forward(self, batch: Batch, decided: Tensor | None = None) -> Tensor:
        """Logits `[T, vocab_size]` of a batch that `fits`; they hold until the next call. decided: see `fill_in`."""
        num_tokens = len(batch.token_ids)
        size = SIZES[bisect_left(SIZES, num_tokens)]
        steps = [batch] if batch.windowed is None else [batch, batch.windowed]
        plans = [self._plan(step, buffers, size) for step, buffers in zip(steps, self._buffers, strict=False)]
        self._send(batch, size)
        if batch.unread is not None:
            unread = self._inputs.tensor[(2 + len(plans)) * size :][:size]
            fill_in(self._inputs.tensor[:size], unread, decided, self._vocab_size)
        if self._num_moves != self._count_moves():
            self._graphs.clear()
            self._num_moves = self._count_moves()
        adapted = self._adapted(batch, self._tiles)
        key: Key = tuple(plan.cuda_work.signature for plan in plans if plan.cuda_work is not None)
        if adapted is not None and adapted.every is not None:
            key = (key, adapted.every.signature)
        step = self._graph(key, lambda: self._step(plans, size, adapted))
        return step()[:num_tokens]

    def _graph(self, key: Key, step: Step) -> Step:
        """The graph of a step of this kind, or the step itself where there is none."""
        if key not in self._graphs:
            if key not in self._seen:
                self._seen.add(key)
                return step
            try:
                self._graphs[key] = self._recorder.record(step)
            except RuntimeError as error:  # above all: out of memory
                warnings.warn(f"a step that no CUDA graph could be made of runs without one: {error}", stacklevel=1)
                self._seen.discard(key)
                return step
            self.num_captured += 1
            if len(self._graphs) > self._max_graphs:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        self.num_replayed += 1
        return self._graphs[key]

    def _count_moves(self) -> int:
        return sum(buffers.num_moves for buffers in self._buffers)

    def _step(self, plans: list[AttentionPlan], size: int, adapted: AdaptedRows | None) -> Tensor:
        token_ids, positions, *slots = self._inputs.tensor[: (2 + len(plans)) * size].view(-1, size)
        windowed = WindowStep(plans[1], slots[1]) if len(plans) > 1 else None
        logits = self._forward(token_ids, positions, plans[0], slots[0], None, adapted, windowed)
        if self._logits is None:  # now, for the first step of all is none that is captured
            self._logits = torch.empty(SIZES[-1], logits.shape[1], dtype=logits.dtype, device=logits.device)
        return self._logits[:size].copy_(logits)

    def _send(self, batch: Batch, size: int) -> None:
        columns = [(batch.token_ids, 0), (batch.positions, 0), (batch.slots, NOWHERE)]
        if batch.windowed is not None:
            columns.append((batch.windowed.slots, NOWHERE))
        if batch.unread is not None:
            columns.append((batch.unread, -1))
        rows = self._inputs.stage(len(columns) * size).reshape(len(columns), size)
        for row, (values, filler) in zip(rows, columns, strict=True):
            row[: len(values)] = values
            row[len(values) :] = filler
        self._inputs.send()


def fill_in(token_ids: Tensor, unread: Tensor, decided: Tensor | None, vocab_size: int) -> None:
    """Writes the tokens that are not known yet into their places; queued, like all work on the device.

    Args:
        token_ids: `[T]` int64, changed in place.
        unread: `[T]` int64, where in `decided` each token is found; -1: it is known.
        decided: int64, tokens on the same device. What is no token of the vocabulary (nothing was allowed, logits were
            not numbers) is taken for one: its logits will not be used, but it must not read outside the embedding.
    """
    assert decided is not None, "a token that is not known is found nowhere"
    found = decided.clamp(0, vocab_size - 1)[unread.clamp(min=0)]
    torch.where(unread < 0, token_ids, found, out=token_ids)
