"""Alphabets: the coarsest classes of characters that sets allow, and their spelling in UTF-8."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.fsm.text.alphabet import MAX_CODE_POINT, SURROGATES, Alphabet, Interval

EDGES = [0, 1, 0x22, 0x7F, 0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0x2FFF, 0xD7FF, 0xD800, 0xDFFF, 0xE000, 0xFFFF, 0x10000]
EDGES += [0x10FFF, 0x11000, 0x3FFFF, 0x40000, 0x10EFFF, 0x10FFFF]
points = st.sampled_from(EDGES) | st.integers(0, MAX_CODE_POINT)
intervals = st.tuples(points, points).map(lambda pair: (min(pair), max(pair)))
sets = st.lists(st.lists(intervals, max_size=3), max_size=4)


def is_surrogate(point: int) -> bool:
    return SURROGATES[0] <= point <= SURROGATES[1]


def probes(found: list[list[Interval]]) -> list[int]:
    """Code points at and next to every edge."""
    ends = {point for members in found for interval in members for point in interval}
    near = {point + step for point in (*ends, *EDGES) for step in (-1, 0, 1)}
    return sorted(point for point in near if 0 <= point <= MAX_CODE_POINT)


def spelt(alphabet: Alphabet, point: int) -> int:
    """The class that the template finds at the end of a character's bytes."""
    node = 0
    for byte in chr(point).encode():
        node = int(alphabet.template[node, byte])
        if node <= 0:
            return -node
    raise AssertionError("the bytes end inside a character")


@settings(deadline=None)
@given(sets)
def test_characters_share_a_class_if_and_only_if_they_are_in_the_same_sets(found: list[list[Interval]]) -> None:
    alphabet, members = Alphabet.from_sets(found)
    classes: dict[frozenset[int], set[int]] = {}
    for point in probes(found):
        class_id = alphabet.classes_of(chr(point))[0]
        if is_surrogate(point):
            assert class_id == 0
            continue
        inside = frozenset(i for i, one in enumerate(found) if any(first <= point <= last for first, last in one))
        assert inside == {i for i, own in enumerate(members) if class_id in own}
        classes.setdefault(inside, set()).add(class_id)
        assert spelt(alphabet, point) == class_id
    assert all(len(ids) == 1 for ids in classes.values())
    assert {0}.union(*classes.values()) == set(range(alphabet.num_classes))


@settings(deadline=None)
@given(sets, sets)
def test_a_refinement_knows_the_classes_of_both(left: list[list[Interval]], right: list[list[Interval]]) -> None:
    mine, theirs = Alphabet.from_sets(left)[0], Alphabet.from_sets(right)[0]
    both, to_mine, to_theirs = mine.refine(theirs)
    pairs = set()
    for point in probes([*left, *right]):
        class_id = both.classes_of(chr(point))[0]
        assert (
            to_mine[class_id] == mine.classes_of(chr(point))[0]
            and to_theirs[class_id] == theirs.classes_of(chr(point))[0]
        )
        pairs.add((class_id, mine.classes_of(chr(point))[0], theirs.classes_of(chr(point))[0]))
    assert len(pairs) == both.num_classes == len({pair[1:] for pair in pairs})
    assert (both.starts[1:] > both.starts[:-1]).all() and (both.classes[1:] != both.classes[:-1]).all()
