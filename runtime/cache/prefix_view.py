"""What the cache has of a request's tokens, asked without a lease; nothing that a lease would find changes.

Knows requests, the tree, and what tiers below the pool may bring.
"""

from __future__ import annotations

from ...radix import pack, unpack
from ..kv_compress.budget import counts_from, first_compaction
from ..offload.parts import PoolPrefix
from ..request import Request
from .block_supply import BlockSupply


class PrefixView:
    """Of one prefix cache. has_tree: whether anything is shared at all."""

    def __init__(self, supply: BlockSupply, *, has_tree: bool) -> None:
        self._supply = supply
        self._has_tree = has_tree

    def continuation(self, request: Request) -> list[int]:
        """What has followed the same tokens in the same namespace before, as far as there is room for it."""
        if not self._has_tree:
            return []
        tree, tokens = self._supply.tree, pack(request.token_ids)
        return unpack(tree.continuation(tokens, request.namespace, request.remaining_tokens))

    def in_pool(self, request: Request) -> PoolPrefix:
        """What a request might not have to compute, and what of it is here."""
        tree, tokens = self._supply.tree, pack(request.token_ids[: match_limit(request)])
        if self._supply.parts is not None:
            return self._supply.parts.in_pool(tokens, tree.match(tokens, request.namespace))
        num_cached = tree.peek(tokens, request.namespace)
        return PoolPrefix(tokens, num_cached, num_cached)


def match_limit(request: Request) -> int:
    """How many tokens may come from the cache: the next one that is wanted is decided from computed logits."""
    if request.readout is not None:
        return request.readout.first_wanted
    wanted, limit = request.sampling.prompt_logprobs_from, request.num_tokens - 1
    if wanted is None or wanted + len(request.prompt_logprobs) >= request.num_prompt_tokens:
        compacted_at = first_compaction(request)  # its KV from there on is not that of its tokens
        limit = min(limit, compacted_at - 1) if compacted_at is not None else limit
    else:
        limit = wanted + len(request.prompt_logprobs) - 1
    counted = counts_from(request)  # rows whose attention counts are its own to compute
    return limit if counted is None else min(limit, counted)
