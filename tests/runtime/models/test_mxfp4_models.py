"""gpt-oss in the form in which it is published: experts in MXFP4, the rest in bf16, and no type named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from phloem.errors import ModelError
from phloem.runtime.capacity.planner import plan
from phloem.runtime.models import Decoder, ModelConfig
from phloem.runtime.models.packing import Packing

from ..capacity.test_planner import config_only
from .decoder_cases import CASES
from .edits import edit_config, tensors
from .oracle import Oracle, PagedRun, random_ids, save_random_model

PROJECTIONS = ("gate_up_proj", "down_proj")


def publish(folder: Path, **changes: Any) -> Any:
    """A random checkpoint whose experts are random nibbles, and transformers' model of the same numbers."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    class_name, options = CASES["gpt-oss"]
    model = save_random_model(folder, class_name, {**options, **changes})
    found = load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(5)
    for index, layer in enumerate(model.model.layers):
        for name in PROJECTIONS:
            place = f"model.layers.{index}.mlp.experts.{name}"
            num_experts, num_inputs, num_outputs = found.pop(place).shape
            shape = (num_experts, num_outputs, num_inputs // 32)
            blocks = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8, generator=generator)
            scales = torch.randint(121, 126, shape, dtype=torch.uint8, generator=generator)
            found |= {f"{place}_blocks": blocks, f"{place}_scales": scales}
            wide = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
            getattr(layer.mlp.experts, name).data.copy_(wide)
    save_file(found, folder / "model.safetensors")
    form = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    edit_config(folder, dtype=None, quantization_config=form)
    return model


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    folder = tmp_path_factory.mktemp("mxfp4")
    return Oracle(folder, publish(folder))


def test_logits_and_greedy_text_equal_transformers(published: Oracle) -> None:
    published.assert_decoder(Decoder.from_folder(published.folder, dtype=torch.float32))


def test_what_names_no_type_is_bfloat16(published: Oracle) -> None:
    config = ModelConfig.from_folder(published.folder)
    assert config.dtype == "bfloat16"


@pytest.mark.parametrize("settings", [{}, {"quantise": "int8"}, {"dtype": torch.bfloat16}], ids=str)
def test_weight_bytes_are_what_loading_takes(published: Oracle, settings: dict[str, Any]) -> None:
    """Beside fp32 the CPU keeps four bits; half types it widens. Experts that are in four bits are not made int8."""
    settings = {"dtype": torch.float32, **settings}
    decoder = Decoder.from_folder(published.folder, **settings)
    options = {
        "on_cpu": True,
        "weight_dtype": str(settings["dtype"]).removeprefix("torch."),
        "quantise": settings.get("quantise", "none"),
    }
    capacity = plan(decoder.config, pool_bytes=1 << 20, **options)
    assert capacity.num_parameters == sum(p.numel() for p in published.model.parameters())
    # all but the experts is in fp32 in this checkpoint, which would be kept in bf16 if it were
    not_short = 0 if settings["dtype"] is torch.bfloat16 else _num_not_in_bf16(decoder, "quantise" in settings)
    assert capacity.weight_bytes == decoder.num_weight_bytes - not_short
    for layer in (weights for _, weights in decoder._layers):
        assert layer.experts is not None
        kept = layer.experts.gate_up.packed
        assert any(weight.is_mxfp4 for weight in kept) == (settings["dtype"] is torch.float32)


def _num_not_in_bf16(decoder: Decoder, int8: bool) -> int:
    """Two bytes for each number of the matrices that are no experts'; of the routers' where the others are int8."""
    config = decoder.config
    num_routed = 3 * 6 * config.hidden_size
    matrices = (
        3 * config.hidden_size * (sum(config.qkv_rows(0)) + config.attended_size(0)) + 2 * 131 * config.hidden_size
    )
    return 2 * (num_routed if int8 else num_routed + matrices)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_kept_in_four_bits_it_computes_what_it_does_widened(
    published: Oracle, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    """The same bits: with fp32 as the CPU keeps it, with bf16 as a GPU does, widened for every product here."""
    token_ids, found, num_bytes = random_ids(20), [], []
    for keeps in (False, True):
        monkeypatch.setattr(Packing, "keeps_mxfp4", keeps)
        decoder = Decoder.from_folder(published.folder, dtype=dtype)
        found.append(PagedRun(decoder).extend({0: token_ids}))
        num_bytes.append(decoder.num_weight_bytes)
    assert torch.equal(*found)
    assert num_bytes[1] < 0.8 * num_bytes[0]
    if dtype is torch.bfloat16:
        on_gpu = plan(decoder.config, pool_bytes=1 << 20, weight_dtype="bfloat16").weight_bytes
        assert num_bytes[1] == on_gpu - 2 * 3 * 6 * 64  # the CPU has routers in two bytes where that is exact


def _without(name: str) -> Callable[[Path], None]:
    return tensors(lambda found: found.pop(name))


def _with(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path], None]:
    return tensors(lambda found: found.update({name: change(found[name])}))


BLOCKS, SCALES = (f"model.layers.1.mlp.experts.down_proj_{part}" for part in ("blocks", "scales"))
BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "no scales": (_without(SCALES), f"tensor {SCALES} of shape .6, 64, 1. is missing"),
    "short blocks": (_with(BLOCKS, lambda x: x[:, 1:].clone()), rf"{BLOCKS}: expected shape \[6, 64, 1, 16\]"),
    "floats": (_with(BLOCKS, lambda x: x.float()), f"{BLOCKS}: stored as torch.float32; expected uint8"),
    "no number": (_with(SCALES, lambda x: x.fill_(255)), f"{SCALES}: has a scale of 255"),
    "no sinks": (_without("model.layers.0.self_attn.sinks"), "self_attn.sinks of shape .6. is missing"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_checkpoint_is_refused_with_file_and_tensor(published: Oracle, tmp_path: Path, fault: str) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((published.folder / name).read_bytes())
    spoil, message = BROKEN[fault]
    spoil(tmp_path)
    with pytest.raises(ModelError, match=message):
        Decoder.from_folder(tmp_path)


SIZES = {
    "architectures": ["GptOssForCausalLM"],
    "torch_dtype": None,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 201088,
    "num_experts_per_tok": 4,
    "attention_bias": True,
    "sliding_window": 128,
    "swiglu_limit": 7.0,
    "rope_theta": 150000,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
    "quantization_config": {"quant_method": "mxfp4"},
}


@pytest.mark.parametrize(
    ("num_layers", "num_experts", "billions", "gibibytes"),
    [(24, 32, 20.91, 12.8), (36, 128, 116.83, 60.8)],
    ids=["20b", "120b"],
)
def test_parameters_and_bytes_are_the_model_cards(
    tmp_path: Path, num_layers: int, num_experts: int, billions: float, gibibytes: float
) -> None:
    config = config_only(tmp_path, **SIZES, num_hidden_layers=num_layers, num_local_experts=num_experts)
    capacity = plan(config, device_memory_bytes=80 << 30)
    assert round(capacity.num_parameters / 1e9, 2) == billions
    assert round(capacity.weight_bytes / 2**30, 1) == gibibytes
    on_cpu = plan(config, device_memory_bytes=80 << 30, on_cpu=True).weight_bytes
    assert 0 < on_cpu - capacity.weight_bytes < 1 << 29  # biases in fp32
    assert capacity.kv_bytes_per_token == 2 * num_layers * 8 * 64 * 2
