"""The bytes on the wire, field by field."""

from __future__ import annotations

from typing import Any

import pytest

msgpack = pytest.importorskip("msgpack", reason="msgpack (phloem[events]) is not installed")

from phloem.radix import pack  # noqa: E402
from phloem.runtime.events.facts import Ended, Entered, Fact, Left, Scope, TierChanged  # noqa: E402
from phloem.runtime.events.ledger import Ledger  # noqa: E402
from phloem.runtime.events.wire import encode  # noqa: E402
from phloem.runtime.offload.block_key import BlockKey, extend_keys, root_of  # noqa: E402

SIZE = 2
TOKENS = [7, 8, 300, 70_000, 5]  # the last is a tail's


def keys_of(tokens: list[int], namespace: str = "") -> list[BlockKey]:
    return extend_keys(root_of(bytes(32), namespace), True, pack(tokens), 4 * SIZE)


def number(key: BlockKey) -> int:
    return int.from_bytes(key.digest[:8], "big")


def said(*facts: Fact, form: Any = "map", has_tiers: bool = False) -> list[Any]:
    """The events of a batch."""
    seconds, events, rank = msgpack.unpackb(
        encode(12.5, Ledger(4 * SIZE, has_tiers=has_tiers).apply(facts), SIZE, form)
    )
    assert (seconds, rank) == (12.5, 0)
    return list(events)


def test_blocks_that_are_stored() -> None:
    first, second = keys_of(TOKENS)
    expected = {
        "type": "BlockStored",
        "block_hashes": [number(first), number(second)],
        "parent_block_hash": None,
        "token_ids": TOKENS[:4],
        "block_size": 2,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": None,
    }
    entered = Entered([first, second], pack(TOKENS), Scope())
    assert said(entered) == [expected]
    assert said(entered, form="array") == [list(expected.values())]
    assert said(entered, entered) == [expected], "each change once"


def test_blocks_after_one_that_is_there() -> None:
    first, second = keys_of(TOKENS)
    begun = Entered([first], pack(TOKENS[:2]), Scope())
    events = said(begun, Left([]), Entered([second], pack(TOKENS[2:4]), Scope()))
    assert [event["block_hashes"] for event in events] == [[number(first), number(second)]], "a run is one event"
    other = keys_of([1, 2])
    events = said(begun, Entered(other, pack([1, 2]), Scope()), Entered([second], pack(TOKENS[2:4]), Scope()))
    assert [event["parent_block_hash"] for event in events] == [None, None, number(first)]


def test_adapters_and_salts() -> None:
    keys = keys_of(TOKENS, "alice")
    (event,) = said(Entered(keys, pack(TOKENS), Scope("poet", 17, "alice")))
    assert (event["lora_name"], event["lora_id"], event["cache_salt"]) == ("poet", 17, "alice")
    assert event["extra_keys"] == [["poet", "alice"], ["poet"]]
    (event,) = said(Entered(keys, pack(TOKENS), Scope(salt="alice")))
    assert event["extra_keys"] == [["alice"], None]
    (array,) = said(Entered(keys, pack(TOKENS), Scope("poet", 17, "alice")), form="array")
    assert array[5:] == [17, "GPU", "poet", [["poet", "alice"], ["poet"]]], "no field is added to the positional form"


def test_blocks_that_go() -> None:
    keys = keys_of(TOKENS)
    digests = [key.digest for key in keys]
    entered = Entered(keys, pack(TOKENS), Scope())
    removed = {"type": "BlockRemoved", "block_hashes": list(map(number, keys)), "medium": "GPU"}
    assert said(entered, Left(digests))[1:] == [removed]
    assert said(entered, Left(digests), form="array")[1:] == [list(removed.values())]
    assert said(entered, Left(digests, is_flush=True)) == [{"type": "AllBlocksCleared"}]
    assert said(entered, Ended(), form="array") == [["AllBlocksCleared"]]
    assert said(entered, Left(digests[1:], is_flush=True))[1:] == [removed | {"block_hashes": [number(keys[1])]}], (
        "what a request holds stays in a flush"
    )


def test_tiers_below_the_pool() -> None:
    """A tier may have a block before its tokens are known; it is published once they are."""
    keys = keys_of(TOKENS)
    facts = [
        TierChanged("DISK", [(keys[0].digest, True)]),
        Entered(keys, pack(TOKENS), Scope()),
        Left([keys[1].digest]),
        TierChanged("CPU_PINNED", [(keys[1].digest, True)]),
        TierChanged("DISK", [(keys[0].digest, False)]),
    ]
    events = said(*facts, has_tiers=True)
    assert [(event["type"], event["medium"], len(event["block_hashes"])) for event in events] == [
        ("BlockStored", "GPU", 1),
        ("BlockStored", "DISK", 1),
        ("BlockStored", "GPU", 1),
        ("BlockRemoved", "GPU", 1),
        ("BlockStored", "CPU_PINNED", 1),
        ("BlockRemoved", "DISK", 1),
    ]
    assert events[4]["token_ids"] == TOKENS[2:4] and events[4]["parent_block_hash"] == number(keys[0])
