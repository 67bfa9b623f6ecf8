"""Keys of GGUF architectures that are odd or missing: what llama.cpp knows instead, or an error that names them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from phloem.errors import ModelError
from phloem.runtime.models.gguf.file import GgufFile
from phloem.runtime.models.gguf.settings import config_values

COMMON = {
    "context_length": 64, "embedding_length": 64, "block_count": 4, "feed_forward_length": 96,
    "attention.head_count": 4, "attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 1e-5,
}  # fmt: skip
DELTA = {"ssm.inner_size": 32, "ssm.time_step_rank": 4, "ssm.state_size": 8, "ssm.group_count": 2, "ssm.conv_kernel": 4}
SPACE = {**DELTA, "attention.head_count_kv": [0, 2, 0, 0]}
KEYS: dict[str, dict[str, Any]] = {
    "minicpm3": {
        "attention.q_lora_rank": 32, "attention.kv_lora_rank": 16, "attention.key_length": 24,
        "attention.head_count_kv": 4, "rope.dimension_count": 8,
    },
    "chatglm": {"rope.dimension_count": 8},
    "granite": {"attention.scale": 0.2, "residual_scale": 0.5},
    "granitehybrid": {**SPACE, "attention.scale": 0.2},
    "bamba": {**SPACE, "rope.dimension_count": 8},
    "qwen35": DELTA,
    "minimax-01": {"residual_scale": 1.5, "expert_count": 131, "expert_used_count": 2},
    "gemma4": {
        "attention.sliding_window_pattern": [True, False] * 2, "attention.key_length": 32,
        "attention.key_length_swa": 16, "attention.head_count_kv": [2, 1] * 2, "attention.shared_kv_layers": 2,
        "feed_forward_length": [96, 96, 192, 192], "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4,
    },
}  # fmt: skip
DIVISORS = [1.0] * 4 + [1e30] * 12  # of Gemma 4
FULL, LINEAR = "full_attention", "linear_attention"


def read(name: str, keys: dict[str, Any] | None = None, *tensors: str, divisors: list[float] = DIVISORS) -> Any:
    """Of a small file with other keys than in `KEYS`, None: without, and with more tensors."""
    arch = "granitehybrid" if name == "bamba" else name
    own = {key: value for key, value in {**COMMON, **KEYS[name], **(keys or {})}.items() if value is not None}
    values = {**{f"{arch}.{key}": value for key, value in own.items()}, "general.architecture": arch}
    numbers, kind = np.array(divisors, np.float32), SimpleNamespace(name="F32")
    named = ["token_embd.weight", *(f"blk.{index}.attn_norm.weight" for index in range(8)), *tensors]
    infos = dict.fromkeys(named, SimpleNamespace(type=kind, shape=(131, 64)))
    if arch == "gemma4":
        infos["rope_freqs.weight"] = SimpleNamespace(type=kind, shape=numbers.shape)
    if arch == "minimax-01":
        infos["blk.0.ffn_gate_exps.weight"] = infos["token_embd.weight"]
    file: Any = object.__new__(GgufFile)
    file.path, file.values, file.tensors = Path("m.gguf"), values, infos
    file.raw = lambda _: numbers.view(np.uint8)
    return config_values(file)


def test_value_heads_and_factors_of_minicpm3_are_known() -> None:
    found = read("minicpm3")
    assert [found[key] for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")] == [16, 8, 16]
    assert [found[key] for key in ("scale_emb", "scale_depth", "dim_model_base")] == [12, 1.4, 256]
    assert found["rope_theta"] == 1e4 and found["tie_word_embeddings"]
    assert read("minicpm3", {"attention.value_length": 8})["v_head_dim"] == 8


def test_one_tensor_of_queries_keys_and_values_is_found_with_its_bias() -> None:
    names = [f"blk.0.attn_{what}" for what in ("q.bias", "qkv.weight", "qkv.bias")]
    apart, joined = read("chatglm", None, names[0]), read("chatglm", None, *names[1:])
    assert (apart["joins_qkv"], joined["joins_qkv"]) == (False, True)
    assert apart["attention_bias"] and joined["attention_bias"]
    assert not read("chatglm", None, names[1])["attention_bias"]
    # where rows of queries and keys stand in pairs it is not read
    assert not read("granite", None, names[1])["joins_qkv"]


def test_a_hybrid_without_factors_is_bamba() -> None:
    bamba, granite = read("bamba"), read("granitehybrid")
    assert bamba["architectures"] == ["BambaForCausalLM"]
    assert int(bamba["partial_rotary_factor"] * 16) == 8
    assert granite["architectures"] == ["GraniteMoeHybridForCausalLM"]


def test_an_absent_factor_on_products_is_that_of_heads() -> None:
    assert read("granite")["attention_multiplier"] == 0.2
    for absent in (None, 0.0):
        assert read("granite", {"attention.scale": absent})["attention_multiplier"] == 16**-0.5


def test_every_so_many_layers_attend_unless_keys_say_otherwise() -> None:
    assert read("qwen35")["layer_types"] == [LINEAR, LINEAR, LINEAR, FULL]
    assert read("qwen35", {"full_attention_interval": 2})["layer_types"] == [LINEAR, FULL] * 2
    listed = {"attention.recurrent_layers": [True, False, False, True, False], "block_count": 5}
    assert read("qwen35", {**listed, "nextn_predict_layers": 1})["layer_types"] == [LINEAR, FULL, FULL, LINEAR]
    assert read("minimax-01", {"block_count": 8})["layer_types"] == [*[LINEAR] * 7, FULL]
    found = read("minimax-01", {"attention.recurrent_layers": [True, False] * 2})
    assert found["layer_types"] == [LINEAR, FULL] * 2
    assert [found[f"{part}_alpha_factor"] for part in ("linear_attn", "full_attn", "mlp")] == [1.5] * 3


def test_attention_beside_state_spaces_has_positions_unless_a_key_says_no() -> None:
    found = read("granitehybrid")
    assert found["position_embedding_type"] == "rope"
    assert [kind == FULL for kind in found["layer_types"]] == [False, True, False, False]
    assert read("granitehybrid", {"rope.scaling.finetuned": False})["position_embedding_type"] == "nope"
    assert found["time_step_min"] == 0.0


def test_of_layers_by_kind_those_with_a_window_are_the_common_shape() -> None:
    """Of a file of Gemma 4 whose layers without a window have no value projection."""
    found = read("gemma4")
    assert [found[key] for key in ("head_dim", "num_key_value_heads", "intermediate_size")] == [16, 2, 96]
    assert found["global_head_dim"] == 32 and found["num_global_key_value_heads"] == 1
    assert found["use_double_wide_mlp"] and found["attention_k_eq_v"] and not found["enable_moe_block"]
    share = found["rope_parameters"][FULL]["partial_rotary_factor"]
    assert int(share * 32 // 2) == 4


@pytest.mark.parametrize(
    ("arch", "keys", "named"),
    [
        ("minicpm3", {"attention.kv_lora_rank": None}, r"attention\.kv_lora_rank: expected an integer"),
        ("minicpm3", {"rope.dimension_count": None}, r"rope\.dimension_count: expected an integer"),
        ("minicpm3", {"rope.dimension_count": 24}, r"rope\.dimension_count: expected less than a query head has, 24"),
        ("minicpm3", {"attention.key_length_mla": 24}, r"attention\.key_length_mla: 24 is not supported"),
        ("minicpm3", {"embedding_scale": 12.0}, r"minicpm3\.embedding_scale: 12\.0 is not supported"),
        ("minicpm3", {"expert_count": 4}, r"expert_count: expected 0"),
        ("chatglm", {"attention.layer_norm_rms_epsilon": None}, r"layer_norm_rms_epsilon: expected a number"),
        ("chatglm", {"rope.dimension_count": 32}, r"rope\.dimension_count: expected that of a head, 16"),
        ("chatglm", {"attention.value_length": 8}, r"attention\.value_length: expected attention\.key_length \(16\)"),
        ("chatglm", {"attention.head_count": None}, r"attention\.head_count: expected an integer"),
        ("bamba", {"rope.dimension_count": 32}, r"rope\.dimension_count: expected that of a head, 16"),
        ("bamba", {"residual_scale": 0.5}, r"rope\.dimension_count: expected that of a head, 16"),
        ("bamba", {"ssm.conv_kernel": None}, r"ssm\.conv_kernel: expected an integer"),
        ("granitehybrid", {"ssm.inner_size": 33}, r"ssm\.inner_size.*a multiple of"),
        ("granitehybrid", {"attention.head_count_kv": 2}, r"attention\.head_count_kv.*4 numbers"),
        ("granitehybrid", {"attention.head_count_kv": [0, 2]}, r"attention\.head_count_kv.*4 entries"),
        ("qwen35", {"attention.recurrent_layers": [True] * 5}, r"attention\.recurrent_layers.*4 entries"),
        ("minimax-01", {"residual_scale": None}, r"residual_scale: expected a number"),
        ("gemma4", {"attention.sliding_window_pattern": [True] * 4}, "sliding_window_pattern"),
        ("gemma4", {"attention.sliding_window_pattern": 6}, "sliding_window_pattern"),
        ("gemma4", {"attention.head_count_kv": [2, 1, 1, 1]}, "head_count_kv"),
        ("gemma4", {"attention.head_count_kv": [2, 1]}, "head_count_kv"),
        ("gemma4", {"attention.value_length_swa": 8}, r"value_length_swa"),
        ("gemma4", {"rope.dimension_count": 16}, r"rope\.dimension_count"),
        ("gemma4", {"feed_forward_length": [96, 192, 192, 192]}, "feed_forward_length"),
        ("gemma4", {"feed_forward_length": []}, "feed_forward_length"),
        ("gemma4", {"attention.shared_kv_layers": 5}, "shared_kv_layers"),
        ("gemma4", {"embedding_length_per_layer_input": 8}, "per_layer_token_embd"),
    ],
)
def test_an_odd_key_is_named(arch: str, keys: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelError, match=named):
        read(arch, keys)


@pytest.mark.parametrize("divisors", [DIVISORS[:8], DIVISORS[::-1], [1.0, 2.0] * 8])
def test_divisors_that_are_not_those_of_a_part_are_refused(divisors: list[float]) -> None:
    with pytest.raises(ModelError, match=r"rope_freqs\.weight: expected"):
        read("gemma4", divisors=divisors)
