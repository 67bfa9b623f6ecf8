"""Keys of GGUF architectures that are odd or missing: what llama.cpp knows instead, or an error that names them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from phloem.errors import ModelError
from phloem.runtime.models.gguf.settings import config_values
from phloem.runtime.models.json_file import Fields

COMMON = {
    "context_length": 64, "embedding_length": 64, "block_count": 2, "feed_forward_length": 96,
    "attention.head_count": 4, "attention.layer_norm_rms_epsilon": 1e-5,
}  # fmt: skip
LATENT = {"attention.q_lora_rank": 32, "attention.kv_lora_rank": 16, "attention.key_length": 24}
SPACE = {"ssm.inner_size": 128, "ssm.time_step_rank": 4, "ssm.state_size": 8, "ssm.group_count": 1}
KEYS: dict[str, dict[str, Any]] = {
    "minicpm3": {**LATENT, "attention.head_count_kv": 4, "rope.dimension_count": 8},
    "chatglm": {"attention.head_count_kv": 2, "rope.dimension_count": 8},
    "granite": {"attention.head_count_kv": 2, "attention.scale": 0.2, "residual_scale": 0.5},
    "granitehybrid": {**SPACE, "ssm.conv_kernel": 4, "attention.head_count_kv": [0, 2], "rope.dimension_count": 8},
}


def read(arch: str, *tensors: str, **keys: Any) -> dict[str, Any]:
    """Of a small file with more keys, or others, or without those that are None; their dots are underscores twice."""
    own = {**COMMON, **KEYS[arch], **{key.replace("__", "."): value for key, value in keys.items()}}
    values = {f"{arch}.{key}": value for key, value in own.items() if value is not None}
    values["general.architecture"] = arch
    info = SimpleNamespace(type=SimpleNamespace(name="F32"), shape=(131, 64))
    named = ("token_embd.weight", "blk.0.attn_norm.weight", *tensors)
    file: Any = SimpleNamespace(path=Path("m.gguf"), values=values, tensors=dict.fromkeys(named, info))
    file.fields = lambda: Fields(values, "m.gguf")
    return config_values(file)


def test_value_heads_and_factors_of_minicpm3_are_known() -> None:
    found = read("minicpm3")
    assert [found[key] for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")] == [16, 8, 16]
    assert [found[key] for key in ("scale_emb", "scale_depth", "dim_model_base")] == [12, 1.4, 256]
    assert found["rope_theta"] == 1e4 and found["tie_word_embeddings"]
    assert read("minicpm3", attention__value_length=8)["v_head_dim"] == 8


def test_one_tensor_of_queries_keys_and_values_is_found_with_its_bias() -> None:
    apart, joined = (
        read("chatglm", "blk.0.attn_q.bias"),
        read("chatglm", "blk.0.attn_qkv.weight", "blk.0.attn_qkv.bias"),
    )
    assert (apart["joins_qkv"], joined["joins_qkv"]) == (False, True)
    assert apart["attention_bias"] and joined["attention_bias"]
    assert not read("chatglm", "blk.0.attn_qkv.weight")["attention_bias"]
    # where rows of queries and keys stand in pairs it is not read
    assert not read("granite", "blk.0.attn_qkv.weight")["joins_qkv"]


def test_a_hybrid_without_factors_is_bamba() -> None:
    bamba = read("granitehybrid")
    assert bamba["architectures"] == ["BambaForCausalLM"]
    assert int(bamba["partial_rotary_factor"] * 16) == 8
    granite = read("granitehybrid", attention__scale=0.2, rope__dimension_count=None)
    assert granite["architectures"] == ["GraniteMoeHybridForCausalLM"]


def test_an_absent_factor_on_products_is_that_of_heads() -> None:
    assert read("granite")["attention_multiplier"] == 0.2
    for absent in (None, 0.0):
        assert read("granite", attention__scale=absent)["attention_multiplier"] == 16**-0.5


@pytest.mark.parametrize(
    ("arch", "keys", "named"),
    [
        ("minicpm3", {"attention__kv_lora_rank": None}, r"attention\.kv_lora_rank: expected an integer"),
        ("minicpm3", {"rope__dimension_count": None}, r"rope\.dimension_count: expected an integer"),
        ("minicpm3", {"rope__dimension_count": 24}, r"rope\.dimension_count: expected less than a query head has, 24"),
        ("minicpm3", {"attention__key_length_mla": 24}, r"attention\.key_length_mla: 24 is not supported"),
        ("minicpm3", {"embedding_scale": 12.0}, r"minicpm3\.embedding_scale: 12\.0 is not supported"),
        ("minicpm3", {"expert_count": 4}, r"expert_count: expected 0"),
        ("chatglm", {"attention__layer_norm_rms_epsilon": None}, r"layer_norm_rms_epsilon: expected a number"),
        ("chatglm", {"rope__dimension_count": 32}, r"rope\.dimension_count: expected that of a head, 16"),
        ("chatglm", {"attention__value_length": 8}, r"attention\.value_length: expected attention\.key_length \(16\)"),
        ("chatglm", {"attention__head_count": None}, r"attention\.head_count: expected an integer"),
        ("granitehybrid", {"rope__dimension_count": 32}, r"rope\.dimension_count: expected that of a head, 16"),
        ("granitehybrid", {"residual_scale": 0.5}, r"rope\.dimension_count: expected that of a head, 16"),
        ("granitehybrid", {"attention__head_count_kv": 2}, r"attention\.head_count_kv: expected 2 numbers"),
        ("granitehybrid", {"ssm__conv_kernel": None}, r"ssm\.conv_kernel: expected an integer"),
    ],
)
def test_an_odd_key_is_named(arch: str, keys: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelError, match=named):
        read(arch, **keys)
