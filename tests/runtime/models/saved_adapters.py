"""Random adapters on disk, as PEFT saves them, and what they mean: the same numbers merged into transformers' model.

Nothing of phloem is used here.
"""

from __future__ import annotations

import copy
import json
import math
import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

CONFIG: dict[str, Any] = {
    "auto_mapping": None,
    "base_model_name_or_path": "base",
    "bias": "none",
    "fan_in_fan_out": False,
    "inference_mode": True,
    "init_lora_weights": True,
    "layers_to_transform": None,
    "lora_alpha": 8,
    "lora_dropout": 0.05,
    "megatron_core": "megatron.core",
    "modules_to_save": None,
    "peft_type": "LORA",
    "r": 4,
    "target_modules": ["q_proj", "v_proj"],
    "task_type": "CAUSAL_LM",
    "use_dora": False,
    "use_rslora": False,
}
FILE = "adapter_model.safetensors"
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj"]


def save_adapter(
    folder: Path, model: Any, modules: str, ranks: dict[str, int], *, seed: int = 0, size: float = 0.2, **config: Any
) -> Path:
    """An adapter with random A and B for the linear maps that `modules` matches, of `ranks` by the end of their names
    or else `r`."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**CONFIG, **config}
    generator, tensors = torch.Generator().manual_seed(seed), {}
    for name, module in model.named_modules():
        is_linear = isinstance(module, torch.nn.Linear) or (config["fan_in_fan_out"] and hasattr(module, "nf"))
        if is_linear and re.fullmatch(modules, name):
            rank = next((rank for end, rank in ranks.items() if name.endswith(end)), config["r"])
            num_outputs, num_inputs = _turned(module.weight, config).shape
            down = torch.randn(rank, num_inputs, generator=generator) * size
            up = torch.randn(num_outputs, rank, generator=generator) * size
            tensors[f"base_model.model.{name}.lora_A.weight"] = down
            tensors[f"base_model.model.{name}.lora_B.weight"] = up
    save_file(tensors, folder / FILE)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def _turned(weight: torch.Tensor, config: dict[str, Any]) -> torch.Tensor:
    """Outputs by inputs, however the model stores it (GPT-2)."""
    return weight.T if config["fan_in_fan_out"] else weight


def merged(model: Any, folder: Path, scales: dict[str, float] | None = None) -> Any:
    """A copy of the model with `W + scale · B A`; scales: by the end of a module's name, where they are not alpha/r."""
    config = json.loads((folder / "adapter_config.json").read_text())
    tensors = load_file(folder / FILE)
    model = copy.deepcopy(model)
    modules = dict(model.named_modules())
    with torch.no_grad():
        for key, down in tensors.items():
            if key.endswith("lora_A.weight"):
                name = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
                rank = len(down)
                scale = config["lora_alpha"] / (math.sqrt(rank) if config["use_rslora"] else rank)
                scale = next((own for end, own in (scales or {}).items() if name.endswith(end)), scale)
                up = tensors[key.replace("lora_A", "lora_B")]
                _turned(modules[name].weight, config).add_((scale * up.double() @ down.double()).float())
    return model
