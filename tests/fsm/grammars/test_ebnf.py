"""Grammar text: spellings that `test_random_ebnf` does not make, depth, mistakes named with their place."""

from __future__ import annotations

import itertools
import re

import pytest

from phloem.errors import InvalidGrammar
from phloem.fsm import Compiler

from ..vocabularies import BYTES, accepts

COMPILER = Compiler(BYTES)


def test_deep_nesting_needs_no_recursion_of_ours() -> None:
    constraint = COMPILER.grammar('root ::= "[" root "]" | "x"')
    assert accepts(constraint, "[" * 3000 + "x" + "]" * 3000)
    assert not accepts(constraint, "[" * 3000 + "x" + "]" * 2999)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (r'root ::= "a\n\"b" | [\x41-C] [^x-z\]]', r'a\n"b|[A-C][^x-z\]]'),
        ('root ::= [a-] [-a] "" [a-c-e]', r"[a\-][\-a][abc\-e]"),
        ("root ::= .{2}", r"(?s:..)"),
        ("root ::= [ab]{2,3} [c]{1,} [d]?", r"[ab]{2,3}c{1,}d?"),
        ("root ::= # nothing yet\n   [a]+ # some\n | b\nb ::= [b] |", r"a+|b?"),
        (r'root ::= "é" [à-ü] "\u20AC\U0001F600"', "é[à-ü]€\U0001f600"),
    ],
)
def test_spellings_mean_what_the_regex_says(text: str, pattern: str) -> None:
    constraint = COMPILER.grammar(text)
    samples = [*map("".join, itertools.product("aCbcd-]\nxé", repeat=2))]
    samples += ["", "a", 'a\n"b', "abcc", "aacd", "bbbccd", "abab", "eé€", "éá€\U0001f600"]
    samples += ["a-e", "-aa", "--c", "aaa", "bb"]
    for sample in samples:
        assert accepts(constraint, sample) == bool(re.fullmatch(pattern, sample)), (text, sample)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no rule"),
        ("start ::= [a]", "no rule 'root'"),
        ("root ::= item", "column 10: the rule 'item' is not defined"),
        ("root ::= [a]\nroot ::= [b]", "line 2, column 1: the rule 'root' is defined twice"),
        ('root ::= "select"i', "column 18: the rule 'i' is not defined; this notation does not ignore case"),
        ('root ::= "a', "column 10: a literal that is not closed"),
        ("root ::= [a", "column 10: a class that is not closed"),
        ("root ::= (([a])", "column 10: this parenthesis is not closed"),
        ("root ::= [a])", "column 13: this parenthesis was not opened"),
        ("root ::= *", "column 10: '\\*' has nothing to repeat"),
        ("root ::= [a]**", "column 14: '\\*' has nothing to repeat"),
        ("root ::= [a]{3,2}", "at least 3 and at most 2"),
        ("root ::= [a]{999999}", "more than 100000"),
        (f"root ::= [a]{{1,{'9' * 5000}}}", "more than 100000"),
        ("root ::= [z-a]", "column 10: the class"),
        ("root ::= []", "column 10: the class is empty"),
        ("[a] root ::= [b]", "belongs to no rule"),
        ("root ::= @", "column 10: '@' is not expected"),
        (r"root ::= [\d]", r"line 1, column 11: .d is no escape"),
        ("root ::= <think> [a]", "tokens cannot be matched"),
        ("root ::= 'a'", "double quotes"),
        ("root ::= TokenTagDispatch([a])", "structural tags"),
        ("root ::= " + "(" * 100 + "[a]" + ")" * 100, "nested more than 64"),
        (r'root ::= "\uD800"', "not a character"),
        ('root ::= "a\ud800"', "line 1, column 12: half a surrogate pair"),
    ],
)
def test_mistakes_are_named_with_their_place(text: str, words: str) -> None:
    with pytest.raises(InvalidGrammar, match=words):
        COMPILER.grammar(text)
