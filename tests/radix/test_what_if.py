"""Traffic played again: under the policies, and by somebody who knows the future."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phloem.radix import POLICIES, Visit, foresee, pack, replay

TOKENS = st.lists(st.sampled_from([1, 2]), min_size=1, max_size=6)
TRAFFIC = st.lists(st.tuples(st.sampled_from(["", "b"]), TOKENS, st.integers(0, 6)), min_size=1, max_size=14)


def visits_of(traffic: list[tuple[str, list[int], int]]) -> list[Visit]:
    return [Visit(space, pack(tokens), max(0, len(tokens) - extra)) for space, tokens, extra in traffic]


@given(TRAFFIC, st.sampled_from(list(POLICIES)), st.sampled_from([0, 3]))
def test_with_room_for_all_every_block_seen_before_is_hit(
    traffic: list[tuple[str, list[int], int]], policy: str, num_ahead: int
) -> None:
    seen: set[tuple[str, tuple[int, ...]]] = set()
    num_asked = num_hit = 0
    for space, tokens, extra in traffic:
        ends = range(1, max(0, len(tokens) - extra) + 1)
        num_asked += len(ends)
        num_hit += sum((space, tuple(tokens[:end])) in seen for end in ends)
        seen |= {(space, tuple(tokens[:end])) for end in range(1, len(tokens) + 1)}
    rate = num_hit / num_asked if num_asked else 0.0
    visits = visits_of(traffic)
    assert foresee(visits, num_blocks=1000, block_size=1) == pytest.approx(rate)
    assert replay(visits, num_blocks=1000, block_size=1, policy=policy, num_ahead=num_ahead) == pytest.approx(rate)


@given(TRAFFIC, st.integers(6, 10))
def test_nobody_hits_more_than_who_knows_the_future(traffic: list[tuple[str, list[int], int]], num_blocks: int) -> None:
    visits = visits_of([(space, tokens, 0) for space, tokens, _ in traffic])
    most = foresee(visits, num_blocks=num_blocks, block_size=1)
    for policy in POLICIES:
        for num_ahead in (0, 4):
            assert (
                replay(visits, num_blocks=num_blocks, block_size=1, policy=policy, num_ahead=num_ahead) <= most + 1e-9
            )


@given(TRAFFIC, st.integers(6, 9))
def test_the_optimum_is_that_of_trying_everything(traffic: list[tuple[str, list[int], int]], num_blocks: int) -> None:
    """The oracle goes through all sets of blocks that could be kept, for short traffic."""
    visits = visits_of([(space, tokens, 0) for space, tokens, _ in traffic[:5]])
    num_asked = sum(visit.num_asked_tokens for visit in visits)
    best = _best([(v.namespace, v.tokens) for v in visits], frozenset(), num_blocks)
    assert foresee(visits, num_blocks=num_blocks, block_size=1) == pytest.approx(best / num_asked)


def _best(visits: list[tuple[str, bytes]], cached: frozenset[tuple[str, bytes]], num_blocks: int) -> int:
    if not visits:
        return 0
    (space, tokens), rest = visits[0], visits[1:]
    path = [(space, tokens[:end]) for end in range(4, len(tokens) + 1, 4)]
    num_hit = sum(block in cached for block in path)
    now = cached | set(path)
    states = {now}
    while all(len(state) > num_blocks for state in states):
        states = {
            state - {leaf}
            for state in states
            for leaf in state
            if leaf not in path and not any(o != leaf and o[0] == leaf[0] and o[1].startswith(leaf[1]) for o in state)
        }
    return num_hit + max(_best(rest, state, num_blocks) for state in states)


def test_an_empty_record_hits_nothing() -> None:
    assert replay([], num_blocks=4, block_size=1) == foresee([], num_blocks=4, block_size=1) == 0.0
