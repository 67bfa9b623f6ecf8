"""Replays of traffic under the policies, and under Belady's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from phloem.radix import POLICIES, Visit, foresee, pack, replay

TOKENS = st.lists(st.sampled_from([1, 2]), min_size=1, max_size=6)
TRAFFIC = st.lists(st.tuples(st.sampled_from(["", "b"]), TOKENS, st.integers(0, 6)), min_size=1, max_size=14)


def visits_of(traffic: list[tuple[str, list[int], int]]) -> list[Visit]:
    """Each ends with a unique token, since the last one of a prompt is always computed."""
    return [
        Visit(space, pack([*tokens[: max(0, len(tokens) - extra)], 10 + index]), max(0, len(tokens) - extra) + 1)
        for index, (space, tokens, extra) in enumerate(traffic)
    ]


@given(TRAFFIC, st.sampled_from(list(POLICIES)), st.sampled_from([1, 2, 4]))
def test_with_room_for_all_every_token_seen_before_is_hit(
    traffic: list[tuple[str, list[int], int]], policy: str, block_size: int
) -> None:
    """All but the last token of a prompt hits, whatever the block size: partial blocks are copied."""
    seen: set[tuple[str, tuple[int, ...]]] = set()
    expected = []
    for space, tokens, extra in traffic:
        num_asked = max(0, len(tokens) - extra)
        expected.append(sum((space, tuple(tokens[:end])) in seen for end in range(1, num_asked)))
        seen |= {(space, tuple(tokens[:end])) for end in range(1, len(tokens) + 1)}
    visits = [Visit(space, pack(tokens), max(0, len(tokens) - extra)) for space, tokens, extra in traffic]
    assert replay(visits, num_blocks=1000, block_size=block_size, policy=policy) == expected
    assert foresee(visits, num_blocks=1000, block_size=block_size) == expected


@given(TRAFFIC, st.integers(7, 11), st.booleans())
def test_no_policy_hits_more_than_the_optimum(
    traffic: list[tuple[str, list[int], int]], num_blocks: int, spares: bool
) -> None:
    visits = visits_of(traffic)
    most = sum(foresee(visits, num_blocks=num_blocks, block_size=1))
    for policy in POLICIES:
        spare = (lambda _, path: path[0]) if spares else None
        assert sum(replay(visits, num_blocks=num_blocks, block_size=1, policy=policy, spare=spare)) <= most


@given(TRAFFIC, st.integers(7, 10))
def test_the_optimum_is_that_of_trying_everything(traffic: list[tuple[str, list[int], int]], num_blocks: int) -> None:
    """The oracle tries all sets of blocks that could be kept, for short traffic."""
    visits = visits_of(traffic[:5])
    best = _best([(v.namespace, v.tokens) for v in visits], frozenset(), num_blocks)
    assert sum(foresee(visits, num_blocks=num_blocks, block_size=1)) == best


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
    assert replay([], num_blocks=4, block_size=1) == foresee([], num_blocks=4, block_size=1) == []
