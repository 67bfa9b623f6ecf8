"""BitNet's ternary weights and rounded inputs, packed or rounded while loading, against transformers' own classes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from phloem.errors import ModelError
from phloem.runtime.capacity.planner import plan
from phloem.runtime.models import Decoder, ModelConfig
from phloem.runtime.models.json_file import Fields
from phloem.runtime.models.weight_format import read_weight_format
from phloem.runtime.parallel.ranks import ALONE, Ranks

from .decoder_shapes import SMALL
from .edits import edit_config, edit_tensors
from .oracle import PagedRun, random_ids, save_random_model

BITNET = {"hidden_act": "relu2", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
ONLINE = {"linear_class": "autobitlinear", "quantization_mode": "online"}
OFFLINE = {"linear_class": "autobitlinear", "quantization_mode": "offline"}
PACKED = {"linear_class": "bitlinear"}
FORMS = {"rounded here": ONLINE, "packed": PACKED, "packed, multiplied": OFFLINE}
ON_EDGE = 5e-5  # of a step, between two whole numbers


def publish(folder: Path, form: dict[str, str], class_name: str = "BitNetForCausalLM", options: Any = BITNET) -> Any:
    """A random checkpoint in this form, and transformers' model with its own linear maps."""
    from transformers.integrations.bitnet import pack_weights, replace_with_bitnet_linear
    from transformers.utils.quantization_config import BitNetQuantConfig

    model = save_random_model(folder, class_name, options)
    tensors = load_file(folder / "model.safetensors")
    if form != ONLINE:
        for module, layer in model.named_modules():
            if isinstance(layer, nn.Linear) and module != "lm_head":
                ternary = torch.randint(-1, 2, layer.weight.shape).float()
                tensors[f"{module}.weight"] = pack_weights(ternary)
                scale = torch.rand(1).to(torch.bfloat16) + (6 if form == PACKED else 0.1)
                tensors[f"{module}.weight_scale"] = scale
    save_file(tensors, folder / "model.safetensors")
    edit_config(folder, quantization_config={"quant_method": "bitnet", **form})
    model = replace_with_bitnet_linear(model, ["lm_head"], BitNetQuantConfig(**form))
    return fill(model, tensors).eval()


def fill(model: nn.Module, tensors: dict[str, Tensor]) -> nn.Module:
    from transformers.integrations.bitnet import AutoBitLinear, unpack_weights

    for name, tensor in tensors.items():
        module, _, last = name.rpartition(".")
        owner = model.get_submodule(module)
        unpacks = isinstance(owner, AutoBitLinear) and tensor.dtype is torch.uint8
        value = unpack_weights(tensor, dtype=torch.float32) if unpacks else tensor
        value = value if value.dtype is torch.uint8 else value.float()
        setattr(owner, last, nn.Parameter(value) if isinstance(getattr(owner, last), nn.Parameter) else value)
        if hasattr(owner, "dtype"):
            owner.dtype = torch.float32
    return model


@pytest.fixture(autouse=True, scope="module")
def _uncompiled() -> Iterator[None]:
    """transformers compiles its linear maps, which takes long and changes nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", lambda function: function)
        from transformers.integrations import bitnet as bitnet
    yield


class Watch:
    """How near the inputs of a model's linear maps come to an edge between two whole numbers, by token."""

    def __init__(self, model: nn.Module) -> None:
        self.nearest = torch.full((1,), 1.0)
        maps = [m for m in model.modules() if isinstance(m, nn.Linear) or hasattr(m, "activation_quant")]
        self._hooks = [module.register_forward_pre_hook(self._look) for module in maps if module is not model.lm_head]

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _look(self, _: nn.Module, given: tuple[Tensor, ...]) -> None:
        x = given[0][0].double()
        steps = x * (127 / x.abs().amax(-1, keepdim=True))
        self.nearest = torch.minimum(self.nearest, (steps.frac().abs() - 0.5).abs().amin(-1))

    @property
    def num_sure(self) -> int:
        """Tokens before the first of which a number may fall either way."""
        on_edge = (self.nearest < ON_EDGE).nonzero()
        return int(on_edge[0]) if len(on_edge) else len(self.nearest)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_logits_are_those_of_transformers(form: dict[str, str], tmp_path: Path) -> None:
    """`bench/studies/bitnet.py` goes on to greedy tokens, and to a Llama of this form."""
    model, token_ids = publish(tmp_path, form), random_ids(40)
    decoder, watch = Decoder.from_folder(tmp_path, dtype=torch.float32), Watch(model)
    found = PagedRun(decoder).extend({0: token_ids})
    with torch.inference_mode():
        expected = model(torch.tensor([token_ids])).logits[0]
    sure = slice(watch.num_sure)
    assert watch.num_sure > 3
    torch.testing.assert_close(found[sure], expected[sure], rtol=1e-4, atol=1e-4)
    run = PagedRun(decoder)
    parts = [run.extend({0: part}) for part in (token_ids[:17], token_ids[17:18], token_ids[18:])]
    assert torch.equal(torch.cat(parts), found)
    capacity = plan(decoder.config, pool_bytes=1 << 20, on_cpu=True, weight_dtype="float32")
    assert capacity.weight_bytes == decoder.num_weight_bytes


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_parts_of_two_ranks_are_the_whole(form: dict[str, str], tmp_path: Path) -> None:
    """Their scale is that of the whole matrix, be it found while loading."""
    publish(tmp_path, form)
    whole = layer(tmp_path, ALONE)
    parts = [layer(tmp_path, Ranks(rank, 2, group=object())) for rank in range(2)]
    gates = [part["gate_up"].unflatten(0, (2, -1)) for part in parts]
    assert torch.equal(torch.cat(gates, 1).flatten(0, 1), whole["gate_up"])
    for name, width in (("o", 32), ("down", 48)):  # beyond it stands what `partial_linear` adds
        assert torch.equal(torch.cat([part[name][:, :width] for part in parts], 1), whole[name])


def layer(folder: Path, ranks: Ranks) -> dict[str, Tensor]:
    (_, weights), *_ = Decoder.from_folder(folder, dtype=torch.float32, ranks=ranks)._layers
    found = {"gate_up": weights.gate_up, "o": weights.o, "down": weights.down}
    return {name: weight.matrix() for name, weight in found.items() if weight is not None}


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"linear_class": "bitnet158"}, "linear_class: bitnet158 is not supported"),
        ({**ONLINE, "quantization_mode": "both"}, "quantization_mode: both is not supported"),
        ({**OFFLINE, "use_rms_norm": True}, "use_rms_norm: True is not supported"),
    ],
    ids=["class", "mode", "norms"],
)
def test_other_settings_are_refused_by_name(form: dict[str, Any], message: str) -> None:
    section = {"quantization_config": {"quant_method": "bitnet", **form}}
    with pytest.raises(ModelError, match=message):
        read_weight_format(Fields(section, "config.json"))


def test_mixtures_are_refused(tmp_path: Path) -> None:
    values = {**SMALL, "architectures": ["MixtralForCausalLM"], "quantization_config": {"quant_method": "bitnet"}}
    (tmp_path / "config.json").write_text(json.dumps({**values, "num_local_experts": 4}))
    with pytest.raises(ModelError, match="of attention and an MLP alone"):
        ModelConfig.from_folder(tmp_path)


@pytest.mark.parametrize("fault", ["number", "scale", "missing"])
def test_odd_tensors_are_refused_by_name(fault: str, tmp_path: Path) -> None:
    publish(tmp_path, OFFLINE)
    name = "model.layers.1.mlp.up_proj.weight"

    def spoil(tensors: dict[str, Tensor]) -> None:
        if fault == "number":
            tensors[name][3, 5] |= 3
        elif fault == "scale":
            tensors[f"{name}_scale"] *= torch.nan
        else:
            del tensors[f"{name}_scale"]

    edit_tensors(tmp_path, spoil)
    with pytest.raises(ModelError, match=r"layers\.1\.mlp\.up_proj\.weight"):
        Decoder.from_folder(tmp_path, dtype=torch.float32)
