"""What the draft model has of each block, against lists: any blocks are forgotten, copied, lost and computed."""

from __future__ import annotations

from array import array

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.runtime.execute.draft_kv import DraftKV
from phloem.runtime.execute.kv_cache import KVCache, KVShape

NUM_BLOCKS, SIZE = 5, 3
BLOCKS = st.lists(st.integers(0, NUM_BLOCKS - 1), min_size=1, max_size=NUM_BLOCKS, unique=True)


def kv_cache() -> KVCache:
    return KVCache(
        shapes=[KVShape(1, 2, 2)],
        num_blocks=NUM_BLOCKS,
        block_size=SIZE,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )


def tokens_there(path: list[int], filled: list[int]) -> int:
    total = 0
    for block in path:
        total += filled[block]
        if filled[block] < SIZE:
            break
    return total


@settings(max_examples=60)
@given(st.data(), st.booleans())
def test_blocks_are_filled_and_lack_what_lists_say(data: st.DataObject, keeps_hidden: bool) -> None:
    kv, filled, lacks = DraftKV(kv_cache()), [0] * NUM_BLOCKS, [False] * NUM_BLOCKS
    hidden = [[0.0] * SIZE for _ in range(NUM_BLOCKS)]
    if keeps_hidden:
        kv.keep_hidden(kv_cache(), 1, torch.float32)
        assert kv.kv_cache.hidden is not None
        for block in range(NUM_BLOCKS):
            hidden[block] = [float(block * SIZE + at + 1) for at in range(SIZE)]
            kv.kv_cache.hidden[block * SIZE :][:SIZE, 0] = torch.tensor(hidden[block])
    for _ in range(data.draw(st.integers(1, 12))):
        what, blocks = data.draw(st.sampled_from(["forget", "copy", "lose", "record"])), data.draw(BLOCKS)
        if what == "forget":
            kv.forget(blocks)
            for block in blocks:
                filled[block], lacks[block] = 0, False
        elif what == "lose":
            kv.lose(blocks)
            for block in blocks:
                lacks[block] = True
        elif what == "copy":
            source, number = blocks[0], data.draw(st.integers(0, SIZE))
            target = data.draw(st.integers(0, NUM_BLOCKS - 1))
            kv.copy(source, target, number)
            filled[target] = min(filled[source], number)
            if keeps_hidden:
                lacks[target], hidden[target] = lacks[source], hidden[source]
        else:
            start = tokens_there(blocks, filled)
            end = data.draw(st.integers(start, len(blocks) * SIZE))
            kv.record(array("i", blocks), start, end)
            for position in range(start, end):
                filled[blocks[position // SIZE]] = max(filled[blocks[position // SIZE]], position % SIZE + 1)
        path = data.draw(BLOCKS)
        assert kv.count(array("i", path)) == tokens_there(path, filled)
        assert kv.has_hidden(array("i", path)) == (not any(lacks[block] for block in path))
    if keeps_hidden:
        assert kv.kv_cache.hidden is not None
        assert kv.kv_cache.hidden[: NUM_BLOCKS * SIZE, 0].tolist() == [one for block in hidden for one in block]
