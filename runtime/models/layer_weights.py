"""The weights of one layer, and how they are read. What they compute is in `decoder.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ...kernels import LinearWeight, LinearWeights
from .delta_net import DeltaNetWeights, read_delta_net
from .experts import ExpertsWeights, read_experts
from .gateless import read_curve
from .head_norms import read_head_norms
from .latent import LatentWeights, read_latent_weights
from .norms import LayerNorm, Norm, read_norm
from .pair_order import qkv_order
from .reader import Reader
from .recurrent_config import RecurrentConfig
from .short_conv import ShortConvWeights, read_short_conv
from .state_space import StateSpaceWeights, read_state_space

Mixer = ShortConvWeights | DeltaNetWeights | StateSpaceWeights
WeightPart = Tensor | LayerNorm | LinearWeight | LinearWeights
READ_MIXER: dict[str, Callable[[Reader, str, RecurrentConfig], Mixer]] = {
    "short_conv": read_short_conv,
    "delta": read_delta_net,
    "state_space": read_state_space,
}


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer's weights; norms are fp32 with Gemma's offset added, None where the architecture has none."""

    input_norm: Norm | None  # None: the layer takes its input as it is
    qkv: LinearWeight | None  # hidden_size -> (num_heads + 2 · num_kv_heads) · head_dim; None with latents
    q_norm: Tensor | None  # [head_dim], or of all heads (`head_norms.py`)
    k_norm: Tensor | None
    o: LinearWeight  # attended_size -> hidden_size
    post_attention_norm: Norm | None
    mlp_norm: Norm | None
    gate_up: LinearWeight | None  # hidden_size -> 2 · intermediate_size; None with experts
    down: LinearWeight | None  # intermediate_size -> hidden_size
    post_mlp_norm: Norm | None
    sinks: Tensor | None = None  # [num_heads], fp32
    latent: LatentWeights | None = None  # in place of qkv
    experts: ExpertsWeights | None = None  # in place of gate_up and down
    recurrent: Mixer | None = None  # in place of attention
    curve: Tensor | None = None  # learned numbers of the activation


def parts_of(layer: LayerWeights) -> list[WeightPart]:
    """All weights of a layer."""
    groups = [group for group in (layer, layer.latent, layer.experts, layer.recurrent) if group is not None]
    found = [getattr(group, name) for group in groups for name in group.__slots__]
    return [part for part in found if isinstance(part, WeightPart)]


def read_layer(reader: Reader, base: str, index: int) -> LayerWeights:
    """The tensors below `base` (`model.layers.<i>.`)."""
    config, names, cut = reader.config, reader.config.options.names, reader.cut
    hidden, sandwich, has_sinks = config.hidden_size, config.options.sandwich_norms, config.options.has_sinks
    latent, experts = config.latent, config.experts_of(index)
    order, pre_norms = qkv_order(config, reader.device), config.options.pre_norms
    recurrent, attends = config.recurrent, not config.is_recurrent(index)
    o_base, o_name, o_columns, o_bias = base, names.o, cut.attended, config.o_bias
    mixer: Mixer | None = None
    if recurrent is not None and not attends:
        o_base, o_name = f"{base}{recurrent.options.base}", "out_proj"
        (o_columns,), o_bias = cut.sections(cut.whole_recurrent.attended_size), recurrent.has_bias
        mixer = READ_MIXER[recurrent.options.kind](reader, o_base, recurrent)
        has_sinks = False
    q_norm, k_norm = read_head_norms(reader, base, index) if attends else (None, None)
    return LayerWeights(
        input_norm=read_norm(reader, f"{base}{names.input_norm}") if pre_norms else None,
        qkv=reader.linear(base, names.qkv, cut.qkv, hidden, config.qkv_bias, order)
        if latent is None and attends
        else None,
        q_norm=q_norm,
        k_norm=k_norm,
        sinks=reader.tensor([f"{base}{names.sinks}"], [cut.heads], []).float() if has_sinks else None,
        o=reader.summand(o_base, o_name, o_columns, o_bias),
        post_attention_norm=read_norm(reader, f"{base}{names.post_attention_norm}") if sandwich else None,
        mlp_norm=read_norm(reader, f"{base}{names.mlp_norm}") if pre_norms and names.mlp_norm else None,
        gate_up=reader.linear(base, names.gate_up, cut.gate_up, hidden, config.mlp_bias) if experts is None else None,
        down=reader.summand(base, names.down, cut.inner, config.mlp_bias) if experts is None else None,
        post_mlp_norm=read_norm(reader, f"{base}{names.post_mlp_norm}") if sandwich else None,
        latent=None if latent is None else read_latent_weights(reader, f"{base}self_attn.", latent),
        experts=None if experts is None else read_experts(reader, base, experts),
        recurrent=mixer,
        curve=read_curve(reader, base),
    )
