"""Where several ranks are further from one than in other models: what of that is the order of float32 sums.

    python bench/studies/rounding_of_ranks.py

Gated DeltaNet (a random checkpoint of Qwen3.5 with experts), in float32 and in float64, where the order hardly counts.
Then models whose checkpoints magnify rounding beside one that does not: drawn as the tests draw all families (every
number with a deviation of 0.25), and as transformers draws them (`_init_weights`: 0.02, and decays of their own).
"moved" is how far log-probabilities of one rank move when every weight is moved to the float32 next to it, up or down
at random: what nothing can be closer than. Takes a minute.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import transformers
from runtime.models.decoder_cases import CASES
from runtime.models.decoder_shapes import SMALL
from runtime.models.oracle import Oracle, PagedRun, random_ids, save_random_model
from safetensors.torch import load_file, save_file
from tensor_parallel import CPU, NUM_TOKENS, Group, of_eight

from phloem.kernels import LinearWeight
from phloem.kernels.plain import ops as plain_ops
from phloem.kernels.plain import recurrent
from phloem.kernels.state_rounds import ZEROS, plan_states
from phloem.runtime.models import Decoder, delta_net
from phloem.runtime.parallel.ranks import ALONE, Ranks

SIZES = (2, 4)
MODELS = {name: SIZES for name in ("qwen3-next", "qwen3.5", "qwen3.5-moe", "gemma4-small", "llama-gqa")}
MODELS["gemma4-small"] = (2,)  # whose six heads four do not divide; with eight no token magnifies


def draws() -> None:
    """Of each model and each way to draw it, how far ranks are from one, and what one depends on."""
    print(f"{'log-probabilities, from one rank':<40}{'moved':>10}{'transformers':>15}{'2 ranks':>10}{'4 ranks':>10}")
    groups = {size: Group(size) for size in SIZES}
    for name, sizes in MODELS.items():
        for draw, save in {"the tests draw": save_random_model, "transformers draws": save_initialised}.items():
            with tempfile.TemporaryDirectory() as folder:
                kind, options = CASES[name]
                model = save(Path(folder), kind, of_eight(options) if 4 in sizes else options)
                row = compared(Path(folder), model, [groups[size] for size in sizes])
            numbers = "".join(f"{number:>{width}.1e}" for number, width in zip(row, (10, 15, 10, 10), strict=False))
            print(f"{f'  {name}, as {draw}':<40}{numbers}", flush=True)


def save_initialised(folder: Path, class_name: str, options: dict[str, Any]) -> Any:
    """A checkpoint as transformers makes one to be trained."""
    torch.manual_seed(1)
    model_class = getattr(transformers, class_name)
    model = model_class(model_class.config_class(**{**SMALL, **options})).eval()
    model.save_pretrained(folder)
    return model


def compared(folder: Path, model: Any, groups: list[Group]) -> list[float]:
    """Of one rank with weights that are moved, of transformers, and of each group of ranks."""
    ids = random_ids(NUM_TOKENS)

    def said(ranks: Ranks = ALONE) -> torch.Tensor:
        decoder = Decoder.from_folder(folder, dtype=torch.float32, ranks=ranks)
        return PagedRun(decoder).extend({0: ids}).log_softmax(-1)

    theirs, ours = Oracle(folder, model).logits(ids).log_softmax(-1), said()
    found = [group.run(lambda rank, group=group: said(group.ranks(rank)))[0] for group in groups]
    tensors, source = load_file(folder / "model.safetensors"), torch.Generator().manual_seed(2)
    for name, tensor in tensors.items():
        towards = torch.where(torch.rand(tensor.shape, generator=source) < 0.5, -torch.inf, torch.inf)
        tensors[name] = torch.nextafter(tensor, towards)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return [float((each - ours).abs().max()) for each in (said(), theirs, *found)]


def in_layers() -> None:
    """Gated DeltaNet, whose random checkpoints magnify rounding: what is left without it."""
    kind, options = CASES["qwen3.5-moe"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = save_random_model(folder, kind, of_eight(options))
        ids = random_ids(NUM_TOKENS)
        alone = Decoder.from_folder(folder, dtype=torch.float32)
        theirs = Oracle(folder, model).logits(ids).log_softmax(-1)
        ours = PagedRun(alone).extend({0: ids}).log_softmax(-1)
        print(f"  one rank, from transformers' log-probabilities in float32: {float((ours - theirs).abs().max()):.1e}")
        x = torch.randn(NUM_TOKENS, alone.config.hidden_size, generator=torch.Generator().manual_seed(1))
        for size in SIZES:
            group = Group(size)

            def work(rank: int, group: Group = group) -> tuple[Decoder, torch.Tensor]:
                decoder = Decoder.from_folder(folder, dtype=torch.float32, ranks=group.ranks(rank))
                return decoder, PagedRun(decoder).extend({0: ids})

            found = group.run(work)
            parts = [decoder for decoder, _ in found]
            apart = float((found[0][1].log_softmax(-1) - ours).abs().max())
            layers = [relative(group, alone, parts, x)]
            with in_float64():
                layers.append(relative(group, alone, parts, x.double()))
            said = f"float32 {layers[0]:.1e}, float64 {layers[1]:.1e}"
            print(
                f"  {size} ranks, from one: log-probabilities {apart:.1e}; the recurrent layers alone: {said}",
                flush=True,
            )


def relative(group: Group, alone: Decoder, parts: list[Decoder], x: torch.Tensor) -> float:
    """The largest difference of what the recurrent layers make on several ranks, and on one, by the largest number."""
    expected = through_recurrent(alone, x)
    found = group.run(lambda rank: through_recurrent(parts[rank], x))[0]
    return float((found - expected).abs().max() / expected.abs().max())


def through_recurrent(decoder: Decoder, x: torch.Tensor) -> torch.Tensor:
    """What all recurrent layers of a model make of `[T, C]` one after another, in its type."""
    config, plan_of_states = decoder.config.recurrent, plan_states([np.array([[0, len(x), ZEROS, 0]])], CPU)
    assert config is not None
    for _, layer in decoder._layers:
        if isinstance(layer.recurrent, delta_net.DeltaNetWeights) and layer.o is not None:
            states = tuple(torch.zeros(1, *shape, dtype=x.dtype) for shape in config.state_shapes)
            normed = delta_net.ops.rms_norm(x, torch.ones(x.shape[1]), 1e-6)
            mixed = layer.recurrent.mix(normed, states, plan_of_states)
            x = x + decoder.cut.ranks.sum(delta_net.ops.linear(mixed, layer.o))
    return x


@contextmanager
def in_float64() -> Iterator[None]:
    """The layer's own code over the plain ops, which widen to float64 here where they widen to float32 else."""

    def linear(x: torch.Tensor, weight: LinearWeight) -> torch.Tensor:
        return x @ weight.matrix().double().T  # this layer's maps have no biases

    ops = SimpleNamespace(linear=linear, rms_norm=plain_ops.rms_norm, gated=plain_ops.gated)
    plain = {"ops": ops, "convolve": recurrent.convolve, "advance_heads": recurrent.advance_heads}
    with ExitStack() as patched:
        patched.enter_context(mock.patch.multiple(delta_net, **plain))
        patched.enter_context(mock.patch.object(torch.Tensor, "float", torch.Tensor.double))
        yield


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    in_layers()
    draws()
