"""The keys that an object has: what else can be written, and behind what nothing can, against brute force."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.fsm.keys.written_trie import Ways, WrittenTrie

KEYS = st.text("abc", max_size=4).map(str.encode)


def beginnings(texts: list[bytes]) -> list[bytes]:
    return sorted({text[:end] for text in texts for end in range(len(text) + 1)})


@settings(deadline=None)
@given(st.lists(KEYS, min_size=1, max_size=12, unique=True), st.data())
def test_what_was_written_leaves_what_brute_force_says(language: list[bytes], data: st.DataObject) -> None:
    texts = [key + b'"' for key in language]
    states = beginnings(texts)  # a state is the number of what is read; 0 would be dead

    def live(state: int) -> npt.NDArray[np.uint8]:
        found, read = np.zeros(256, np.uint8), states[state - 1]
        found[[text[len(read)] for text in texts if text.startswith(read) and text != read]] = 1
        return found

    ways = Ways(
        live,
        lambda state, byte: states.index(states[state - 1] + bytes([byte])) + 1,
        lambda state, live, groups: int(live.sum()) > len(groups),
    )
    order = data.draw(st.permutations(language))
    trie = WrittenTrie()
    for size in range(1, len(order) + 1):
        trie.grow(order[:size])
        version = data.draw(st.integers(0, size))
        written = {key + b'"' for key in order[:version]}
        left = [text for text in texts if text not in written]
        for begun in beginnings([text[:-1] for text in texts]):
            assert set(trie.beginning_with(begun, version)) == {text for text in written if text[:-1].startswith(begun)}
            assert trie.has(begun, version) == any(text[:-1].startswith(begun) for text in written)
            is_alive, cuts = trie.explored(begun, states.index(begun) + 1, version, ways)
            assert is_alive == any(text.startswith(begun) for text in left)
            ended = [
                beginning
                for beginning in beginnings(list(written))
                if beginning.startswith(begun) and not any(text.startswith(beginning) for text in left)
            ]
            shortest = {each for each in ended if each[:-1] not in ended}
            assert not is_alive or set(cuts) == shortest


def test_tokens_are_those_of_the_keys_of_a_version() -> None:
    begun = {b"": [1], b"a": [2, 3], b"ab": [4], b"b": [5]}
    trie = WrittenTrie()
    trie.grow([b"abc", b"ba"])
    assert trie.tokens(0, begun) == []
    assert trie.tokens(1, begun) == [1, 2, 3, 4]
    trie.grow([b"abc", b"ba", b"a"])
    assert sorted(trie.tokens(2, begun)) == sorted(trie.tokens(3, begun)) == [1, 2, 3, 4, 5]
