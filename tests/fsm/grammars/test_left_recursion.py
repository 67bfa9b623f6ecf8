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
from .earley import ContextFree, Node

COMPILER = Compiler(BYTES)
WORDS = words("ab", 4)

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


TIMES = {"": (1, 1), "?": (0, 1), "*": (0, None), "+": (1, None), "{2}": (2, 2)}


def derived(grammar: dict[str, Body]) -> set[str]:
    """The short texts of `root`, read by Earley's algorithm."""

    def node(symbol: str, quantifier: str) -> Node:
        once = ("rule", symbol) if symbol in grammar else ("text", symbol.strip('"'))
        return ("times", once, *TIMES[quantifier])

    rules: dict[str, Node] = {
        name: ("any", [("all", [node(*one) for one in symbols]) for symbols in body]) for name, body in grammar.items()
    }
    free = ContextFree(rules, "root")
    readings = {} if free.is_empty else {word: free.begin().after(word.encode()) for word in WORDS}
    return {word for word, reading in readings.items() if reading and reading.is_accepting}


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
    "text",
    [
        'root ::= root "a" root | "b"',
        'root ::= root "a" root | ""',
        'root ::= "a" root | root "b" root | "b"?',
        'root ::= x "a" | "b"\nx ::= y "b"\ny ::= root | "a"',
        'root ::= "a"? root "b" | "a"',
        'root ::= x\nx ::= root | "a"',
    ],
)
def test_cycles_write_what_their_rules_derive(text: str) -> None:
    grammar: dict[str, Body] = {}
    for name, _, body in (line.partition(" ::= ") for line in text.splitlines()):
        options = [option.split() for option in body.split(" | ")]
        grammar[name] = [[(word.rstrip("?"), "?" * word.count("?")) for word in words] for words in options]
    assert language(text) == derived(grammar) != set()


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
