"""Which models may draft for which: others are refused by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from phloem.errors import ConfigError
from phloem.runtime.config import EngineConfig
from phloem.runtime.execute.loading import load
from phloem.runtime.models import resolve_model


def refused(message: str, folder: Path, **settings: Any) -> None:
    with pytest.raises(ConfigError, match=message):
        load(EngineConfig(device="cpu", speculative_model=str(folder), **settings))


def test_a_model_that_does_not_go_with_it_is_refused_by_name(tmp_path: Path) -> None:
    refused("speculative_model: it drafts, and max_draft_tokens is 0", tmp_path, max_draft_tokens=0)
    nano = resolve_model("nano")
    other = tmp_path / "other"
    shutil.copytree(nano, other)
    fields = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**fields, "vocab_size": 1300}))
    refused("speculative_model: .* has 1300 token ids, the model has 1280", other)
    (other / "config.json").write_text(json.dumps(fields))
    pieces = (other / "tokenizer.model").read_bytes()
    assert pieces.count(b"\n\x03the") == 1
    (other / "tokenizer.model").write_bytes(pieces.replace(b"\n\x03the", b"\n\x03thq"))
    refused("speculative_model: .* has another vocabulary: token .* is b'thq', the model's is b'the'", other)


def test_a_model_for_vectors_neither_drafts_nor_is_drafted_for(tmp_path: Path) -> None:
    nano, folder = resolve_model("nano"), tmp_path / "vectors"
    shutil.copytree(nano, folder)
    fields = json.loads((nano / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**fields, "tie_word_embeddings": False}))
    weights = load_file(nano / "model.safetensors")
    save_file({name.removeprefix("model."): weight for name, weight in weights.items()}, folder / "model.safetensors")
    refused(f"speculative_model: {folder} makes vectors and no text", folder)
    refused("speculative_model: the model makes vectors and no text", nano, model=str(folder))


def test_a_model_with_recurrent_layers_neither_drafts_nor_is_drafted_for(tmp_path: Path) -> None:
    fields = {
        "architectures": ["Lfm2ForCausalLM"],
        "vocab_size": 1280,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "norm_eps": 1e-5,
        "layer_types": ["conv", "full_attention"],
        "conv_L_cache": 3,
        "conv_bias": False,
        "block_auto_adjust_ff_dim": False,
    }
    (tmp_path / "config.json").write_text(json.dumps(fields))
    refused(f"speculative_model: {tmp_path} has recurrent layers", tmp_path)
    refused("speculative_model: the model has recurrent layers", resolve_model("nano"), model=str(tmp_path))
