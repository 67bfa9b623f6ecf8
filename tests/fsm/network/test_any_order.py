"""Members in any order, against sets of texts: the language, the costs, the masks, and sets too wide for one frame."""

from __future__ import annotations

import heapq
import random
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import EmptyLanguage
from phloem.fsm import Compiler
from phloem.fsm.automaton.automaton import Automaton
from phloem.fsm.network.expression import (
    Alternation,
    AnyOrder,
    Embed,
    Expression,
    Grammar,
    Literal,
    Member,
    Repeat,
    Rule,
    Sequence,
)
from phloem.fsm.network.network import build_network
from phloem.fsm.text.dfa import any_text, of_length
from phloem.fsm.text.json_strings import JsonStrings

from ..vocabularies import BYTES, allowed_ids, brute_force, mixed_vocabulary, random_walk, small_vocabulary

MAX_LEN = 9
TEXTS = (b"a", b"ab", b"abc", b"b:", b"ba:", b"bb:")
BODIES: dict[Expression, tuple[bytes, ...]] = {
    Literal(b""): (b"",),
    Literal(b"1"): (b"1",),
    Alternation((Literal(b"2"), Literal(b"33"))): (b"2", b"33"),
    Repeat(Literal(b"4"), 2, 3): (b"44", b"444"),
}
OTHERS = (Literal(b"x"), Literal(b"yyy"))


def automaton_of(expression: Expression) -> Automaton:
    return Automaton(build_network(Grammar({"s": Sequence((expression, Literal(b".")))}, "s")), BYTES)


@st.composite
def any_orders(draw: st.DrawFn) -> AnyOrder:
    texts = draw(st.lists(st.sampled_from(TEXTS), unique=True, max_size=4))
    bodies = st.sampled_from(sorted(BODIES, key=repr))
    members = [Member(text, draw(bodies), draw(st.booleans())) for text in texts]
    others = tuple(other for other in OTHERS if draw(st.booleans()))
    minimum, maximum = draw(st.integers(0, 3)), draw(st.none() | st.integers(0, 4))
    return AnyOrder(tuple(members), others, Literal(draw(st.sampled_from([b",", b", "]))), minimum, maximum)


def texts_of(expression: AnyOrder) -> set[bytes]:
    """All texts of at most MAX_LEN bytes, by trying."""
    assert isinstance(expression.separator, Literal)
    found: set[bytes] = set()
    others = [other.data for other in expression.others if isinstance(other, Literal)]
    choices = [*range(len(expression.members)), *(-1 for _ in others)]
    num_members = len(expression.members)
    pending: list[tuple[bytes, frozenset[int], int]] = [(b"", frozenset(), 0)]
    while pending:
        text, written, count = pending.pop()
        fits = expression.minimum <= count and (expression.maximum is None or count <= expression.maximum)
        if count and fits and all(i in written or not m.is_required for i, m in enumerate(expression.members)):
            found.add(text + b".")
        before = text + expression.separator.data if count else b""
        for i in range(len(choices)):
            if i in written:
                continue
            if i < num_members:
                member = expression.members[i]
                added = [(member.text or b"") + body for body in BODIES[member.body]]
            else:
                added = [others[i - num_members]]
            for data in added:
                if len(before + data) < MAX_LEN:
                    pending.append((before + data, written | {i} if i < num_members else written, count + 1))
    return found


def language_of(automaton: Automaton) -> set[bytes]:
    """All texts of at most MAX_LEN bytes, from the automaton."""
    found: set[bytes] = set()
    pending = [(b"", automaton.start)]
    while pending:
        text, state = pending.pop()
        if automaton.is_accepting(state):
            found.add(text)
        if len(text) < MAX_LEN:
            for byte in np.flatnonzero(automaton.live_bytes(state)).tolist():
                data = bytes((byte,))
                pending.append((text + data, automaton.advance_bytes(state, data)))
    return found


def assert_costs_are_exact(automaton: Automaton) -> None:
    """`min_bytes` of every state is the length of the shortest way to an end, so none is a dead end."""
    before: dict[int, set[int]] = {automaton.start: set()}
    pending = [automaton.start]
    while pending:
        state = pending.pop()
        for byte in np.flatnonzero(automaton.live_bytes(state)).tolist():
            target = automaton.advance_bytes(state, bytes((byte,)))
            assert target, "a live byte is refused"
            if target not in before:
                before[target] = set()
                pending.append(target)
            before[target].add(state)
    distance = {state: 0 for state in before if automaton.is_accepting(state)}
    frontier = [(0, state) for state in distance]
    while frontier:
        cost, state = heapq.heappop(frontier)
        for origin in before[state]:
            if origin not in distance:
                distance[origin] = cost + 1
                heapq.heappush(frontier, (cost + 1, origin))
    assert distance == {state: automaton.min_bytes(state) for state in before}


@settings(max_examples=300, deadline=None)
@given(any_orders())
def test_exactly_the_texts_of_every_order_are_let_through_at_their_cost(expression: AnyOrder) -> None:
    expected = texts_of(expression)
    try:
        automaton = automaton_of(expression)
    except EmptyLanguage:
        assert not expected
        return
    assert language_of(automaton) == expected
    assert_costs_are_exact(automaton)


def test_relations_are_kept_up_and_what_is_implied_is_part_of_the_cost() -> None:
    # 0 implies 1 and 2, 1 implies 2; 0, 1 and 2 exclude 3
    members = (
        Member(b"a", Literal(b"1"), implied=(1, 2), excluded=(3,)),
        Member(b"b", Literal(b"2"), implied=(2,), excluded=(3,)),
        Member(b"c", Literal(b"33"), excluded=(3,)),
        Member(b"d", Literal(b"4"), excluded=(0, 1, 2)),
    )
    automaton = automaton_of(AnyOrder(members, (Literal(b"x"),), Literal(b",")))
    items = (b"a1", b"b2", b"c33", b"d4", b"x")
    for length in range(1, 6):
        for order in permutations(range(5), length):
            have = set(order)
            fits = (
                (0 not in have or 1 in have) and (1 not in have or 2 in have) and not (3 in have and have & {0, 1, 2})
            )
            text = b",".join(items[i] for i in order) + b"."
            state = automaton.advance_bytes(automaton.start, text)
            assert (state > 0 and automaton.is_accepting(state)) == fits, text
    assert_costs_are_exact(automaton)


def test_a_member_without_a_text_ends_the_others() -> None:
    body = Alternation((Literal(b"p"), Literal(b"x")))
    members = (Member(b"a", Literal(b"")), Member(None, body, is_required=True, is_last=True))
    automaton = automaton_of(AnyOrder(members, (Literal(b"x"), Literal(b"y")), Literal(b",")))
    for length in range(1, 5):
        for items in product("axyp", repeat=length):
            rest = [item for item in items if item != "a"]
            fits = items.count("a") < 2 and bool(rest) and rest[-1] in "px" and "p" not in rest[:-1]
            state = automaton.advance_bytes(automaton.start, ",".join(items).encode() + b".")
            assert (state > 0 and automaton.is_accepting(state)) == fits, items
    assert_costs_are_exact(automaton)


def test_a_member_that_cannot_be_completed_is_never_begun() -> None:
    endless = {"endless": Sequence((Literal(b"["), Rule("endless")))}
    members = (Member(b"a", Rule("endless")), Member(b"b", Literal(b""), implied=(0,)), Member(b"c", Literal(b"")))
    expression = AnyOrder(members, (Rule("endless"),), Literal(b","))
    automaton = Automaton(build_network(Grammar({"s": expression, **endless}, "s")), BYTES)
    assert language_of(automaton) == {b"c"}
    required = AnyOrder((Member(b"a", Rule("endless"), is_required=True), *members[1:]), (), Literal(b","))
    with pytest.raises(EmptyLanguage):
        build_network(Grammar({"s": required, **endless}, "s"))


@pytest.mark.parametrize("count", [31, 32, 62, 63, 300])
def test_more_members_than_a_frame_holds(count: int) -> None:
    rng = random.Random(count)
    keys = [f'"{rng.choice("abc")}{i}":'.encode() for i in range(count)]
    members = tuple(Member(key, Literal(b"0"), is_required=i % 3 == 0) for i, key in enumerate(keys))
    automaton = automaton_of(AnyOrder(members, (), Literal(b",")))
    optional = [i for i in range(count) if i % 3]
    required = [i for i in range(count) if i % 3 == 0]
    for _ in range(5):
        order = required + rng.sample(optional, rng.randrange(len(optional)))
        rng.shuffle(order)
        text = b",".join(keys[i] + b"0" for i in order)
        state = automaton.advance_bytes(automaton.start, text)
        assert automaton.is_accepting(automaton.advance_bytes(state, b"."))
        again = rng.choice(order)
        assert not automaton.advance_bytes(state, b"," + keys[again])
        begun = automaton.advance_bytes(automaton.start, b",".join(keys[i] + b"0" for i in order if i != required[-1]))
        assert not automaton.advance_bytes(begun, b".")
        assert automaton.min_bytes(begun) == len(b"," + keys[required[-1]] + b"0.")
    whole = b",".join(key + b"0" for key in keys)
    assert not automaton.advance_bytes(automaton.advance_bytes(automaton.start, whole), b",")


STRING = Embed(JsonStrings(any_text()))
PAIRS = tuple(
    Member(f'"{key}":'.encode(), body, is_required=key in ("name", "id"))
    for key, body in (
        ("name", STRING),
        ("names", Alternation((STRING, Literal(b"null")))),
        ("id", Embed(JsonStrings(of_length(2, 5)))),
        ("the", Sequence((Literal(b"["), Rule("s"), Literal(b"]")))),
    )
)
OPEN_OBJECT = Sequence(
    (
        Literal(b"{"),
        AnyOrder(PAIRS, (Sequence((Embed(JsonStrings(of_length(1, 3))), Literal(b":0"))),), Literal(b",")),
        Literal(b"}"),
    )
)
PIECES = [
    b'{"',
    b'":"',
    b'","',
    b'"name',
    b'name":',
    b'names"',
    b'id":"',
    b'"},"',
    b'","the":',
    b'":[{"',
    b"},{",
    b'"}',
]


def test_masks_are_those_of_brute_force() -> None:
    vocabulary = small_vocabulary(PIECES + [t for t in mixed_vocabulary(300, seed=3).tokens if len(t) > 1])
    constraint = Compiler(vocabulary).from_grammar(Grammar({"s": OPEN_OBJECT}, "s"))
    rng = random.Random(5)
    for _ in range(6):
        cursor = constraint.cursor()
        for _ in range(40):
            row = cursor.row()
            assert np.array_equal(row, brute_force(constraint, cursor.state))
            plain = [
                t for t in allowed_ids(row) if vocabulary.tokens[t].isascii() and b"\\" not in vocabulary.tokens[t]
            ]
            if not cursor.advance(rng.choice(plain)) or cursor.is_finished:
                break


@pytest.mark.parametrize("slack", [0, 1, 7, 30])
def test_every_budget_from_the_minimum_on_suffices(slack: int) -> None:
    constraint = Compiler(small_vocabulary(PIECES)).from_grammar(Grammar({"s": OPEN_OBJECT}, "s"))
    minimum = constraint.min_tokens()
    assert 1 < minimum <= len('{"name":"","id":"aa"}')
    for seed in range(20):
        text, complete = random_walk(constraint, random.Random(seed), minimum + slack)
        assert complete and text.startswith(b"{") and text.endswith(b"}")
