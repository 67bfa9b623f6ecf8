"""What was kept at a compaction, for a request and its forks, until they have blocks."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import cast

import torch

from phloem.runtime.cache.kept_keys import KeptKeys
from phloem.runtime.cache.slot_books import SlotBooks
from phloem.runtime.execute.kv_cache import KVCache, KVShape
from phloem.runtime.request import Request


class Holder(SimpleNamespace):
    __hash__ = object.__hash__


def test_a_fork_that_comes_before_there_are_blocks_has_the_same_keys() -> None:
    cache = KVCache(
        shapes=[KVShape(1, 1, 2)], num_blocks=8, block_size=2, dtype=torch.float32, device=torch.device("cpu")
    )
    cache.keys[0].view(-1)[:] = torch.arange(16.0)
    kept = KeptKeys(cache, SlotBooks())
    fields = {"num_computed_tokens": 6, "num_dropped_tokens": 0}
    parent = cast("Request", Holder(blocks=array("i", [1, 0, 2]), **fields))
    kept.keep(parent, kept.copy_out(parent, torch.tensor([0, 1, 4])))
    child, other = (cast("Request", Holder(blocks=array("i", blocks), **fields)) for blocks in ([5, 6], [7]))
    kept.fork(parent, child)
    kept.fork(other, child)  # of what is not waiting there is nothing to share
    kept.forget(parent)
    assert child in kept and parent not in kept and other not in kept
    kept.copy_in(child)
    assert cache.keys[0].view(-1)[10:13].tolist() == [2.0, 3.0, 4.0] and child not in kept
