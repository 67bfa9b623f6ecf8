"""One decoder for all architectures: token ids in, logits out, KV written on the way.

A step is a ragged batch of tokens laid behind each other (`[T]`, no padding); which of them belong together is known
to the attention plan alone. This module knows no requests, no scheduler and no sampling, and keeps nothing between
calls: everything a step needs is an argument.

Per layer::

    x ─ norm ─ qkv ─ (q, k norm) ─ rope ─ write KV ─ attention ─ o ─(norm)─ + ─ norm ─ gate·up ─ down ─(norm)─ +
    └──────────────────────── residual ─────────────────────────────────────┘└──────────── residual ───────────┘

Cost: four matrix products per layer (q, k, v and gate, up are stacked when loading). In the last layer only the rows
whose logits are wanted go on after the attention; with none wanted it ends at the KV write. In fp32 on the CPU no op
lets a row's bits depend on the other rows: a token's logits are the same alone, in a batch, or behind a cached prefix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from ...errors import ModelError
from ...kernels import LinearWeight, ops, pack_linear
from .config import LayerConfig, ModelConfig
from .rope import rope_table
from .weights import Checkpoint, open_checkpoint

ROW_TILE = 256  # about where a product on a GPU stops being bound by reading the weights


class KVTensors(Protocol):
    """One tensor per layer, `[num_blocks, num_kv_heads, block_size, head_dim]`, and its scales if it is quantised."""

    keys: list[Tensor]
    values: list[Tensor]
    key_scales: list[Tensor] | list[None]
    value_scales: list[Tensor] | list[None]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer's weights; norms are fp32 with Gemma's offset added, None where the architecture has none."""

    input_norm: Tensor
    qkv: LinearWeight  # hidden_size -> (num_heads + 2 · num_kv_heads) · head_dim
    q_norm: Tensor | None  # [head_dim]
    k_norm: Tensor | None
    o: LinearWeight  # num_heads · head_dim -> hidden_size
    post_attention_norm: Tensor | None
    mlp_norm: Tensor
    gate_up: LinearWeight  # hidden_size -> 2 · intermediate_size
    down: LinearWeight  # intermediate_size -> hidden_size
    post_mlp_norm: Tensor | None


class Decoder:
    """A loaded model.

    Attributes:
        config: what the checkpoint says about itself.
        device, dtype: of weights and activations; logits are always fp32.
        max_positions: every position of a step must be below it.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        embedding: LinearWeight,
        layers: list[LayerWeights],
        final_norm: Tensor,
        lm_head: LinearWeight,
        max_positions: int,
    ) -> None:
        self.config = config
        self.device = embedding.stored.device
        self.dtype = embedding.dtype
        self.max_positions = max_positions
        self._embedding = embedding
        self._layers = list(zip(config.layers, layers, strict=True))
        self._final_norm = final_norm
        self._lm_head = lm_head
        self._rope_tables = [rope_table(rope, max_positions).to(self.device) for rope in config.ropes]
        # rounded as transformers rounds it: the factor is an activation
        self._embedding_scale = float(torch.tensor(math.sqrt(config.hidden_size)).to(self.dtype))
        self._gated = ops.silu_mul if config.activation == "silu" else ops.gelu_tanh_mul

    @staticmethod
    def from_folder(
        path: str | Path,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype | None = None,
        max_positions: int | None = None,
        deterministic: bool = False,
        int8: bool = False,
    ) -> Decoder:
        """Loads a checkpoint folder (Hugging Face layout, safetensors).

        dtype: None takes the stored one. max_positions: longest sequence that will be served; None takes the
        model's own `max_position_embeddings`. deterministic: projections whose bits do not depend on the batch on a
        GPU too, by products of `ROW_TILE` rows each; in fp32 on the CPU they always are, at no cost. int8: round all
        matrices, the embedding included, to int8 while loading (fp32 on the CPU only); norms and biases stay.

        Raises:
            ModelError: anything in the folder that is missing, odd or not supported.
        """
        folder, device = Path(path), torch.device(device)
        config = ModelConfig.from_folder(folder)
        with open_checkpoint(folder, dtype or config.dtype) as checkpoint:
            prefix = "" if "embed_tokens.weight" in checkpoint else "model."
            reader = _Reader(config, checkpoint, prefix, device, ROW_TILE if deterministic else 0, int8)
            embedding = reader.matrix(f"{prefix}embed_tokens.weight", config.vocab_size, config.hidden_size)
            layers = [reader.layer(index) for index in range(config.num_layers)]
            final_norm = reader.norm(f"{prefix}norm.weight", config.hidden_size)
            lm_head = embedding
            if not config.tie_word_embeddings:
                lm_head = reader.matrix("lm_head.weight", config.vocab_size, config.hidden_size)
            reader.refuse_unread()
        return Decoder(
            config,
            embedding=embedding,
            layers=layers,
            final_norm=final_norm,
            lm_head=lm_head,
            max_positions=max_positions or config.max_position_embeddings,
        )

    @property
    def num_weight_bytes(self) -> int:
        """Bytes of all weights on the device, the tied embedding counted once."""
        parts = {id(part): part for part in (self._embedding, self._lm_head, self._final_norm)}
        for _, layer in self._layers:
            parts |= {id(part): part for name in layer.__slots__ if (part := getattr(layer, name)) is not None}
        return sum(part.nbytes if isinstance(part, Tensor) else part.num_bytes for part in parts.values())

    @torch.inference_mode()
    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        kv_cache: KVTensors,
        plan: ops.AttentionPlan,
        slots: Tensor,
        logits_rows: Tensor | None = None,
    ) -> Tensor:
        """Computes one step and writes its KV into `kv_cache`.

        token_ids, positions, slots `[T]` int64 (slot = block · block_size + offset); logits_rows `[R]` int64: the
        rows whose logits are wanted, None: all. Returns `[R, vocab_size]` fp32.
        """
        x = self._embedding.rows(token_ids)
        if self.config.options.scale_embedding:
            x = x * self._embedding_scale
        eps = self.config.rms_norm_eps
        normed, residual = ops.rms_norm(x, self._layers[0][1].input_norm, eps), x
        last = len(self._layers) - 1
        for index, (spec, weights) in enumerate(self._layers):
            keys, values = kv_cache.keys[index], kv_cache.values[index]
            key_scales, value_scales = kv_cache.key_scales[index], kv_cache.value_scales[index]
            q, k, v = self._qkv(normed, spec, weights, positions)
            ops.write_kv(k, v, keys, values, slots, key_scales, value_scales)
            if index == last and logits_rows is not None and logits_rows.shape[0] == 0:
                return torch.empty((0, self.config.vocab_size), dtype=torch.float32, device=self.device)
            attended = ops.attention(
                q,
                keys,
                values,
                plan,
                scale=self.config.attention_scale,
                window=spec.window,
                soft_cap=self.config.attention_soft_cap,
                k_scales=key_scales,
                v_scales=value_scales,
            ).flatten(1)
            if index == last and logits_rows is not None:
                attended, residual = attended[logits_rows], residual[logits_rows]
            x = ops.linear(attended, weights.o)
            if weights.post_attention_norm is not None:
                x = ops.rms_norm(x, weights.post_attention_norm, eps)
            normed, residual = ops.add_rms_norm(x, residual, weights.mlp_norm, eps)
            x = ops.linear(self._gated(ops.linear(normed, weights.gate_up)), weights.down)
            if weights.post_mlp_norm is not None:
                x = ops.rms_norm(x, weights.post_mlp_norm, eps)
            following = self._final_norm if index == last else self._layers[index + 1][1].input_norm
            normed, residual = ops.add_rms_norm(x, residual, following, eps)
        logits = ops.linear(normed, self._lm_head).float()
        cap = self.config.logits_soft_cap
        return cap * torch.tanh(logits / cap) if cap else logits

    def _qkv(
        self, normed: Tensor, spec: LayerConfig, weights: LayerWeights, positions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries `[T, H, D]`, keys and values `[T, Hkv, D]`, normed and turned; views of one tensor where possible."""
        config = self.config
        heads = ops.linear(normed, weights.qkv).view(len(positions), -1, config.head_dim)
        q, k, v = torch.split(heads, [config.num_heads, config.num_kv_heads, config.num_kv_heads], dim=1)
        if weights.q_norm is not None and weights.k_norm is not None:
            q = ops.rms_norm(q, weights.q_norm, config.rms_norm_eps)
            k = ops.rms_norm(k, weights.k_norm, config.rms_norm_eps)
        if spec.rope >= 0:
            ops.apply_rope(q, k, positions, self._rope_tables[spec.rope])
        return q, k, v


class _Reader:
    """Reads a checkpoint's tensors under the names and in the shapes that the configuration implies."""

    def __init__(
        self,
        config: ModelConfig,
        checkpoint: Checkpoint,
        prefix: str,
        device: torch.device,
        row_tile: int,
        int8: bool,
    ) -> None:
        self._config = config
        self._checkpoint = checkpoint
        self._prefix = prefix
        self._device = device
        self._row_tile = row_tile
        self._int8 = int8

    def matrix(self, name: str, num_rows: int, num_columns: int) -> LinearWeight:
        weight = self._checkpoint.read(name, (num_rows, num_columns), device=self._device)
        return pack_linear(weight, row_tile=self._row_tile, int8=self._int8)

    def norm(self, name: str, size: int) -> Tensor:
        return self._checkpoint.read(name, (size,), device=self._device).float() + self._config.options.norm_offset

    def layer(self, index: int) -> LayerWeights:
        config, names = self._config, self._config.options.names
        base = f"{self._prefix}layers.{index}."
        hidden, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
        q_size, kv_size = config.num_heads * head_dim, config.num_kv_heads * head_dim
        qkv_rows = [q_size, kv_size, kv_size] if len(names.qkv) == 3 else [config.qkv_size]
        mlp_rows = [2 * inner // len(names.gate_up)] * len(names.gate_up)
        qk_norm, sandwich = config.options.qk_norm, config.options.sandwich_norms
        return LayerWeights(
            input_norm=self.norm(f"{base}{names.input_norm}.weight", hidden),
            qkv=self._linear(base, names.qkv, qkv_rows, hidden, config.qkv_bias),
            q_norm=self.norm(f"{base}{names.q_norm}.weight", head_dim) if qk_norm else None,
            k_norm=self.norm(f"{base}{names.k_norm}.weight", head_dim) if qk_norm else None,
            o=self._linear(base, (names.o,), [hidden], q_size, config.o_bias),
            post_attention_norm=self.norm(f"{base}{names.post_attention_norm}.weight", hidden) if sandwich else None,
            mlp_norm=self.norm(f"{base}{names.mlp_norm}.weight", hidden),
            gate_up=self._linear(base, names.gate_up, mlp_rows, hidden, config.mlp_bias),
            down=self._linear(base, (names.down,), [hidden], inner, config.mlp_bias),
            post_mlp_norm=self.norm(f"{base}{names.post_mlp_norm}.weight", hidden) if sandwich else None,
        )

    def refuse_unread(self) -> None:
        """An overlooked tensor would make a model that runs and answers nonsense."""
        ignored = ["rotary_emb."] + (["lm_head.weight"] if self._config.tie_word_embeddings else [])
        unread = self._checkpoint.unread(ignored)
        if unread:
            raise ModelError(
                f"{self._checkpoint.place(unread[0])}: {len(unread)} tensors have no place in "
                f"{self._config.architecture} as config.json describes it; is config.json its own?"
            )

    def _linear(self, base: str, names: tuple[str, ...], rows: list[int], columns: int, has_bias: bool) -> LinearWeight:
        """The projections `names` stacked into one."""
        read = self._checkpoint.read_stacked
        weight = read([f"{base}{name}.weight" for name in names], rows, [columns], device=self._device)
        bias = read([f"{base}{name}.bias" for name in names], rows, [], device=self._device) if has_bias else None
        return pack_linear(weight, bias, row_tile=self._row_tile, int8=self._int8)
