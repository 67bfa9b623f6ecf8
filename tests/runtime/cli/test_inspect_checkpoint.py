"""What `phloem inspect` says of the layers of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from phloem.runtime.cli.inspect_checkpoint import checkpoint_of, layer_facts
from phloem.runtime.models import ModelConfig

from ..models.decoder_shapes import DEEPSEEK, FALCON_H1, GEMMA4, LLAMA4, SMALL
from ..models.gguf_files import finish


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
            "Gemma4ForCausalLM",
            {
                **GEMMA4,
                "num_hidden_layers": 6,
                "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
                "num_kv_shared_layers": 3,
                "use_double_wide_mlp": True,
                "hidden_size_per_layer_input": 8,
                "vocab_size_per_layer_input": 131,
            },
            {
                "heads": "6 query, 2 KV, head dim 8 in 2 layers and 2 KV, head dim 16 in 1 layer",
                "shared keys": "3 of 6 layers read keys and values of earlier ones",
                "width": "48, inner 80 in 3 layers and 160 in 3 layers",
                "layer inputs": "8 in each layer, of a table of 131 tokens",
            },
        ),
        (
            "Gemma4ForCausalLM",
            {
                **GEMMA4,
                "attention_k_eq_v": True,
                "enable_moe_block": True,
                "num_experts": 5,
                "top_k_experts": 2,
                "moe_intermediate_size": 24,
            },
            {
                "values": "made of the keys in 2 of 4 layers",
                "width": "48, inner 80",
                "experts": "2 of 5 of 24, in 4 layers, beside their MLPs",
            },
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


def test_inspect_says_that_there_is_no_tokenizer(tmp_path: Path) -> None:
    """Of a folder and of a GGUF file."""
    values = {**SMALL, "architectures": ["LlamaForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(values))
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(48)
    writer.add_block_count(1)
    writer.add_feed_forward_length(80)
    writer.add_head_count(6)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tensor("token_embd.weight", np.zeros((131, 48), np.float32))
    finish(writer)
    for name in ("", "model.gguf"):
        facts = {line[:15].strip(): line[15:] for line in checkpoint_of(str(tmp_path / name)).splitlines()}
        assert facts["vocabulary"].startswith("131 tokens; the folder has no tokenizer")
        assert "chat template" not in facts
    assert facts["files"].startswith("1 file, ")
