"""Layers that read the keys and values of earlier ones: which ones, and where in the cache they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from phloem.errors import ModelError
from phloem.runtime.models.architectures import ARCHITECTURES
from phloem.runtime.models.json_file import Fields
from phloem.runtime.models.layer_config import read_kv_sources

SHARES = replace(ARCHITECTURES["Gemma3ForCausalLM"], shares_kv=True)
WINDOWS, ROPES = [9, 9, 0, 9, 9, 0, 9, 0], [1, 1, 0, 1, 1, 0, 1, 0]


def sources(num_shared: int) -> list[int]:
    return read_kv_sources(Fields({"num_kv_shared_layers": num_shared}, "config.json"), SHARES, WINDOWS, ROPES)


def test_the_last_layer_of_the_same_kind_that_has_keys_is_read() -> None:
    assert sources(3) == [-1] * 5 + [2, 4, 2]
    assert sources(5) == [-1] * 3 + [1, 1, 2, 1, 2]
    assert sources(0) == [-1] * 8


@pytest.mark.parametrize("num_shared", [6, 8, 9])
def test_a_kind_of_which_no_layer_has_keys_is_refused(num_shared: int) -> None:
    with pytest.raises(ModelError, match="num_kv_shared_layers"):
        sources(num_shared)
