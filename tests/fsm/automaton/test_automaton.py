"""Networks and automata against languages written out in full."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintTooLarge, EmptyLanguage, InvalidGrammar
from phloem.fsm.automaton.automaton import Automaton
from phloem.fsm.foresight import forced_bytes
from phloem.fsm.network.expression import (
    EMPTY_TEXT,
    NOTHING,
    Alternation,
    ByteSet,
    Embed,
    Expression,
    Grammar,
    Literal,
    Repeat,
    Rule,
    Sequence,
    literal,
    optional,
)
from phloem.fsm.network.network import build_network
from phloem.fsm.text.dfa import Dfa
from phloem.fsm.text.extent import all_texts
from phloem.fsm.text.literals import literal_dfa
from phloem.fsm.vocabulary.vocabulary import Vocabulary

from ..vocabularies import BYTES, allowed_ids, constraint_of, small_vocabulary


def any_byte_of(members: bytes) -> ByteSet:
    return ByteSet(sum(1 << byte for byte in members))


RULES: dict[str, Expression] = {
    "pair": Alternation((literal("xy"), literal("x"))),
    "deep": Sequence((Rule("pair"), optional(literal("!")), Rule("pair"))),
}
leaves = st.one_of(
    st.sampled_from(["a", "ab", "abc", "b", "bcd", "c", "é", ""]).map(literal),
    st.sampled_from([b"ab", b"bc\xff", b"c\xff", b"x"]).map(any_byte_of),
    st.sampled_from(["pair", "deep"]).map(Rule),
    st.sets(st.sampled_from(["a", "ab", "é", "bb"]), min_size=1).map(lambda words: Embed(literal_dfa(words))),
    st.just(NOTHING),
)
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: Sequence(tuple(parts))),
        st.lists(inner, min_size=1, max_size=6).map(lambda options: Alternation(tuple(options))),
        st.builds(lambda item, low, more: Repeat(item, low, low + more), inner, st.integers(0, 5), st.integers(0, 4)),
    ),
    max_leaves=6,
)
MAX_TEXTS = 3000


class TooMany(Exception):
    """The language is too large to be written out."""


def written_out(expression: Expression) -> frozenset[bytes]:
    """Every text of a finite expression."""
    if isinstance(expression, Literal):
        return frozenset({expression.data})
    if isinstance(expression, Rule):
        return written_out(RULES[expression.name])
    if isinstance(expression, Embed):
        language = expression.language
        assert isinstance(language, Dfa)
        return frozenset(text.encode() for text in all_texts(language, 100) or [])
    if isinstance(expression, Alternation):
        return frozenset().union(*map(written_out, expression.options))
    if isinstance(expression, Sequence):
        return joined([written_out(part) for part in expression.parts])
    if isinstance(expression, Repeat):
        assert expression.maximum is not None
        item = written_out(expression.item)
        counts = range(expression.minimum, expression.maximum + 1)
        return frozenset().union(*(joined([item] * count) for count in counts))
    return frozenset(bytes([byte]) for byte in range(256) if expression.mask >> byte & 1)


def joined(parts: list[frozenset[bytes]]) -> frozenset[bytes]:
    found = frozenset({b""})
    for part in parts:
        longer: set[bytes] = set()
        for beginning in found:  # not all at once: nine million texts take a gigabyte
            longer.update(beginning + end for end in part)
            if len(longer) > MAX_TEXTS:
                raise TooMany
        found = frozenset(longer)
    return found


def written_out_or_skip(expression: Expression) -> frozenset[bytes]:
    try:
        found = written_out(expression)
    except TooMany:
        assume(False)
    assume(len(found) <= MAX_TEXTS)
    return found


PIECES = [b"ab", b"abc", b"bc", b"bcd", b"aa", b"xx", b"xy", b"xyx", b"x!", "é".encode(), b"a\xc3", b"\xffb", b"ab"]


def common_beginning(texts: set[bytes]) -> bytes:
    first, last = min(texts), max(texts)
    return next((first[:n] for n in range(len(first), 0, -1) if last.startswith(first[:n])), b"")


@settings(max_examples=120, deadline=None)
@given(expressions)
def test_masks_costs_and_forced_bytes_are_those_of_the_written_out_language(expression: Expression) -> None:
    language = written_out_or_skip(expression)
    vocabulary = small_vocabulary(PIECES)
    grammar = Grammar({**RULES, "start": expression}, "start")
    if not language:
        with pytest.raises(EmptyLanguage):
            constraint_of(grammar, vocabulary)
        return
    constraint = constraint_of(grammar, vocabulary)
    seen: set[bytes] = set()
    pending = [constraint.cursor()]
    texts = {id(pending[0]): b""}
    while pending and len(seen) < 40:
        cursor = pending.pop()
        text = texts[id(cursor)]
        rest = {whole[len(text) :] for whole in language if whole.startswith(text)}
        begun = {whole[:end] for whole in rest for end in range(1, len(whole) + 1)}
        expected = [i for i, token in enumerate(vocabulary.tokens) if token in begun]
        expected += list(vocabulary.eos_ids) if b"" in rest else []
        assert allowed_ids(cursor.row()) == expected, text
        shortest = min(map(len, rest))
        numbers = {fewest_tokens(r, vocabulary) for r in rest if len(r) == shortest}
        assert cursor.constraint.automaton.min_bytes(cursor.state) == shortest, text
        assert cursor.min_tokens_to_accept() in numbers, text
        assert cursor.is_accepting == (b"" in rest)
        assert forced_bytes(cursor) == (b"" if b"" in rest else common_beginning(rest)), text
        for token_id in expected:
            following = text + vocabulary.tokens[token_id]
            if token_id not in vocabulary.eos_ids and following not in seen:
                seen.add(following)
                fork = cursor.fork()
                assert fork.advance(token_id)
                texts[id(fork)] = following
                pending.append(fork)


def fewest_tokens(text: bytes, vocabulary: Vocabulary) -> int:
    counts = [0] * (len(text) + 1)
    for end in range(1, len(text) + 1):
        counts[end] = 1 + min(counts[end - len(t)] for t in vocabulary.tokens if t and text[:end].endswith(t))
    return counts[-1]


def accepts(grammar: Grammar, text: bytes) -> bool:
    automaton = Automaton(build_network(grammar), BYTES)
    state = automaton.advance_bytes(automaton.start, text)
    return bool(state) and automaton.is_accepting(state)


BRACKETS = Grammar(
    {"s": Repeat(Alternation((Sequence((literal("("), Rule("s"), literal(")"))), literal("x"))), 0, None)}, "s"
)


def test_recursion_may_be_ten_thousand_deep() -> None:
    automaton = Automaton(build_network(BRACKETS), BYTES)
    state = automaton.advance_bytes(automaton.start, b"(" * 10_000)
    assert automaton.min_bytes(state) == 10_000
    assert automaton.is_accepting(automaton.advance_bytes(state, b")" * 10_000))


def test_right_recursion_needs_no_stack() -> None:
    grammar = Grammar({"s": Alternation((Sequence((literal("a"), Rule("s"))), literal("b")))}, "s")
    automaton = Automaton(build_network(grammar), BYTES)
    automaton.advance_bytes(automaton.start, b"a" * 1000 + b"b")
    assert automaton.num_states < 10


def test_an_undefined_rule_is_named() -> None:
    with pytest.raises(InvalidGrammar, match="'nowhere'"):
        build_network(Grammar({"s": Rule("nowhere")}, "s"))


@pytest.mark.parametrize(
    ("minimum", "maximum"), [(0, 0), (0, 1), (2, 2), (3, 7), (0, 5), (5, None), (0, None), (1, 1000)]
)
def test_repetition_counts_exactly(minimum: int, maximum: int | None) -> None:
    item = Sequence((literal("a"), any_byte_of(b"0123456789")))
    grammar = Grammar({"s": Sequence((Repeat(item, minimum, maximum), literal(".")))}, "s")
    for count in {0, 1, 2, 3, 4, 5, 6, 7, 8, 999, 1000, 1001}:
        expected = count >= minimum and (maximum is None or count <= maximum)
        assert accepts(grammar, b"a7" * count + b".") == expected, count


def test_repetition_of_what_may_be_empty_ends() -> None:
    grammar = Grammar({"s": Sequence((Repeat(optional(literal("a")), 3, 50), literal("b")))}, "s")
    assert accepts(grammar, b"b") and accepts(grammar, b"a" * 50 + b"b") and not accepts(grammar, b"a" * 51 + b"b")
    endless = Grammar({"s": Sequence((Repeat(Repeat(literal("a"), 0, None), 2, None), literal("b")))}, "s")
    assert accepts(endless, b"b") and accepts(endless, b"aaaaab")


def test_many_literals_share_their_beginnings() -> None:
    words = [f"{number:05d}".encode() for number in range(0, 20_000, 3)]
    grammar = Grammar({"s": Alternation((*map(Literal, words), EMPTY_TEXT, literal("")))}, "s")
    network = build_network(grammar)
    assert network.num_nodes < 2 * len(words)
    automaton = Automaton(network, BYTES)
    for word in (b"00000", b"00003", b"19998"):
        assert automaton.is_accepting(automaton.advance_bytes(automaton.start, word))
    assert automaton.advance_bytes(automaton.start, b"00001") == 0
    assert automaton.num_states < 60


def test_memory_is_bounded() -> None:
    grammar = Grammar({"s": Sequence((Repeat(Alternation((literal("a"), literal("b"))), 0, 10**6), literal("c")))}, "s")
    automaton = Automaton(build_network(grammar), BYTES, max_bytes=1 << 20)
    with pytest.raises(ConstraintTooLarge, match="1024 KiB"):
        automaton.advance_bytes(automaton.start, b"ab" * 100_000)
