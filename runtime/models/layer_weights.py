"""The weights of one layer, and how they are read. What they compute is in `decoder.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ...kernels import LinearWeight, LinearWeights
from .altup import AltUpWeights, read_altup
from .beside_mlp import BesideNorms, read_beside
from .delta_net import DeltaNetWeights, read_delta_net
from .experts import ExpertsWeights, read_experts
from .gateless import read_curve
from .head_norms import read_head_norms, read_inner_norm, read_value_norm
from .kimi_delta import KimiDeltaWeights, read_kimi_delta
from .latent import LatentWeights, read_latent_weights
from .layer_inputs import InputWeights, read_input_weights
from .lightning import LightningWeights, read_lightning
from .norms import LayerNorm, Norm, read_norm
from .pair_order import qkv_order
from .reader import Reader
from .recurrent_config import Kind, RecurrentConfig
from .selective_scan import SelectiveScanWeights, read_selective_scan
from .short_conv import ShortConvWeights, read_short_conv
from .state_space import StateSpaceWeights, read_state_space

Mixer = (
    ShortConvWeights | DeltaNetWeights | StateSpaceWeights | SelectiveScanWeights | KimiDeltaWeights | LightningWeights
)
WeightPart = Tensor | LayerNorm | LinearWeight | LinearWeights
AdaptedMixer = ShortConvWeights | DeltaNetWeights | StateSpaceWeights  # to which adapters may add; see `adapts_mixer`
READ_MIXER: dict[Kind, Callable[[Reader, str, RecurrentConfig, int], Mixer]] = {  # below a base, of a layer's index
    "short_conv": lambda reader, base, config, _: read_short_conv(reader, base, config),
    "delta": lambda reader, base, config, _: read_delta_net(reader, base, config),
    "state_space": lambda reader, base, config, _: read_state_space(reader, base, config),
    "selective_scan": lambda reader, base, config, _: read_selective_scan(reader, base, config),
    "kimi_delta": lambda reader, base, config, _: read_kimi_delta(reader, base, config),
    "lightning": read_lightning,
}


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer's weights; norms are fp32 with Gemma's offset added, None where the architecture has none."""

    input_norm: Norm | None  # None: the layer takes its input as it is
    qkv: LinearWeight | None  # hidden_size -> (num_heads + 2 · num_kv_heads) · head_dim; None with latents
    q_norm: Tensor | None  # [head_dim], or of all heads (`head_norms.py`)
    k_norm: Tensor | None
    o: LinearWeight | None  # attended_size -> hidden_size; None: the layer is an MLP alone
    post_attention_norm: Norm | None
    mlp_norm: Norm | None
    gate_up: LinearWeight | None  # hidden_size -> 2 · intermediate_size; None with experts, or without an MLP
    down: LinearWeight | None  # intermediate_size -> hidden_size
    post_mlp_norm: Norm | None
    sinks: Tensor | None = None  # [num_heads], fp32
    latent: LatentWeights | None = None  # in place of qkv
    experts: ExpertsWeights | None = None  # in place of gate_up and down
    recurrent: Mixer | None = None  # in place of attention, or beside it
    beside: LinearWeight | None = None  # what `o` is to attention, where a recurrent mixer stands beside it
    curve: Tensor | None = None  # learned numbers of the activation
    o_norm: Tensor | None = None  # of the inputs of `o` on all ranks, fp32
    down_norm: Tensor | None = None  # the same of `down`
    v_norm: Tensor | None = None  # [head_dim], of the values
    scalar: float = 1.0  # what leaves the layer is multiplied by it
    beside_norms: BesideNorms | None = None  # experts stand beside gate_up and down, not in their place
    layer_input: InputWeights | None = None
    altup: AltUpWeights | None = None


def num_bytes(own: list[WeightPart], layers: list[LayerWeights]) -> int:
    """Of the weights of a model, its own and those of its layers; of what is shared once."""
    groups = [
        group
        for layer in layers
        for group in (
            *(layer, layer.latent, layer.experts, layer.recurrent),
            *(layer.beside_norms, layer.layer_input, layer.altup),
        )
    ]
    found = [getattr(group, name) for group in groups if group is not None for name in group.__slots__]
    parts = [*own, *(part for part in found if isinstance(part, WeightPart))]
    return sum({id(part): part.nbytes if isinstance(part, Tensor) else part.num_bytes for part in parts}.values())


def _read_mixer(reader: Reader, base: str, index: int, recurrent: RecurrentConfig | None) -> tuple[Mixer, LinearWeight]:
    """A recurrent mixer below a layer's base, and its last projection."""
    assert recurrent is not None
    base = f"{base}{recurrent.options.base}"
    (columns,) = reader.cut.sections(reader.cut.whole_recurrent.attended_size)
    mixer = READ_MIXER[recurrent.options.kind](reader, base, recurrent, index)
    return mixer, reader.summand(base, recurrent.options.out, columns, recurrent.has_out_bias)


def _read_qkv(reader: Reader, base: str, index: int) -> LinearWeight:
    config, rows = reader.config, reader.cut.qkv(index)
    names, order = config.options.names.qkv[: len(rows)], qkv_order(config, index, reader.device)
    if config.layers[index].kv_of >= 0:  # published, and not used
        for name in (*config.options.names.qkv[1:], config.options.names.k_norm):
            reader.checkpoint.leave(f"{base}{name}.weight")
    return reader.linear(base, names, rows, config.hidden_size, config.qkv_bias, order)


def read_layer(reader: Reader, base: str, index: int) -> LayerWeights:
    """The tensors below `base` (`model.layers.<i>.`)."""
    config, names, cut = reader.config, reader.config.options.names, reader.cut
    hidden, sandwich, has_sinks = config.hidden_size, config.options.sandwich_norms, config.options.has_sinks
    latent, experts = config.latent, config.experts_of(index)
    pre_norms = config.options.pre_norms
    attends = config.layers[index].attends
    o = reader.summand(base, names.o, cut.attended(index), config.o_bias) if attends else None
    mixer, out = _read_mixer(reader, base, index, config.recurrent) if config.is_recurrent(index) else (None, None)
    is_dense, names = config.has_dense(index), reader.placed(base, names)
    has_sinks = has_sinks and attends
    is_beside = experts is not None and experts.options.is_beside
    q_norm, k_norm = read_head_norms(reader, base, index) if attends else (None, None)
    return LayerWeights(
        input_norm=read_norm(reader, f"{base}{names.input_norm}") if pre_norms else None,
        qkv=_read_qkv(reader, base, index) if latent is None and attends else None,
        q_norm=q_norm,
        k_norm=k_norm,
        sinks=reader.tensor([f"{base}{names.sinks}"], [cut.heads], []).float() if has_sinks else None,
        o=o if attends else out,
        post_attention_norm=read_norm(reader, f"{base}{names.post_attention_norm}") if sandwich else None,
        mlp_norm=read_norm(reader, f"{base}{names.mlp_norm}") if pre_norms and names.mlp_norm else None,
        gate_up=reader.linear(base, names.gate_up, cut.gate_up(index), hidden, config.mlp_bias) if is_dense else None,
        down=reader.summand(base, names.down, cut.inner(index), config.mlp_bias) if is_dense else None,
        post_mlp_norm=read_norm(reader, f"{base}{names.post_mlp_norm}") if sandwich else None,
        latent=None if latent is None or not attends else read_latent_weights(reader, f"{base}self_attn.", latent),
        experts=None if experts is None else read_experts(reader, base, experts),
        recurrent=mixer,
        beside=out if attends else None,
        curve=read_curve(reader, base),
        o_norm=read_inner_norm(reader, f"{base}{names.o_norm}", cut.attended(index)) if names.o_norm else None,
        down_norm=read_inner_norm(reader, f"{base}{names.down_norm}", cut.inner(index)) if names.down_norm else None,
        v_norm=read_value_norm(reader, index),
        scalar=float(reader.tensor([f"{base}layer_scalar"], [1], [])) if config.options.layer_scalars else 1.0,
        beside_norms=read_beside(reader, base) if is_beside else None,
        layer_input=read_input_weights(reader, base),
        altup=read_altup(reader, base),
    )
