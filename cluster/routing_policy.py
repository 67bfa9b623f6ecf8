"""Which replica a request goes to: where it is computed soonest, by what is cached there and what is queued there.

::

    cost = 1.5 · tokens of the prompt that the replica does not have + tokens that are queued there

So a long match is worth a wait, and not a much longer one than it saves: a system prompt that every request begins with
does not pull all of them to one replica, and a busy replica loses only those requests for which another is cheaper. A
token that is computed counts for more than one that is waited for, since it is one more in the queue of those that come
later; by how much was tried with `bench/studies/routing.py`: with 1 eight equal prompts that come at once are computed
on eight replicas, with 2 and 3 answers come no sooner than with 1.5.

Of the replicas that match equally much, only a few are looked at, chosen at random; where none matches, these are the
two of the *power of two choices* (Mitzenmacher, 2001). Else all of a large cluster would go to the one that was idle
when it was last heard of.

What is queued: tokens that this router has sent and that are not answered count at once; what a replica reports takes
the place of what was known before. What was sent is expected in the cache of its replica from then on, so that a burst
of new equal prompts goes to one place.

Knows no tokens, no sockets and no Ray. Not thread-safe. Cost: O(blocks of the prompt + replicas), 60 µs with 1,000.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from .prefix_index import PrefixIndex

EXPECTED = "expected"  # a medium: what was sent there, and is not answered
NUM_LOOKS = 2
MISSING_WEIGHT = 1.5


@dataclass(slots=True)
class _Load:
    """Attributes: tokens in the queue as the replica said last, and those that were sent since, less those answered."""

    reported: int = 0
    since: int = 0

    @property
    def num_tokens(self) -> int:
        return max(0, self.reported + self.since)


@dataclass(frozen=True, slots=True)
class Choice:
    """A replica for a request.

    Attributes:
        num_matched: blocks of the request's chain that the replica has.
        num_missing: tokens of its prompt that are to be computed there.
    """

    replica: str
    num_matched: int
    num_missing: int


class RoutingPolicy:
    """Decides, and keeps account of what it has sent.

    Args:
        index: what the replicas have; the reader of their events keeps it up to date.
        block_size: tokens per block.
    """

    def __init__(self, index: PrefixIndex, block_size: int, random: Random | None = None) -> None:
        self.index = index
        self._block_size = block_size
        self._random = random or Random()
        self._loads: dict[str, _Load] = {}
        self._names: list[str] = []  # by number
        self._mask = 0  # of those that are known

    def add(self, replica: str) -> None:
        """A replica has joined. One that is known stays as it is."""
        number = self.index.add(replica)
        self._loads.setdefault(replica, _Load())
        self._names += [""] * (number + 1 - len(self._names))
        self._names[number] = replica
        self._mask |= 1 << number

    def forget(self, replica: str) -> None:
        """A replica is gone, with all that it had."""
        if self._loads.pop(replica, None) is not None:
            self._mask &= ~(1 << self.index.numbers[replica])
        self.index.forget(replica)

    def report(self, replica: str, num_tokens: int) -> None:
        """A replica says how many tokens it has in its queue now."""
        if replica in self._loads:
            self._loads[replica] = _Load(num_tokens)

    def queued(self, replica: str) -> int:
        """Tokens that are taken to be in a replica's queue."""
        load = self._loads.get(replica)
        return 0 if load is None else load.num_tokens

    def rank(self, chain: Sequence[int], num_tokens: int, except_for: Iterable[str] = ()) -> list[Choice]:
        """Replicas, the best first; all that were looked at, and none if there is none.

        Args:
            chain: hashes of the whole blocks of the prompt, from the first; empty: nothing is known of it.
            num_tokens: of the prompt.
            except_for: replicas that are left out.
        """
        mask = self._mask
        for name in except_for:
            if name in self._loads:
                mask &= ~(1 << self.index.numbers[name])
        found: list[tuple[float, float, Choice]] = []
        for depth, equal in self.index.matches(chain, mask):
            missing = num_tokens - depth * self._block_size
            for number in self._some(equal):
                name = self._names[number]
                cost = MISSING_WEIGHT * missing + self._loads[name].num_tokens
                found.append((cost, self._random.random(), Choice(name, depth, missing)))
        found.sort()
        return [choice for *_, choice in found]

    def _some(self, mask: int) -> list[int]:
        """Some of the numbers in a mask, at random."""
        numbers = [number for number in range(mask.bit_length()) if mask >> number & 1]
        return self._random.sample(numbers, min(NUM_LOOKS, len(numbers)))

    def sent(self, choice: Choice, chain: Sequence[int]) -> None:
        """A request goes to a replica that `rank` has returned; its end is reported by `answered`."""
        load = self._loads.get(choice.replica)
        if load is not None:
            load.since += choice.num_missing
            self.index.store(choice.replica, EXPECTED, chain[choice.num_matched :])

    def answered(self, choice: Choice, chain: Sequence[int]) -> None:
        """It has ended there, however it did; its replica may be gone."""
        load = self._loads.get(choice.replica)
        if load is not None:
            load.since = max(load.since - choice.num_missing, -load.reported)  # it may be from before the report
            self.index.remove(choice.replica, EXPECTED, chain[choice.num_matched :])
