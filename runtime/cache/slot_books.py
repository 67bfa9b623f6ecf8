"""What groups of layers keep in slots of their own, besides the blocks of the pool: the books, and the tensors.

Knows the extends of a step; it knows no lines and no tree. A model has states or windows that are let go of: one with
both is refused where its configuration is read (`models/layer_kinds.check_kept`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..execute.batch import Batch, Extend
from ..execute.kv_cache import KVCache
from ..execute.recurrent_states import RecurrentStates
from ..execute.window_view import see_windows
from ..offload.parts import PartRules
from .followers import Followers
from .lower_parts import LowerParts
from .part_books import PartBooks, StateParts, WindowParts
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

    # -- a step ------------------------------------------------------------------------------------------------

    def fits_windows(self, own: Iterable[int]) -> bool:
        """Whether there are slots for windows of requests that run side by side; see `WindowStore.fits`."""
        return self.windows is None or self.windows.fits(own)

    def plan_states(self, extends: Sequence[Extend]) -> None:
        """Slots for the states of a step, of a model with recurrent layers."""
        if self.states is None:
            return
        wanted = [(one.request, one.start, one.start + one.num_tokens, one.end) for one in extends]
        for extend, (state, points) in zip(extends, self.states.plan(wanted), strict=True):
            extend.state, extend.state_points = state, [(point.num_tokens, point.slot) for point in points]

    def lay_out(self, extends: list[Extend], block_size: int) -> Batch:
        """The batch of a step whose blocks are reserved."""
        batch, windows = Batch.from_extends(extends, block_size), self.windows
        if windows is None:
            return batch
        return see_windows(batch, windows.slots.slot_of, windows.window, block_size, in_chunks=windows.in_chunks)

    def settle(self, extend: Extend) -> None:
        """After a step has moved a request on: without the state there it goes back to where there is one; what is
        behind its window it holds no more."""
        if self.states is not None:
            self.states.settle(extend.request, extend.start)
        if self.windows is not None:
            self.windows.move_on(extend.request)

    # -- tiers -------------------------------------------------------------------------------------------------

    @property
    def parts(self) -> PartBooks | None:
        """The books as tiers ask them; None: blocks have no parts."""
        if self.states is not None:
            return StateParts(self.states.slots)
        return None if self.windows is None else WindowParts(self.windows)

    @property
    def tensors(self) -> RecurrentStates | KVCache | None:
        return self.state_tensors if self.state_tensors is not None else self.window_kv

    @property
    def rules(self) -> PartRules | None:
        """What a block needs in tiers besides its keys; None: nothing."""
        if self.parts is None or self.tensors is None:
            return None
        return PartRules(self.tensors.block_bytes, self.parts.needed)

    def lower_parts(self, followers: Followers) -> LowerParts | None:
        """The ways of what lies in the slots to the tiers and back; None: there are no tiers, or no slots."""
        if self.parts is None or self.tensors is None or followers.tiers is None:
            return None
        return LowerParts(self.parts, self.tensors, followers.keys, followers.tiers)
