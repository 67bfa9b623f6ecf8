"""Keys of layers by kind, as Gemma 4's files have them: what is odd is refused by its name."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from phloem.errors import ModelError
from phloem.runtime.models.gguf.layers_by_kind import by_kind
from phloem.runtime.models.json_file import Fields

KEYS = {
    "attention.sliding_window_pattern": [True, False, True, False],
    "attention.key_length": 32,
    "attention.key_length_swa": 16,
    "attention.head_count_kv": [2, 1, 2, 1],
    "attention.shared_kv_layers": 2,
    "feed_forward_length": [96, 96, 192, 192],
    "rope.freq_base": 1e6,
    "rope.freq_base_swa": 1e4,
}
DIVISORS = [1.0] * 4 + [1e30] * 12


def read(keys: dict[str, Any], divisors: list[float] = DIVISORS) -> tuple[Fields, dict[str, Any]]:
    """Of a file whose layers without a window have no value projection."""
    numbers = np.array(divisors, np.float32)
    info = SimpleNamespace(type=SimpleNamespace(name="F32"), shape=numbers.shape)
    file: Any = SimpleNamespace(
        path=Path("m.gguf"),
        tensors={"rope_freqs.weight": info},
        raw=lambda _: numbers.view(np.uint8),
        place=lambda name: f"m.gguf: {name}",
    )
    return by_kind(file, Fields({**KEYS, **keys}, "m.gguf: gemma4"), 4)


def test_keys_become_those_of_layers_with_a_window_and_what_differs_from_them() -> None:
    fields, own = read({})
    uniform = ("attention.key_length", "attention.head_count_kv", "feed_forward_length")
    assert [fields.values[key] for key in uniform] == [16, 2, 96]
    assert own["global_head_dim"] == 32 and own["num_global_key_value_heads"] == 1
    assert own["use_double_wide_mlp"] and own["attention_k_eq_v"] and not own["enable_moe_block"]
    share = own["rope_parameters"]["full_attention"]["partial_rotary_factor"]
    assert int(share * 32 // 2) == 4


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"attention.sliding_window_pattern": [True] * 4}, "sliding_window_pattern"),
        ({"attention.sliding_window_pattern": 6}, "sliding_window_pattern"),
        ({"attention.head_count_kv": [2, 1, 1, 1]}, "head_count_kv"),
        ({"attention.head_count_kv": [2, 1]}, "head_count_kv"),
        ({"attention.value_length_swa": 8}, "value_length_swa"),
        ({"rope.dimension_count": 16}, "rope.dimension_count"),
        ({"feed_forward_length": [96, 192, 192, 192]}, "feed_forward_length"),
        ({"feed_forward_length": []}, "feed_forward_length"),
        ({"attention.shared_kv_layers": 5}, "shared_kv_layers"),
        ({"embedding_length_per_layer_input": 8}, "per_layer_token_embd"),
    ],
)
def test_an_odd_key_is_named(keys: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelError, match=named):
        read(keys)


@pytest.mark.parametrize("divisors", [DIVISORS[:8], DIVISORS[::-1], [1.0, 2.0] * 8])
def test_divisors_that_are_not_those_of_a_part_are_refused(divisors: list[float]) -> None:
    with pytest.raises(ModelError, match=r"rope_freqs\.weight: expected"):
        read({}, divisors)
