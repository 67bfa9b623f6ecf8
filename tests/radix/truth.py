"""The oracle of a prefix cache: a dict by tuples of tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

Prefix = tuple[str, tuple[int, ...]]


@dataclass
class Block:
    """One cached block, with every use of a prefix through it, not only of those that ended there."""

    id: int
    last_used: int = 0
    num_hits: int = 0
    priority: int = 0
    era: float = 0.0
    end: int = 0


@dataclass
class Truth:
    """Every cached prefix of whole blocks, with the block that it ends in. Slow and obvious."""

    block_size: int
    cached: dict[Prefix, Block] = field(default_factory=dict)
    evicted_at: dict[Prefix, float] = field(default_factory=dict)
    num_uses: int = 0
    era: float = 0.0

    def prefixes(self, namespace: str, tokens: list[int]) -> list[Prefix]:
        ends = range(self.block_size, len(tokens) + 1, self.block_size)
        return [(namespace, tuple(tokens[:end])) for end in ends]

    def matched(self, namespace: str, tokens: list[int]) -> list[Prefix]:
        found = []
        for prefix in self.prefixes(namespace, tokens):
            if prefix not in self.cached:
                break
            found.append(prefix)
        return found

    def partial(self, namespace: str, tokens: list[int]) -> dict[int, int]:
        """Blocks after the matched prefix that share a token or more: id → number of shared tokens."""
        start = len(self.matched(namespace, tokens)) * self.block_size
        donors = {}
        for (space, known), block in self.cached.items():
            whole = known[:start] == tuple(tokens[:start]) and len(known) == start + self.block_size
            if space == namespace and whole:
                rest = zip(known[start:], tokens[start:], strict=False)
                num_agreeing = next((i for i, (a, b) in enumerate(rest) if a != b), None)
                if num_agreeing is None:
                    num_agreeing = min(len(known), len(tokens)) - start
                if num_agreeing:
                    donors[block.id] = num_agreeing
        return donors

    def use(self, path: list[Prefix], *, num_hits: int = 0, priority: int = 0) -> None:
        self.num_uses += 1
        for prefix in path:
            block = self.cached[prefix]
            block.last_used = self.num_uses
            block.num_hits += num_hits
            block.era = self.era
            block.priority = max(block.priority, priority)

    def leaves(self) -> list[Prefix]:
        inner = {(space, known[: -self.block_size]) for space, known in self.cached}
        return [prefix for prefix in self.cached if prefix not in inner]


KEYS = {
    "lru": lambda block: block.last_used,
    "lfu": lambda block: (block.num_hits, block.last_used),
    "priority": lambda block: (block.priority, block.last_used),
    "cost": lambda block: (block.era + (block.num_hits + 1) * block_cost(block.end), block.last_used),
}


def block_cost(end: int) -> float:
    return 1 + end / 8
