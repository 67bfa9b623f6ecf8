"""One decoder for all architectures: token ids in, logits out, KV written on the way.

A step is a ragged batch of tokens laid end to end (`[T]`, no padding); which of them belong together is known
to the attention plan alone. This module knows no requests, no scheduler and no sampling, and keeps nothing between
calls: everything a step needs is an argument.

Per layer::

    x ─ norm ─ qkv ─ (q, k norm) ─ rope ─ write KV ─ attention ─ o ─(norm)─ + ─ norm ─ gate·up ─ down ─(norm)─ +
    └──────────────────────── residual ─────────────────────────────────────┘└──────────── residual ───────────┘

With latent attention (`latent.py`) queries meet one vector per token instead of keys and values of their own.

Cost: four matrix products per layer (q, k, v and gate, up are stacked when loading). In the last layer only the rows
whose logits are wanted go on after the attention; with none wanted it ends where the last layer that keeps something
has written it. In fp32 on the CPU no op
lets a row's bits depend on the other rows: a token's logits are the same alone, in a batch, or after a cached prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from ...kernels import LinearWeight, LoraPlan, ops
from ...kernels.linear_weight import Quantise
from ..parallel.ranks import ALONE, Ranks
from .altup import StreamWeights
from .checkpoints import open_weights, prefix_of
from .config import ModelConfig
from .cut import Cut
from .head_norms import norm_inner
from .heads import place_heads, queries
from .latent import queries_and_latents, values
from .layer_config import kv_places, last_kept
from .layer_inputs import InputEmbedding
from .layer_weights import AdaptedMixer, LayerWeights, WeightPart, num_bytes
from .mlp import MlpRules, run_mlp
from .model_parts import read_parts
from .norms import Norm, add_norm, apply_norm, rounded, scaled
from .partial_linear import AT_O, AT_QKV, adapted_linear, partial_linear
from .plain_layers import plain_layers
from .reader import Reader
from .rope import query_scales, rope_table, table_by_length
from .step import AdaptedRows, KVTensors, StateStep, WindowStep
from .streams import Streams
from .vocabulary import add_positions, all_logits, embed
from .weights import TORCH_TYPES

ROW_TILE = 256  # about where a product on a GPU stops being bound by reading the weights


class Decoder:
    """A loaded model.

    Attributes:
        config: what the checkpoint says about itself; of several ranks, the part that this one computes (`cut.py`).
        cut: which part of the whole model that is.
        device, dtype: of weights and activations.
        max_positions: every position of a step must be below it.
        rope_tables: of `config.ropes`, see `rope_table`.
        generates: whether there is a projection to the vocabulary, without which there are hidden states and no logits.
        takes_hidden: whether `forward` takes hidden states besides tokens (`MtpDecoder`).
    """

    takes_hidden = False

    def __init__(
        self,
        cut: Cut,
        *,
        embedding: LinearWeight,
        layers: list[LayerWeights],
        final_norm: Norm,
        lm_head: LinearWeight | None,
        max_positions: int,
        learned: Tensor | None = None,
        inputs: InputEmbedding | None = None,
        streams: StreamWeights | None = None,
    ) -> None:
        self.config = config = cut.config
        self.cut, self._ranks, self.max_positions = cut, cut.ranks, max_positions
        self.device, self.dtype = embedding.stored.device, embedding.dtype
        self._embedding, self._learned, self._inputs, self._streams = embedding, learned, inputs, streams
        own = [
            embedding,
            learned,
            lm_head,
            final_norm,
            *(inputs.parts if inputs else ()),
            *(streams.parts if streams else ()),
        ]
        self._own: list[WeightPart] = [part for part in own if part is not None]
        self._layers = list(zip(config.layers, layers, strict=True))
        self._kv_index = kv_places(config.layers)
        self._last_kept = last_kept(config.layers, None if config.recurrent is None else config.recurrent.layers)
        self._final_norm, self._lm_head = final_norm, lm_head
        self.generates = lm_head is not None
        self.rope_tables = [rope_table(rope, max_positions).to(self.device) for rope in config.ropes]
        growth, self._query_scales = config.query_growth, torch.empty(0)
        if growth is not None:
            self._query_scales = query_scales(growth, max_positions).to(self.device, self.dtype)
        self._embedding_scale = rounded(config.embedding_scale, self.dtype)
        self._rules = MlpRules.of(cut)
        self._plain = plain_layers(config, self._layers, self._rules.gate, cut.ranks) if streams is None else None

    @staticmethod
    def from_folder(
        path: str | Path,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype | None = None,
        max_positions: int | None = None,
        deterministic: bool = False,
        quantise: Quantise = "none",
        report: Callable[[int, int], None] | None = None,
        ranks: Ranks = ALONE,
    ) -> Decoder:
        """Loads a checkpoint folder (Hugging Face layout, safetensors), or a GGUF file.

        dtype: None takes the stored one. max_positions: longest sequence that will be served; None takes the model's
        own `max_position_embeddings`. deterministic: projections whose bits do not depend on the batch on a GPU too
        (`triton.linear`), and in half types on the CPU, by products of `ROW_TILE` rows each; in fp32 on the CPU they
        never do, at no cost. quantise: round all matrices, the embedding included, to "int8" or "int4" while loading
        (fp32 on the CPU only); norms and biases stay, and so do matrices that are published in few bits, but that their
        products may round inputs then, which is faster. report: called with the numbers of layers read and of all
        layers. ranks: this process among those that compute the model together, of which it reads its part.

        Raises:
            ModelError: anything in the folder that is missing, odd or not supported.
            ConfigError: this number of ranks cannot share the model.
        """
        folder, device = Path(path), torch.device(device)
        cut = Cut(ModelConfig.from_folder(folder), ranks)
        config = cut.config
        with open_weights(folder, cut.whole, dtype or TORCH_TYPES[config.dtype]) as checkpoint:
            prefix = prefix_of(checkpoint, config)
            reader = Reader(cut, checkpoint, prefix, device, ROW_TILE if deterministic else 0, quantise)
            parts = read_parts(reader, report)
        return Decoder(cut, max_positions=max_positions or config.max_position_embeddings, **parts)

    def switch_ropes(self) -> int | None:
        """From now on positions are rows of tables in two parts, by the length of a sequence (`Request.first_row`).

        Returns the first part's rows, as many as its sequences have tokens; None: one part serves all, nothing changes.
        """
        ropes = self.config.ropes
        found = {length for rope in ropes if (length := rope.switches_at(self.max_positions)) is not None}
        if len(found) != 1 or self.config.query_growth is not None:
            return None
        (switches_at,) = found
        self.rope_tables = [table_by_length(rope, self.max_positions, switches_at).to(self.device) for rope in ropes]
        return switches_at

    @property
    def num_weight_bytes(self) -> int:
        """Bytes of all weights on the device, the tied embedding counted once."""
        return num_bytes(self._own, [layer for _, layer in self._layers])

    @torch.inference_mode()
    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        kv_cache: KVTensors,
        plan: ops.AttentionPlan,
        slots: Tensor,
        logits_rows: Tensor | None = None,
        adapted: AdaptedRows | None = None,
        watch: Callable[[int, Tensor], None] | None = None,
        recurrent: StateStep | None = None,
        windowed: WindowStep | None = None,
    ) -> Tensor:
        """Computes one step and writes its KV into `kv_cache`; returns logits `[R, vocab_size]` of `logits_rows`.

        See `hidden_states` for the arguments, `project` for the numbers' type.
        """
        step = (token_ids, positions, kv_cache, plan, slots, logits_rows)
        return self.project(self.hidden_states(*step, adapted, watch, recurrent, windowed))

    @torch.inference_mode()
    def project(self, hidden: Tensor) -> Tensor:
        """Logits `[R, vocab_size]` of hidden states `[R, hidden_size]`; fp32 or, on a GPU, as the product has them.
        Other ranks than 0 return those of their own tokens alone."""
        if hidden.shape[0] == 0:
            return torch.empty((0, self.config.vocab_size), dtype=torch.float32, device=self.device)
        assert self._lm_head is not None
        return all_logits(ops.linear(hidden, self._lm_head), self._ranks, self.cut.vocab, self.config.logits_soft_cap)

    @torch.inference_mode()
    def hidden_states(
        self,
        token_ids: Tensor,
        positions: Tensor,
        kv_cache: KVTensors,
        plan: ops.AttentionPlan,
        slots: Tensor,
        rows: Tensor | None = None,
        adapted: AdaptedRows | None = None,
        watch: Callable[[int, Tensor], None] | None = None,
        recurrent: StateStep | None = None,
        windowed: WindowStep | None = None,
    ) -> Tensor:
        """Computes one step and writes its KV into `kv_cache`; returns what `project` takes: hidden states after the
        final norm, times `config.width_scale`, `[R, hidden_size]`.

        token_ids, positions, slots `[T]` int64 (slot = block · block_size + offset); rows `[R]` int64: those that are
        wanted, None: all. adapted: None where no row goes through an adapter. watch: called for each layer that keeps
        keys with its place in the cache and queries `[T, H, head_dim]`, before they meet the keys. recurrent: the
        states, of a model with such layers. windowed: for layers with a window, in place of plan and slots; None: they
        have none of their own.
        """
        x = scaled(embed(token_ids, self._embedding, self._ranks, self.cut.vocab), self._embedding_scale)
        x, kept = add_positions(x, self._learned, positions), kv_cache.hidden
        step = (positions, kv_cache, plan, slots, rows if kept is None else None)
        inputs = None if self._inputs is None else self._inputs.of(token_ids, x, self.config, self._ranks)
        states = self._through_layers(x, *step, adapted, watch, recurrent, windowed, inputs)
        if kept is not None:
            kept[slots] = states
        return states if kept is None or rows is None else states[rows]

    def _through_layers(
        self,
        x: Tensor,
        positions: Tensor,
        kv_cache: KVTensors,
        plan: ops.AttentionPlan,
        slots: Tensor,
        rows: Tensor | None,
        adapted: AdaptedRows | None,
        watch: Callable[[int, Tensor], None] | None,
        recurrent: StateStep | None,
        windowed: WindowStep | None,
        inputs: Tensor | None = None,
    ) -> Tensor:
        """As `hidden_states`, of what goes into the first layer, `[T, hidden_size]`; inputs: of each layer."""
        eps, streams = self.config.rms_norm_eps, None
        if self._streams is not None and inputs is not None:
            streams = Streams(self._streams, x, inputs, self.config, self._rules)
        normed, residual = x if streams is not None else apply_norm(x, self._layers[0][1].input_norm, eps), x
        last, factors = len(self._layers) - 1, self.config.factors
        lora = adapted.every if adapted is not None else None
        none_wanted = rows is not None and rows.shape[0] == 0
        padded = slots if rows is None else None  # a caller that wants the logits of all tokens may have padded them
        first = 0
        if self._plain is not None and adapted is None and watch is None and windowed is None and plan.mass is None:
            table = self.rope_tables[rope] if (rope := self._layers[0][0].rope) >= 0 else None
            kv = (kv_cache.keys, kv_cache.values, kv_cache.key_scales, kv_cache.value_scales)
            first = self._plain.run(normed, residual, positions, slots, table, kv, plan.cpu_work)
        for index, (spec, weights) in enumerate(self._layers[first:], first):
            own = windowed if windowed is not None and spec.window else WindowStep(plan, slots)
            stops = index == self._last_kept and none_wanted and plan.mass is None
            if streams is not None:
                residual = streams.predict(weights)
                normed = apply_norm(residual, weights.input_norm, eps)
            mixed = self._mix(index, normed, positions, kv_cache, own, lora, watch, recurrent, stops)
            if stops:
                return normed[:0]
            if index == last and rows is not None:
                mixed, residual, normed = [part[rows] for part in mixed], residual[rows], normed[rows]
                inputs = None if inputs is None else inputs[rows]
                if streams is not None:
                    streams.select(rows)
                lora = adapted.wanted if adapted is not None else None
            if mixed:
                residual = normed * factors.keeps[spec.attends] if factors.keeps else residual
                x = self._add_up(index, mixed, lora)
                if streams is not None:
                    residual = streams.after_attention(weights, x, normed)
                    normed = apply_norm(residual, weights.mlp_norm, eps)
                elif self.config.options.parallel:
                    norm = weights.mlp_norm
                    normed = normed if norm is None else apply_norm(residual, norm, eps)
                    residual = x + residual
                elif spec.has_mlp:
                    normed, residual = add_norm(x, residual, weights.mlp_norm, eps)
            if spec.has_mlp:
                residual = normed * factors.keeps[2] if factors.keeps else residual
                x = run_mlp(normed, weights, self._rules, index, padded, lora, residual)
                x = scaled(apply_norm(x, weights.post_mlp_norm, eps), self.config.residual_scale * factors.adds[2])
            if streams is not None:
                streams.correct(weights, index, x + residual)
                continue
            if weights.layer_input is not None and inputs is not None:
                residual = x + residual
                x = weights.layer_input.of(residual, inputs[:, index], self._rules.gate, eps)
            following = self._final_norm if index == last else self._layers[index + 1][1].input_norm
            normed, residual = add_norm(x, residual, following, eps, weights.scalar)
        return normed if streams is None else apply_norm(streams.join(), self._final_norm, eps)

    def _mix(
        self,
        index: int,
        normed: Tensor,
        positions: Tensor,
        kv_cache: KVTensors,
        own: WindowStep,
        lora: LoraPlan | None,
        watch: Callable[[int, Tensor], None] | None,
        recurrent: StateStep | None,
        stops: bool,
    ) -> list[Tensor]:
        """What a layer's attention, and its recurrent mixer, make of hidden states, before their last projections; none
        of an MLP alone. stops: attention writes its KV and makes nothing."""
        spec, weights = self._layers[index]
        mixed = []
        if spec.attends:
            source = scaled(normed, self.config.factors.attention_in)
            q, gate = self._write_kv(index, source, positions, kv_cache, own.slots, lora)
            if watch is not None and spec.keeps_kv:
                watch(self._kv_index[index], q)
            if not stops:
                attended = self._attend(index, q, kv_cache, own.plan)
                mixed.append(attended if gate is None else attended * ops.sigmoid(gate))
        if weights.recurrent is not None and recurrent is not None:
            step = (normed, recurrent.states[index], recurrent.rounds)
            if lora is not None and not spec.attends and isinstance(weights.recurrent, AdaptedMixer):
                adapt = partial(ops.add_lora, x=normed, plan=lora, layer=index, place=AT_QKV)
                mixed.append(weights.recurrent.mix(*step, adapt))
            else:
                mixed.append(weights.recurrent.mix(*step))
        return mixed

    def _add_up(self, index: int, mixed: list[Tensor], lora: LoraPlan | None) -> Tensor:
        """What the layer adds to hidden states of what `_mix` made: its last projections and their sum, `[T, C]`."""
        (spec, weights), eps = self._layers[index], self.config.rms_norm_eps
        factors, ranks = self.config.factors, self._ranks
        assert weights.o is not None
        attended = norm_inner(mixed[0], weights.o_norm, self.cut.attended(index), ranks, eps)
        x = adapted_linear(attended, weights.o, lora, index, AT_O, ranks)
        if weights.beside is not None:
            x = x * factors.attention_out + partial_linear(mixed[1], weights.beside, ranks) * factors.recurrent_out
        x = apply_norm(ranks.sum(x), weights.post_attention_norm, eps)
        return scaled(x, self.config.residual_scale * factors.adds[spec.attends])

    def _write_kv(
        self,
        index: int,
        normed: Tensor,
        positions: Tensor,
        kv_cache: KVTensors,
        slots: Tensor,
        lora: LoraPlan | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Queries `[T, H, head_dim]`; what they meet of these tokens is in the cache of the layer then. And the gate of
        what they will find, `[T, H · head_dim]`; None: there is none."""
        spec, layer = self._layers[index]
        kept = self._kv_index[index]
        keys, latent = kv_cache.keys[kept], self.config.latent
        if latent is not None and layer.latent is not None:
            table = self.rope_tables[spec.rope] if spec.rope >= 0 else None
            q, latents = queries_and_latents(normed, layer.latent, latent, positions, table)
            ops.write_latents(latents, keys[:, 0], slots)
            return q, None
        assert layer.qkv is not None
        heads = adapted_linear(normed, layer.qkv, lora, index, AT_QKV)
        cos_sin, gate = self.rope_tables[spec.rope] if spec.rope >= 0 else None, None
        if spec.keeps_kv:
            q, gate = place_heads(heads, layer, self.cut, index, positions, cos_sin, kv_cache, kept, slots)
        else:
            heads = heads.view(len(positions), self.config.num_heads, -1)
            q = queries(heads, layer.q_norm, self.config.rms_norm_eps, positions, cos_sin)
        if spec.grows:
            q = q * self._query_scales[positions][:, None, None]
        return q, gate

    def _attend(self, index: int, q: Tensor, kv_cache: KVTensors, plan: ops.AttentionPlan) -> Tensor:
        """Values of all heads side by side, `[T, attended_size]`."""
        (spec, layer), kept, config = self._layers[index], self._kv_index[index], self.config
        keys, mass = kv_cache.keys[kept], None if plan.mass is None else plan.mass.layer(kept)
        if config.latent is not None and layer.latent is not None:
            scale, rank = config.attention_scale, config.latent.rank
            return values(ops.latent_attention(q, keys[:, 0], plan, scale=scale, rank=rank, mass=mass), layer.latent)
        return ops.attention(
            q,
            keys,
            kv_cache.values[kept],
            plan,
            scale=config.attention_scale,
            window=spec.window,
            in_chunks=spec.in_chunks,
            soft_cap=config.attention_soft_cap,
            sinks=layer.sinks,
            k_scales=kv_cache.key_scales[kept],
            v_scales=kv_cache.value_scales[kept],
            mass=mass,
        ).flatten(1)
