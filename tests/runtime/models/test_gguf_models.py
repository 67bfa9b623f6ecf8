"""GGUF files of every family and type against transformers on the dequantised numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from sentencepiece import SentencePieceProcessor

import phloem as ph
from phloem.errors import ModelError
from phloem.kernels.linear_weight import Quantise
from phloem.runtime.capacity.planner import plan
from phloem.runtime.engine.engine import Engine
from phloem.runtime.models import Decoder, ModelConfig, resolve_model
from phloem.runtime.models.gguf.tensor_types import TYPES
from phloem.runtime.models.gguf.unpack import grouped
from phloem.runtime.models.weights import TORCH_TYPES
from phloem.runtime.request import SamplingParams

from .gguf_cases import GGUF_CASES, save_case, write_case
from .gguf_files import FEW_BITS, KIND, PLAIN, add_pieces, dequantised, random_blocks, write_model
from .gguf_keys import says
from .oracle import PagedRun, random_ids


@pytest.mark.parametrize("name", GGUF_CASES)
def test_logits_and_greedy_text_equal_transformers(name: str, tmp_path: Path) -> None:
    path, oracle = write_case(tmp_path, name)
    decoder = Decoder.from_folder(path, dtype=torch.float32, max_positions=128)
    token_ids = random_ids(40)
    run = PagedRun(decoder)
    found = torch.cat([run.extend({0: chunk}) for chunk in (token_ids[:7], token_ids[7:39], token_ids[39:])])
    oracle.assert_logits(found, token_ids)
    oracle.assert_greedy(token_ids[:30], PagedRun(decoder).greedy(token_ids[:30], 48))
    for quantise in ("none", "int8"):
        rounded: Quantise = "int8" if quantise == "int8" else "none"
        held = Decoder.from_folder(path, dtype=torch.float32, quantise=rounded)
        capacity = plan(held.config, pool_bytes=1 << 20, on_cpu=True, weight_dtype="float32", quantise=rounded)
        assert capacity.weight_bytes == held.num_weight_bytes


@pytest.mark.parametrize("kind", [*FEW_BITS, *PLAIN])
def test_every_type_is_what_its_package_makes_of_it(kind: str) -> None:
    found = next(each for each in TYPES.values() if each.name == kind)
    assert gguf.GGML_QUANT_SIZES[KIND[kind]] == (found.block_size, found.block_bytes)
    if kind in PLAIN:
        assert found.dtype is not None and TORCH_TYPES[found.dtype] is PLAIN[kind]
        return
    raw = random_blocks(kind, (33, 512), np.random.default_rng(1))
    weight = grouped(found, torch.from_numpy(raw))
    assert found.form is not None
    assert (weight.element, weight.size) == (found.form.element, found.form.size)
    assert (weight.offsets is not None) == found.form.has_offsets
    expected = torch.from_numpy(dequantised(raw, kind))
    assert torch.equal(weight.widen(torch.float32), expected)
    if weight.offsets is None:  # else the sum with it is rounded, once
        assert torch.equal(weight.exact(), expected.double())


def test_in_half_types_few_bits_are_widened_where_no_kernel_reads_them(tmp_path: Path) -> None:
    path, oracle = write_case(tmp_path, "llama, Q4_K_M")
    decoder, layer = Decoder.from_folder(path), oracle.model.model.layers[1]
    assert decoder.dtype is torch.bfloat16
    found, parts = decoder._layers[1][1], layer.self_attn
    assert found.qkv is not None
    rows = torch.cat([part.weight for part in (parts.q_proj, parts.k_proj, parts.v_proj)])
    assert torch.equal(found.qkv.matrix(), rows.bfloat16())
    assert torch.equal(found.o.matrix(), parts.o_proj.weight.bfloat16())


def test_experts_of_another_shape_are_refused(tmp_path: Path) -> None:
    case = GGUF_CASES["gemma4, experts"]

    def flat(writer: Any) -> None:
        add = writer.add_tensor
        writer.add_tensor = lambda name, data, **kinds: add(name, data[:, 0, 0] if "gate_up" in name else data, **kinds)

    with torch.no_grad():
        keys = says(case.keys, flat)
        write_model(tmp_path / "model.gguf", save_case(tmp_path, case), "gemma4", "F32", keys=keys)
    with pytest.raises(ModelError, match=r"blk\.0\.ffn_gate_up_exps\.weight: expected shape \[32, 64\], found \[\]"):
        Decoder.from_folder(tmp_path / "model.gguf")


def test_norms_are_read_in_full(tmp_path: Path) -> None:
    path, oracle = write_case(tmp_path, "gemma")
    decoder = Decoder.from_folder(path, dtype=torch.bfloat16)
    weight = oracle.model.model.layers[0].input_layernorm.weight
    assert torch.equal(decoder._layers[0][1].input_norm, weight.detach() + 1)
    assert ModelConfig.from_folder(path).options.norm_offset == 0


def test_an_engine_generates_and_chats_from_one_file(tmp_path: Path) -> None:
    """Settings, weights, tokenizer and template out of the file alone; greedy tokens are those of the checkpoint."""
    nano, path = resolve_model("nano"), tmp_path / "nano.gguf"
    model = transformers.AutoModelForCausalLM.from_pretrained(nano, dtype=torch.float32)
    pieces = SentencePieceProcessor(str(nano / "tokenizer.model"))

    def keys(writer: Any) -> None:
        add_pieces(writer, pieces)
        writer.add_chat_template((nano / "chat_template.jinja").read_text())

    with torch.no_grad():
        write_model(path, model, "llama", "Q8_0", keys=keys)
    model.save_pretrained(tmp_path / "folder")
    for name in ("tokenizer.model", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        (tmp_path / "folder" / name).write_bytes((nano / name).read_bytes())
    answers = []
    for place in (path, tmp_path / "folder"):
        with Engine(str(place), num_blocks=64, dtype="float32", device="cpu") as engine:
            sampling = SamplingParams(max_tokens=24, temperature=0.0)
            chat = engine.chat([{"role": "user", "content": "Hello"}], sampling)
            date = engine.generate("Date: ", SamplingParams(max_tokens=32), ph.regex(r"\d{4}-\d\d-\d\d"))
            answers.append((chat.token_ids, engine.generate("The ", sampling).token_ids))
            assert len(date.text) == 10
            engine.core.audit()
    assert answers[0] == answers[1]
