"""A search for the least number of tokens comes up for others at even distances, however long it is."""

from __future__ import annotations

import pytest

from phloem.fsm import Compiler, Vocabulary

from .vocabularies import BYTES, small_vocabulary

FIRST_BREATH = 1 << 16  # configurations (`fsm/core/bind_masks.cpp`)


@pytest.mark.parametrize("vocabulary", [BYTES, small_vocabulary([b"ab", b"aB", b"abab"])])
def test_a_search_that_goes_on_takes_no_longer_breaths(vocabulary: Vocabulary) -> None:
    constraint = Compiler(vocabulary).regex("(?i)" + "ab" * 40_000)
    assert constraint.min_tokens() <= 80_000
    num_looked_at = 4 * 80_000  # of each state its one configuration, and what that leads to
    assert constraint.caches.completions.core.num_breaths >= num_looked_at // FIRST_BREATH  # not twice as long each
