"""Checkpoints with a layer for multi-token prediction, which transformers leaves aside, and what it computes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from .oracle import result_and_bound, save_random_model


@dataclass(frozen=True)
class MtpForm:
    """Names of a checkpoint's parts. base: of the norms and the product of embedding and state; layer: of the layer."""

    base: str
    layer: str
    token_norm: str
    state_norm: str
    joint: str
    final_norm: str
    offset: float = 0.0  # added to weights of norms


def form_of(class_name: str, num_layers: int) -> MtpForm:
    """As DeepSeek-V3 and GLM-4.5 are published, and as Qwen3-Next and Qwen3.5 are."""
    if class_name.startswith("Qwen3"):
        return MtpForm("mtp.", "mtp.layers.0.", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm", 1.0)
    base = f"model.layers.{num_layers}."
    return MtpForm(base, base, "enorm", "hnorm", "eh_proj", "shared_head.norm")


@dataclass(frozen=True)
class MtpOracle:
    """A model of transformers, a decoder layer of its own kind after the last one, and what stands around that."""

    model: Any
    layer: Any
    form: MtpForm
    norms: dict[str, Tensor]  # of hidden states, by name
    joint: Tensor

    @torch.inference_mode()
    def states(self, token_ids: list[int]) -> Tensor:
        """The model's hidden states after the final norm, `[T, C]`."""
        found: Tensor = self.model.model(torch.tensor([token_ids])).last_hidden_state[0]
        return found

    @torch.inference_mode()
    def after(self, states: Tensor, token_ids: list[int]) -> Tensor:
        """DeepSeek-V3's equations 21 to 23 (arXiv 2412.19437), and the norm: what stands for the state of the last
        token, `[C]`. states: of the positions before all tokens but the first, `[T - 1, C]`."""
        before = torch.cat([torch.zeros_like(self.norms[self.form.state_norm])[None], states])
        embedded = self.model.model.embed_tokens(torch.tensor(token_ids))
        parts = [self._norm(embedded, self.form.token_norm), self._norm(before, self.form.state_norm)]
        x = torch.cat(parts, -1) @ self.joint.T
        positions, num_tokens = torch.arange(len(token_ids))[None], len(token_ids)
        found = self.layer(
            x[None],
            attention_mask=torch.full((1, 1, num_tokens, num_tokens), -torch.inf).triu(1),
            position_ids=positions,
            position_embeddings=self.model.model.rotary_emb(x[None], positions),
        )
        return self._norm((found[0] if isinstance(found, tuple) else found)[0, -1], self.form.final_norm)

    @torch.inference_mode()
    def drafts(self, token_ids: list[int], answer: list[int]) -> Tensor:
        """Logits after the tokens, and after each of the answer's but the last if it is drafted, `[len(answer), V]`."""
        states, rows = self.states(token_ids)[:-1], []
        for token_id in answer:
            states = torch.cat([states, self.after(states, token_ids)[None]])
            rows.append(self.model.lm_head(states[-1]))
            token_ids = [*token_ids, token_id]
        return torch.stack(rows)

    def assert_drafts(self, found: Tensor, token_ids: list[int], answer: list[int]) -> None:
        """`found` are the logits of `drafts`, but for rounding."""
        parameters = [*self.model.parameters(), *self.layer.parameters(), *self.norms.values(), self.joint]
        expected, bound = result_and_bound(lambda: self.drafts(token_ids, answer), parameters, len(token_ids))
        most = float(((found - expected).abs() / bound).max())
        assert most <= 1.0, f"{most:.3g} times as far off as rounding explains"

    def _norm(self, x: Tensor, name: str) -> Tensor:
        weight = self.norms[name] + self.form.offset
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.model.config.rms_norm_eps) * weight


def save_mtp_model(folder: Path, class_name: str, options: dict[str, Any]) -> MtpOracle:
    """A random checkpoint with a layer for multi-token prediction."""
    num_layers = options.get("num_hidden_layers", 2)
    kinds, form = options.get("layer_types"), form_of(class_name, num_layers)
    more = {} if kinds is None else {"layer_types": [*kinds, "full_attention"]}
    model = save_random_model(folder, class_name, {**options, **more, "num_hidden_layers": num_layers + 1})
    layer, last = model.model.layers[num_layers], f"model.layers.{num_layers}."
    weights = load_file(folder / "model.safetensors")
    weights = {name.replace(last, form.layer): weight for name, weight in weights.items()}
    model.model.layers = model.model.layers[:num_layers]
    model.config.num_hidden_layers = num_layers
    size, generator = model.config.hidden_size, torch.Generator().manual_seed(1)
    names = (form.token_norm, form.state_norm, form.final_norm)
    norms = {name: 1 - form.offset + 0.25 * torch.randn(size, generator=generator) for name in names}
    joint = 0.25 * torch.randn(size, 2 * size, generator=generator)
    weights |= {f"{form.base}{name}.weight": norm for name, norm in norms.items()}
    weights |= {f"{form.base}{form.joint}.weight": joint}
    fields = json.loads((folder / "config.json").read_text()) | {"num_hidden_layers": num_layers}
    if kinds is None:
        copies = {"embed_tokens": "model.embed_tokens", "shared_head.head": "lm_head"}  # as they are published
        weights |= {f"{form.base}{name}.weight": weights[f"{of}.weight"].clone() for name, of in copies.items()}
        fields["num_nextn_predict_layers"] = 1
    else:
        fields["layer_types"] = kinds
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(fields))
    return MtpOracle(model, layer, form, norms, joint)


def quieten(folder: Path, share: float) -> None:
    """Lets a checkpoint of `save_mtp_model` be right often: `share` is a factor on all that layers add to embeddings.

    With 0 each token depends on the one before alone, and the MTP layer says the same as the model.
    """
    weights, fields = load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
    form = form_of(*fields["architectures"], fields["num_hidden_layers"])
    for name, weight in weights.items():
        if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
            weight *= share
    joint, size = weights[f"{form.base}{form.joint}.weight"], len(weights["model.norm.weight"])
    joint *= share
    joint[:, :size] += torch.eye(size)
    weights[f"{form.base}{form.token_norm}.weight"].fill_(1.0 - form.offset)
    weights[f"{form.base}{form.final_norm}.weight"] = weights["model.norm.weight"].clone()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
