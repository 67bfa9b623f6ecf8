"""Rules that begin with themselves, hidden and indirect cycles included: the language stays what it was."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintTooLarge, EmptyLanguage, InvalidGrammar
from phloem.fsm import Compiler
from phloem.fsm.network.expression import (
    Alternation,
    AnyOrder,
    Expression,
    Grammar,
    Member,
    Repeat,
    Rule,
    Sequence,
    literal,
    optional,
)

from ..vocabularies import BYTES, accepts, words

COMPILER = Compiler(BYTES)
LONGEST = 4
WORDS = words("ab", LONGEST)

# a body is a list of alternatives, an alternative a list of (symbol, quantifier)
Body = list[list[tuple[str, str]]]


def language(text: str) -> set[str]:
    try:
        constraint = COMPILER.grammar(text)
    except EmptyLanguage:
        return set()
    return {word for word in WORDS if accepts(constraint, word)}


def written(grammar: dict[str, Body]) -> str:
    def alternative(symbols: list[tuple[str, str]]) -> str:
        return " ".join(symbol + quantifier for symbol, quantifier in symbols) or '""'

    return "\n".join(f"{name} ::= {' | '.join(map(alternative, body))}" for name, body in grammar.items())


def derived(grammar: dict[str, Body]) -> set[str]:
    """The short texts of `root`, by applying the rules to what they have written until nothing is new."""
    known: dict[str, set[str]] = {name: set() for name in grammar}

    def joined(left: set[str], right: set[str]) -> set[str]:
        return {a + b for a in left for b in right if len(a + b) <= LONGEST}

    def texts(symbol: str, quantifier: str) -> set[str]:
        once = known[symbol] if symbol in known else {symbol.strip('"')}
        if quantifier == "?":
            return once | {""}
        if quantifier == "{2}":
            return joined(once, once)
        total = {""} if quantifier == "*" else set(once)
        while quantifier and not (more := total | joined(total, once)) <= total:
            total = more
        return total

    while True:
        before = sum(map(len, known.values()))
        for name, body in grammar.items():
            for symbols in body:
                found = {""}
                for symbol, quantifier in symbols:
                    found = joined(found, texts(symbol, quantifier))
                known[name] |= found
        if sum(map(len, known.values())) == before:
            return known["root"]


@st.composite
def grammars(draw: st.DrawFn) -> dict[str, Body]:
    names = ["root", "x", "y"][: draw(st.integers(1, 3))]
    symbols = st.sampled_from([*names, *names, '"a"', '"b"', '""', '"ab"'])
    quantified = st.tuples(symbols, st.sampled_from(["", "", "", "?", "*", "+", "{2}"]))
    body = st.lists(st.lists(quantified, max_size=3), min_size=1, max_size=3)
    return {name: draw(body) for name in names}


@settings(max_examples=200, deadline=None)
@given(grammars())
def test_random_grammars_write_what_their_rules_derive(grammar: dict[str, Body]) -> None:
    try:
        found = language(written(grammar))
    except ConstraintTooLarge:  # where everything may be empty and means everything else, readings multiply
        assume(False)
    assert found == derived(grammar), written(grammar)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("root ::= root [a] | [b]", "root ::= [b] [a]*"),
        ("root ::= root root | [a]", "root ::= [a]+"),
        ("root ::= root [a] root | [b]", "root ::= [b] ([a] [b])*"),
        ("root ::= [a] root | root [b] root | [b]", "root ::= [a]* [b] ([b] [a]* [b])*"),
        ("root ::= x [a] | [b]\nx ::= y [b]\ny ::= root | [a]", "root ::= ([b] | [a] [b] [a]) ([b] [a])*"),
        ("root ::= [a]? root [b] | [a]", 'root ::= [a] | [a]? root "b"'),
        ("root ::= x\nx ::= root | [a]", "root ::= [a]"),
    ],
)
def test_cycles_mean_what_a_loop_means(text: str, same: str) -> None:
    assert language(text) == language(same) != set()


@pytest.mark.parametrize("first", [Rule("s"), Sequence((optional(literal("x")), Rule("t"))), Repeat(Rule("t"), 1, 3)])
def test_a_grammar_built_by_hand_may_begin_with_itself(first: Expression) -> None:
    rules: dict[str, Expression] = {"s": Alternation((Sequence((first, literal("a"))), literal("b"))), "t": Rule("s")}
    constraint = COMPILER.from_grammar(Grammar(rules, "s"))
    assert all(constraint.accepts(text) for text in (b"b", b"ba", b"baa"))
    assert not any(constraint.accepts(text) for text in (b"", b"a", b"ab"))


def test_members_in_any_order_are_no_way_to_begin_with_oneself() -> None:
    members = AnyOrder((Member(b"a", Rule("s")),), (), literal(","))
    rules: dict[str, Expression] = {"s": Alternation((members, literal("b")))}
    assert COMPILER.from_grammar(Grammar(rules, "s")).accepts(b"aab")
    others = AnyOrder((), (Rule("s"),), literal(","))
    with pytest.raises(InvalidGrammar, match="begins with itself"):
        COMPILER.from_grammar(Grammar({"s": Alternation((others, literal("b")))}, "s"))


def test_operators_do_not_pile_up_states() -> None:
    """Every reading of 1+1+1+… is the same future, so the states repeat, however long the text is."""
    for text in (
        'root ::= root "+" root | root "*" root | "-" root | "(" root ")" | [0-9]+',
        'root ::= sum\nsum ::= sum "+" term | term\nterm ::= term "*" atom | atom\natom ::= [0-9]+ | "(" sum ")"',
    ):
        constraint = COMPILER.grammar(text)
        assert accepts(constraint, "1+2*3" + "+(1*2+3)" * 3)
        seen = constraint.automaton.num_states
        assert accepts(constraint, "1+2*3" + "+(1*2+3)" * 300)
        assert constraint.automaton.num_states == seen


def test_a_rule_that_writes_nothing_else_is_empty() -> None:
    with pytest.raises(EmptyLanguage):
        COMPILER.grammar('root ::= root "a"')


def test_a_cycle_that_is_too_large_is_refused() -> None:
    rules = [f"x{n} ::= x{(n + 1) % 80} [a] | [b]" for n in range(80)]
    with pytest.raises(ConstraintTooLarge, match="begin with one another"):
        COMPILER.grammar("root ::= x0\n" + "\n".join(rules))
