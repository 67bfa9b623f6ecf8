"""A batch's index arrays → logits. The one place where numpy becomes tensors on the device.

Knows the decoder, the KV tensors and the kernels' plan; it knows no requests beyond the batch's arrays. Steps that are
worth it come from `CudaGraphs`, all others are launched kernel by kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import ConfigError
from ...kernels import (
    AttentionPlan,
    FixedBuffer,
    LoraSegment,
    WorkBuffers,
    gather_kv,
    is_quantised,
    narrow_segments,
    num_programs_at_once,
    plan_attention,
    plan_lora,
    score_keys,
    send,
)
from ...kernels.state_rounds import ZEROS, plan_states
from ..device import on_device
from ..models import AdaptedRows, Adapter, Decoder, ModelConfig
from ..models.fitted_vocabulary import FittedVocabulary
from ..models.kv_shape import KVShape
from ..models.rope import turn_back
from ..models.step import StateStep, WindowStep
from .batch import NOWHERE, AdapterRows, Batch
from .cuda_graphs import CudaGraphs, Recorder, fill_in
from .kv_cache import NO_LAYER, KVCache
from .received_step import ReceivedStep
from .recurrent_states import SCRATCH, RecurrentStates
from .warmup_batches import WarmupBatches
from .window_kv import WindowKV

Watch = Callable[[int, Tensor], None]  # see `Decoder.forward`


class ModelRunner:
    """Runs one ragged forward per step.

    Args:
        recorder: captures steps of few tokens, which are then replayed; None: every step is launched kernel by kernel.
        deterministic: attention whose bits do not depend on the step; see `plan_attention`.
        states: of recurrent layers. There is no recorder then.

    Attributes:
        num_forwards: forwards run so far.
        num_computed_tokens: tokens computed so far, drafts included.
    """

    def __init__(
        self,
        decoder: Decoder | FittedVocabulary,
        kv_cache: KVCache | WindowKV,
        device: torch.device,
        recorder: Recorder | None = None,
        *,
        deterministic: bool = False,
        states: RecurrentStates | None = None,
    ) -> None:
        assert states is None or recorder is None
        self._states = states
        self._decoder = decoder
        self._deterministic = deterministic
        self._kv_cache = kv_cache
        self._device = device
        self._shapes = _shapes_of(decoder.config, kv_cache)
        self._graphs: CudaGraphs | None = None
        if recorder is not None:
            vocab_size = decoder.config.vocab_size
            with on_device(device):  # pinned memory is taken through the current device
                num_programs = num_programs_at_once(device)
                buffers, windowed = (WorkBuffers(device, num_programs) for _ in range(2))
                self._graphs = CudaGraphs(
                    self._plan, self._forward, self._adapted, buffers, windowed, recorder, vocab_size=vocab_size
                )
        self.num_forwards = 0
        self.num_computed_tokens = 0

    @torch.inference_mode()
    def forward(self, batch: Batch, decided: Tensor | None = None) -> Tensor:
        """Writes the batch's KV and returns logits `[R, vocab_size]` of `batch.logits_rows`, as the decoder makes them.

        With a recorder they may be overwritten by the next call. On a GPU all of it is queued, and nothing waited for.

        decided: int64, tokens of the step before on the device, where `batch.unread` finds those that are not known.
        """
        self.num_forwards += 1
        self.num_computed_tokens += len(batch.token_ids)
        return self._compute(batch, decided)

    @torch.inference_mode()
    def forward_hidden(self, batch: Batch, decided: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As `forward`; and the hidden states of `batch.hidden_rows` after the final norm, `[H, hidden_size]` fp32."""
        self.num_forwards += 1
        self.num_computed_tokens += len(batch.token_ids)
        wanted = np.union1d(batch.logits_rows, batch.hidden_rows)
        decoder = self._decoder
        with on_device(self._device):
            states = self._launch(
                replace(self._with_windows(batch), logits_rows=wanted), decided, None, decoder.hidden_states
            )
            at_logits, at_hidden = (
                send(np.searchsorted(wanted, rows), self._device) for rows in (batch.logits_rows, batch.hidden_rows)
            )
            hidden = states[at_hidden].float() / decoder.config.width_scale
            return decoder.project(states[at_logits]), hidden

    @torch.inference_mode()
    def run_warmup_batches(self, batches: WarmupBatches) -> None:
        """Runs steps of all kinds, and captures those that come from graphs, so that none of them is slow later.

        KV and counts stay as they are; logits of an earlier step may be overwritten.

        Raises:
            ConfigError: the device has no memory for one of them.
        """
        times = 2 if self._graphs is not None else 1  # a step is captured when it comes for the second time
        for batch in chain(*(repeat(batch, times) for batch in batches.decodes()), batches.prefills()):
            try:
                self._compute(batch)
            except torch.OutOfMemoryError as error:
                raise ConfigError(
                    f"no memory is left for a step of {len(batch.token_ids)} tokens and {len(batch.context_lens)} "
                    "requests; lower kv_memory_share, max_batch_tokens or max_running_requests"
                ) from error

    @torch.inference_mode()
    def score_keys(
        self, token_ids: Sequence[int], end: int, blocks: Sequence[int], num_keys: int, adapter: Adapter | None
    ) -> Tensor:
        """How much attention a request's last tokens pay to each of its keys: `[num_layers, num_kv_heads, num_keys]`.

        See `kernels.score_keys`. Computes these tokens once more, and writes nothing.

        Args:
            token_ids: of the positions up to `end`; the last of the `num_keys` keys in `blocks` are theirs.
            adapter: what they go through; None: the model alone.
        """
        self.num_forwards += 1
        config, cache, length = self._decoder.config, self._kv_cache, len(token_ids)
        batch = Batch(
            [],
            np.array(token_ids, np.int64),
            np.arange(end - length, end, dtype=np.int64),
            np.full(length, NOWHERE, np.int64),
            np.array([0, length], np.int32),
            np.array([num_keys], np.int32),
            np.array([blocks], np.int32),
            [],
            np.empty(0, np.int64),
            adapters=() if adapter is None else (AdapterRows(0, length, adapter),),
        )
        scores: list[Tensor] = []

        def watch(index: int, q: Tensor) -> None:
            keys = gather_kv(cache.keys[index], table, num_keys, cache.key_scales[index])
            scores.append(score_keys(q, keys, scale=config.attention_scale, soft_cap=config.attention_soft_cap))

        with on_device(self._device):
            table = send(batch.block_tables[0], self._device)
            self._compute(batch, watch=watch)
            return torch.stack(scores)

    @torch.inference_mode()
    def turn_back(self, kept: list[Tensor], first: int, num_positions: int) -> None:
        """Turns keys that `KVCache.gather` has copied, from place `first` on, to positions that are so much smaller."""
        assert isinstance(self._kv_cache, KVCache)
        layers, tables = self._decoder.config.layers, self._decoder.rope_tables
        self._kv_cache.change_keys(
            kept, first, lambda layer, keys: turn_back(keys, tables[layers[layer].rope], num_positions)
        )

    def _compute(self, batch: Batch, decided: Tensor | None = None, watch: Watch | None = None) -> Tensor:
        batch = self._with_windows(batch)
        with on_device(self._device):
            is_plain = watch is None and not batch.counts_attention
            if self._graphs is not None and is_plain and self._graphs.fits(batch):
                return self._graphs.forward(batch, decided)
            return self._launch(batch, decided, watch, self._decoder.forward)

    def _launch(
        self, batch: Batch, decided: Tensor | None, watch: Watch | None, compute: Callable[..., Tensor]
    ) -> Tensor:
        columns = (batch.token_ids, batch.positions, batch.slots, batch.logits_rows)
        token_ids, positions, slots, rows = (send(column, self._device) for column in columns)
        if batch.unread is not None:
            fill_in(token_ids, send(batch.unread, self._device), decided, self._decoder.config.vocab_size)
        plan, received = self._plan(batch), None
        if batch.counts_attention:
            num_layers, num_kv_heads = len(self._kv_cache.keys), self._kv_cache.keys[0].shape[1]
            received = ReceivedStep.of(batch, num_layers=num_layers, num_kv_heads=num_kv_heads, device=self._device)
            plan = replace(plan, mass=None if received is None else received.mass)
        step = (token_ids, positions, self._kv_cache, plan, slots, rows)
        few: dict[str, Any] = {"adapted": self._adapted(batch), "watch": watch, "recurrent": self._state_step(batch)}
        if batch.windowed is not None:
            few["windowed"] = WindowStep(self._plan(batch.windowed), send(batch.windowed.slots, self._device))
        out = compute(*step, **{name: one for name, one in few.items() if one is not None})  # hardly a step has them
        if received is not None:
            received.keep()
        return out

    def _with_windows(self, batch: Batch) -> Batch:
        """Layers with a window have a plan of their own where their heads differ from the others'."""
        if batch.windowed is not None or len(set(self._shapes)) == 1:
            return batch
        return replace(batch, windowed=replace(batch, in_windows=True))

    def _state_step(self, batch: Batch) -> StateStep | None:
        if self._states is None:
            return None
        rounds = batch.state_rounds
        if not rounds:  # a warm-up batch
            starts = batch.query_starts.astype(np.int64)
            slots = np.broadcast_to([ZEROS, SCRATCH], (len(starts) - 1, 2))
            rounds = (np.column_stack([starts[:-1], starts[1:], slots]),)
        return StateStep(self._states.layers, plan_states(rounds, self._device))

    def _adapted(self, batch: Batch, buffer: FixedBuffer | None = None) -> AdaptedRows | None:
        """buffer: where it shall lie, for a batch of which all logits are wanted."""
        if not batch.adapters:
            return None
        segments = [LoraSegment(one.begin, one.end, one.adapter.layers) for one in batch.adapters]
        if buffer is not None:
            every = plan_lora(segments, self._device, buffer)
            return AdaptedRows(every, every)
        wanted = narrow_segments(segments, batch.logits_rows)
        return AdaptedRows(plan_lora(segments, self._device), plan_lora(wanted, self._device))

    def _plan(self, batch: Batch, buffers: WorkBuffers | None = None, num_tokens: int = 0) -> AttentionPlan:
        shape = self._shapes[batch.in_windows]
        return plan_attention(
            batch.query_starts,
            batch.context_lens,
            batch.block_tables,
            num_heads=self._decoder.config.num_heads,
            num_kv_heads=shape.num_heads,
            head_dim=shape.head_dim,
            block_size=self._kv_cache.block_size,
            device=self._device,
            deterministic=self._deterministic,
            itemsize=self._decoder.dtype.itemsize,
            quantised=any(is_quantised(keys.dtype) for keys in self._kv_cache.keys[:1]),
            counts_mass=batch.counts_attention,
            buffers=buffers,
            num_tokens=num_tokens,
        )

    def _forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        plan: AttentionPlan,
        slots: Tensor,
        logits_rows: Tensor | None = None,
        adapted: AdaptedRows | None = None,
        windowed: WindowStep | None = None,
    ) -> Tensor:
        """What a graph captures."""
        step = (token_ids, positions, self._kv_cache, plan, slots, logits_rows)
        few: dict[str, Any] = {"adapted": adapted, "windowed": windowed}
        return self._decoder.forward(*step, **{name: one for name, one in few.items() if one is not None})


def _shapes_of(config: ModelConfig, kv_cache: KVCache | WindowKV) -> tuple[KVShape, KVShape]:
    """The shape of layers without a window, and of those with one; each the other's if there are none."""
    kept = [layer.window > 0 for layer in config.layers if layer.keeps_kv]
    of = {bool(has_window): shape for has_window, shape in zip(kept, kv_cache.shapes, strict=False)}
    found = [of[has_window] for has_window in (False, True) if has_window in of] or [NO_LAYER]
    return found[0], found[-1]
