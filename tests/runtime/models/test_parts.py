"""A part of a matrix in few bits, of which no more is unpacked than it needs, is that part of the whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from phloem.runtime.models import ModelConfig
from phloem.runtime.models.gguf.checkpoint import GgufCheckpoint
from phloem.runtime.models.gguf.file import GgufFile
from phloem.runtime.models.json_file import Fields
from phloem.runtime.models.part import Part, as_part
from phloem.runtime.models.published import read_published
from phloem.runtime.models.weight_format import read_weight_format
from phloem.runtime.models.weights import open_file

from .gguf_files import write_model
from .oracle import save_random_model
from .published import FORMATS

CPU = torch.device("cpu")
OUTPUTS, INPUTS = 72, 160


def parts(size: int, seed: int) -> Iterator[Part]:
    """All of an axis, halves, and ranges that begin and end anywhere."""
    source = Random(seed)
    yield from (as_part(size), Part(size, ((0, size // 2),)), Part(size, ((size // 2, size),)))
    for _ in range(6):
        begin = source.randrange(size)
        yield Part(size, ((begin, source.randrange(begin, size) + 1),))


@pytest.mark.parametrize("name", FORMATS)
def test_of_published_formats(name: str, tmp_path: Path) -> None:
    form = FORMATS[name]
    tensors, weight = form.pack((OUTPUTS, INPUTS), np.random.default_rng(3), **form.options)
    save_file({f"map.{key}": value for key, value in tensors.items()}, tmp_path / "map.safetensors")
    stored = read_weight_format(Fields({"quantization_config": form.config}, "config.json"))
    with open_file(tmp_path / "map.safetensors", torch.float32) as checkpoint:
        for outputs, inputs in zip(parts(OUTPUTS, 1), parts(INPUTS, 2), strict=True):
            found = read_published(checkpoint, stored, "map", outputs, inputs, CPU)
            columns = as_part(INPUTS) if found.order is not None else inputs
            expected = columns.of(outputs.of(torch.from_numpy(weight), 0), 1)
            assert torch.equal(found.exact(), expected)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K", "MXFP4"])
def test_of_gguf_files(kind: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4}
    model = save_random_model(tmp_path, "LlamaForCausalLM", {**options, "num_hidden_layers": 1})
    write_model(tmp_path / "model.gguf", model, "llama", kind)
    config = ModelConfig.from_folder(tmp_path / "model.gguf")
    checkpoint = GgufCheckpoint(GgufFile(tmp_path / "model.gguf"), config, torch.float32)
    for name, num_outputs, num_inputs in (("self_attn.q_proj", 256, 256), ("mlp.down_proj", 256, 512)):
        module = f"model.layers.0.{name}"
        whole = checkpoint.read_grouped(module, as_part(num_outputs), as_part(num_inputs), CPU).exact()
        for outputs, inputs in zip(parts(num_outputs, 1), parts(num_inputs, 2), strict=True):
            found = checkpoint.read_grouped(module, outputs, inputs, CPU).exact()
            assert torch.equal(found, inputs.of(outputs.of(whole, 0), 1))
