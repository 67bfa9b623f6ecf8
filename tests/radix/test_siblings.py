"""The closest sibling, found by bisection, against a look at all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phloem.radix import pack, unpack
from phloem.radix import siblings as siblings_module
from phloem.radix.siblings import Siblings

KEYS = st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4).map(pack), unique=True, max_size=60)
PROBES = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(pack)


def num_agreeing_tokens(key: bytes, probe: bytes) -> int:
    pairs = enumerate(zip(unpack(key), unpack(probe), strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(key), len(probe)) // 4)


@given(KEYS, KEYS, PROBES)
def test_one_of_the_closest_is_the_closest(keys: list[bytes], others: list[bytes], probe: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(siblings_module, "CHUNK_LEN", 2)
        siblings = Siblings(keys)
        for key in others:
            if key in keys:
                siblings.remove(key)
            else:
                siblings.add(key)
        left = set(keys) ^ set(others)
        assert sorted(siblings) == sorted(left)
        closest = siblings.closest(probe)
        assert len(closest) <= 2
        assert set(closest) <= left
        best = max((num_agreeing_tokens(key, probe) for key in left), default=0)
        assert max((num_agreeing_tokens(key, probe) for key in closest), default=0) == best
