"""GGUF files of models with recurrent layers: against transformers on the checkpoints that they are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from phloem.kernels.grouped import Grouped
from phloem.runtime.capacity.planner import plan
from phloem.runtime.models import Decoder
from phloem.runtime.models.architectures import ARCHITECTURES
from phloem.runtime.models.gguf.families import FAMILIES
from phloem.runtime.models.gguf.value_order import in_column_order, in_group_order
from phloem.runtime.models.recurrent_config import RecurrentConfig

from . import gguf_recurrent as keys
from .decoder_cases import CASES
from .gguf_cases import GGUF_CASES
from .gguf_recurrent import Keys, convert
from .oracle import Oracle, PagedRun, random_ids, save_random_model

WIDE = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
VALUES = {"linear_key_head_dim": 32, "linear_value_head_dim": 32, "linear_num_value_heads": 6}
DELTA = {**WIDE, **VALUES, "layer_types": ["linear_attention", "full_attention"] * 2}
SPARSE = {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}
POWERS = {
    "attention_in_multiplier": 0.5, "attention_out_multiplier": 2.0, "ssm_in_multiplier": 2.0,
    "ssm_out_multiplier": 0.5, "key_multiplier": 0.25, "embedding_multiplier": 4.0, "lm_head_multiplier": 0.25,
    "mlp_multipliers": [0.5, 2.0], "ssm_multipliers": [0.5, 0.25, 2.0, 0.5, 4.0],
}  # fmt: skip

# name: (architecture in the file, the case, what differs from it, type, keys)
MODELS: dict[str, tuple[str, str, dict[str, Any], str, Keys]] = {
    "mamba": ("mamba", "mamba", {"hidden_size": 64, "intermediate_size": 128, "use_bias": False}, "Q8_0", keys.mamba),
    "falcon-mamba": (
        "mamba", "falcon-mamba",
        {"hidden_size": 64, "intermediate_size": 128, "state_size": 16, "mixer_rms_eps": 1e-5}, "Q8_0", keys.mamba,
    ),
    "mamba2": (
        "mamba2", "mamba2", {"hidden_size": 64, "num_heads": 8, "head_dim": 16, "n_groups": 2}, "Q8_0", keys.mamba2,
    ),
    "jamba": ("jamba", "jamba", {**WIDE, "mamba_dt_rank": 4}, "Q8_0", keys.jamba),
    "lfm2": ("lfm2", "lfm2", WIDE, "Q8_0", keys.lfm2),
    "lfm2moe": ("lfm2moe", "lfm2-moe", {**WIDE, "moe_intermediate_size": 32}, "Q8_0", keys.lfm2moe),
    "falcon-h1": (
        "falcon-h1", "falcon-h1", {**WIDE, **POWERS, "head_dim": 16, "mamba_norm_before_gate": False}, "Q8_0",
        keys.falcon_h1,
    ),
    "granite-hybrid": (
        "granitehybrid", "granite-hybrid", {**WIDE, "mamba_n_heads": 4, "mamba_d_head": 32}, "Q8_0", keys.granite,
    ),
    "granite-hybrid, experts": (
        "granitehybrid", "granite-hybrid-experts",
        {
            **WIDE, "mamba_n_heads": 4, "mamba_d_head": 32, "shared_intermediate_size": 96, "intermediate_size": 32,
            "embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.4, "logits_scaling": 6.0,
            "position_embedding_type": "rope",
        },
        "Q8_0", keys.granite,
    ),
    "granite-hybrid, groups": (
        "granitehybrid", "granite-hybrid", {**WIDE, "mamba_n_heads": 8, "mamba_n_groups": 4}, "Q8_0", keys.granite,
    ),
    "bamba": ("granitehybrid", "bamba", {**WIDE, "mamba_n_heads": 8, "mamba_n_groups": 2}, "Q8_0", keys.bamba),
    "nemotron-h": (
        "nemotron_h", "nemotron-h-no-experts-attention-last", {**WIDE, "use_bias": False, "mlp_bias": False}, "Q8_0",
        keys.nemotron_h,
    ),
    "nemotron-h, experts": (
        "nemotron_h_moe", "nemotron-h",
        {
            **WIDE, "n_group": 1, "topk_group": 1, "time_step_min": 1e-9, "moe_latent_size": 32,
            "moe_intermediate_size": 32,
            "layers_block_type": ["linear_attention", "moe", "full_attention", "moe"],
        },
        "Q8_0", keys.nemotron_h,
    ),
    "qwen3-next": ("qwen3next", "qwen3-next", {**DELTA, **SPARSE}, "Q8_0", keys.qwen),
    "qwen3-next, fused": ("qwen3next", "qwen3-next", {**DELTA, **SPARSE}, "Q8_0", keys.fused_qwen),
    "qwen3.5": ("qwen35", "qwen3.5", DELTA, "Q8_0", keys.qwen),
    "qwen3.5, experts": ("qwen35moe", "qwen3.5-moe", {**DELTA, **SPARSE}, "BF16", keys.qwen),
    "qwen3.5, joined experts": ("qwen35moe", "qwen3.5-moe", {**DELTA, **SPARSE}, "Q8_0", keys.joined_qwen),
    "minimax-01": (
        "minimax-01", "minimax",
        {
            **WIDE, "intermediate_size": 32, "layer_types": ["linear_attention", "full_attention"] * 2,
            **dict.fromkeys(["linear_attn_alpha_factor", "full_attn_alpha_factor", "mlp_alpha_factor"], 1.5),
            "mlp_beta_factor": 1.0,
        },
        "Q8_0", keys.minimax,
    ),
    "kimi-linear": (
        "kimi-linear", "kimi-linear",
        {
            **WIDE, "linear_num_heads": 4, "num_expert_group": 1, "topk_group": 1, "num_key_value_heads": 4,
            "moe_intermediate_size": 32,
        },
        "BF16", keys.kimi_linear,
    ),
}  # fmt: skip


def test_every_family_is_compared_and_in_the_docs() -> None:
    assert {model[0] for table in (MODELS, GGUF_CASES) for model in table.values()} == set(FAMILIES)
    page = (Path(__file__).resolve().parents[3] / "docs" / "models.md").read_text(encoding="utf-8")
    assert [name for name in FAMILIES if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_greedy_text_equal_transformers(name: str, tmp_path: Path) -> None:
    arch, case, differs, kind, add_keys = MODELS[name]
    class_name, options = CASES[case]
    save_random_model(tmp_path, class_name, {**options, **differs})
    convert(tmp_path, tmp_path / "model.gguf", arch, kind, add_keys)
    decoder = Decoder.from_folder(tmp_path / "model.gguf", dtype=torch.float32, max_positions=128)
    token_ids = random_ids(40)
    run = PagedRun(decoder)
    found = torch.cat([run.extend({0: chunk}) for chunk in (token_ids[:29], token_ids[29:])])
    oracle = Oracle(tmp_path, getattr(transformers, class_name).from_pretrained(tmp_path, dtype=torch.float32).eval())
    oracle.assert_logits(found, token_ids)
    oracle.assert_greedy(token_ids, PagedRun(decoder).greedy(token_ids, 24))
    capacity = plan(decoder.config, pool_bytes=1 << 20, on_cpu=True, weight_dtype="float32")
    assert capacity.weight_bytes == decoder.num_weight_bytes


@pytest.mark.parametrize("value_dim", [8, 16, 32])
def test_groups_move_as_their_numbers_do(value_dim: int) -> None:
    """Columns of value heads, where a group is as wide as a head, half of one, or two."""
    options = ARCHITECTURES["Qwen3_5ForCausalLM"].recurrent
    assert options is not None
    config = RecurrentConfig(options, (True,), 4, 0, heads=6, key_heads=2, key_dim=8, value_dim=value_dim)
    made = torch.Generator().manual_seed(1)
    numbers = torch.randint(0, 16, (3, 6 * value_dim), generator=made).to(torch.int8)
    scales, offsets = (torch.randn(3, 6 * value_dim // 16, generator=made) for _ in range(2))
    weight = Grouped("uint4", numbers, scales, offsets=offsets)
    found = in_group_order(config, weight).widen(torch.float32)
    assert torch.equal(found, in_column_order(config, weight.widen(torch.float32)))
    heads = found.view(3, 2, 3, value_dim)  # the second of the first key head lies third
    assert torch.equal(heads[:, 0, 1], weight.widen(torch.float32).view(3, 6, value_dim)[:, 2])
