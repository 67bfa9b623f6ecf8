"""Whether a model's groups of layers go with a `kv_budget`: layers that see all tokens drop keys, the others must not.

Layers with a window find keys by their *place*, as all layers do. The last keys that are kept stand next to each other,
so for a window that lies within them distances are as they were, and the window is exact. A state goes on, whatever is
dropped. What SnapKV looks at is found by computing the last tokens once more, which would need the windows and states
before them, that are gone.

Knows configurations; it knows no requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import RequestError
from ..sampling_params import SamplingParams
from .policy import NUM_SINKS


@dataclass(frozen=True, slots=True)
class LayerGroups:
    """What a model's layers need of the tokens before.

    Attributes:
        window: tokens that the layer with the widest window sees, if that is not all; 0: none has one.
        sees_all: whether any layer sees all tokens by their keys.
        has_states: whether any keeps a state.
    """

    window: int
    sees_all: bool
    has_states: bool

    @staticmethod
    def of(windows: Sequence[int], longest: int, *, has_states: bool) -> LayerGroups:
        """windows: of each layer, 0: it has none. longest: tokens of a sequence, at most."""
        narrow = [window if window < longest else 0 for window in windows]
        return LayerGroups(max(narrow), not all(narrow), has_states)

    def check_budget(self, sampling: SamplingParams) -> None:
        """Raises RequestError: the model does not go with a `kv_budget`, or not with that one or its policy."""
        if sampling.kv_budget is None or not (self.window or self.has_states):
            return
        if not self.sees_all:
            text = "all layers of this model have a window, behind which no key is kept in any case; leave it out"
            raise RequestError(f"kv_budget: {text}", param="kv_budget")
        if sampling.kv_policy != "sinks":
            kind = "keep a state" if self.has_states else "have a window"
            raise RequestError(
                f"kv_policy: {sampling.kv_policy!r} computes the last tokens once more, and this model has layers that "
                f'{kind}, for which what they need of the tokens before is gone; use "sinks"',
                param="kv_policy",
            )
        least = self.window + NUM_SINKS
        if self.window and sampling.kv_budget < least:
            raise RequestError(
                f"kv_budget: {sampling.kv_budget} does not hold the window of {self.window} tokens that layers of this "
                f"model see, and the first {NUM_SINKS}; take at least {least}",
                param="kv_budget",
            )
