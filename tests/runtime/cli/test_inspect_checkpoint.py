"""What `phloem inspect` says of the layers of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phloem.runtime.cli.inspect_checkpoint import layer_facts
from phloem.runtime.models import ModelConfig

from ..models.decoder_shapes import DEEPSEEK, FALCON_H1, LLAMA4, SMALL


@pytest.mark.parametrize(
    ("architecture", "values", "expected"),
    [
        (
            "Mamba2ForCausalLM",
            {"num_hidden_layers": 3, "num_heads": 6, "head_dim": 16, "state_size": 32, "n_groups": 1, "expand": 2},
            {
                "heads": "none: no layer attends",
                "states": "Mamba 2 in 3 of 3 layers: 6 heads of 32 × 16, 41.62 KiB for each request",
                "width": "48",
            },
        ),
        (
            "FalconH1ForCausalLM",
            {**FALCON_H1, "num_hidden_layers": 2},
            {"states": "Mamba 2 in 2 of 2 layers, beside attention: 4 heads of 16 × 16, 11 KiB for each request"},
        ),
        (
            "Llama4ForCausalLM",
            {**LLAMA4, "attention_chunk_size": 8192, "num_experts_per_tok": 1, "max_position_embeddings": 65536},
            {"windows": "3 of 4 layers see chunks of 8,192 tokens"},
        ),
        (
            "DeepseekV3ForCausalLM",
            {**DEEPSEEK, "n_group": 4, "topk_group": 2, "num_nextn_predict_layers": 1},
            {"MTP layers": "1: config.json names them (--speculative-model mtp)", "width": "48, inner 80"},
        ),
    ],
)
def test_inspect_names_every_kind_of_layer(
    tmp_path: Path, architecture: str, values: dict[str, Any], expected: dict[str, str]
) -> None:
    values = {**SMALL, **values, "architectures": [architecture]}
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert expected.items() <= dict(layer_facts(ModelConfig.from_folder(tmp_path))).items()
