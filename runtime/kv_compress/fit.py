"""Whether a model's groups of layers go with a `kv_budget`: layers that see all tokens drop keys, the others must not.

Layers with a window find keys by their *place*, as all layers do. The last keys that are kept stand next to each other,
so for a window that lies within them distances are as they were, and the window is exact. A state goes on, whatever is
dropped. What SnapKV looks at is found by computing the last tokens once more, which would need the windows and states
before them, that are gone; heavy hitters are not counted over such layers, and their keys are not turned. Nor are they
over layers whose heads differ in number or size, since each head of each layer chooses keys of its own.

Knows configurations; it knows no requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import RequestError
from ..kv_policies import KV_POLICIES, NUM_SINKS, names_of
from ..sampling_params import SamplingParams

if TYPE_CHECKING:
    from ..models.layer_config import LayerConfig


@dataclass(frozen=True, slots=True)
class LayerGroups:
    """What a model's layers need of the tokens before.

    Attributes:
        window: tokens that the layer with the widest window sees, if that is not all; 0: none has one.
        sees_all: whether any layer sees all tokens by their keys.
        in_chunks: windows begin at multiples of a length, which places do not tell.
        has_states: whether any keeps a state.
        heads_differ: whether their heads differ in number or size.
    """

    window: int
    sees_all: bool
    in_chunks: bool
    has_states: bool
    heads_differ: bool = False

    @staticmethod
    def of(layers: Sequence[LayerConfig], longest: int, *, has_states: bool) -> LayerGroups:
        """longest: tokens of a sequence, at most."""
        narrow = [layer.window if layer.window < longest else 0 for layer in layers]
        in_chunks = any(narrow) and any(layer.in_chunks for layer in layers)
        sees_all = any(layer.attends and not window for layer, window in zip(layers, narrow, strict=True))
        heads_differ = len({layer.kv for layer in layers if layer.attends}) > 1
        return LayerGroups(max(narrow), sees_all, in_chunks, has_states, heads_differ)

    def check_budget(self, sampling: SamplingParams) -> None:
        """Raises RequestError: the model does not go with a `kv_budget`, or not with that one or its policy."""
        if sampling.kv_budget is None or not (self.window or self.has_states or self.heads_differ):
            return
        if not self.sees_all or self.in_chunks:
            text = "no layer of this model sees all tokens by their keys, so there is nothing to drop"
            if self.in_chunks:
                text = "this model has layers that see chunks of the context, which are not found once keys are dropped"
            raise RequestError(f"kv_budget: {text}; leave it out", param="kv_budget")
        kind = "keep a state" if self.has_states else "have a window" if self.window else "have other heads"
        if not KV_POLICIES[sampling.kv_policy].keeps_the_last:
            raise RequestError(
                f"kv_policy: {sampling.kv_policy!r} does not go with layers that {kind}, which this model has; use "
                f"{names_of(lambda policy: policy.keeps_the_last)}",
                param="kv_policy",
            )
        if sampling.beyond_context:
            text = f"beyond_context: this model has layers that {kind}, with which no keys are turned; leave it out"
            raise RequestError(text, param="beyond_context")
        least = self.window + NUM_SINKS
        if self.window and sampling.kv_budget < least:
            raise RequestError(
                f"kv_budget: {sampling.kv_budget} does not hold the window of {self.window} tokens that layers of this "
                f"model see, and the first {NUM_SINKS}; take at least {least}",
                param="kv_budget",
            )
