"""What groups of layers keep in slots of their own, besides the blocks of the pool: the books, and the tensors.

Knows no requests. A model has states or windows that are let go of: one with both is refused where its configuration
is read (`models/layer_kinds.check_kept`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..execute.kv_cache import KVCache
from ..execute.recurrent_states import RecurrentStates
from ..offload.parts import PartRules
from .followers import Followers
from .lower_parts import LowerParts, PartBooks
from .state_store import StateStore
from .window_store import WindowStore


@dataclass(frozen=True, slots=True)
class SlotBooks:
    """Of one engine.

    Attributes:
        states: of a model with recurrent layers, whose cached prefixes can be used from a state on.
        windows: of a model with windows, which blocks have slots.
        state_tensors, window_kv: the tensors of these slots.
    """

    states: StateStore | None = None
    windows: WindowStore | None = None
    state_tensors: RecurrentStates | None = None
    window_kv: KVCache | None = None

    @property
    def books(self) -> PartBooks | None:
        return self.states if self.states is not None else self.windows

    @property
    def tensors(self) -> RecurrentStates | KVCache | None:
        return self.state_tensors if self.state_tensors is not None else self.window_kv

    @property
    def rules(self) -> PartRules | None:
        """What a block needs in tiers besides its keys; None: nothing."""
        if self.books is None or self.tensors is None:
            return None
        return PartRules(self.tensors.block_bytes, self.books.needed)

    def lower_parts(self, followers: Followers) -> LowerParts | None:
        """The ways of what lies in the slots to the tiers and back; None: there are no tiers, or no slots."""
        if self.books is None or self.tensors is None or followers.tiers is None:
            return None
        return LowerParts(self.books, self.tensors, followers.keys, followers.tiers)
