"""The state of the prefix cache, to be read: what holds the pool, what it brings, and what another pool would bring.

The what-if curve plays the recent traffic again (`radix.replay`), one request after the other and from an empty cache,
for other pool sizes and policies, and for the optimum that knows the future (Belady, `radix.foresee`). As the engine
does, it counts tokens of prompts that would have come from the cache. Next to it stands the engine's own hit rate on
the same requests; for requests that came one after the other, with nothing evicted and nothing cached before, that
equals the replay of the pool in use. Batches, pins, reordering and an earlier cache make the difference. Regret is what
the policy in use misses of the optimum, both replayed.

Plain values: a report can be sent as JSON (`as_data`) and be made of it again (`from_data`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ...radix import POLICIES, BlockCost, Visit, foresee, replay

SHARES = (0.5, 1.0, 2.0, 4.0)
OPTIMUM = "optimum"
BAR = 40  # columns


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A cache that might have been.

    Attributes:
        policy: an eviction policy, or "optimum".
        share: its size, as a multiple of the pool in use.
        hit_rate: share of the prompts' tokens that would have come from it.
    """

    policy: str
    share: float
    num_blocks: int
    hit_rate: float


@dataclass(frozen=True, slots=True)
class CacheReport:
    """One moment of the cache. Every block is free, evictable, leased or held: the four add up to the pool.

    Attributes:
        num_evictable_blocks: in the tree, used by no request at the moment.
        num_leased_blocks: in the tree, protected by requests or pins; `num_pinned_blocks` of them by pins.
        num_held_blocks: outside the tree, being written by running requests.
        prompt_tokens, cached_tokens: of all requests that were admitted, since start.
        num_evicted_blocks: since start.
        num_recorded_requests: length of the recent traffic that `what_if` is about.
        recorded_hit_rate: the share of its prompt tokens that came from the cache.
        what_if: other sizes, other policies and the optimum; empty if not asked for, or without traffic.
        tree: the tree drawn, or None where it is not to be shown.
        loaded_tokens: those of the cached tokens that were read from a tier below the pool.
        num_stored_blocks: copied to such a tier, since start.
        tier_bytes: what each tier holds, by its name, fastest first.
        num_slots, num_used_slots, num_held_slots: of layers with a window: slots for their keys, those that blocks
            have, and those of them that running requests hold; 0: all layers have blocks of the pool alone.
    """

    block_size: int
    eviction_policy: str
    num_blocks: int
    num_free_blocks: int
    num_evictable_blocks: int
    num_leased_blocks: int
    num_pinned_blocks: int
    num_held_blocks: int
    prompt_tokens: int
    cached_tokens: int
    num_evicted_blocks: int
    num_recorded_requests: int = 0
    recorded_hit_rate: float = 0.0
    what_if: tuple[WhatIf, ...] = ()
    tree: str | None = None
    loaded_tokens: int = 0
    num_stored_blocks: int = 0
    tier_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    num_slots: int = 0
    num_used_slots: int = 0
    num_held_slots: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that came from the cache, since start."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def regret(self) -> float | None:
        """What the policy in use misses of the optimum on the recent traffic, in hit rate; None if not known."""
        rates = {entry.policy: entry.hit_rate for entry in self.what_if if entry.share == 1.0}
        if OPTIMUM not in rates:
            return None
        return max(0.0, rates[OPTIMUM] - rates[self.eviction_policy])

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {**dataclasses.asdict(self), "hit_rate": self.hit_rate, "regret": self.regret}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> CacheReport:
        """The inverse of `as_data`; what it does not know is ignored. TypeError or KeyError if it is something else."""
        fields = {field.name: data[field.name] for field in dataclasses.fields(cls)}
        fields["what_if"] = tuple(WhatIf(**entry) for entry in fields["what_if"])
        return cls(**fields)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        """For notebooks."""
        return f'<pre style="line-height:1.2">{escape(str(self))}</pre>'

    def _lines(self) -> Iterator[str]:
        yield f"pool of {self.num_blocks:,} blocks of {self.block_size} tokens"
        rows = (
            ("held by requests", self.num_held_blocks),
            ("in tree, leased", self.num_leased_blocks),
            ("in tree, evictable", self.num_evictable_blocks),
            ("free", self.num_free_blocks),
        )
        for name, number in rows:
            share = number / self.num_blocks
            yield f"  {name:<20}{_bar(share)} {number:>9,}  {share:6.1%}"
        yield f"  {'(pinned)':<20}{' ' * BAR} {self.num_pinned_blocks:>9,}"
        if self.num_slots:
            held, kept = self.num_held_slots, self.num_used_slots - self.num_held_slots
            yield f"layers with a window: {self.num_slots:,} slots, {held:,} held by requests, {kept:,} kept for others"
        yield ""
        yield f"prompt tokens from the cache: {self.cached_tokens:,} of {self.prompt_tokens:,} ({self.hit_rate:.1%})"
        yield f"blocks evicted: {self.num_evicted_blocks:,} (policy {self.eviction_policy})"
        if self.tier_bytes:
            yield "below the pool: " + ", ".join(f"{name} {size >> 20:,} MiB" for name, size in self.tier_bytes.items())
            yield f"  {self.num_stored_blocks:,} blocks stored, {self.loaded_tokens:,} cached tokens read from there"
        if self.what_if:
            yield ""
            recent = f"the last {self.num_recorded_requests:,} requests (hit rate {self.recorded_hit_rate:.1%})"
            yield f"what if: {recent}, played again one by one from an empty cache"
            for entry in self.what_if:
                name = f"{entry.policy}, {entry.share:g}x"
                yield f"  {name:<20}{_bar(entry.hit_rate)} {entry.num_blocks:>9,}  {entry.hit_rate:6.1%}"
            yield f"regret of {self.eviction_policy} against the optimum: {100 * (self.regret or 0.0):.1f} points"
        if self.tree is not None:
            yield ""
            yield self.tree or "(the tree is empty)"


def what_if(
    visits: Sequence[Visit], *, num_blocks: int, block_size: int, policy: str, block_cost: BlockCost
) -> tuple[WhatIf, ...]:
    """The policy in use at other sizes, the other policies at this size, and the optimum for each size.

    Touches nothing that is in use, so it may run on any thread. A second or two at most.
    """
    if not visits:
        return ()
    num_asked = sum(visit.num_asked_tokens for visit in visits) or 1
    found = []
    for share in SHARES:
        size = max(1, round(num_blocks * share))
        policies = [policy, *(other for other in POLICIES if other != policy)] if share == 1.0 else [policy]
        for name in policies:
            hits = replay(visits, num_blocks=size, block_size=block_size, policy=name, block_cost=block_cost)
            found.append(WhatIf(name, share, size, sum(hits) / num_asked))
        best = sum(foresee(visits, num_blocks=size, block_size=block_size)) / num_asked
        best = max(best, *(entry.hit_rate for entry in found if entry.share == share))  # it is exact up to rounding
        found.append(WhatIf(OPTIMUM, share, size, best))
    return tuple(found)


def _bar(share: float) -> str:
    """`BAR` columns, filled to the eighth of a column."""
    eighths = round(min(1.0, max(0.0, share)) * BAR * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(BAR, "·")
