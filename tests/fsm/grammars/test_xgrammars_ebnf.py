"""What XGrammar's EBNF adds: look-aheads, which must be implied, and tags in free text; judged by enumeration."""

from __future__ import annotations

import itertools
import random

import pytest

from phloem.errors import InvalidGrammar
from phloem.fsm import Compiler

from ..vocabularies import BYTES

COMPILER = Compiler(BYTES)
WORDS = [text for n in range(6) for text in map("".join, itertools.product("ab", repeat=n))]


def quoted(words: list[str]) -> str:
    return " | ".join(f'"{word}"' for word in words)


def some(rng: random.Random, at_most: int) -> list[str]:
    return ["".join(rng.choices("ab", k=rng.randint(1, at_most))) for _ in range(rng.randint(1, 3))]


def test_a_look_ahead_is_taken_if_all_that_follows_begins_with_it_and_changes_nothing() -> None:
    rng, num_taken = random.Random(4), 0
    for _ in range(150):
        body, follows, ahead = some(rng, 2), some(rng, 3), some(rng, 2)
        grammar = f'root ::= "b" r ({quoted(follows)}) | t\nt ::= "a" r ({quoted(follows)})\nr ::= {quoted(body)}'
        is_implied = all(any(text.startswith(word) for word in ahead) for text in follows)
        try:
            hinted = COMPILER.grammar(f"{grammar} (= {quoted(ahead)})")
        except InvalidGrammar as error:
            assert not is_implied and "the look-ahead of 'r' is not what always follows it" in str(error)
            continue
        num_taken += 1
        plain = COMPILER.grammar(grammar)
        assert is_implied
        assert [hinted.accepts(text.encode()) for text in WORDS] == [plain.accepts(text.encode()) for text in WORDS]
    assert num_taken > 30


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ('root ::= a "b"?\na ::= "a" (= "b")', "line 2, column 11: .* the text may end there"),
        ('root ::= a "bc"\na ::= "a" (= "bb")', "line 2, column 11: .* 'bc' may follow"),
        ('root ::= a "b"\na ::= "a" (= "b" a)', "line 2, column 11: .* 'b' may follow"),
        ('root ::= a a "b"\na ::= "a" (= "b")', "line 2, column 11: .* 'a' may follow"),
        ('root ::= "a" (= "b") "b"', "line 1, column 22: a look-ahead stands at the end of a rule, and once"),
        ('root ::= ("a" (= "b")) "b"', "line 1, column 15: a look-ahead stands at the end"),
        ('root ::= (= "b")', "line 1, column 10: a look-ahead stands at the end of a rule, after all else"),
        ('root ::= "a" (= b)', "line 1, column 17: the rule 'b' is not defined"),
        ('root ::= "a" (= "b"', "line 1, column 14: this parenthesis is not closed"),
    ],
)
def test_other_look_aheads_are_refused_with_their_place(grammar: str, message: str) -> None:
    with pytest.raises(InvalidGrammar, match=message):
        COMPILER.grammar(grammar)


def test_look_aheads_of_rules_that_repeat_call_themselves_or_are_not_used() -> None:
    for grammar, text in [
        ('root ::= (item ","){2,3} "x"\nitem ::= "a"* (= ",")', b"a,aa,,x"),
        ('root ::= a root | "b"\na ::= "a" (= root)', b"aaab"),
        ('root ::= "(" root ")" | n\nn ::= [0-9]+ (= ")"*)', b"((12))"),
        ('root ::= "a"\nunused ::= "b" (= "c")', b"a"),
    ]:
        assert COMPILER.grammar(grammar).accepts(text)


def dispatched(text: str, tags: list[tuple[str, list[str]]], excludes: list[str], loops: bool) -> bool:
    """Read aloud: free text up to the first tag, then a text of its rule, then the same again or the end."""
    for end in range(len(text) + 1):
        read = text[:end]
        if any(read.endswith(word) for word in excludes):
            return False
        bodies = [body for tag, words in tags if read.endswith(tag) for body in words]
        if any(read.endswith(tag) for tag, _ in tags):
            rests = [text[end + len(body) :] for body in bodies if text[end:].startswith(body)]
            return any(dispatched(rest, tags, excludes, loops) if loops else rest == "" for rest in rests)
    return True


def test_tags_in_free_text_mean_what_is_read_aloud() -> None:
    rng, num_refused = random.Random(8), 0
    for _ in range(60):
        words = rng.sample(["aa", "ab", "ba", "bb"], 4)
        tags = [(word, some(rng, 2)) for word in words[: rng.randint(1, 2)]]
        excludes, loops = rng.choice(([], words[3:], some(rng, 3))), rng.random() < 0.6
        rules = "\n".join(f"r{index} ::= {quoted(words)}" for index, (_, words) in enumerate(tags))
        listed = [f'("{tag}", r{index})' for index, (tag, _) in enumerate(tags)]
        listed += [] if loops else ["loop_after_dispatch = false"]
        listed += [f"excludes=({', '.join(map(quoted, [[word] for word in excludes]))})"] if excludes else []
        texts = [tag for tag, _ in tags]
        try:
            constraint = COMPILER.grammar(f'root ::= "b" TagDispatch ({", ".join(listed)}) # a comment\n{rules}')
        except InvalidGrammar as error:
            assert "so which of both counts is not certain" in str(error)
            others = {*texts, *excludes}
            assert any(one in other for one in others for other in others if one != other) or {*texts} & {*excludes}
            num_refused += 1
            continue
        for text in WORDS:
            expected = text[:1] == "b" and dispatched(text[1:], tags, excludes, loops)
            assert constraint.accepts(text.encode()) == expected, (listed, rules, text)
    assert num_refused < 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ('("", r)', "column 23: TagDispatch: a tag is text in double quotes that is not empty"),
        ('("a", "b")', "column 28: TagDispatch: a tag goes with the name of a rule"),
        ('("a", q)', "column 28: the rule 'q' is not defined"),
        ('("a", r),', "column 31: TagDispatch: expected ',' and another argument"),
        ('("a", r, ', "column 29: TagDispatch: expected '\\)' here"),
        ('("a", r), stop_eos=true', "column 32: TagDispatch: expected tags, .* loop_after_dispatch and excludes"),
        ('("a", r), excludes=("b", 5)', "column 47: TagDispatch: one of excludes is text"),
        ('("a", r), loop_after_dispatch=yes', "column 52: TagDispatch: loop_after_dispatch is true or false"),
        ('("a", r), ("ba", r)', "column 10: 'a' stands in 'ba'"),
        ('("\\d", r)', "column 24: .* is no escape"),
    ],
)
def test_tags_that_are_written_wrongly_are_refused_with_their_place(arguments: str, message: str) -> None:
    with pytest.raises(InvalidGrammar, match=f"line 1, {message}"):
        COMPILER.grammar(f'root ::= TagDispatch({arguments})\nr ::= "b"')
