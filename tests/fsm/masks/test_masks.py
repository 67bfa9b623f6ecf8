"""Mask rows, bit for bit, against every token tried by hand and against the `regex` module's partial matching."""

from __future__ import annotations

import random

import numpy as np
import pytest
import regex

from phloem.errors import ConstraintTooLarge
from phloem.fsm import Compiler, Constraint
from phloem.fsm.any_json import json_grammar
from phloem.fsm.masks.mask_store import MaskStore
from phloem.fsm.network.expression import Alternation, Embed, Expression, Grammar, Literal, Repeat, Sequence, literal
from phloem.fsm.regex.regex import regex_to_dfa
from phloem.fsm.text.dfa import any_text, of_length
from phloem.fsm.text.json_strings import JsonStrings

from ..vocabularies import allowed_ids, brute_force, mixed_vocabulary, small_vocabulary

VOCABULARY = mixed_vocabulary(4000, seed=7)
STRING = JsonStrings(any_text())


def text_of(pattern: str, *, search: bool = False) -> Expression:
    return Embed(JsonStrings(regex_to_dfa(pattern, search=search)))


def plain(pattern: str) -> Expression:
    return Embed(regex_to_dfa(pattern))


NUMBER = r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?"
EXPRESSIONS: dict[str, Expression] = {
    "any string": Embed(STRING),
    "any string, then more": Sequence((Embed(STRING), literal(","), Embed(STRING), literal("}"))),
    "at most 12 characters": Embed(JsonStrings(of_length(0, 12))),
    "60 to 400 characters": Sequence((Embed(JsonStrings(of_length(60, 400))), literal("]"))),
    "3 to 70 characters": Sequence((Embed(JsonStrings(of_length(3, 70))), literal("]"))),
    "a character that is no line break": text_of("^.{2,30}$", search=True),
    "words in search": text_of(r"\w+[\\](\w+\.)*\w+\.dll", search=True),
    "an address": Sequence((text_of(r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$", search=True), literal(","))),
    "lower case, unquoted": Sequence((plain("[a-z]+"), literal("."), plain("[a-z ]*"))),
    "nearly anything, then comma": Sequence((plain("[^,]*"), literal(","), plain("[^!]+"), literal("!"))),
    "no comma, then comma": Sequence((Repeat(Sequence((plain("[^,]*"), literal(","))), 2, 3), literal("!"))),
    "Unicode words": plain(r"\p{L}+( \p{L}+)*"),
    "Cyrillic": plain("[\u0410-\u044f ]{1,20}"),
    "dates or text": Alternation((text_of(r"\d{4}-\d\d-\d\d"), Embed(JsonStrings(of_length(0, 5))), literal("null"))),
    "a key but these": Sequence((text_of(r"(?!name$|names$|n$|title$).*"), literal(":"))),
    "one word many times": Repeat(Alternation((literal("the "), literal("then "), plain("t{1,9}"))), 0, 40),
    "numbers": Sequence((plain(NUMBER), Alternation((literal(","), literal("}"))))),
}


def compiled(expression: Expression) -> Constraint:
    return Compiler(VOCABULARY).from_grammar(Grammar({"s": expression}, "s"))


def states_of(constraint: Constraint, seed: int, count: int) -> list[int]:
    """States on random walks, with a liking for ordinary characters so that texts grow long."""
    rng = random.Random(seed)
    states = [constraint.automaton.start]
    cursor = constraint.cursor()
    for _ in range(count * 4):
        choices = [t for t in allowed_ids(cursor.row()) if t not in constraint.vocabulary.eos_ids]
        plain = [t for t in choices if constraint.vocabulary.tokens[t].isalnum()]
        if not choices or cursor.num_consumed > 30:
            cursor = constraint.cursor()
            continue
        cursor.advance(rng.choice(plain if plain and rng.random() < 0.7 else choices))
        states.append(cursor.state)
    unique = list(dict.fromkeys(states))
    rng.shuffle(unique)
    return unique[:count]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_rows_are_what_brute_force_says(name: str) -> None:
    constraint = compiled(EXPRESSIONS[name])
    for state in states_of(constraint, seed=len(name), count=12):
        expected = brute_force(constraint, state)
        found = constraint.caches.masks.row(state).bits
        wrong = [constraint.vocabulary.tokens[t] for t in allowed_ids(found ^ expected)]
        assert not wrong, wrong[:10]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_rows_within_a_budget_hold_what_can_be_finished(name: str) -> None:
    """What bytes settle is always there, what passes the bound never, and something leads on.

    From the bound on, where not only the edge is left, it is all that the bound does not pass.
    """
    constraint = compiled(EXPRESSIONS[name])
    automaton, tokens = constraint.automaton, constraint.vocabulary.tokens
    for state in states_of(constraint, seed=1, count=3):
        full = allowed_ids(constraint.caches.masks.row(state).bits)
        after = {t: automaton.advance(state, t) for t in full if tokens[t]}
        bounds = {t: constraint.caches.completions.bound(target) for t, target in after.items()}
        bound = constraint.caches.completions.bound(state)
        assert bound == 0 or min(bounds.values()) < bound
        costs = {t: automaton.min_bytes(target) for t, target in after.items()}
        assert all(bounds[t] <= costs[t] for t in after)
        for limit in (
            bound - 2,
            bound - 1,
            bound,
            bound + 1,
            automaton.min_bytes(state),
            automaton.min_bytes(state) + 40,
        ):
            found = set(allowed_ids(constraint.caches.budget.row(state, limit)))
            ends = {t for t in full if not tokens[t]}
            assert found <= ends | {t for t in after if bounds[t] <= limit}
            assert found >= ends | {t for t in after if costs[t] <= limit}
            if limit >= bound:
                assert found == ends | {t for t in after if bounds[t] <= limit}
            elif limit == bound - 1:
                assert any(bounds[t] <= limit for t in found - ends) or not after or not bound
            assert constraint.caches.budget.is_free(state, limit) <= (found == set(full))


@pytest.mark.parametrize("name", ["3 to 70 characters", "an address", "dates or text", "no comma, then comma"])
def test_known_rows_are_fresh_rows(name: str) -> None:
    constraint = compiled(EXPRESSIONS[name])
    states = states_of(constraint, seed=2, count=40)
    kept = [constraint.caches.masks.row(state).bits.copy() for state in states]
    for state, row in zip(states, kept, strict=True):
        apart = MaskStore(VOCABULARY, 1 << 30)
        constraint.caches.masks.store = apart
        assert np.array_equal(constraint.caches.masks.fresh_row(state).bits, row)


def test_dropped_rows_are_made_again() -> None:
    grammar = json_grammar("value", "compact")
    roomy, tight = Compiler(VOCABULARY), Compiler(VOCABULARY, max_cached_bytes=40_000)
    for compiler in (roomy, tight):
        compiler.from_grammar(grammar)
    a, b = roomy.from_grammar(grammar).cursor(), tight.from_grammar(grammar).cursor()
    rng = random.Random(5)
    for _ in range(200):
        assert np.array_equal(a.row(), b.row())
        token_id = rng.choice(allowed_ids(a.row()))
        assert a.advance(token_id) == b.advance(token_id)
        if a.is_finished:
            a, b = a.constraint.cursor(), b.constraint.cursor()


PATTERNS = [
    r"[0-9]{4}-(0[1-9]|1[0-2])", r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", r"(yes|no|maybe)",
    r"[a-z]+@[a-z]+\.(com|org)", r"(the |a )?(cat|dog|caterpillar)s?", r"[^\n]{1,5}", r"\w+( \w+){0,2}",
    r'"([^"\\]|\\["\\n])*"', r"é+[中文]?", r"(a|ab)(c|bcd)(d*)", r"[A-F0-9]{2}(:[A-F0-9]{2}){2}", r".*end",
    r"(?:x{2,3}y?){1,4}", r'\{\"k\": (true|false)\}',
]  # fmt: skip
PIECES = [
    b"the ", b" cat", b"cat", b"dogs", b"20", b"2024", b"-1", b"yes", b"may", b"be", b"no", b".com", b"@a",
    b"ab", b"abc", b"bcd", b'\\"', b'"a', b"a b", "é".encode(), "éé".encode(), "中".encode(), "文".encode(),
    b"en", b"end", b"xx", b"xxy", b"yx", b'{"k', b'": t', b"rue}", b"AF", b"F:0", b"0.", b"\n", b" a",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_rows_agree_with_partial_matching(pattern: str) -> None:
    vocabulary = small_vocabulary(PIECES)
    oracle = regex.compile(pattern)
    constraint = Compiler(vocabulary).regex(pattern)
    rng = random.Random(len(pattern))
    for _ in range(12):
        cursor, text = constraint.cursor(), ""
        for _ in range(8):
            row = set(allowed_ids(cursor.row()))
            whole = [t for t, token in enumerate(vocabulary.tokens) if token and is_text(token)]
            expected = {t for t in whole if oracle.fullmatch(text + vocabulary.tokens[t].decode(), partial=True)}
            assert row & set(whole) == expected, text
            assert (vocabulary.eos_ids[0] in row) == bool(oracle.fullmatch(text))
            if not expected:
                break
            token_id = rng.choice(sorted(expected))
            cursor.advance(token_id)
            text += vocabulary.tokens[token_id].decode()


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_rows_are_read_only_and_shared_by_equal_states() -> None:
    constraint = compiled(Alternation((Literal(b"ab"), Literal(b"ba"))))
    row = constraint.cursor().row()
    assert row is constraint.cursor().row()
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 1


@pytest.mark.parametrize("name", ["any string, then more", "one word many times", "numbers", "no comma, then comma"])
def test_rows_made_in_parts_are_rows_made_at_once(name: str) -> None:
    whole, parts = compiled(EXPRESSIONS[name]), compiled(EXPRESSIONS[name])
    one, other = whole.cursor(), parts.cursor()
    rng = random.Random(3)
    num_attempts = 0
    for _ in range(12):
        row = other.row_soon(1000, 5)
        while row is None:
            num_attempts += 1
            row = other.row_soon(1000, 5)
        assert np.array_equal(one.row(), row)
        choices = [t for t in allowed_ids(row) if t not in VOCABULARY.eos_ids]
        if not choices:
            break
        token_id = rng.choice(choices)
        assert one.advance(token_id) and other.advance(token_id)
    assert num_attempts


def test_a_row_that_is_never_ready_is_refused() -> None:
    cursor = Compiler(VOCABULARY).regex(r"((a{1,9}){1,9}b?){1,9}").cursor()
    with pytest.raises(ConstraintTooLarge, match="repetitions"):
        while cursor.row_soon(1000, -1) is None:
            pass


def test_too_many_ways_at_once_are_refused() -> None:
    with pytest.raises(ConstraintTooLarge, match="at once"):
        Compiler(VOCABULARY).regex("((a{0,99}b?){99}c?){900}").cursor().row()


@pytest.mark.parametrize(
    "pattern", ["a*", "[ab]*", "[a\u2028]*", "[aé]*", r"[^b]*", r"[^b\u2028]*", r"[a\u2000-\u206f]*", r"\w*"]
)
def test_tokens_that_end_within_a_character_count_as_what_may_become_of_it(pattern: str) -> None:
    """In small sub-trees below an ASCII character, nothing else of the characters beyond ASCII being there."""
    cut = [b"a\xe2\x80", b"aa\xe2", b"aaa\xe2\x80", b"aaaa\xf0\x9f", b"aab\xe2\x80", b"ab\xc3", b"abb\xe2\x80\xa8"]
    constraint = Compiler(small_vocabulary(cut)).regex(pattern)
    cursor = constraint.cursor()
    assert np.array_equal(cursor.row(), brute_force(constraint, cursor.state))


@pytest.mark.parametrize(
    "pattern",
    [
        r"\w{2,9}",
        r"\p{L}+\d?",
        r"[^,:&\s]+:\w*",
        "[a-z é日]{1,7}",
        r"\D\s*x",
        "[^\u2028]{3}\u2028",
        "[^x]{0,4}[x\u2029—]?",
        "[\x01-\xff]{1,5}",
    ],
)
def test_kinds_of_characters_and_bounds_on_their_number_are_met_exactly(pattern: str) -> None:
    """Sub-trees of one kind are taken whole, those of safe characters up to a length; also where characters are cut."""
    cut = [b"abc\xe2\x80", b"abcd\xe2", b"ab\xe2\x80", b"\xe6\x97\xa5\xe6\x97", "za\u2028".encode(), "²½٣Ⅷ".encode()]
    vocabulary = small_vocabulary(sorted({token for token in VOCABULARY.tokens if len(token) > 1} | set(cut)))
    constraint = Compiler(vocabulary).regex(pattern)
    cursor, rng = constraint.cursor(), random.Random(3)
    for _ in range(5):
        row = cursor.row()
        assert np.array_equal(row, brute_force(constraint, cursor.state))
        going_on = [token for token in allowed_ids(row) if token not in vocabulary.eos_ids]
        if not going_on:
            break
        cursor.advance(rng.choice(going_on))
