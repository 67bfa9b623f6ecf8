"""Keywords in any case, by the hundred: the same texts as Lark, as `re`, and as before they shared their beginnings."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from phloem.fsm import Compiler
from phloem.fsm.compile_time import NO_LIMIT
from phloem.fsm.grammars.lark import lark_to_grammar

from ..vocabularies import BYTES, accepts, random_walk, words
from .test_lark import check_short_texts, judge, parses

COMPILER = Compiler(BYTES)


@pytest.mark.parametrize(
    ("text", "alphabet"),
    [
        ('start: ("a"i | "ab"i | "ba") N\nN: /[ab]+/', "abAB"),
        ('start: ("a"i | "ab"i | "ba"i) N ","?\nN: /[abAB]+/\n%ignore " "', "abA ,"),
        ('start: (K N)+\nK: "a"i | "ab"i\nN: /[ab]+/\n%ignore " "', "abB "),
        ('start: (k | N)+\nk: "a"i | "ab" | "aB"\nN: /b+/i', "abAB"),
        ('start: k "a"?\nk: "a"i | "aab"i | N\nN: /aa*/\n%ignore / +/', "abA "),
        ('start: n (("a"i | "e"i) n)*\nn: N\nN: /1+(e1+)?/i\n%ignore " "', "1eEa "),
        ('start: ("if"i | "i" | "fi"i) ("f"i | N)\nN: /[fi]+/i', "ifIF"),
        ('start: "k"i "s"i | "ß"i', "kKſsß"),
        ('start: N? "ba"\nN: /b+/\n%ignore " "', "ab "),  # nothing, or a text after which nothing can stand
    ],
)
def test_keywords_mean_what_lark_parses(text: str, alphabet: str) -> None:
    check_short_texts(text, words(alphabet, 4 if len(alphabet) > 3 else 6))


def test_random_keywords_next_to_names_mean_what_lark_parses() -> None:
    rng = random.Random(5)
    samples = words("abA ", 4)
    for _ in range(8):
        spelt = [
            "".join(rng.choice("ab") for _ in range(rng.randint(1, 3))) + rng.choice(('"', '"i')) for _ in range(5)
        ]
        a, b, c, d, e = (f'"{keyword}' for keyword in spelt)
        text = f"""
            start: {rng.choice(("k N", "(k N)+", "N (k N)*", "(k | N)+", f"k {c} N?", "x+"))}
            k: {a} | {b} | {rng.choice((c, "K", f"{c} {d}"))}
            x: {a} N | {b} | {a} {c} N
            K: {d} | {e}
            N: {rng.choice(("/[ab]+/", "/[abA]+/", "/b+/", "/a(ba)*/i"))}
            {rng.choice(('%ignore " "', "%ignore / +/", ""))}
        """
        check_short_texts(text, samples)


@pytest.mark.parametrize("size", [3, 40])
def test_keywords_of_an_ebnf_mean_what_re_matches(size: int) -> None:
    rng = random.Random(size)
    samples = words("abAB", 5)
    for _ in range(6):
        keywords = {"".join(rng.choice("ab") for _ in range(rng.randint(1, 4))) for _ in range(size)}
        spelt = {word: " ".join(f"[{letter}{letter.upper()}]" for letter in word) for word in keywords}
        rules = "\n".join(f"{word}-k ::= {body}" for word, body in spelt.items())
        tail, pattern = rng.choice((("[ab]*", "[ab]*"), ('"b"? [aB]+', "b?[aB]+"), ('("a" | "b" "A")*', "(?:a|bA)*")))
        options = " | ".join(f"{word}-k {tail}" if rng.random() < 0.7 else f"{word}-k" for word in keywords)
        chosen = re.findall(r"(\w+)-k( )?(\S)?", options.replace(" |", "|"))
        expected = "|".join(f"(?i:{word}){pattern if gap else ''}" for word, gap, _ in chosen)
        constraint = COMPILER.grammar(f"root ::= {options}\n{rules}")
        found = re.compile(expected)
        wrong = [sample for sample in samples if accepts(constraint, sample) != bool(found.fullmatch(sample))]
        assert wrong == [], (options, wrong[:5])


def test_hundreds_of_keywords_are_few_positions() -> None:
    """What costs time is counted: rules, and automata over text, which each keyword once was."""
    letters = ["".join(letters) for letters in itertools.product("abcdefgh", repeat=3)][:400]
    named = "\n".join(f'K{number}: "{word}x"i' for number, word in enumerate(letters))
    text = f"start: (k N)+\nk: {' | '.join(f'K{n}' for n in range(400))}\n{named}\nN: /[a-z]+/\n%ignore / +/"
    grammar = lark_to_grammar(text, NO_LIMIT)
    assert len(grammar.rules) < 30
    network = COMPILER.grammar(text).automaton.network
    assert len(network.texts) < 20 and network.num_nodes < 4000


def test_walks_through_hundreds_of_keywords_parse() -> None:
    text = (
        "start: ("
        + " | ".join(f'"{a}{b}"i' for a in "abcdefghij" for b in "klmnopqrst")
        + ' | N)+\nN: /[a-t]+/\n%ignore " "'
    )
    constraint, parser, rng = COMPILER.grammar(text), judge(text), random.Random(1)
    for _ in range(5):
        data, ended = random_walk(constraint, rng, constraint.min_tokens() + 12)
        assert ended and parses(parser, data.decode()), data
