"""Callbacks: while one runs the tree refuses all use; it stays valid if one raises, and names one with a bad result."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import pytest

from phloem._core import radix as core
from phloem.radix import Event, RadixTree, pack
from phloem.radix.pins import PinBook
from phloem.radix.results import Node

from .small_trees import Clock

Use = Callable[[RadixTree], object]

# Every public and every compiled method, with valid arguments; the tree has expired pins, for the methods of pins.
USES: dict[str, Use] = {
    "audit": lambda tree: tree.audit(),
    "blocks": lambda tree: tree.blocks(),
    "_candidates": lambda tree: tree._candidates(),
    "clear": lambda tree: tree.clear(),
    "columns": lambda tree: tree.columns(9),
    "_columns": lambda tree: tree._columns(1.0, 9, []),
    "continuation": lambda tree: tree.continuation(pack([1]), "", 4),
    "draw": lambda tree: tree.draw(),
    "end_leases": lambda tree: tree.end_leases(),
    "evict": lambda tree: tree.evict(3),
    "_evict": lambda tree: tree._evict(3, 1.0, None, None),
    "_evicted_at": lambda tree: tree._evicted_at(pack([1]), ""),
    "explain": lambda tree: tree.explain(pack([1, 2, 3]), ""),
    "insert": lambda tree: tree.insert(pack([8, 8]), [80, 81], ""),
    "_insert": lambda tree: tree._insert(pack([8]), pack([80]), "", Node(0), 0, 1.0, None, None),
    "is_tail": lambda tree: tree.is_tail(Node(1)),
    "lease": lambda tree: tree.lease(Node(1)),
    "match": lambda tree: tree.match(pack([1]), ""),
    "_match": lambda tree: tree._match(pack([1]), "", 1.0),
    "_namespaces": lambda tree: tree._namespaces(),
    "_nodes": lambda tree: tree._nodes(),
    "num_sole_blocks": lambda tree: tree.num_sole_blocks(Node(1)),
    "packed_blocks": lambda tree: tree.packed_blocks(Node(1)),
    "path_tokens": lambda tree: tree.path_tokens(Node(1)),
    "peek": lambda tree: tree.peek(pack([1]), ""),
    "_peek": lambda tree: tree._peek(pack([1]), ""),
    "pins.add": lambda tree: tree.pins.add(pack([4]), 1.0, ""),
    "pins.count_blocks": lambda tree: tree.pins.count_blocks(),
    "pins.end": lambda tree: tree.pins.end(next(iter(tree.pins))),
    "pins.end_expired": lambda tree: tree.pins.end_expired(),
    "pins.end_first": lambda tree: tree.pins.end_first(),
    "release": lambda tree: tree.release(Node(1)),
    "touch": lambda tree: tree.touch(Node(1)),
    "_touch": lambda tree: tree._touch(Node(1), 1.0),
}
COUNTS = {
    "_counts",
    "block_size",
    "num_cached_blocks",
    "num_evictable_blocks",
    "num_leased_blocks",
    "pins.max_blocks",
    "pins.next_expiry",
    "pins.num_blocks",
    "statistics",
}


class Refusal(Exception):
    pass


class Hooked:
    """A tree whose callbacks all call `hook`, for the operation under test."""

    def __init__(self) -> None:
        self.hook: Callable[[], object] = lambda: None
        self.clock = Clock()
        self.tree = RadixTree(
            1,
            policy="cost",
            block_cost=lambda end: self.act(float(end)),
            clock=self.clock,
            max_pinned_blocks=9,
            on_event=lambda event: self.act(None),
        )
        for tokens, blocks in (([1, 2, 3], [1, 2, 3]), ([1, 2, 4], [1, 2, 4]), ([4], [5]), ([5], [6])):
            self.tree.insert(pack(tokens), blocks, "")
        self.tree.pins.add(pack([5]), 1.0, "")
        self.clock.now = 2.0

    def act(self, answer: Any) -> Any:
        self.hook()
        return answer

    def run(self, callback: str) -> object:
        """An operation that calls this callback at least once, and no other."""
        if callback == "block_cost":
            return self.tree.insert(pack([1, 2, 3, 6, 6]), [1, 2, 3, 7, 8], "")
        if callback == "spare":
            return self.tree._evict(1, 1.0, lambda namespace, tokens: self.act(0), None)
        return self.tree.evict(1)


CALLBACKS = ["block_cost", "spare", "on_event"]


@pytest.fixture
def raised(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[BaseException]]:
    """The unraisable exceptions of callbacks."""
    errors: list[BaseException] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: errors.append(raised.exc_value))
    yield errors


def test_these_are_all_methods() -> None:
    public = {name for name in dir(RadixTree) if not name.startswith("_")} | {"block_size"}
    compiled = {name for name in vars(core.Tree) if not name.startswith("__")}
    pins = {f"pins.{name}" for name in dir(PinBook) if not name.startswith("_")}
    assert public | compiled | pins == USES.keys() | COUNTS


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["itself", "another thread"])
@pytest.mark.parametrize("callback", CALLBACKS)
def test_no_method_can_be_called_while_a_callback_runs(callback: str, is_elsewhere: bool) -> None:
    hooked, refused = Hooked(), []

    def use_all() -> None:
        for name, use in USES.items():
            try:
                use(hooked.tree)
            except RuntimeError as error:
                assert "in use by" in str(error) and "callbacks" in str(error)
                refused.append(name)

    def use_all_elsewhere() -> None:
        thread = threading.Thread(target=use_all)
        thread.start()
        thread.join()

    before = hooked.tree.statistics
    hooked.hook = use_all_elsewhere if is_elsewhere else use_all
    hooked.run(callback)
    assert set(refused) == USES.keys()
    hooked.hook = lambda: None
    hooked.tree.audit()
    assert len(hooked.tree.pins) == 1
    assert hooked.tree.statistics.num_matches == before.num_matches


@pytest.mark.parametrize("callback", CALLBACKS)
def test_counts_can_be_read_while_a_callback_runs(callback: str) -> None:
    hooked, read = Hooked(), []
    hooked.hook = lambda: read.extend(attrgetter(name)(hooked.tree) for name in COUNTS)
    hooked.run(callback)
    assert len(read) >= len(COUNTS)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("callback", CALLBACKS)
def test_after_a_callback_that_raises_every_method_can_be_called(
    callback: str, use: str, raised: list[BaseException]
) -> None:
    hooked = Hooked()

    def refuse() -> None:
        raise Refusal

    hooked.hook = refuse
    if callback == "on_event":
        hooked.run(callback)
    else:
        with pytest.raises(Refusal):
            hooked.run(callback)
    hooked.hook = lambda: None
    hooked.tree.audit()
    try:
        USES[use](hooked.tree)
    except ValueError as error:
        assert "released more often" in str(error) or "evicted" in str(error)
    hooked.tree.audit()


def test_blocks_come_back_although_on_event_raises(raised: list[BaseException]) -> None:
    events: list[Event] = []

    def follow(event: Event) -> None:
        events.append(event)
        raise Refusal

    tree = RadixTree(1, on_event=follow)
    assert tree.insert(pack([1, 2]), [5, 6], "").duplicates == []
    assert tree.insert(pack([1, 3]), [7, 8], "").duplicates == [7]
    assert sorted(tree.evict(9)) == [5, 6, 8]
    tree.audit()
    assert [event.kind for event in events] == ["inserted"] * 2 + ["evicted"] * 3
    assert [type(error) for error in raised] == [Refusal] * 5


def test_an_interruption_of_on_event_is_raised() -> None:
    def interrupt(event: Event) -> None:
        raise KeyboardInterrupt

    tree = RadixTree(1, on_event=interrupt)
    with pytest.raises(KeyboardInterrupt):
        tree.insert(pack([1]), [5], "")
    assert tree.blocks() == [5]
    tree.audit()


@pytest.mark.parametrize("answer", [None, "3", 1.0, b"", [1]])
def test_spare_must_give_an_int(answer: object) -> None:
    tree = RadixTree(1)
    tree.insert(pack([1]), [5], "")
    with pytest.raises(TypeError, match=f"'{type(answer).__name__}' object cannot be interpreted as an integer"):
        tree.evict(1, spare=lambda namespace, tokens: answer)  # type: ignore[arg-type,return-value]
    tree.audit()
    assert tree.evict(1) == [5]


@pytest.mark.parametrize("answer", [None, "3", b"", [1]])
def test_block_cost_must_give_a_number(answer: object) -> None:
    tree = RadixTree(1, policy="cost", block_cost=lambda end: answer)  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match=f"must be real number, not {type(answer).__name__}"):
        tree.insert(pack([1]), [5], "")
    tree.audit()
    assert not tree.blocks()


class Failing:
    """A number whose conversion raises."""

    def __float__(self) -> float:
        raise Refusal

    def __index__(self) -> int:
        raise Refusal


def test_the_error_of_an_answer_that_raises_is_kept() -> None:
    tree = RadixTree(1, policy="cost", block_cost=lambda end: Failing())  # type: ignore[arg-type,return-value]
    with pytest.raises(Refusal):
        tree.insert(pack([1]), [5], "")
    tree = RadixTree(1)
    tree.insert(pack([1]), [5], "")
    with pytest.raises(Refusal):
        tree.evict(1, spare=lambda namespace, tokens: Failing())  # type: ignore[arg-type,return-value]
    assert tree.evict(1) == [5]


@pytest.mark.parametrize(("answer", "is_spared"), [(2**62, True), (-(2**62), False), (True, True)])
def test_spare_may_give_any_int_of_64_bits(answer: int, is_spared: bool) -> None:
    tree = RadixTree(1)
    for token in (1, 2):
        tree.insert(pack([token]), [token], "")
    answers = {pack([1]): answer, pack([2]): 0}
    assert tree.evict(1, spare=lambda namespace, tokens: answers[tokens]) == [2 if is_spared else 1]
