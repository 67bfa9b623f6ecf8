"""Knowledge: all that is known of one language over one vocabulary, shared by every text that is written in it.

    automaton      states and steps                      moves      steps taken before, as cursors take them
    completions    in how many tokens a state ends       drafts     forced text
    masks          the row of a state                    circles    what was taken before
    budget         rows within a number of tokens        guesses    what is likely, from both

and, where the language has keys or items that no state can know of (else None)

    repeats, key_budget      keys and strings that must not come twice, and what that costs
    distinct, item_budget    items of any kind that must differ, and what that costs

All of it is found when it is first needed, and kept. What no first mask needs is not even made before. No two parts
refer to each other, and none to this: so an automaton's memory is free when the last one who uses it goes, and does not
wait for the garbage collector (but for a row that is left half made, which knows who makes it).
"""

from __future__ import annotations

from functools import cached_property

from .automaton.automaton import Automaton
from .guess import Guesses
from .habits import Circles
from .jump import Drafts
from .keys.distinct import Distinct
from .keys.item_budget import ItemBudget
from .keys.key_budget import KeyBudget
from .keys.repeats import Repeats
from .masks.budget import Budget
from .masks.completions import Completions
from .masks.mask_store import MaskStore
from .masks.masks import Masks
from .moves import Moves, TakeToken
from .network.network import Network


class Knowledge:
    """See the module's docstring.

    Args:
        network: the compiled grammar.
        store: rows of the vocabulary, shared with other languages.
        max_automaton_bytes: bound on the automaton's own memory.

    Attributes:
        moves: steps of texts that have written nothing to be remembered, and of all where nothing ever is.
        key_moves: those that change nothing in what is remembered of keys; item_moves: nor of items, none of which has
            rivals; rival_moves: nor of items that have: none are known.
    """

    def __init__(self, network: Network, store: MaskStore, max_automaton_bytes: int) -> None:
        self.vocabulary = store.vocabulary
        self.automaton = automaton = Automaton(network, store.vocabulary, max_automaton_bytes)
        self.completions = Completions(automaton)
        self.masks = Masks(automaton, store)
        self.repeats = repeats = Repeats(automaton) if network.key_texts else None
        self.distinct = distinct = Distinct(automaton, self.masks, repeats) if network.has_lists else None
        step: TakeToken = automaton.advance
        if repeats is not None:
            step = repeats.first_step
        self.moves = Moves(step, automaton.stays_on_plain)
        self.key_moves = self.item_moves = self.rival_moves = self.moves
        if repeats is not None:
            self.key_moves = Moves(repeats.quiet_step, repeats.stays)
        if distinct is not None:
            self.item_moves = Moves(distinct.quiet_step, _stays_nowhere)
            self.rival_moves = Moves(_depends, _stays_nowhere)

    # ---------------------------------------------------------------- what no first mask needs

    @cached_property
    def budget(self) -> Budget:
        """Rows within a number of tokens."""
        return Budget(self.automaton, self.completions, self.masks)

    @cached_property
    def key_budget(self) -> KeyBudget | None:
        """What keys that must not be repeated cost; None if there are none to be remembered."""
        if self.repeats is None:
            return None
        return KeyBudget(self.automaton, self.completions, self.repeats)

    @cached_property
    def item_budget(self) -> ItemBudget | None:
        """What items that must differ cost; None if there are none."""
        if self.distinct is None:
            return None
        return ItemBudget(self.automaton, self.completions, self.distinct, self.key_budget)

    @cached_property
    def drafts(self) -> Drafts:
        """Forced text."""
        return Drafts(self.automaton)

    @cached_property
    def circles(self) -> Circles:
        """What was taken before, and by whom."""
        return Circles()

    @cached_property
    def guesses(self) -> Guesses:
        """What is likely to come next."""
        return Guesses(self.automaton, self.completions, self.moves, self.repeats, self.drafts)

    # ---------------------------------------------------------------- of whole texts, and in all

    def accepts(self, text: bytes) -> bool:
        """Whether it is a whole text of the language."""
        state = self.automaton.advance_bytes(self.automaton.start, text)
        if not self.automaton.is_accepting(state) or (self.repeats is not None and not self.repeats.allows(text)):
            return False
        return self.distinct is None or self.distinct.allows(text)

    @property
    def num_bytes(self) -> int:
        """Memory of what was found so far. The network is not counted, rows belong to the store, texts to all."""
        own = self.automaton.room.num_bytes + self.completions.num_bytes
        for moves in {self.moves, self.key_moves, self.item_moves, self.rival_moves}:
            own += moves.num_bytes
        for part in (self.repeats, self.distinct, *map(vars(self).get, ("budget", "key_budget", "drafts", "circles"))):
            own += 0 if part is None else part.num_bytes
        return own


def _stays_nowhere(state: int) -> bool:
    return False


def _depends(state: int, token_id: int) -> int:
    return -1  # never on the state alone
