"""Checkpoints with a layer for multi-token prediction, which transformers leaves aside, and what it computes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from .oracle import save_random_model


@dataclass(frozen=True)
class MtpOracle:
    """A model of transformers, a decoder layer of its own kind after the last one, and what stands around that."""

    model: Any
    layer: Any
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
        before = torch.cat([torch.zeros_like(self.norms["hnorm"])[None], states])
        embedded = self.model.model.embed_tokens(torch.tensor(token_ids))
        x = torch.cat([self._norm(embedded, "enorm"), self._norm(before, "hnorm")], -1) @ self.joint.T
        positions, num_tokens = torch.arange(len(token_ids))[None], len(token_ids)
        found = self.layer(
            x[None],
            attention_mask=torch.full((1, 1, num_tokens, num_tokens), -torch.inf).triu(1),
            position_ids=positions,
            position_embeddings=self.model.model.rotary_emb(x[None], positions),
        )
        return self._norm((found[0] if isinstance(found, tuple) else found)[0, -1], "shared_head.norm")

    @torch.inference_mode()
    def drafts(self, token_ids: list[int], answer: list[int]) -> Tensor:
        """Logits after the tokens, and after each of the answer's but the last if it is drafted, `[len(answer), V]`."""
        states, rows = self.states(token_ids)[:-1], []
        for token_id in answer:
            states = torch.cat([states, self.after(states, token_ids)[None]])
            rows.append(self.model.lm_head(states[-1]))
            token_ids = [*token_ids, token_id]
        return torch.stack(rows)

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.model.config.rms_norm_eps) * self.norms[name]


def save_mtp_model(folder: Path, class_name: str, options: dict[str, Any]) -> MtpOracle:
    """A random checkpoint with a layer for multi-token prediction."""
    num_layers = options.get("num_hidden_layers", 2)
    model = save_random_model(folder, class_name, {**options, "num_hidden_layers": num_layers + 1})
    weights = load_file(folder / "model.safetensors")
    layer = model.model.layers[num_layers]
    model.model.layers = model.model.layers[:num_layers]
    size, generator = model.config.hidden_size, torch.Generator().manual_seed(1)
    names = ("enorm", "hnorm", "shared_head.norm")
    norms = {name: 1 + 0.25 * torch.randn(size, generator=generator) for name in names}
    joint = 0.25 * torch.randn(size, 2 * size, generator=generator)
    base = f"model.layers.{num_layers}."
    weights |= {f"{base}{name}.weight": norm for name, norm in norms.items()}
    weights |= {f"{base}eh_proj.weight": joint}
    copies = {"embed_tokens": "model.embed_tokens", "shared_head.head": "lm_head"}  # as they are published
    weights |= {f"{base}{name}.weight": weights[f"{of}.weight"].clone() for name, of in copies.items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    fields = json.loads((folder / "config.json").read_text())
    fields |= {"num_hidden_layers": num_layers, "num_nextn_predict_layers": 1}
    (folder / "config.json").write_text(json.dumps(fields))
    return MtpOracle(model, layer, norms, joint)


def quieten(folder: Path, share: float) -> None:
    """Lets a checkpoint of `save_mtp_model` be right often: `share` is a factor on all that layers add to embeddings.

    With 0 each token depends on the one before alone, and the MTP layer says the same as the model.
    """
    weights = load_file(folder / "model.safetensors")
    (base,) = (name.removesuffix("eh_proj.weight") for name in weights if name.endswith("eh_proj.weight"))
    for name, weight in weights.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            weight *= share
    joint, size = weights[f"{base}eh_proj.weight"], len(weights["model.norm.weight"])
    joint *= share
    joint[:, :size] += torch.eye(size)
    weights[f"{base}enorm.weight"].fill_(1.0)
    weights[f"{base}shared_head.norm.weight"] = weights["model.norm.weight"].clone()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
