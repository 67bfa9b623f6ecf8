"""Sizes of a checkpoint: the largest allowed is read, one more is refused by its name with the bound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phloem.errors import ModelError
from phloem.runtime.models import ModelConfig
from phloem.runtime.models.adapter_config import AdapterConfig

from .decoder_cases import CASES
from .decoder_shapes import DEEPSEEK, QWEN2_MOE, SMALL

LLAMA = {**SMALL, "architectures": ["LlamaForCausalLM"], "head_dim": 8, "num_key_value_heads": 1}
LATENT = {**SMALL, **DEEPSEEK, "architectures": ["DeepseekV3ForCausalLM"]}
SHARED = {**SMALL, **QWEN2_MOE, "architectures": ["Qwen2MoeForCausalLM"]}
BOUNDS: list[tuple[dict[str, Any], str, int]] = [
    (LLAMA, "num_hidden_layers", 4096),
    (LLAMA, "num_attention_heads", 4096),
    (LLAMA, "num_key_value_heads", 6),
    (LLAMA, "hidden_size", 1_048_576),
    (LLAMA, "head_dim", 1_048_576),
    (LLAMA, "intermediate_size", 1_048_576),
    (LLAMA, "vocab_size", 16_777_216),
    (LLAMA, "max_position_embeddings", 67_108_864),
    (LATENT, "kv_lora_rank", 1_048_576),
    (LATENT, "q_lora_rank", 1_048_576),
    (LATENT, "qk_nope_head_dim", 1_048_576),
    (LATENT, "qk_rope_head_dim", 1_048_576),
    (LATENT, "v_head_dim", 1_048_576),
    (LATENT, "n_routed_experts", 16_384),
    (LATENT, "num_experts_per_tok", 8),
    (LATENT, "n_shared_experts", 16_384),
    (LATENT, "moe_intermediate_size", 1_048_576),
    (SHARED, "shared_expert_intermediate_size", 1_048_576),
]


LFM2 = {**SMALL, **CASES["lfm2"][1], "architectures": ["Lfm2ForCausalLM"]}
SPACES = {**SMALL, **CASES["granite-hybrid"][1], "architectures": ["GraniteMoeHybridForCausalLM"]}
FALCON = {**SMALL, **CASES["falcon-h1"][1], "architectures": ["FalconH1ForCausalLM"]}
NEMOTRON = {**SMALL, **CASES["nemotron-h"][1], "architectures": ["NemotronHForCausalLM"]}
NEMOTRON |= {"hybrid_override_pattern": "MEM*-", "num_experts_per_tok": 2, "mlp_hidden_act": "relu2"}
ODD: list[tuple[dict[str, Any], str, list[Any]]] = [
    ({**LFM2, "layer_types": None}, "full_attn_idxs", [7, True, {}, "a", ["a"], [[1]], [99], [-1], [True], [1.0]]),
    (LFM2, "block_ffn_dim_multiplier", [1e29, 10**40, 0, "a"]),
    ({**LFM2, "block_multiple_of": 1}, "intermediate_size", [1, 0, True, 10**40]),
    (FALCON, "ssm_multipliers", [1.0, [1.0] * 4, ["a"] * 5, [True] * 5]),
    (FALCON, "mlp_multipliers", [{}, [], [1.0]]),
    ({**NEMOTRON, "mlp_hidden_act": None, "hidden_act": "relu2"}, "hidden_act", ["gelu", 5]),
    ({**NEMOTRON, "layers_block_type": None}, "hybrid_override_pattern", ["", "M*X", 5, ["M"]]),
    (SPACES, "time_step_limit", [0, False, "", {}, [], [0], [0, 10**400], [10**400, 10**401], [1, 0], [True, 2]]),
    (SPACES, "position_embedding_type", [5, "x", [], True]),
]


def test_a_pattern_of_letters_says_what_a_list_of_layers_says(tmp_path: Path) -> None:
    listed = read(tmp_path, {**NEMOTRON, "hybrid_override_pattern": None})
    assert read(tmp_path, {**NEMOTRON, "layers_block_type": None, "num_hidden_layers": None}) == listed


def read(folder: Path, values: dict[str, Any]) -> ModelConfig:
    (folder / "config.json").write_text(json.dumps(values))
    return ModelConfig.from_folder(folder)


@pytest.mark.parametrize(("values", "key", "most"), BOUNDS, ids=[key for _, key, _ in BOUNDS])
def test_the_largest_size_is_read_and_one_more_is_refused(
    tmp_path: Path, values: dict[str, Any], key: str, most: int
) -> None:
    read(tmp_path, {**values, key: most})
    with pytest.raises(ModelError, match=rf"config\.json: {key}: expected .*\b{most}\b.*, found {most + 1}$"):
        read(tmp_path, {**values, key: most + 1})


@pytest.mark.parametrize(("values", "key", "odd"), ODD, ids=[key for _, key, _ in ODD])
def test_odd_values_of_recurrent_layers_are_refused_by_name(
    tmp_path: Path, values: dict[str, Any], key: str, odd: list[Any]
) -> None:
    read(tmp_path, values)
    for value in odd:
        with pytest.raises(ModelError, match=rf"config\.json: {key}|config\.json: intermediate_size: .* a width"):
            read(tmp_path, {**values, key: value})


@pytest.mark.parametrize("key", ["r", "rank_pattern: q_proj"])
def test_so_is_the_rank_of_an_adapter(tmp_path: Path, key: str) -> None:
    def read_rank(rank: int) -> None:
        ranks = {"r": rank} if key == "r" else {"rank_pattern": {"q_proj": rank}}
        (tmp_path / "adapter_config.json").write_text(json.dumps({"target_modules": "all-linear", **ranks}))
        AdapterConfig.from_folder(tmp_path)

    read_rank(1_048_576)
    with pytest.raises(ModelError, match=rf"{key}: expected .*at most 1048576, found 1048577$"):
        read_rank(1_048_577)
