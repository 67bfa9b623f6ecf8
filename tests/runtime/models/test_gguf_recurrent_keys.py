"""Keys of recurrent layers in GGUF that are odd or missing: the rule of the format, or an error that names them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from phloem.errors import ModelError
from phloem.runtime.models.architectures import ARCHITECTURES
from phloem.runtime.models.gguf.recurrent import recurrent_values
from phloem.runtime.models.json_file import Fields

DELTA = {"ssm.inner_size": 32, "ssm.time_step_rank": 4, "ssm.state_size": 8, "ssm.group_count": 2, "ssm.conv_kernel": 4}
SPACE = {**DELTA, "attention.head_count_kv": [0, 2, 0, 0]}
FULL, LINEAR = "full_attention", "linear_attention"


def read(architecture: str, keys: dict[str, Any], *tensors: str) -> dict[str, Any]:
    """Of a file of four layers with some tensors."""
    file: Any = SimpleNamespace(path=Path("m.gguf"), tensors=dict.fromkeys(tensors))
    return recurrent_values(file, Fields(keys, "m.gguf"), ARCHITECTURES[architecture], 4)


def test_every_fourth_layer_attends_unless_keys_say_otherwise() -> None:
    qwen = "Qwen3NextForCausalLM"
    assert read(qwen, DELTA)["layer_types"] == [LINEAR, LINEAR, LINEAR, FULL]
    assert read(qwen, {**DELTA, "full_attention_interval": 2})["layer_types"] == [LINEAR, FULL] * 2
    listed = {**DELTA, "attention.recurrent_layers": [True, False, False, True, False], "nextn_predict_layers": 1}
    assert read(qwen, listed)["layer_types"] == [LINEAR, FULL, FULL, LINEAR]
    with pytest.raises(ModelError, match=r"attention\.recurrent_layers.*4 entries"):
        read(qwen, {**listed, "nextn_predict_layers": 0})


def test_every_eighth_layer_of_minimax_attends_and_one_factor_is_that_of_all_parts() -> None:
    file: Any = SimpleNamespace(path=Path("m.gguf"), tensors={})
    options = ARCHITECTURES["MiniMaxForCausalLM"]
    found = recurrent_values(file, Fields({"residual_scale": 1.5}, "m.gguf"), options, 9)
    assert found["layer_types"] == [*[LINEAR] * 7, FULL, LINEAR]
    assert [found[f"{part}_alpha_factor"] for part in ("linear_attn", "full_attn", "mlp")] == [1.5] * 3
    with pytest.raises(ModelError, match=r"residual_scale: expected a number"):
        read("MiniMaxForCausalLM", {})


def test_attention_beside_state_spaces_has_positions_unless_a_key_says_no() -> None:
    granite = "GraniteMoeHybridForCausalLM"
    found = read(granite, SPACE)
    assert found["position_embedding_type"] == "rope"
    assert [kind == FULL for kind in found["layer_types"]] == [False, True, False, False]
    assert read(granite, {**SPACE, "rope.scaling.finetuned": False})["position_embedding_type"] == "nope"
    assert found["time_step_min"] == 0.0


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"ssm.inner_size": 33}, r"ssm\.inner_size.*a multiple of"),
        ({"attention.head_count_kv": 2}, r"attention\.head_count_kv.*4 numbers"),
        ({"attention.head_count_kv": [0, 2]}, r"attention\.head_count_kv.*4 entries"),
    ],
)
def test_an_odd_key_is_named(keys: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelError, match=named):
        read("GraniteMoeHybridForCausalLM", {**SPACE, **keys})
