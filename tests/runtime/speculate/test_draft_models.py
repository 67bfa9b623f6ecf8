"""Which models may draft for which: others are refused by name."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from phloem.errors import ConfigError
from phloem.runtime.config import EngineConfig
from phloem.runtime.execute.loading import load
from phloem.runtime.models import resolve_model
from phloem.runtime.request import SamplingParams

from ..stepped import SteppedEngine


def refused(message: str, folder: Path, **settings: Any) -> None:
    with pytest.raises(ConfigError, match=message):
        load(EngineConfig(device="cpu", speculative_model=str(folder), **settings))


def test_a_model_that_does_not_go_with_it_is_refused_by_name(tmp_path: Path) -> None:
    refused("speculative_model: it drafts, and max_draft_tokens is 0", tmp_path, max_draft_tokens=0)
    nano = resolve_model("nano")
    other = tmp_path / "other"
    shutil.copytree(nano, other)
    pieces = (other / "tokenizer.model").read_bytes()
    assert pieces.count(b"\n\x03the") == 1
    (other / "tokenizer.model").write_bytes(pieces.replace(b"\n\x03the", b"\n\x03thq"))
    refused("speculative_model: .* has another vocabulary: token .* is b'thq', the model's is b'the'", other)


@pytest.fixture(scope="module")
def padded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model with 20 rows more, which would be said more often than any token."""
    folder = tmp_path_factory.mktemp("padded") / "nano"
    shutil.copytree(resolve_model("nano"), folder)
    fields = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**fields, "vocab_size": 1300}))
    weights = load_file(folder / "model.safetensors")
    rows = weights["model.embed_tokens.weight"]
    weights["model.embed_tokens.weight"] = torch.cat([rows, 4 * rows[100:110], -4 * rows[100:110]])
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize("drafts_with_more", [True, False])
def test_embeddings_of_several_sizes_go_together(padded: Path, drafts_with_more: bool) -> None:
    """Rows beyond the tokenizer's vocabulary are never drafted, and read where the model says them."""
    names = ["nano", str(padded)] if drafts_with_more else [str(padded), "nano"]
    config = EngineConfig(
        names[0], device="cpu", num_threads=1, speculative_model=names[1], lookup_drafts=False, check_invariants=True
    )
    loaded, found = load(config), []
    bias = {} if drafts_with_more else dict.fromkeys(range(1280, 1300), 20.0)
    params = SamplingParams(max_tokens=40, temperature=0.7, seed=2, ignore_eos=True, logit_bias=bias)
    for draft in (None, loaded.draft_decoder):
        engine = SteppedEngine.from_loaded(config, replace(loaded, draft_decoder=draft), stopwatch=lambda: 0.0)
        found.append(engine.generate("Tolva Brenrik, a baker, is 34 years old and", params))
    model, (without, done) = engine._stepper._drafter.model, found
    assert done.token_ids == without.token_ids and model is not None and not model.num_failed
    assert done.usage.drafted_tokens > 0
    if drafts_with_more:  # the same model but for these rows
        assert done.usage.drafted_tokens == done.usage.jumped_tokens > 20
    else:
        assert max(done.token_ids) >= 1280


def test_sizes_that_no_tokenizer_explains_are_refused_by_name(padded: Path, tmp_path: Path) -> None:
    folders = [tmp_path / "padded", tmp_path / "nano"]
    for folder, source in zip(folders, (padded, resolve_model("nano")), strict=True):
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("tokenizer*"))
    message = "has 1300 token ids, the model has 1280, and no tokenizer says which"
    refused(message, folders[0], model=str(folders[1]))


def test_a_model_for_vectors_neither_drafts_nor_is_drafted_for(tmp_path: Path) -> None:
    nano, folder = resolve_model("nano"), tmp_path / "vectors"
    shutil.copytree(nano, folder)
    fields = json.loads((nano / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**fields, "tie_word_embeddings": False}))
    weights = load_file(nano / "model.safetensors")
    save_file({name.removeprefix("model."): weight for name, weight in weights.items()}, folder / "model.safetensors")
    refused(f"speculative_model: {folder} makes vectors and no text", folder)
    refused("speculative_model: the model makes vectors and no text", nano, model=str(folder))


def test_a_model_with_recurrent_layers_does_not_draft(tmp_path: Path) -> None:
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
