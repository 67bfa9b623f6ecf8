"""The network: its costs against slow, obvious definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintTooLarge, EmptyLanguage
from phloem.fsm.columns import K_BYTE, K_CALL, K_LOOP, K_RETURN, K_SPLIT, NEVER
from phloem.fsm.network.expression import Alternation, Expression, Grammar, Literal, Repeat, Rule, Sequence
from phloem.fsm.network.network import Network, build_network

NAMES = ("a", "b", "c", "d")


def expressions() -> st.SearchStrategy[Expression]:
    """Small expressions over the rules of `NAMES`."""
    leaves: st.SearchStrategy[Expression] = st.one_of(
        st.builds(Literal, st.sampled_from((b"", b"x", b"yz"))), st.builds(Rule, st.sampled_from(NAMES))
    )

    def larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        some = st.lists(inner, min_size=1, max_size=3).map(tuple)
        bounds = st.sampled_from(((0, 1), (0, None), (1, None), (2, 2), (0, 5), (4, 6), (7, None)))
        return st.one_of(
            some.map(Sequence),
            some.map(Alternation),
            st.builds(lambda item, pair: Repeat(item, *pair), inner, bounds),
        )

    return st.recursive(leaves, larger, max_leaves=6)


GRAMMARS = st.fixed_dictionaries({name: expressions() for name in NAMES}).map(lambda rules: Grammar(rules, "a"))


def shortest(expression: Expression, known: dict[str, float]) -> float:
    """The length of the shortest text of an expression, given that of the rules."""
    if isinstance(expression, Literal):
        return len(expression.data)
    if isinstance(expression, Rule):
        return known[expression.name]
    if isinstance(expression, Sequence):
        return sum(shortest(part, known) for part in expression.parts)
    if isinstance(expression, Alternation):
        return min((shortest(option, known) for option in expression.options), default=float("inf"))
    assert isinstance(expression, Repeat)
    return expression.minimum * shortest(expression.item, known) if expression.minimum else 0


def shortest_of_rules(grammar: Grammar) -> dict[str, float]:
    """The length of the shortest text of each rule, by going round until nothing changes."""
    known = dict.fromkeys(grammar.rules, float("inf"))
    while True:
        after = {name: shortest(body, known) for name, body in grammar.rules.items()}
        if after == known:
            return known
        known = after


def costs_by_definition(network: Network) -> list[float]:
    """`Network.cost`, by going round all nodes until nothing changes."""
    cost = [float("inf")] * network.num_nodes
    kind, arg, following = network.kind.tolist(), network.arg.tolist(), network.next_node.tolist()
    while True:
        before = cost.copy()
        for node in range(len(cost)):
            if kind[node] == K_RETURN:
                cost[node] = 0
            elif kind[node] == K_SPLIT:
                options = network.options[arg[node] : arg[node] + following[node]]
                cost[node] = min(cost[option] for option in options.tolist())
            elif kind[node] == K_CALL:
                cost[node] = cost[arg[node]] + cost[following[node]]
            elif kind[node] == K_LOOP:
                item, minimum, _, _ = network.loops[arg[node]]
                cost[node] = cost[following[node]] + (minimum * cost[item] if minimum else 0)
            else:
                assert kind[node] == K_BYTE
                cost[node] = 1 + cost[following[node]]
        if cost == before:
            return cost


@settings(deadline=None)
@given(GRAMMARS)
def test_costs_are_the_shortest_ways(grammar: Grammar) -> None:
    known = shortest_of_rules(grammar)
    try:
        network = build_network(grammar)
    except EmptyLanguage:
        assert known["a"] == float("inf")
        return
    assert network.cost[network.start] == known["a"]
    expected = [NEVER if cost == float("inf") else cost for cost in costs_by_definition(network)]
    assert np.minimum(network.cost, NEVER).tolist() == expected
    assert all(cost == network.cost[item] for item, _, _, cost in network.loops)


def test_a_chain_of_many_rules_in_either_direction_is_built() -> None:
    count = 20_000
    for order in (range(count), range(count - 1, -1, -1)):
        rules: dict[str, Expression] = {
            str(i): Alternation((Sequence((Literal(b"x"), Rule(str(i + 1)))), Sequence((Rule(str(i + 1)),))))
            for i in order
        }
        rules[str(count)] = Literal(b"end")
        assert build_network(Grammar(rules, "0")).cost.max() == 4


def test_deep_expressions_are_built_without_recursion() -> None:
    deep: Expression = Literal(b"a")
    for turn in range(30_000):
        deep = Sequence((deep, Literal(b"b"))) if turn % 2 else Repeat(deep, 0, 1)
    assert build_network(Grammar({"s": deep}, "s")).num_nodes > 30_000


@settings(deadline=None)
@given(st.lists(st.binary(max_size=4).map(lambda data: bytes(byte % 3 for byte in data)), min_size=4, max_size=14))
def test_many_literals_share_their_beginnings_and_spell_just_themselves(literals: list[bytes]) -> None:
    network = build_network(Grammar({"a": Alternation(tuple(map(Literal, literals)))}, "a"))
    assert sorted(spelt(network, network.start)) == sorted(set(literals))
    beginnings = {literal[: end + 1] for literal in literals for end in range(len(literal))}
    assert (network.kind == K_BYTE).sum() == len(beginnings)


def spelt(network: Network, node: int) -> list[bytes]:
    """All ways from a node to the end of its rule, there being no loops."""
    kind, arg, following = (int(array[node]) for array in (network.kind, network.arg, network.next_node))
    if kind == K_RETURN:
        return [b""]
    if kind == K_BYTE:
        return [bytes((arg,)) + rest for rest in spelt(network, following)]
    assert kind == K_SPLIT
    return [text for option in network.options[arg : arg + following] for text in spelt(network, int(option))]


def test_a_network_of_too_many_positions_is_refused() -> None:
    with pytest.raises(ConstraintTooLarge, match="positions"):
        build_network(Grammar({"s": Literal(b"a" * (1 << 21))}, "s"))
    with pytest.raises(ConstraintTooLarge, match="positions"):
        build_network(Grammar({"s": Sequence((Rule("t"),) * (1 << 20)), "t": Literal(b"a")}, "s"))
