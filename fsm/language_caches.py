"""Language caches: all that has been computed of one language over one vocabulary, shared by all its requests.

    automaton      states and steps                      moves      steps taken before, as cursors take them
    completions    tokens to the end of the text         drafts     forced text
    masks          the row of a state                    cohorts    what was taken before
    budget         rows within a number of tokens        guesses    what is likely, from drafts and cohorts

and, where the language has keys or items that no state can represent (else None)

    repeats, key_budget      keys and strings that must not occur twice, and how many tokens that costs

`bounds` asks completions, budget and these two, whichever a place needs.
Everything is computed on first use and kept; parts that no first mask needs are built only then. It knows no request.
The parts hold no references to each other in cycles, nor to this object: an automaton's memory is freed with its last
user and does not wait for the garbage collector (except for a half-made row, which refers to what makes it).
"""

from __future__ import annotations

from functools import cached_property

from .automaton.automaton import Automaton
from .bounds import Bounds
from .guess import Guesses
from .habits import Cohorts
from .jump import Drafts
from .keys.item_budget import ItemBudget
from .keys.key_budget import KeyBudget
from .keys.repeats import Repeats
from .masks.budget import Budget
from .masks.completions import Completions
from .masks.mask_store import MaskStore
from .masks.masks import Masks
from .moves import Moves, TakeToken
from .network.network import Network


class LanguageCaches:
    """See the module's docstring.

    Args:
        network: the compiled grammar.
        store: rows of the vocabulary, shared with other languages.
        max_automaton_bytes: bound on the automaton's own memory.

    Attributes:
        moves: steps of texts that have written nothing to be remembered, and of all where nothing ever is.
        key_moves: those that change nothing in what is remembered of keys.
    """

    def __init__(self, network: Network, store: MaskStore, max_automaton_bytes: int) -> None:
        self.vocabulary = store.vocabulary
        self.automaton = automaton = Automaton(network, store.vocabulary, max_automaton_bytes)
        self.completions = Completions(automaton)
        self.masks = Masks(automaton, store)
        self.repeats = repeats = Repeats(automaton) if network.key_texts or network.edge_texts else None
        step: TakeToken = automaton.advance
        if repeats is not None:
            step = repeats.first_step
        self.moves = Moves(step, automaton.stays_on_plain)
        self.key_moves = self.moves if repeats is None else Moves(repeats.quiet_step, repeats.stays)

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
        budget = ItemBudget if self.repeats.has_lists else KeyBudget
        return budget(self.automaton, self.completions, self.repeats)

    @cached_property
    def bounds(self) -> Bounds:
        """Tokens to the end of the text, and rows within a number of them, whatever keys were written."""
        return Bounds(self.completions, self.masks, self.budget, self.repeats, self.key_budget)

    @cached_property
    def drafts(self) -> Drafts:
        """Forced text."""
        return Drafts(self.automaton)

    @cached_property
    def cohorts(self) -> Cohorts:
        """What was taken before, by cohort."""
        return Cohorts()

    @cached_property
    def guesses(self) -> Guesses:
        """What is likely to come next."""
        return Guesses(self.automaton, self.completions, self.moves, self.repeats, self.drafts)

    # ---------------------------------------------------------------- of whole texts, and in all

    def accepts(self, text: bytes) -> bool:
        """Whether it is a whole text of the language."""
        state = self.automaton.advance_bytes(self.automaton.start, text)
        return self.automaton.is_accepting(state) and (self.repeats is None or self.repeats.allows(text))

    @property
    def num_bytes(self) -> int:
        """Memory of what was found so far. The network is not counted, rows belong to the store, texts to all."""
        own = self.automaton.num_bytes + self.completions.num_bytes
        for moves in {self.moves, self.key_moves}:
            own += moves.num_bytes
        for part in (self.repeats, *map(vars(self).get, ("budget", "key_budget", "drafts", "cohorts"))):
            own += 0 if part is None else part.num_bytes
        return own
