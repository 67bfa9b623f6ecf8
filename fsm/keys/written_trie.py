"""WrittenTrie: the keys of one object as a trie, and where nothing but such keys can be written.

A key ends with its quote, so none is the beginning of another one. One that is alone below a node stands there as a
whole, so there are few more nodes than keys.

    "ab"  "ac"  "xyz"         root ┬─ a ─┬─ b"
                                   │     └─ c"
                                   └─ xyz"

An object has as many of the keys as it knows of: its *version* is that number, since others are forks of it that have
gone on. A node whose number of own keys has not changed is as it was, so what was found out there is kept until then.

Knows keys and states of one automaton, and asks for the bytes that may follow; no tokens.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ..record import record
from ..vocabulary.trie import MAX_TOKEN_LEN

QUOTE = b'"'

Found = tuple[bool, list[bytes]]
"""Whether something else than the keys below a node can be written from a state, and the shortest beginnings of keys
behind which nothing else can."""


@record
class Ways:
    """What the automaton knows.

    Attributes:
        live: uint8[256] of a state: the bytes that may follow.
        after: the state behind a byte.
        others: whether a byte may follow that is none of these, all of which may be written: f(state, live, bytes).
    """

    live: Callable[[int], npt.NDArray[np.uint8]]
    after: Callable[[int, int], int]
    others: Callable[[int, npt.NDArray[np.uint8], Collection[int]], bool]


class Node:
    """A place in the trie: the numbers of the keys that pass it, the nodes behind it by byte, and what was found there.

    Of a single key the rest is not spread out: `below` is empty.
    """

    __slots__ = ("below", "kept", "numbers")

    def __init__(self, number: int) -> None:
        self.numbers = [number]
        self.below: dict[int, Node] = {}
        self.kept: dict[int, tuple[int, Found]] = {}  # by state, with the number of keys

    def count(self, version: int) -> int:
        """How many of its keys a version has."""
        return len(self.numbers) if self.numbers[-1] < version else bisect_left(self.numbers, version)


class WrittenTrie:
    """The trie of a list of keys that grows."""

    __slots__ = ("_lock", "_num_searched", "_root", "_searched", "_texts", "_tokens")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: list[bytes] = []
        self._root: Node | None = None
        self._tokens: list[tuple[int, int]] = []  # number of a key, token that may end behind a beginning of it
        self._searched: set[bytes] = set()
        self._num_searched = 0

    def grow(self, texts: Sequence[bytes]) -> None:
        """Adds the keys that are new."""
        if len(self._texts) < len(texts):
            with self._lock:
                for text in texts[len(self._texts) :]:
                    self._add(text + QUOTE)

    def _add(self, text: bytes) -> None:
        number = len(self._texts)
        self._texts.append(text)
        node, depth = self._root, 0
        if node is None:
            self._root = Node(number)
            return
        while True:
            if not node.below:  # the key that was alone there is spread out by a byte
                first = Node(node.numbers[0])
                node.below[self._texts[node.numbers[0]][depth]] = first
                node.kept = {}
            node.numbers.append(number)
            below = node.below.get(text[depth])
            if below is None:
                node.below[text[depth]] = Node(number)
                return
            node, depth = below, depth + 1

    def _at(self, begun: bytes, version: int) -> Node | None:
        """The node behind a beginning, or above it if only one key begins so; None if no key of the version does."""
        node = self._root
        for byte in begun:
            if node is None or not node.below:
                break
            node = node.below.get(byte)
        if node is None or not node.count(version):
            return None
        return node if node.below or self._texts[node.numbers[0]][:-1].startswith(begun) else None

    def has(self, begun: bytes, version: int) -> bool:
        """Whether a key of the version begins so."""
        return self._at(begun, version) is not None

    def beginning_with(self, begun: bytes, version: int) -> list[bytes]:
        """The keys of the version that begin so, with their quotes."""
        node = self._at(begun, version)
        return [] if node is None else [self._texts[number] for number in node.numbers[: node.count(version)]]

    def tokens(self, version: int, begun: Mapping[bytes, Sequence[int]]) -> list[int]:
        """Tokens that may end behind the beginning of a key of the version, or before one.

        Args:
            begun: by beginning, those tokens; the same at every call.
        """
        with self._lock:
            while self._num_searched < len(self._texts):
                number, self._num_searched = self._num_searched, self._num_searched + 1
                for end in range(min(len(self._texts[number]), MAX_TOKEN_LEN + 1)):
                    beginning = self._texts[number][:end]
                    if beginning in begun and beginning not in self._searched:
                        self._searched.add(beginning)
                        self._tokens += [(number, token_id) for token_id in begun[beginning]]
        return [token_id for number, token_id in self._tokens if number < version]

    def explored(self, begun: bytes, state: int, version: int, ways: Ways) -> Found:
        """What can be written behind a beginning, from a state."""
        root = self._at(begun, version)
        if root is None:
            return True, []
        nodes = [(state, root, len(begun), -1)]  # the state there, and the one above; grows meanwhile
        is_alive: list[bool] = []
        cuts: list[list[bytes]] = []
        forks: list[bool] = []  # whether there are several ways on
        for here, node, depth, _ in nodes:
            known = node.kept.get(here)
            if known is not None and known[0] == node.count(version):
                found: Found = known[1]
                groups: dict[int, Node] = {}
            elif not node.below:
                found, groups = self._alone(self._texts[node.numbers[0]], here, depth, ways), {}
            else:
                live = ways.live(here)
                groups = {byte: below for byte, below in node.below.items() if below.count(version)}
                found = ways.others(here, live, groups), []
            for byte, below in groups.items():
                text = self._texts[below.numbers[0]]
                if live[byte] and len(text) == depth + 1:
                    found[1].append(text)
                elif live[byte]:
                    nodes.append((ways.after(here, byte), below, depth + 1, len(cuts)))
            is_alive.append(found[0])
            cuts.append(found[1])
            forks.append(len(groups) > 1)
        for number in range(len(nodes) - 1, -1, -1):
            here, node, depth, above = nodes[number]
            node.kept[here] = node.count(version), (is_alive[number], cuts[number])
            if above >= 0:
                is_alive[above] |= is_alive[number]
                below_it = cuts[number] if is_alive[number] else [self._texts[node.numbers[0]][:depth]]
                if forks[above]:
                    cuts[above] += below_it
                else:
                    cuts[above] = below_it
        return is_alive[0], cuts[0]

    def _alone(self, text: bytes, state: int, depth: int, ways: Ways) -> Found:
        """The same below a node of a single key."""
        last = -1
        for position in range(depth, len(text)):
            live = ways.live(state)
            if ways.others(state, live, text[position : position + 1]):
                last = position
            if not live[text[position]]:
                return last >= 0, []
            state = ways.after(state, text[position])
        return last >= 0, [text[: last + 1]] if last >= 0 else []
