"""Multi-token prediction (MTP): a layer beyond the model's own, which says what may follow the next token.

Of position i it takes the token there and the model's hidden state of the position before, and returns what stands for
the model's hidden state at i::

    token i ──── embedding ─ enorm ─┐
                                    ├─ eh_proj ─ one decoder layer ─ norm ─┬─ projection ─ logits of token i + 1
    state i - 1 ──────────── hnorm ─┘                                      └─ in place of state i, for the next token

For several tokens the first such layer is applied again to what it has returned. Embedding and projection are the
model's own; copies of them among the layer's tensors are not read. States are those after the final norm. Of the first
position, before which there is no state, it is zero.

Keys and values depend on tokens up to their own position only, so they lie where the model has those of the same token.
The layer attends, also in models with recurrent layers, whose states it has no part in.

Names above are DeepSeek-V3's; Qwen3-Next and Qwen3.5 call the same parts `pre_fc_norm_embedding`, `pre_fc_norm_hidden`,
`fc` and `norm` (`MtpNames`).

Source: DeepSeek-V3, arXiv 2412.19437, section 2.2; GLM-4.5, arXiv 2508.06471. Cost: that of a layer, one product of
twice the width, and the projection.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ...errors import ModelError
from ...kernels import LinearWeight, ops
from ...kernels.linear_weight import Quantise
from ..parallel.ranks import ALONE
from .checkpoints import open_weights, prefix_of
from .cut import Cut
from .decoder import ROW_TILE, Decoder
from .draft_config import mtp_config
from .layer_weights import LayerWeights, read_layer
from .norms import Norm, apply_norm, read_norm
from .reader import Reader
from .step import KVTensors
from .vocabulary import embed


class MtpDecoder(Decoder):
    """The first MTP layer of a model, as a decoder that takes hidden states besides tokens.

    Its `config` is that of the model with this one layer.
    """

    takes_hidden = True

    def __init__(
        self,
        model: Decoder,
        cut: Cut,
        *,
        layer: LayerWeights,
        token_norm: Norm,
        state_norm: Norm,
        joint: LinearWeight,
        final_norm: Norm,
    ) -> None:
        """joint: 2 · hidden_size -> hidden_size, of token and state."""
        super().__init__(
            cut,
            embedding=model._embedding,
            layers=[layer],
            final_norm=final_norm,
            lm_head=model._lm_head,
            max_positions=model.max_positions,
        )
        self._token_norm, self._state_norm = token_norm, state_norm
        self._joint = joint

    @staticmethod
    def of(model: Decoder, folder: Path, *, deterministic: bool = False, quantise: Quantise = "none") -> MtpDecoder:
        """Reads the layer out of the checkpoint that `model` was loaded from, the arguments as there.

        Raises:
            ModelError: there is none, or it is not of the form above.
        """
        config, names = mtp_config(model.config), model.config.options.mtp
        cut = Cut(config, ALONE)
        with open_weights(folder, config, model.dtype) as checkpoint:
            prefix = prefix_of(checkpoint, config)
            base = names.base or f"{prefix}layers.{model.config.num_layers}."
            if not model.config.num_mtp_layers or f"{base}{names.joint}.weight" not in checkpoint:
                raise ModelError(f"{folder} has no layer for multi-token prediction ({base}{names.joint}.weight)")
            reader = Reader(cut, checkpoint, prefix, model.device, ROW_TILE if deterministic else 0, quantise)
            hidden = config.hidden_size
            found = MtpDecoder(
                model,
                cut,
                layer=read_layer(reader, f"{base}layers.0." if names.base else base, 0),
                token_norm=read_norm(reader, f"{base}{names.token_norm}"),
                state_norm=read_norm(reader, f"{base}{names.state_norm}"),
                joint=reader.linear(base, (names.joint,), [hidden], 2 * hidden, False),
                final_norm=read_norm(reader, f"{base}{names.final_norm}"),
            )
            reader.refuse_unread(base)
        return found

    @torch.inference_mode()
    def forward(  # type: ignore[override]  # one argument more, and none of what such models have not
        self,
        token_ids: Tensor,
        positions: Tensor,
        kv_cache: KVTensors,
        plan: ops.AttentionPlan,
        slots: Tensor,
        logits_rows: Tensor,
        *,
        before: Tensor,
    ) -> Tensor:
        """Logits `[R, vocab_size]` of `logits_rows`, whose states it puts into `kv_cache.hidden`.

        before: `[T]` int64, where in `kv_cache.hidden` the state of the position before each token is found.
        """
        kept, eps = kv_cache.hidden, self.config.rms_norm_eps
        assert kept is not None
        tokens = apply_norm(embed(token_ids, self._embedding, self._ranks, self.cut.vocab), self._token_norm, eps)
        states = apply_norm(kept[before], self._state_norm, eps)
        x = ops.linear(torch.cat([tokens, states], 1), self._joint)
        found = self._through_layers(x, positions, kv_cache, plan, slots, logits_rows, None, None, None, None)
        kept[slots[logits_rows]] = found
        return self.project(found)
