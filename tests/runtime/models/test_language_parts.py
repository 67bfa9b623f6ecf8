"""Models that read images too, as their language model alone: against transformers, given text."""

from __future__ import annotations

import json
import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from phloem.errors import ModelError
from phloem.runtime.capacity.planner import plan
from phloem.runtime.models import Decoder, ModelConfig

from .decoder_shapes import DELTA, GEMMA3N, GEMMA4, LLAMA4, SMALL
from .oracle import Oracle, PagedRun, has_norm_offset, random_ids, save_random_model

TEXT: dict[str, Any] = {**SMALL, "head_dim": 16, "eos_token_id": 2, "pad_token_id": 0}
VISION: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
    "depth": 1,
    "embed_dim": 32,
    "num_heads": 2,
    "out_hidden_size": 48,
    "fullatt_block_indexes": [0],
    "deepstack_visual_indexes": [0],
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
SECTIONS = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}}
GLM_ROPE = {"rope_parameters": {**SECTIONS["rope_parameters"], "partial_rotary_factor": 0.5}}
GLM = {**EXPERTS, **GLM_ROPE, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_hidden_layers": 3}
WINDOWS = {"sliding_window": 9, "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2}

# name: (transformers' model class, of the language model, of the other part)
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "gemma3": ("Gemma3ForConditionalGeneration", WINDOWS, {}),
    "gemma3n": ("Gemma3nForConditionalGeneration", GEMMA3N, {}),
    "gemma4": ("Gemma4ForConditionalGeneration", GEMMA4, {"num_key_value_heads": 2, "head_dim": 16}),
    "mistral3": ("Mistral3ForConditionalGeneration", {"model_type": "mistral"}, {"model_type": "pixtral"}),
    "llava": ("LlavaForConditionalGeneration", {"model_type": "llama"}, {"model_type": "clip_vision_model"}),
    "qwen2-vl": ("Qwen2VLForConditionalGeneration", {**SECTIONS, "head_dim": 8}, {}),
    "qwen2.5-vl": ("Qwen2_5_VLForConditionalGeneration", {**SECTIONS, "head_dim": 8}, {}),
    "qwen3-vl": ("Qwen3VLForConditionalGeneration", {}, {}),
    "qwen3-vl-moe": ("Qwen3VLMoeForConditionalGeneration", EXPERTS, {}),
    "qwen3.5": ("Qwen3_5ForConditionalGeneration", DELTA, {}),
    "qwen3.5-moe": (
        "Qwen3_5MoeForConditionalGeneration",
        {**DELTA, **EXPERTS, "shared_expert_intermediate_size": 24},
        {},
    ),
    "glm4.5v": ("Glm4vMoeForConditionalGeneration", GLM, {}),
    "llama4": ("Llama4ForConditionalGeneration", LLAMA4, {"vision_output_dim": 32, "projector_input_dim": 32}),
}


def save_with_images(folder: Path, class_name: str, text: dict[str, Any], vision: dict[str, Any]) -> Any:
    """A checkpoint of transformers' own making, with every parameter random."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.manual_seed(7)
    if class_name == "Gemma3nForConditionalGeneration":
        return save_gemma3n(folder, text)
    model_class = getattr(transformers, class_name)
    config = model_class.config_class(text_config={**TEXT, **text}, vision_config={**VISION, **vision})
    model = model_class(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = "norm" in name
            parameter.normal_(mean=float(is_norm and not has_norm_offset(config.model_type)), std=0.25)
    model.save_pretrained(folder)
    # transformers' Llama 4 as a whole does not take texts without images
    return model.language_model if class_name.startswith("Llama4") else model


def save_gemma3n(folder: Path, text: dict[str, Any]) -> Any:
    """The language model alone, which transformers makes without timm, with tensors of other parts and all names as in
    a checkpoint of the whole."""
    from safetensors.torch import load_file, save_file

    model = save_random_model(folder, "Gemma3nForCausalLM", {**TEXT, **text})
    path, config = folder / "model.safetensors", folder / "config.json"
    weights = {name.replace("model.", "model.language_model.", 1): weight for name, weight in load_file(path).items()}
    for part in ("vision_tower.timm_model.norm", "audio_tower.norm", "embed_vision.norm", "embed_audio.norm"):
        weights[f"model.{part}.weight"] = torch.ones(4)
    for name in ("k_proj", "v_proj", "k_norm"):  # published, and not used
        weights[f"model.language_model.layers.3.self_attn.{name}.weight"] = torch.ones(4)
    save_file(weights, path)
    text = json.loads(config.read_text())
    config.write_text(json.dumps({"architectures": ["Gemma3nForConditionalGeneration"], "text_config": text}))
    return model


@pytest.mark.parametrize("name", CASES)
def test_the_language_model_continues_texts_as_in_transformers(tmp_path: Path, name: str) -> None:
    oracle = Oracle(tmp_path, save_with_images(tmp_path, *CASES[name]))
    oracle.assert_decoder(Decoder.from_folder(tmp_path))


def test_experts_that_stand_as_qwen_publishes_them(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    oracle = Oracle(tmp_path, save_with_images(tmp_path, *CASES["qwen3-vl-moe"]))
    weights = load_file(tmp_path / "model.safetensors")
    turned = {name: w.transpose(1, 2).contiguous() if ".experts." in name else w for name, w in weights.items()}
    save_file(turned, tmp_path / "model.safetensors")
    token_ids = random_ids(30)
    oracle.assert_logits(PagedRun(Decoder.from_folder(tmp_path)).extend({0: token_ids}), token_ids)


def test_a_language_model_that_is_not_run_is_refused_by_its_type(tmp_path: Path) -> None:
    values = {"architectures": ["LlavaForConditionalGeneration"], "text_config": {**TEXT, "model_type": "mpt"}}
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(ModelError, match=r"text_config: architecture mpt is not supported .*ALiBi.*nearest that loads"):
        ModelConfig.from_folder(tmp_path)


def test_what_a_published_configuration_of_gemma_3_leaves_out(tmp_path: Path) -> None:
    text = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    }
    values = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": text, "torch_dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(values))
    config = ModelConfig.from_folder(tmp_path)
    assert (config.num_heads, config.num_kv_heads, config.head_dim, config.vocab_size) == (8, 4, 256, 262_208)
    assert [rope.theta for rope in config.ropes] == [1e6, 1e4]
    assert [rope.rope_type for rope in config.ropes] == ["linear", "default"]
    assert config.dtype == "bfloat16"
    assert [index for index, layer in enumerate(config.layers) if not layer.window] == [5, 11, 17, 23, 29]


GEMMA3N_E4B: dict[str, Any] = {
    "activation_sparsity_pattern": [0.95] * 10 + [0.0] * 25,
    "altup_num_inputs": 4,
    "final_logit_softcapping": 30.0,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 2048,
    "hidden_size_per_layer_input": 256,
    "intermediate_size": [16_384] * 35,
    "laurel_rank": 64,
    "layer_types": [*["sliding_attention"] * 4, "full_attention"] * 7,
    "max_position_embeddings": 32_768,
    "model_type": "gemma3n_text",
    "num_attention_heads": 8,
    "num_hidden_layers": 35,
    "num_key_value_heads": 2,
    "num_kv_shared_layers": 15,
    "query_pre_attn_scalar": 256,
    "rope_local_base_freq": 10_000.0,
    "rope_theta": 1_000_000.0,
    "sliding_window": 512,
    "vocab_size": 262_400,
    "vocab_size_per_layer_input": 262_144,
}


def gemma3n(folder: Path, **changed: Any) -> ModelConfig:
    values = {"architectures": ["Gemma3nForConditionalGeneration"], "text_config": {**GEMMA3N_E4B, **changed}}
    (folder / "config.json").write_text(json.dumps({**values, "torch_dtype": "bfloat16"}))
    return ModelConfig.from_folder(folder)


def test_the_published_configuration_of_gemma_3n_e4b(tmp_path: Path) -> None:
    config = gemma3n(tmp_path)
    assert [layer.kv_of for layer in config.layers] == [-1] * 20 + [18, 18, 18, 18, 19] * 3
    assert (config.attention_scale, [rope.theta for rope in config.ropes]) == (1.0, [1e6, 1e4])
    capacity = plan(config, device_memory_bytes=24 << 30)
    assert capacity.kv_bytes_per_token == 2 * 20 * 2 * 256 * 2
    assert capacity.num_parameters == 6_835_235_568 + 20 * 256  # as transformers counts, and ones that norm values


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("intermediate_size", [16_384] * 34 + [8192]),
        ("activation_sparsity_pattern", [1.0] * 35),
        ("activation_sparsity_pattern", [0.5]),
        ("num_kv_shared_layers", 34),
        ("altup_active_idx", 4),
    ],
)
def test_configurations_of_gemma_3n_that_are_odd(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(ModelError, match=rf"config.json: text_config: {key}: "):
        gemma3n(tmp_path, **{key: value})
