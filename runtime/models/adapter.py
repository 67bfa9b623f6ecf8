"""An adapter's tensors (PEFT's LoRA, `adapter_model.safetensors`), laid out for the decoder's own linear maps.

::

    base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight   [r, K]
    …                                               .lora_B.weight   [N, r]     adds lora_alpha / r · B A

Every tensor that the configuration promises must be there in its shape, and none besides: an adapter never loads half.
The fingerprint is of what is computed with, names, scales and all bytes of the tensors; whatever keeps KV keeps it
under the fingerprint (`Adapter.namespace`), so an adapter under the same name with other weights is another one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import ModelError
from ...kernels import PLACES, LoraLayers, LoraPart, LoraWeight, pack_lora
from ..parallel.ranks import ALONE
from .adapter_config import AdapterConfig
from .adapter_modules import Module, adapted_places, adapts_mixer, named_folder
from .config import ModelConfig
from .cut import Cut
from .delta_net import projected_order
from .pair_order import qkv_order
from .part import Axis, count, taken
from .weights import STORED_DTYPES, Checkpoint, open_file

FILE = "adapter_model.safetensors"
FINGERPRINT_DIGITS = 64
LONG = "\0\1"  # how no other namespace begins, once it is scoped
_PREFIX = "base_model.model."


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Adapter:
    """A loaded adapter; it lives as long as a request or the engine needs it.

    Attributes:
        folder: where it came from.
        fingerprint: 64 hexadecimal digits that stand for its content.
        layers: its weights on the device.
    """

    name: str
    folder: Path
    fingerprint: str
    layers: LoraLayers


def scoped(namespace: str, adapter: Adapter | None) -> str:
    """A caller's namespace as the cache knows it: no two pairs of an adapter's content and a namespace share one.

    Without an adapter it is the caller's own, as it stands, unless that looks like one with an adapter.
    """
    if adapter is not None:
        return f"\0{adapter.fingerprint}{namespace}"
    return f"\0{namespace}" if namespace.startswith("\0") else namespace


def lengthened(namespace: str) -> str:
    """What `scoped` has written, of sequences whose keys are turned by the frequencies of long ones."""
    return LONG + namespace


def parted(namespace: str) -> tuple[str | None, str]:
    """The inverse of `scoped`, lengthened or not: an adapter's fingerprint, or None, and the caller's namespace."""
    namespace = namespace.removeprefix(LONG)
    if not namespace.startswith("\0"):
        return None, namespace
    if namespace.startswith("\0\0"):
        return None, namespace[1:]
    return namespace[1 : FINGERPRINT_DIGITS + 1], namespace[FINGERPRINT_DIGITS + 1 :]


def read_adapter(
    name: str,
    folder: str | Path,
    model: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    cut: Cut | None = None,
) -> Adapter:
    """Loads an adapter for a model, or a rank's part of it; dtype: of the model's rows.

    Raises:
        ModelError: anything in the folder that is missing, odd or not supported; it names file, tensor and remedy.
    """
    folder = named_folder(folder)
    config = AdapterConfig.from_folder(folder)
    path = folder / FILE
    if not path.is_file():
        raise ModelError(f"{path}: there is no such file; only safetensors are opened (save_pretrained writes them)")
    digest, cut = hashlib.sha256(), cut or Cut(model, ALONE)
    with open_file(path, torch.float32) as checkpoint:
        layers = [
            [_read_place(checkpoint, config, modules[name], places[name], digest, device, dtype) for name in PLACES]
            for modules, places in (
                (adapted_places(model, index), _places(cut, index)) for index in range(model.num_layers)
            )
        ]
        for unread in checkpoint.unread(()):
            raise ModelError(f"{checkpoint.place(unread)}: {_why_not(unread, config, model)}")
    if not any(weight for layer in layers for weight in layer):
        raise ModelError(
            f"{folder}: target_modules name no projection of {model.architecture}; is it for another model?"
        )
    return Adapter(name, folder, digest.hexdigest(), LoraLayers(layers, device))


@dataclass(frozen=True, slots=True)
class _Place:
    """One linear map of the decoder, as a rank has it.

    Attributes:
        rows: its outputs, by module. columns: its inputs.
        order: which of the outputs, as they are stored, becomes which; None: they stand so.
    """

    rows: Sequence[Axis]
    columns: Axis
    order: Tensor | None = None


def _places(cut: Cut, index: int) -> dict[str, _Place]:
    """Those of a layer, at each of `kernels.PLACES`."""
    hidden, config = cut.whole.hidden_size, cut.config
    recurrent = config.recurrent if adapts_mixer(cut.whole, index) else None
    if recurrent is None:
        order = None if config.latent is not None else qkv_order(config, index, torch.device("cpu"))
        first, attended = _Place(cut.qkv(index), hidden, order), cut.attended(index)
    else:
        order = projected_order(recurrent)
        first = _Place([*cut.projected.values()], hidden, order)
        (attended,) = cut.sections(cut.whole_recurrent.attended_size)
    return {
        "qkv": first,
        "o": _Place([hidden], attended),
        "gate_up": _Place(cut.gate_up(index), hidden),
        "down": _Place([hidden], cut.inner(index)),
    }


def _read_place(
    checkpoint: Checkpoint,
    config: AdapterConfig,
    modules: list[Module],
    place: _Place,
    digest: Any,
    device: torch.device,
    dtype: torch.dtype,
) -> LoraWeight | None:
    parts: list[LoraPart] = []
    first_output = 0
    for module, axis in zip(modules, place.rows, strict=False):
        if config.has(module.name):
            rank, scale = config.rank_of(module.name), config.scale_of(module.name)
            down = _read(checkpoint, f"{module.name}.lora_A.weight", [rank, module.num_inputs], "rank, inputs")
            up = _read(checkpoint, f"{module.name}.lora_B.weight", [module.num_outputs, rank], "outputs, rank")
            digest.update(json.dumps([module.name, scale, [*down.shape], str(down.dtype), str(up.dtype)]).encode())
            for tensor in (down, up):
                digest.update(tensor.contiguous().view(torch.uint8).numpy())
            up, down = taken(up, [axis]), taken(down, [rank, place.columns])
            parts += [LoraPart(down, rows, scale, first) for first, rows in _runs(up, first_output, place.order)]
        first_output += count(axis)
    parts.sort(key=lambda part: part.first_output)
    return pack_lora(parts, device, dtype) if parts else None


def _runs(up: Tensor, first: int, order: Tensor | None) -> list[tuple[int, Tensor]]:
    """A module's B, whose rows are stored from row `first` of the linear map on, as runs of rows that the decoder has
    next to each other, each with the first of its outputs. Queries and their gates are two."""
    if order is None:
        return [(first, up)]
    outputs, rows = torch.argsort(order)[first : first + len(up)].sort()
    ends = [*(torch.nonzero(outputs.diff() > 1).flatten() + 1).tolist(), len(up)]
    return [(int(outputs[begin]), up[rows[begin:end]]) for begin, end in zip([0, *ends], ends, strict=False)]


def _read(checkpoint: Checkpoint, name: str, shape: list[int], axes: str) -> Tensor:
    name = f"{_PREFIX}{name}"
    if name in checkpoint and checkpoint.shape_of(name) != shape:
        found = checkpoint.shape_of(name)
        raise ModelError(
            f"{checkpoint.place(name)}: expected shape {shape} ({axes}), found {found}; is the adapter for this model?"
        )
    return checkpoint.read_kept(name, shape, STORED_DTYPES, device=torch.device("cpu"))


def _why_not(name: str, config: AdapterConfig, model: ModelConfig) -> str:
    """Why a tensor has no place, for a message."""
    module, _, kind = name.removeprefix(_PREFIX).rpartition(".lora_")
    if "lora_magnitude" in name:
        return "DoRA is not supported; merge the adapter into the model"
    if "lora_embedding" in name or any(f"{part}." in name for part in ("lm_head", "embed_tokens")):
        return "adapters of the vocabulary's matrices are not supported; only projections of the layers"
    if not kind or kind not in ("A.weight", "B.weight"):
        return "only lora_A.weight and lora_B.weight are read, no biases and no modules that were saved whole"
    if ".mlp." in name and model.experts is not None:
        return (
            "adapters of experts, or of layers that have some, are not supported; only of the attention's projections"
        )
    if model.latent is not None:
        return "with latent attention only the output projection may have an adapter"
    if not config.has(module):
        return f"{config.place} does not name this module in target_modules"
    if model.recurrent is not None and f".{model.recurrent.options.base}" in name:
        return f"adapters of the recurrent mixers of {model.architecture} are not supported; leave those modules out"
    return f"{model.architecture} has no such projection"
