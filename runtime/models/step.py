"""What a step brings to a decoder besides its tokens: tensors of keys and values, states, and rows of adapters.

Knows kernels; it knows no model and no requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ...kernels import LoraPlan, ops
from ...kernels.state_rounds import StateRounds

Adapt = Callable[[Tensor], None]  # adds what adapters add to the outputs of a linear map, in place


class KVTensors(Protocol):
    """One tensor per layer, `[num_blocks, num_kv_heads, block_size, head_dim]`, and its scales if it is quantised.

    Latents are in `keys`; there are no values then. `hidden`: where a decoder puts the hidden states of all tokens, by
    slot, for a layer that predicts from them (`mtp.py`); None: nowhere.
    """

    keys: list[Tensor]
    values: list[Tensor]
    key_scales: list[Tensor] | list[None]
    value_scales: list[Tensor] | list[None]
    hidden: Tensor | None


@dataclass(frozen=True, slots=True)
class StateStep:
    """What recurrent layers need of a step.

    Attributes:
        states: by layer, the tensors of its states (`RecurrentConfig.state_shapes`), one entry per slot; changed.
        rounds: which rows read and write which slots.
    """

    states: Sequence[tuple[Tensor, ...]]
    rounds: StateRounds


@dataclass(frozen=True, slots=True)
class WindowStep:
    """Where layers with a window find and write keys and values; slots `[T]` int64, of the tensors of these layers."""

    plan: ops.AttentionPlan
    slots: Tensor


@dataclass(frozen=True, slots=True)
class AdaptedRows:
    """Which rows of a step go through which adapters: of all its rows, and of those whose logits are wanted."""

    every: LoraPlan | None
    wanted: LoraPlan | None
