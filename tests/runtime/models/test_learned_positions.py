"""Learned positions: which rows of the table are read, where it ends, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import phloem as ph
from phloem.errors import ModelError
from phloem.runtime.models import Decoder, ModelConfig
from phloem.runtime.models.rope import can_turn_back

from .decoder_cases import CASES
from .oracle import PagedRun, random_ids, save_random_model

REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("opt", {"do_layer_norm_before": False}),
    ("opt", {"word_embed_proj_dim": 24}),
    ("opt", {"layer_norm_elementwise_affine": False}),
    ("opt", {"_remove_final_layer_norm": True}),
    ("gpt2", {"scale_attn_weights": False}),
    ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    ("gpt2", {"add_cross_attention": True}),
]


@pytest.fixture(scope="module", params=["gpt2", "opt"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param)
    save_random_model(path, *CASES[request.param])
    return path


@pytest.mark.parametrize(("case", "change"), REFUSED)
def test_other_forms_are_refused_by_their_key(tmp_path: Path, case: str, change: dict[str, Any]) -> None:
    class_name, options = CASES[case]
    values = {"architectures": [class_name], "vocab_size": 131, "hidden_size": 48, "n_head": 6, "n_layer": 2}
    (tmp_path / "config.json").write_text(json.dumps({**values, "num_attention_heads": 6, **options, **change}))
    with pytest.raises(ModelError, match=rf"config\.json: {next(iter(change))}: .* (is|are) missing here"):
        ModelConfig.from_folder(tmp_path)


def test_the_last_position_has_a_row_and_longer_requests_are_refused(folder: Path) -> None:
    with pytest.raises(ph.ConfigError, match="max_model_len: 257 is more than the 256 tokens"):
        ph.Engine(str(folder), device="cpu", num_blocks=32, max_model_len=257)
    with ph.Engine(str(folder), device="cpu", num_blocks=32) as engine:
        params = ph.SamplingParams(max_tokens=300, temperature=0.0)
        first, again = (engine.generate(random_ids(200), params) for _ in range(2))
        assert len(first.token_ids) == 256 - 200
        assert (again.token_ids, again.usage.cached_tokens) == (first.token_ids, 199)
        with pytest.raises(ph.PromptTooLong):
            engine.generate(random_ids(256), params)
        beyond = ph.SamplingParams(max_tokens=9, kv_budget=64, kv_policy="sinks", beyond_context=True)
        with pytest.raises(ph.RequestError, match="beyond_context: the cached keys of this model cannot be turned"):
            engine.generate(random_ids(10), beyond)
    assert not can_turn_back(ModelConfig.from_folder(folder))


def test_bare_names_load_and_a_table_of_another_length_does_not(folder: Path, tmp_path: Path) -> None:
    tensors, token_ids = load_file(folder / "model.safetensors"), random_ids(20)
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    bare = {name.removeprefix("model.").removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    save_file({name: tensor.contiguous() for name, tensor in bare.items()}, tmp_path / "model.safetensors")
    expected = PagedRun(Decoder.from_folder(folder)).extend({0: token_ids})
    assert torch.equal(PagedRun(Decoder.from_folder(tmp_path)).extend({0: token_ids}), expected)
    key = "n_positions" if "n_positions" in config else "max_position_embeddings"
    (tmp_path / "config.json").write_text(json.dumps(config | {key: 300}))
    with pytest.raises(ModelError, match=r"(wpe|embed_positions)\.weight: expected shape \[30[02], 48\], found"):
        Decoder.from_folder(tmp_path)
