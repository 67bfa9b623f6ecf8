"""Where a request resumes on a path of the tree, of a model that needs more than keys to go on.

The tree has the keys of n tokens; recurrent layers need a state too (`state_store`), layers with a window the last keys
in slots (`window_store`). After whole blocks a request copies from a *donor*, whose first tokens are its next ones: a
block of the tree, or the last one of a request that runs, which is not in the tree yet.

Knows requests, the tree and these two. Cost: O(block) per running request.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ...radix import Match, RadixTree, pack
from ..request import Lease, Request
from .slot import NO_SLOT
from .state_store import StateStore
from .window_store import WindowStore


@dataclass(frozen=True, slots=True)
class Donor:
    """A block that begins with the next `num_tokens` tokens of a request, and then differs or ends.

    slot: where layers with a window have it.
    """

    block: int
    num_tokens: int
    slot: int = NO_SLOT


def take_lease(tree: RadixTree, request: Request, match: Match) -> None:
    """The request has the whole blocks of a match, and nothing else."""
    if match.num_tokens:
        tree.lease(match.node)
        request.lease = Lease(match.node, match.num_tokens)
        request.blocks = array("i", match.blocks)
    request.num_computed_tokens = match.num_tokens


def lease_to_state(tree: RadixTree, request: Request, match: Match, states: StateStore) -> Donor | None:
    """Leases whole blocks up to the last state of a match; names the block if the state is in the middle of one."""
    point = states.slots.find(match.blocks, match.partial_block, match.num_partial_tokens)
    states.resume(request, point, match.num_tokens)
    if point is None:
        return None
    num_blocks, rest = divmod(point.num_tokens, tree.block_size)
    if rest and point.block == match.partial_block and tree.is_tail(match.partial_node):
        tree.touch(match.partial_node)
    num_tokens = num_blocks * tree.block_size
    if num_tokens < match.num_tokens:
        match = tree.match(pack(request.token_ids[:num_tokens]), request.namespace)
    take_lease(tree, request, match)
    return Donor(point.block, rest) if rest else None


def lease_to_window(
    tree: RadixTree, request: Request, match: Match, windows: WindowStore, find: Callable[[Match], Donor | None]
) -> Donor | None:
    """Leases whole blocks up to the last token before which the window is there; names the block to copy from if that
    is the end of the match.

    find: the donor of a match that the request has leased.
    """
    num_tokens, num_keys = windows.find(match.blocks), match.num_tokens + match.num_partial_tokens
    if num_tokens < match.num_tokens:
        take_lease(tree, request, tree.match(pack(request.token_ids[:num_tokens]), request.namespace))
        windows.resume(request, request.blocks[-1] if request.blocks else NO_SLOT, num_tokens, num_keys)
        return None
    take_lease(tree, request, match)
    donor = find(match)
    if donor is None:
        windows.resume(request, request.blocks[-1] if request.blocks else NO_SLOT, num_tokens, num_keys)
    else:
        num_tokens += donor.num_tokens
        windows.resume(request, donor.block, num_tokens, max(num_keys, num_tokens))
    return donor


def find_donor(
    tree: RadixTree,
    request: Request,
    running: Iterable[Request],
    limit: int,
    windows: WindowStore | None,
    match: Match,
) -> Donor | None:
    """What a request that has leased a match may copy the next tokens from; None: nothing.

    Args:
        running: whose last blocks are not in the tree yet.
        limit: how many of the request's tokens may come from a cache.
        windows: a donor needs a slot, where there are any.
    """
    found = _with_slot(Donor(match.partial_block, match.num_partial_tokens), windows)
    if found.num_tokens and tree.is_tail(match.partial_node):
        tree.touch(match.partial_node)
    if found.num_tokens < min(tree.block_size, limit - match.num_tokens):
        best = found
        for other in running:
            num_shared = _num_shared_after(request, other, limit, tree.block_size)
            if num_shared > best.num_tokens:
                best = Donor(other.blocks[len(request.blocks)], num_shared)
        best = best if best is found else _with_slot(best, windows)
        found = best if best.num_tokens else found
    return found if found.num_tokens else None


def _with_slot(donor: Donor, windows: WindowStore | None) -> Donor:
    """The donor, which gives nothing if layers with a window do not have it."""
    if windows is None or not donor.num_tokens:
        return donor
    slot = int(windows.slots.slot_of[donor.block])
    return replace(donor, slot=slot) if slot != NO_SLOT else Donor(NO_SLOT, 0)


def _num_shared_after(request: Request, other: Request, limit: int, block_size: int) -> int:
    """Tokens after the matched blocks of `request` that `other` has computed in a block of its own."""
    start, index = request.num_computed_tokens, len(request.blocks)
    end = min(limit, other.num_computed_tokens, start + block_size)
    if other is request or end <= start or other.namespace != request.namespace or other.num_dropped_tokens:
        return 0
    if index and other.blocks[index - 1] != request.blocks[-1]:
        return 0  # equal block ids up to here: equal tokens up to here
    pairs = zip(request.token_ids[start:end], other.token_ids[start:end], strict=True)
    return next((number for number, (mine, its) in enumerate(pairs) if mine != its), end - start)
