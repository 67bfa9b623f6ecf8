"""The kinds of recurrent layers: one record for each, in one table.

A record says how a layer's shape is read, which matrices it has, what it keeps in fp32, and how it is cut for several
ranks. How its tensors are read is in `layer_weights.READ_MIXER`, what they compute in a module of the kind's name.
Knows configurations and no tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from .json_file import Fields
from .recurrent_config import Kind, RecurrentConfig, RecurrentOptions
from .recurrent_fields import (
    delta_shape,
    kimi_delta_shape,
    lightning_shape,
    selective_scan_shape,
    short_conv_shape,
    state_space_shape,
    stated_layers,
)


class RecurrentMatrix(NamedTuple):
    """A matrix of a layer, and the names of the tensors that it is made of, below the layer's base."""

    num_outputs: int
    num_inputs: int
    names: tuple[str, ...]


class Section(NamedTuple):
    """Some rows of a projection, which ranks share evenly.

    is_by_group: they are those of a state space's groups, of which each rank has all if there is one.
    """

    size: int
    is_by_group: bool = False


@dataclass(frozen=True, slots=True)
class RecurrentKind:
    """What is particular to a kind.

    Attributes:
        read: the shape, of (fields, options, layers, hidden size); raises ModelError.
        unlisted: of each layer, whether it is recurrent where `config.json` has no list; of (fields, layers' number).
        first: all matrices but the last, which is `RecurrentOptions.out`; of (configuration, hidden size).
        num_fp32: numbers of a layer that are kept in fp32, those of its convolution apart.
        projected: sections of the rows that are made of hidden states, by the names of their tensors: what adapters may
            add to; None: adapters of such layers are not read.
        is_cut_by_channels: ranks share channels; else heads, and key heads with them.
        shares_group: one key head, as a group of all heads, is on every rank.
    """

    read: Callable[[Fields, RecurrentOptions, tuple[bool, ...], int], RecurrentConfig]
    unlisted: Callable[[Fields, int], tuple[bool, ...]]
    first: Callable[[RecurrentConfig, int], list[RecurrentMatrix]]
    num_fp32: Callable[[RecurrentConfig], int]
    projected: Callable[[RecurrentConfig], dict[str, tuple[Section, ...]]] | None = None
    is_cut_by_channels: bool = False
    shares_group: bool = False


def kind_of(config: RecurrentConfig) -> RecurrentKind:
    return RECURRENT_KINDS[config.options.kind]


def read_shape(fields: Fields, options: RecurrentOptions, num_layers: int, hidden_size: int) -> RecurrentConfig:
    """Raises ModelError: a number that is missing or odd."""
    kind = RECURRENT_KINDS[options.kind]
    layers = stated_layers(fields, options, num_layers)
    return kind.read(fields, options, kind.unlisted(fields, num_layers) if layers is None else layers, hidden_size)


def recurrent_matrices(config: RecurrentConfig, hidden_size: int) -> list[RecurrentMatrix]:
    """Those of one layer, its output projection last."""
    out = RecurrentMatrix(hidden_size, config.attended_size, (config.options.out,))
    return [*kind_of(config).first(config, hidden_size), out]


def num_fp32(config: RecurrentConfig) -> int:
    """Numbers of a layer that are kept in fp32: the convolution, what heads have for themselves, their norm."""
    return (config.width + config.has_conv_bias) * config.channels + kind_of(config).num_fp32(config)


def num_biases(config: RecurrentConfig, hidden_size: int) -> int:
    """Of a layer's first projection and its last."""
    first = recurrent_matrices(config, hidden_size)[0]
    return config.has_bias * first.num_outputs + config.has_out_bias * hidden_size


def _every_layer(fields: Fields, num_layers: int) -> tuple[bool, ...]:
    return (True,) * num_layers


def _no_layer(fields: Fields, num_layers: int) -> tuple[bool, ...]:
    return (False,) * num_layers


def _all_but_every_fourth(fields: Fields, num_layers: int) -> tuple[bool, ...]:
    every = fields.integer("full_attention_interval", 4)
    return tuple((index + 1) % every != 0 for index in range(num_layers))


def _short_conv_first(config: RecurrentConfig, hidden_size: int) -> list[RecurrentMatrix]:
    return [RecurrentMatrix(3 * config.channels, hidden_size, ("in_proj",))]


def _short_conv_projected(config: RecurrentConfig) -> dict[str, tuple[Section, ...]]:
    return {"in_proj": (Section(config.channels),) * 3}


def _delta_first(config: RecurrentConfig, hidden_size: int) -> list[RecurrentMatrix]:
    made = ("in_proj_qkvz",) if config.options.is_fused else ("in_proj_qkv", "in_proj_z")
    rates = ("in_proj_ba",) if config.options.fuses_rates else ("in_proj_b", "in_proj_a")
    return [
        RecurrentMatrix(config.channels + config.attended_size, hidden_size, made),
        RecurrentMatrix(2 * config.heads, hidden_size, rates),
    ]


def _delta_projected(config: RecurrentConfig) -> dict[str, tuple[Section, ...]]:
    keys, x, heads = Section(config.key_heads * config.key_dim), Section(config.attended_size), Section(config.heads)
    made = {"in_proj_qkv": (keys, keys, x), "in_proj_z": (x,)}
    if config.options.is_fused:  # key head by key head
        made = {"in_proj_qkvz": (Section(2 * (keys.size + x.size)),)}
    if config.options.fuses_rates:
        return made | {"in_proj_ba": (Section(2 * config.heads),)}
    return made | {"in_proj_b": (heads,), "in_proj_a": (heads,)}


def _state_space_first(config: RecurrentConfig, hidden_size: int) -> list[RecurrentMatrix]:
    return [RecurrentMatrix(config.attended_size + config.channels + config.heads, hidden_size, ("in_proj",))]


def _state_space_projected(config: RecurrentConfig) -> dict[str, tuple[Section, ...]]:
    x, keys = Section(config.attended_size), Section(config.key_heads * config.key_dim, is_by_group=True)
    return {"in_proj": (x, x, keys, keys, Section(config.heads))}


def _state_space_fp32(config: RecurrentConfig) -> int:
    return 3 * config.heads + (0 if config.norm == "none" else config.attended_size)


def _scan_first(config: RecurrentConfig, hidden_size: int) -> list[RecurrentMatrix]:
    return [
        RecurrentMatrix(2 * config.channels, hidden_size, ("in_proj",)),
        RecurrentMatrix(config.step_rank + 2 * config.key_dim, config.channels, ("x_proj",)),
        RecurrentMatrix(config.channels, config.step_rank, ("dt_proj",)),
    ]


def _scan_fp32(config: RecurrentConfig) -> int:
    num_chosen = config.step_rank + 2 * config.key_dim if config.options.norms != "none" else 0
    return (config.key_dim + 2) * config.channels + num_chosen


def _kimi_first(config: RecurrentConfig, hidden_size: int) -> list[RecurrentMatrix]:
    size, dim = config.attended_size, config.value_dim
    return [
        RecurrentMatrix(config.channels, hidden_size, ("q_proj", "k_proj", "v_proj")),
        RecurrentMatrix(config.heads, hidden_size, ("b_proj",)),
        RecurrentMatrix(2 * dim, hidden_size, ("f_a_proj", "g_a_proj")),
        RecurrentMatrix(size, dim, ("f_b_proj",)),
        RecurrentMatrix(size, dim, ("g_b_proj",)),
    ]


def _lightning_first(config: RecurrentConfig, hidden_size: int) -> list[RecurrentMatrix]:
    return [
        RecurrentMatrix(config.channels, hidden_size, ("qkv_proj",)),
        RecurrentMatrix(config.attended_size, hidden_size, ("output_gate",)),
    ]


RECURRENT_KINDS: Mapping[Kind, RecurrentKind] = MappingProxyType(
    {
        "short_conv": RecurrentKind(
            short_conv_shape,
            _no_layer,
            _short_conv_first,
            num_fp32=lambda config: 0,
            projected=_short_conv_projected,
            is_cut_by_channels=True,
        ),
        "delta": RecurrentKind(
            delta_shape,
            _all_but_every_fourth,
            _delta_first,
            num_fp32=lambda config: 2 * config.heads + config.value_dim,
            projected=_delta_projected,
        ),
        "state_space": RecurrentKind(
            state_space_shape,
            _every_layer,
            _state_space_first,
            num_fp32=_state_space_fp32,
            projected=_state_space_projected,
            shares_group=True,
        ),
        "selective_scan": RecurrentKind(
            selective_scan_shape, _every_layer, _scan_first, num_fp32=_scan_fp32, is_cut_by_channels=True
        ),
        "kimi_delta": RecurrentKind(
            kimi_delta_shape,
            _every_layer,
            _kimi_first,
            num_fp32=lambda config: config.heads + config.attended_size + config.value_dim,
        ),
        "lightning": RecurrentKind(
            lightning_shape,
            _every_layer,
            _lightning_first,
            num_fp32=lambda config: 2 * config.heads + config.attended_size,
        ),
    }
)
