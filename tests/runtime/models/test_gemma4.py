"""Gemma 4's configuration as it is published, as transformers saves it, and odd."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phloem.errors import ModelError
from phloem.runtime.models import ModelConfig
from phloem.runtime.models.kv_shape import KVShape

SLIDING, FULL = "sliding_attention", "full_attention"
PUBLISHED: dict[str, Any] = {
    "architectures": ["Gemma4ForCausalLM"],
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_global_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 32,
    "attention_k_eq_v": True,
    "max_position_embeddings": 512,
    "sliding_window": 64,
    "layer_types": [SLIDING, FULL, SLIDING, FULL],
    "hidden_size_per_layer_input": 0,
    "enable_moe_block": False,
    "num_experts": None,
    "top_k_experts": None,
}


def read(folder: Path, **changes: Any) -> ModelConfig:
    (folder / "config.json").write_text(json.dumps({**PUBLISHED, **changes}))
    return ModelConfig.from_folder(folder)


def test_both_ways_to_say_which_heads_a_layer_has_are_one(tmp_path: Path) -> None:
    published = read(tmp_path)
    assert published.kv_shapes() == (KVShape(4, 16), KVShape(2, 32)) * 2
    assert [len(published.projected(index)[0]) for index in range(4)] == [3, 2, 3, 2]
    saved = {"head_dim": 32, "num_key_value_heads": 2}
    own = {"global_head_dim": None, "num_global_key_value_heads": None, "per_layer_config": {"1": saved, "3": saved}}
    assert read(tmp_path, **own) == published


def test_what_is_left_out_is_as_in_transformers(tmp_path: Path) -> None:
    """Five layers with a window and one without; the last never has one; heads of 512; positions of a quarter."""
    config = read(tmp_path, layer_types=None, num_hidden_layers=8, global_head_dim=None, sliding_window=None)
    assert [layer.window for layer in config.layers] == [512] * 5 + [0, 512, 0]
    assert config.kv_shape(5) == KVShape(2, 512)
    full, local = config.ropes
    assert (full.theta, full.rotary_dim, full.num_turned) == (1e6, 512, 64)
    assert (local.theta, local.rotary_dim) == (1e4, 16)
    assert read(tmp_path, attention_k_eq_v=False).kv_shape(1) == KVShape(4, 32)
    assert read(tmp_path, num_global_key_value_heads=None).kv_shape(1) == KVShape(4, 32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_global_key_value_heads": 3}, "num_global_key_value_heads: .*divisor of num_attention_heads"),
        ({"global_head_dim": 31}, "rope_parameters: full_attention: partial_rotary_factor"),
        ({"per_layer_config": {"1": {"head_dim": 32}, "3": {"head_dim": 16}}}, "per_layer_config: .*the same of each"),
        ({"per_layer_config": {"0": {"head_dim": 32}}}, "per_layer_config: .*layers 1, 3"),
        ({"per_layer_config": {"1": {"sliding_window": 8}, "3": {"sliding_window": 8}}}, "per_layer_config"),
        ({"per_layer_config": [1]}, "per_layer_config"),
        ({"per_layer_config": {"1": {"num_key_value_heads": 3}, "3": {"num_key_value_heads": 3}}}, "per_layer_config"),
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention: tokens that see later ones"),
        ({"num_kv_shared_layers": 4}, "num_kv_shared_layers"),
    ],
)
def test_what_is_odd_is_refused_by_its_key(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read(tmp_path, **changes)
