"""Host memory against an ordered dict, and keys against what they stand for."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.radix import pack
from phloem.runtime.offload import BlockKey, MemoryTier
from phloem.runtime.offload.block_key import extend_keys, root_of

BLOCK_BYTES = 24
KEYS = [BlockKey(bytes([index]) * 32, bytes(32)) for index in range(8)]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("prtc"), st.integers(0, 7), st.integers(0, 255)), max_size=60))
def test_it_is_an_ordered_dict_of_a_fixed_size(steps: list[tuple[str, int, int]]) -> None:
    tier = MemoryTier(np.zeros((4, BLOCK_BYTES), np.uint8))
    truth: OrderedDict[BlockKey, int] = OrderedDict()
    for action, index, value in steps:
        key = KEYS[index]
        if action == "p":
            assert tier.put(key, np.full(BLOCK_BYTES, value, np.uint8)) is (key not in truth)
            if key not in truth and len(truth) == 4:
                truth.popitem(last=False)
            truth.setdefault(key, value)
            truth.move_to_end(key)
        elif action == "r":
            out = np.zeros(BLOCK_BYTES, np.uint8)
            assert tier.read(key, out) is (key in truth)
            assert key not in truth or set(out.tolist()) == {truth[key]}
        elif action == "t":
            prefix = KEYS[index : index + 3]
            tier.touch(prefix)
            for one in reversed(prefix):
                if one in truth:
                    truth.move_to_end(one)
        elif value == 0:
            tier.clear()
            truth.clear()
        assert [tier.may_have(key) for key in KEYS] == [key in truth for key in KEYS]
        assert (tier.num_blocks, tier.num_bytes) == (len(truth), BLOCK_BYTES * len(truth))


TEXTS = st.lists(st.integers(0, 2), min_size=0, max_size=9)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([b"m", b"n"]), st.sampled_from(["", "a"]), TEXTS), max_size=6), st.integers(1, 3)
)
def test_a_key_stands_for_model_namespace_and_all_tokens_before(
    sequences: list[tuple[bytes, str, list[int]]], block_size: int
) -> None:
    known: dict[bytes, tuple[bytes, str, tuple[int, ...]]] = {}
    for fingerprint, namespace, tokens in sequences:
        keys = extend_keys(root_of(fingerprint, namespace), True, pack(tokens), 4 * block_size)
        assert len(keys) == len(tokens) // block_size
        for index, key in enumerate(keys):
            stands_for = (fingerprint, namespace, tuple(tokens[: (index + 1) * block_size]))
            assert known.setdefault(key.digest, stands_for) == stands_for
            assert key.parent == (keys[index - 1].digest if index else bytes(32))
            rest = pack(tokens[(index + 1) * block_size :])
            assert extend_keys(key.digest, False, rest, 4 * block_size) == keys[index + 1 :]
    assert len(set(known.values())) == len(known), "and no two keys for the same"
