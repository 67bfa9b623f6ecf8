"""The tree's moment: which requests are in it and how far they are, and that every change leaves a mark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from phloem.radix import RadixTree, pack
from phloem.runtime.engine.tree_state import change_mark, tree_state
from phloem.runtime.request import Phase


def request(**fields: Any) -> SimpleNamespace:
    shown = {"request_id": "r", "index": 0, "num_tokens": 12, "num_prompt_tokens": 10, "num_output_tokens": 2}
    lease = SimpleNamespace(node=7, num_tokens=8)
    rest = {"is_probe": False, "phase": Phase.RUNNING, "num_computed_tokens": 11, "lease": lease}
    return SimpleNamespace(**{**shown, **rest, **fields})


@pytest.mark.parametrize(
    ("fields", "phase", "node"),
    [
        ({}, "decode", 7),
        ({"num_computed_tokens": 10}, "decode", 7),
        ({"num_computed_tokens": 9}, "prefill", 7),
        ({"phase": Phase.WAITING, "num_computed_tokens": 0, "lease": None}, "waiting", None),
        ({"lease": SimpleNamespace(node=7, num_tokens=0)}, "decode", None),
    ],
)
def test_a_request_is_where_its_lease_ends(fields: dict[str, Any], phase: str, node: int | None) -> None:
    scheduler: Any = SimpleNamespace(requests=[request(**fields), request(is_probe=True)])
    [place] = tree_state(scheduler, RadixTree(1), 10).requests
    assert (place.phase, place.node) == (phase, node)


def test_every_change_of_the_tree_leaves_a_mark() -> None:
    scheduler: Any = SimpleNamespace(requests=[], num_preemptions=0)
    tree = RadixTree(1, max_pinned_blocks=2)
    marks = [change_mark(scheduler, tree, 0, 0)]

    def is_new() -> bool:
        marks.append(change_mark(scheduler, tree, 0, 0))
        return marks[-1] not in marks[:-1]

    tree.insert(pack([1, 2, 3]), [0, 1, 2], "")
    assert is_new()
    node = tree.match(pack([1, 2, 3]), "").node
    assert is_new()
    tree.lease(node)
    assert is_new()
    tree.release(node)
    assert not is_new(), "it is as it was"
    pin = tree.pins.add(pack([1, 2]), 60.0, "")
    tree.pins.add(pack([1, 2]), 60.0, "")
    assert is_new()
    tree.pins.end(pin)
    assert is_new(), "the other pin holds as many blocks"
    tree.evict(1)
    assert is_new()
