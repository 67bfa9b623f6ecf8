"""Trails against plain lists: taking, taking back and forking in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from phloem.fsm.trail import Trail

steps = st.lists(
    st.tuples(st.sampled_from(["take", "take", "take", "cut", "fork"]), st.integers(0, 5), st.integers(0, 9)),
    max_size=60,
)


@given(steps)
def test_trails_are_lists(moves: list[tuple[str, int, int]]) -> None:
    pairs: list[tuple[Trail, list[int]]] = [(Trail(), [])]
    for index, (move, which, number) in enumerate(moves):
        trail, expected = pairs[which % len(pairs)]
        if move == "take":
            trail.tokens.append(index)
            trail.states.append(1000 + index)
            expected.append(index)
        elif move == "cut":
            number = min(number, len(expected))
            trail.cut(number)
            del expected[len(expected) - number :]
        else:
            pairs.append((trail.fork(), expected.copy()))
        for other, tokens in pairs:
            assert len(other) == len(tokens)
            assert other.last_state(-7) == (1000 + tokens[-1] if tokens else -7)
            for count in (0, 1, 3, 100):
                assert other.last_tokens(count) == (tokens[-count:] if count else [])


def test_forking_copies_nothing() -> None:
    trail = Trail()
    for number in range(1000):
        trail.tokens.append(number)
        trail.states.append(number)
    forks = [trail.fork() for _ in range(5)]
    assert not trail.tokens and all(not fork.tokens for fork in forks)
    for fork in forks:
        fork.cut(1000)
        assert len(fork) == 0
    assert len(trail) == 1000
