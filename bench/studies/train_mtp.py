"""Teaches the bundled model a layer for multi-token prediction, which `model_drafts.py` then lets draft.

    OMP_NUM_THREADS=1 python bench/studies/train_mtp.py --minutes 10 --out FOLDER

The layer is of DeepSeek-V3's form (`runtime/models/mtp.py`) and of the bundled model's width. It learns what the model,
which stays as it is, believes of texts like those it was taught (`scripts/train_nano.py`): of the next token but one,
and with half the weight of the one after that, for which it is applied to what it has returned. The learning rate
follows the clock as there. Prints the loss, and how often the likeliest tokens agree.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from random import Random

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts")]

from nano_model import Decoder, Layer, Muon, Shape, rope_table  # noqa: E402
from train_nano import Encoder, Recipe, batch, rate, row_len_of  # noqa: E402

NANO = ROOT / "runtime" / "assets" / "nano"
WEIGHTS = (1.0, 0.5)  # of the losses on the first drafted token, and on the second
ONE_UNTIL = 0.6  # share of the time after which the second counts


class MtpLayer(nn.Module):
    """The layer over whole sequences, with the names of its tensors, but for those of `block`, which are without it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        size, eps = shape.hidden_size, shape.norm_eps
        self.shape = shape
        self.enorm, self.hnorm = nn.RMSNorm(size, eps=eps), nn.RMSNorm(size, eps=eps)
        self.eh_proj = nn.Linear(2 * size, size, bias=False)
        self.block = Layer(shape)
        self.shared_head = nn.ModuleDict({"norm": nn.RMSNorm(size, eps=eps)})
        for weight in (self.block.self_attn.o_proj.weight, self.block.mlp.down_proj.weight):
            nn.init.zeros_(weight)

    def forward(self, embedded: Tensor, states: Tensor) -> Tensor:
        """Tokens [B, T, C] and the states before them to what stands for theirs, [B, T, C]."""
        cos, sin = rope_table(embedded.shape[1], self.shape)
        x = self.eh_proj(torch.cat([self.enorm(embedded), self.hnorm(states)], -1))
        found: Tensor = self.shared_head["norm"](self.block(x, cos, sin))
        return found

    def tensors(self, base: str) -> dict[str, Tensor]:
        """As a checkpoint has them."""
        named = self.state_dict().items()
        return {f"{base}{name.removeprefix('block.')}": weight.to(torch.bfloat16) for name, weight in named}


def loss_of(
    model: Decoder, layer: MtpLayer, token_ids: Tensor, weights: Tensor, num_drafted: int
) -> tuple[Tensor, list[float]]:
    """The weighted cross-entropies with what the model believes, and the shares of places where both agree."""
    with torch.no_grad():
        hidden = model.model(token_ids)
        believed = model.logits(hidden)
        embedded = model.model.embed_tokens(token_ids)
    states = functional.pad(hidden[:, :-1], (0, 0, 1, 0))
    loss, agreed = torch.zeros(()), []
    for depth, weight in enumerate(WEIGHTS[:num_drafted]):
        found = layer(embedded, states)
        # row i says token i + 1, which counts as the text's token there does
        counts = functional.pad(weights[:, 1:], (0, 1))
        counts[:, : depth + 1] = 0.0
        chosen = counts > 0
        logits, target = model.logits(found[chosen]), believed[chosen]
        each = functional.cross_entropy(logits, target.softmax(-1), reduction="none")
        loss = loss + weight * (each * counts[chosen]).sum() / counts.sum()
        agreed.append(float((logits.argmax(-1) == target.argmax(-1)).float().mean()))
        states = functional.pad(found[:, :-1], (0, 0, 1, 0))
    return loss, agreed


def train(minutes: float, seed: int) -> MtpLayer:
    recipe = Recipe(minutes=minutes, seed=seed, prompt_weight=0.02)
    torch.manual_seed(seed)
    encoder = Encoder((NANO / "tokenizer.model").read_bytes(), recipe.prompt_weight)
    model = Decoder(recipe.shape())
    model.load_state_dict(load_file(NANO / "model.safetensors"), strict=False)
    model.requires_grad_(False)
    layer, rng = MtpLayer(recipe.shape()), Random(seed)
    layer.shared_head.load_state_dict({"norm.weight": model.model.norm.weight})
    muon = Muon(weight for weight in layer.parameters() if weight.ndim == 2)
    adam = torch.optim.Adam([weight for weight in layer.parameters() if weight.ndim == 1], betas=(0.9, 0.98))
    start = report_at = time.monotonic()
    progress, step = 0.0, 0
    while progress < 1.0:
        row_len = row_len_of(step, 0.5, recipe)
        token_ids, weights = batch(encoder, rng, row_len, recipe.num_rows * recipe.row_len, 0.5)
        loss, agreed = loss_of(model, layer, token_ids, weights, 1 if progress < ONE_UNTIL else 2)
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types
        muon.learning_rate = recipe.matrix_rate * rate(progress, recipe.decay_from)
        adam.param_groups[0]["lr"] = recipe.vector_rate * rate(progress, recipe.decay_from)
        muon.step()
        adam.step()
        layer.zero_grad(set_to_none=True)
        step += 1
        progress = (time.monotonic() - start) / (60 * minutes)
        if time.monotonic() - report_at > 60 or progress >= 1.0:
            report_at = time.monotonic()
            shares = ", ".join(f"{share:.0%}" for share in agreed)
            print(
                f"{(report_at - start) / 60:.1f} min, step {step}, loss {loss.item():.4f}, agree {shares}", flush=True
            )
    return layer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="folder of the bundled model with the layer")
    options = parser.parse_args()
    torch.set_num_threads(1)
    layer = train(options.minutes, options.seed)
    shutil.copytree(NANO, options.out, dirs_exist_ok=True)
    fields = json.loads((NANO / "config.json").read_text())
    base = f"model.layers.{fields['num_hidden_layers']}."
    (options.out / "config.json").write_text(json.dumps(fields | {"num_nextn_predict_layers": 1}, indent=2) + "\n")
    weights = load_file(NANO / "model.safetensors") | layer.tensors(base)
    save_file(weights, options.out / "model.safetensors", {"format": "pt"})


if __name__ == "__main__":
    main()
