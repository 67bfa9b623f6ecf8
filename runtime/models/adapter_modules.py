"""Which linear maps of a model an adapter may add to, and how many numbers it adds, from configurations alone.

Knows no tensors; those are read in `adapter.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...errors import ModelError
from ..parallel.ranks import ALONE
from ..path_fault import path_fault
from .adapter_config import AdapterConfig
from .config import ModelConfig
from .cut import Cut
from .recurrent_kinds import kind_of


@dataclass(frozen=True, slots=True)
class Module:
    """A linear map of a checkpoint, which is one of the decoder's, or some of the outputs of one."""

    name: str
    num_outputs: int
    num_inputs: int


def count_parameters(folder: str | Path, model: ModelConfig) -> int:
    """Of an adapter for a model, from its configuration alone. Raises ModelError as `read_adapter` does."""
    config = AdapterConfig.from_folder(named_folder(folder))
    return sum(
        config.rank_of(module.name) * (module.num_inputs + module.num_outputs)
        for index in range(model.num_layers)
        for place in adapted_places(model, index).values()
        for module in place
        if config.has(module.name)
    )


def named_folder(folder: str | Path) -> Path:
    """The folder of that name. Raises ModelError: the name cannot be a folder's."""
    fault = path_fault(folder)
    if fault is not None:
        raise ModelError(f"{str(folder)[:200]!r}: {fault}; give the folder of an adapter")
    return Path(folder)


def adapts_mixer(model: ModelConfig, index: int) -> bool:
    """Whether a layer's recurrent mixer takes what adapters add: in place of attention, and of these kinds."""
    recurrent = model.recurrent if model.is_recurrent(index) else None
    if recurrent is None or model.layers[index].attends:
        return False
    return kind_of(recurrent).projected is not None


def adapted_places(model: ModelConfig, index: int) -> dict[str, list[Module]]:
    """The modules at each of `kernels.PLACES` of a layer, those that an adapter may add to.

    A recurrent layer makes all that it makes of hidden states where others make queries, keys and values.
    """
    names, hidden, inner = model.options.names, model.hidden_size, model.inner_size(index)
    has_heads, has_mlp = model.latent is None, model.has_dense(index)
    qkv, qkv_rows = model.projected(index)[0], [*model.qkv_rows(index)]
    if len(names.qkv) == 1:
        qkv_rows = [sum(qkv_rows)]
    gate_up_rows = [model.gate_up_size(index) // len(names.gate_up)] * len(names.gate_up)
    parts_of: dict[str, tuple[tuple[str, ...], list[int], int]] = {
        "qkv": (qkv if has_heads else (), qkv_rows, hidden),
        "o": ((names.o,), [hidden], model.attended_size(index)),
        "gate_up": (names.gate_up if has_mlp else (), gate_up_rows, hidden),
        "down": ((names.down,) if has_mlp else (), [hidden], inner),
    }
    layer = model.layers[index]
    if not layer.attends:
        parts_of["qkv"], parts_of["o"] = ((), [], hidden), ((), [], hidden)
    if adapts_mixer(model, index):
        assert model.recurrent is not None
        options, rows = model.recurrent.options, Cut(model, ALONE).projected
        parts_of["qkv"] = tuple(f"{options.base}{name}" for name in rows), [part.size for part in rows.values()], hidden
        parts_of["o"] = (f"{options.base}{options.out}",), [hidden], model.recurrent.attended_size
    return {
        place: [
            Module(f"{model.options.backbone}.{model.options.layers}.{index}.{part}", num_outputs, num_inputs)
            for part, num_outputs in zip(parts, rows, strict=False)
        ]
        for place, (parts, rows, num_inputs) in parts_of.items()
    }
